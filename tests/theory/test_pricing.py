import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from theory.families import FAMILIES, SEEDS, as_set, draw_sequences
from tolerances import PRICED

from cvxsnn import build_dictionary, gaussian_witnesses
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.theory import LIFFamily, complete_dictionary, enumerate_lif, price
from cvxsnn.theory.column_generation import spread_over_steps
from cvxsnn.theory.cone_search import _Known, search_cones
from cvxsnn.theory.pricing import round_dual
from cvxsnn.witnesses import single_out

SHAPES = st.sampled_from([(1, 1, 1), (4, 1, 2), (3, 2, 1), (2, 3, 2), (3, 3, 1), (5, 2, 1)])
DUALS = st.sampled_from(["last", "all", "integers", "one sign"])


def draw_dual(rng, shape, kind):
    if kind == "integers":  # many neurons have the same price, and many prices are zero
        return rng.integers(-1, 2, shape).astype(float)
    dual = rng.normal(size=shape)
    if kind == "last":
        dual[:, :-1] = 0
    return -abs(dual) if kind == "one sign" else dual


def draw_case(family, seed, shape, kind):
    """Sequences, dual point, and the price of every trajectory."""
    rng = np.random.default_rng(seed)
    inputs = draw_sequences(rng, *shape, "ties" if seed % 3 else "generic")
    dual = draw_dual(rng, shape[:2], kind)
    return inputs, dual, np.abs((enumerate_lif(family, inputs).spikes * dual).sum((1, 2)))


@settings(max_examples=120)
@given(FAMILIES, SEEDS, SHAPES, DUALS)
def test_price_is_the_largest_of_the_enumeration(family, seed, shape, kind):
    inputs, dual, prices = draw_case(family, seed, shape, kind)
    found = price(family.on(inputs), dual)
    assert found.value == pytest.approx(prices.max(), rel=0, abs=PRICED)
    assert prices.max() - PRICED <= found.value <= found.bound <= prices.max() + PRICED


@settings(max_examples=60)
@given(FAMILIES, SEEDS, SHAPES, DUALS, st.integers(1, 20))
def test_neurons_are_returned_by_their_prices_each_once_and_the_best_first(family, seed, shape, kind, n_found):
    inputs, dual, prices = draw_case(family, seed, shape, kind)
    found = price(family.on(inputs), dual, n_found=n_found)
    assert len(found.parameters) <= n_found
    assert len(found.parameters) > 0 or prices.max() <= PRICED
    spikes = family.on(inputs).simulate(found.parameters)
    own = np.abs((spikes * dual).sum((1, 2)))
    assert np.all(np.diff(own) <= PRICED)
    assert len(as_set(spikes)) == len(spikes)
    if len(own):
        assert own[0] == pytest.approx(found.value, rel=0, abs=PRICED)
    if not family.negative_threshold:
        assert all(int(u) >= 0 for u in found.parameters[:, -1])


@settings(max_examples=60)
@given(SEEDS, st.integers(1, 3), st.booleans())
@example(0, 3, True)
@example(1, 3, True)
@example(0, 1, False)
@example(1, 1, False)
def test_the_bound_covers_what_rounding_the_dual_point_loses(seed, n_outputs, is_group):
    rng = np.random.default_rng(seed)
    dual = np.repeat(rng.random((8, 2, 1)) * 2.0 ** rng.integers(-50, 1, (8, 2, 1)), n_outputs, axis=2)
    unit = round_dual(dual)[1]
    lost = 0.25 + 0.25 * rng.random((8, 2, 1))  # all are rounded down
    dual = (np.floor(dual / unit) + lost) * unit
    found = price(LIFFamily(0.5).on(np.ones((8, 2, 1))), dual, is_group=is_group)
    sums = [sum(map(Fraction, column)) for column in dual.reshape(-1, n_outputs).T.tolist()]  # a neuron of zeros
    assert (sum(x * x for x in sums) if is_group else max(sums) ** 2) <= Fraction(found.bound) ** 2
    assert found.bound == pytest.approx(found.value, rel=n_outputs * 2.0**-46)


def test_more_than_64_neurons_are_returned_by_their_prices_and_each_once():
    rng = np.random.default_rng(0)
    inputs, dual = rng.normal(size=(40, 2, 3)), rng.normal(size=(40, 2))
    events = LIFFamily(0.5, bias=True).on(inputs)
    found = price(events, dual, n_found=120, max_boxes=2000)
    spikes = events.simulate(found.parameters)
    own = np.abs((spikes * dual).sum((1, 2)))
    assert 64 < len(found.parameters) <= 120
    assert np.all(np.diff(own) <= PRICED)
    assert len(as_set(spikes)) == len(spikes)


@settings(max_examples=60)
@given(FAMILIES, SEEDS, SHAPES, DUALS, st.sampled_from([0, 1, 2, 5]))
def test_an_interrupted_search_bounds_the_largest_price_from_both_sides(family, seed, shape, kind, max_boxes):
    inputs, dual, prices = draw_case(family, seed, shape, kind)
    found = price(family.on(inputs), dual, max_boxes=max_boxes)
    assert found.n_boxes <= max_boxes
    assert found.value - PRICED <= prices.max() <= found.bound
    late = price(family.on(inputs), dual, max_seconds=0.0)
    assert late.n_boxes == 0
    assert late.value - PRICED <= prices.max() <= late.bound


@settings(max_examples=60)
@given(FAMILIES, SEEDS, SHAPES, DUALS, st.sampled_from([0.3, 0.9, 1.0, 1.1, 3.0]))
def test_a_search_stops_at_what_is_enough_and_proves_what_it_says(family, seed, shape, kind, share):
    inputs, dual, prices = draw_case(family, seed, shape, kind)
    enough = share * prices.max()
    found = price(family.on(inputs), dual, enough=enough)
    assert found.value - PRICED <= prices.max() <= found.bound + PRICED
    # Either nothing exceeds what is enough, which is proven, or the largest is found as if nothing had been said.
    assert found.bound <= max(enough, prices.max()) + PRICED
    if share < 1:
        assert found.value == pytest.approx(prices.max(), rel=0, abs=PRICED)


@settings(max_examples=30)
@given(FAMILIES, SEEDS, SHAPES, DUALS)
def test_price_does_not_depend_on_the_sign_of_the_dual_point_and_grows_with_it(family, seed, shape, kind):
    inputs, dual, _ = draw_case(family, seed, shape, kind)
    found, other = price(family.on(inputs), dual), price(family.on(inputs), -4 * dual)
    assert other.value == pytest.approx(4 * found.value, rel=0, abs=PRICED)
    assert other.bound == pytest.approx(4 * found.bound, rel=0, abs=PRICED)


@settings(max_examples=30)
@given(FAMILIES, SEEDS)
def test_weights_of_repeated_sequences_add_up(family, seed):
    rng = np.random.default_rng(seed)
    inputs, rows = draw_sequences(rng, 3, 2, 1), rng.integers(0, 3, 7)
    dual = rng.normal(size=(7, 2))
    together = np.zeros((3, 2))
    np.add.at(together, rows, dual)
    one, many = price(family.on(inputs), together), price(family.on(inputs[rows]), dual)
    assert many.value == pytest.approx(one.value, rel=0, abs=PRICED)
    assert many.bound == pytest.approx(one.bound, rel=0, abs=PRICED)


def draw_exempt(family, seed, shape, readout, n_exempt):
    """Sequences, a dual point with some zeros, a few atoms, and the prices of all others."""
    rng = np.random.default_rng(seed)
    inputs = draw_sequences(rng, *shape, "ties" if seed % 3 else "generic")
    complete = complete_dictionary(inputs, family, readout=readout)
    dual = torch.from_numpy(rng.normal(size=complete.n_rows) * rng.integers(0, 2, complete.n_rows))
    prices = complete.rmatvec(dual[:, None])[:, 0].abs()
    # The atoms of the largest prices, and others.
    likely = prices + 0.3 * prices.max() * torch.from_numpy(rng.random(len(prices)))
    chosen = torch.argsort(likely, descending=True)[:n_exempt]
    few = build_dictionary(single_out(complete.witnesses, complete.column_of_atom[chosen]), inputs, readout)
    assert few.n_atoms == len(chosen)
    others = torch.ones(len(prices), dtype=torch.bool).index_fill_(0, chosen, False)
    events = family.on(inputs)
    largest = float(prices[others].max()) if others.any() else 0.0
    weights = spread_over_steps(dual[:, None].numpy(), readout, events)[:, :, 0]
    return events, weights / (events.n_steps if readout == "mean" else 1), few, largest


READOUTS = st.sampled_from(["last", "all", "mean"])


@settings(max_examples=120)
@given(FAMILIES, SEEDS, SHAPES, READOUTS, st.sampled_from([1, 2, 5, 20, 1000]))
def test_the_price_without_some_atoms_is_the_largest_of_all_others(family, seed, shape, readout, n_exempt):
    events, dual, few, largest = draw_exempt(family, seed, shape, readout, n_exempt)
    found = price(events, dual, exempt=few)
    assert found.value == pytest.approx(largest, rel=0, abs=PRICED)
    assert largest - PRICED <= found.value <= found.bound <= largest + PRICED
    assert found.is_finished
    # No neuron that is returned does what one of the atoms does.
    n_spikes = shape[1] if readout == "mean" else 1
    atoms = set(map(tuple, (n_spikes * few.columns().T).round().int().tolist()))
    for spikes in events.simulate(found.parameters) if len(found.parameters) else []:
        seen = {"last": spikes[:, -1], "all": spikes.flatten(), "mean": spikes.sum(1)}[readout]
        assert tuple(map(int, seen)) not in atoms


@settings(max_examples=60)
@given(FAMILIES, SEEDS, SHAPES, READOUTS, st.sampled_from([0, 1, 2, 5]), st.sampled_from([0.0, 0.5, 1.0]))
def test_an_interrupted_search_without_some_atoms_bounds_the_others(family, seed, shape, readout, max_boxes, share):
    events, dual, few, largest = draw_exempt(family, seed, shape, readout, 5)
    found = price(events, dual, exempt=few, max_boxes=max_boxes, enough=share * largest)
    assert found.value - PRICED <= largest <= found.bound


def test_a_search_without_some_atoms_returns_as_many_neurons_as_asked_for():
    rng = np.random.default_rng(0)
    inputs, dual = rng.normal(size=(8, 1, 2)), rng.normal(size=(8, 1)) * (-1.0) ** np.arange(8)[:, None]
    few = build_dictionary(gaussian_witnesses(2, (3,), decay=0.5), inputs)
    for n_found in (1, 3):
        found = price(LIFFamily(0.5, bias=True).on(inputs), dual, exempt=few, n_found=n_found)
        assert len(found.parameters) == n_found


def test_a_pulse_sees_the_boxes_and_stops_the_search():
    rng = np.random.default_rng(0)
    events, dual = LIFFamily(0.5, bias=True).on(rng.normal(size=(60, 1, 3))), rng.normal(size=(60, 1))
    whole, told = price(events, dual), []

    def pulse(n_boxes, n_open):
        told.append((n_boxes, n_open))
        return n_boxes > 0

    found = price(events, dual, pulse=pulse)
    assert not found.is_finished
    assert whole.is_finished
    assert whole.bound <= found.bound
    assert told[0] == (0, 8)  # the faces of the cube
    assert told[-1][0] == found.n_boxes < whole.n_boxes


def test_a_pattern_that_only_the_tie_at_zero_has_is_priced():
    inputs = np.array([[[1.0]], [[-1.0]]])
    found = price(LIFFamily(0.5).on(inputs), np.ones((2, 1)))
    assert found.value == 2.0
    assert price(LIFFamily(0.5).on(inputs), np.ones((2, 1)), max_boxes=0).value == 2.0


def test_a_dual_point_of_zeros_costs_nothing():
    found = price(LIFFamily(0.5).on(np.ones((2, 2, 1))), np.zeros((2, 2)))
    assert (found.value, found.bound, found.parameters.shape) == (0.0, 0.0, (0, 2))


def test_neurons_are_told_apart_by_what_they_do_on_weightless_samples():
    inputs = np.array([[[1.0], [0.0], [0.0]], [[0.0], [0.0], [-1.0]], [[2.0], [-1.0], [-1.0]]])
    family = LIFFamily(1.0)
    dual = np.zeros((3, 3))
    dual[0, 0] = 1.0
    whole = complete_dictionary(inputs, family, readout="all")
    read = whole.column_of_atom[whole.columns()[0] == 1]  # that fire at the only step with a weight
    assert len(read) > 2
    for n_exempt in range(1, len(read) + 1):
        few = build_dictionary(single_out(whole.witnesses, read[:n_exempt]), inputs, "all")
        found = price(family.on(inputs), dual, exempt=few)
        assert (found.value, found.bound) == pytest.approx((float(n_exempt < len(read)),) * 2, abs=PRICED)


def test_atoms_on_other_sequences_are_refused():
    few = build_dictionary(gaussian_witnesses(1, (4,), decay=0.5), np.ones((4, 2, 1)))
    with pytest.raises(InvalidInputError, match="on the same sequences, of 3 rows, got 4"):
        price(LIFFamily(0.5).on(np.ones((3, 2, 1))), np.ones((3, 2)), exempt=few)


def test_spikes_of_any_number_of_steps_are_told_apart():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(4, 70, 1))
    dictionary = build_dictionary(gaussian_witnesses(1, (9,), decay=0.5), inputs, "all")
    known = _Known.of(dictionary, [2, 0], 70)
    spikes = dictionary.columns(dtype=torch.bool).T.reshape(-1, 4, 70)[:, [2, 0]].numpy()
    assert len(known.atoms) == len(np.unique(spikes, axis=0)) > 1
    assert all(known.has(own @ known.digits) for own in spikes)
    for step in (0, 62, 63, 69):
        changed = spikes[0].copy()
        changed[1, step] ^= True
        assert not known.has(changed @ known.digits)


@pytest.mark.parametrize("decay", [1 / 256, 1 / 128, 3 / 256])
def test_membranes_beyond_64_bits_are_priced_exactly(decay):
    rng = np.random.default_rng(0)
    inputs = rng.integers(-40_000, 40_001, (2, 9, 1)).astype(float)
    inputs[:, 1:] = 0  # sums stay small and counts of spikes do not
    family = LIFFamily(decay, negative_threshold=True)
    spikes = enumerate_lif(family, inputs).spikes
    for _ in range(5):
        dual = rng.normal(size=(2, 9))
        found = price(family.on(inputs), dual)
        largest = np.abs((spikes * dual).sum((1, 2))).max()
        assert found.value == pytest.approx(largest, rel=0, abs=PRICED)
        assert found.bound == pytest.approx(largest, rel=0, abs=PRICED)


def test_a_bound_is_reached_by_looking_at_few_boxes():
    rng = np.random.default_rng(0)
    inputs, dual = rng.normal(size=(12, 3, 1)), rng.normal(size=(12, 3))
    family = LIFFamily(0.5, bias=True)
    found = price(family.on(inputs), dual)
    assert math.isfinite(found.bound)
    assert found.n_boxes < 20 * len(enumerate_lif(family, inputs))


@settings(max_examples=20)
@given(FAMILIES, SEEDS, SHAPES, DUALS, st.sampled_from([1, 3, 50]))
def test_cones_without_exempt_atoms_find_the_largest_price_and_each_neuron_once(family, seed, shape, kind, n_found):
    inputs, dual, prices = draw_case(family, seed, shape, kind)
    events = family.on(inputs)
    value, bound, parameters, _, is_finished = search_cones(events, dual, 0.0, 10**6, math.inf, n_found, None)
    assert value == pytest.approx(prices.max(), rel=0, abs=PRICED)
    assert prices.max() <= bound <= prices.max() + PRICED
    assert is_finished
    spikes = events.simulate(parameters)
    for side in (1, -1):  # a neuron of price zero has either sign
        own = [tuple(own.ravel()) for own in spikes if side * (own * dual).sum() > 0]
        assert len(set(own)) == len(own) <= n_found


def test_a_search_of_cones_examines_as_many_as_it_may():
    rng = np.random.default_rng(0)
    events, dual = LIFFamily(0.5, bias=True).on(rng.normal(size=(6, 2, 2))), rng.normal(size=(6, 2))
    for max_cones in (0, 1, 4):
        *_, n_cones, is_finished = search_cones(events, dual, 0.0, max_cones, math.inf, 1, None)
        assert (n_cones, is_finished) == (max_cones, False)


@pytest.mark.parametrize(
    ("family", "shape"),
    [
        (LIFFamily(3 / 256), (2, 9, 1)),
        (LIFFamily(255 / 256), (2, 9, 1)),
        (LIFFamily(3 / 256, bias=True), (3, 8, 1)),
        (LIFFamily(255 / 256), (3, 8, 2)),
        (LIFFamily(0.5), (5, 1, 3)),
    ],
)
def test_cones_of_long_integers_are_cut_exactly(family, shape):
    rng = np.random.default_rng(0)
    for _ in range(3):
        inputs, dual = rng.integers(-(2**30), 2**30, shape).astype(float), rng.normal(size=shape[:2])
        value, bound, *_ = search_cones(family.on(inputs), dual, 0.0, 1000, math.inf, 1, None)
        largest = np.abs((enumerate_lif(family, inputs).spikes * dual).sum((1, 2))).max()
        assert (value, bound) == pytest.approx((largest, largest), rel=0, abs=PRICED)
