import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import FAMILIES, SEEDS, draw_sequences
from tolerances import PRICED

from cvxsnn.theory import LIFFamily, enumerate_lif, price

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
    if len(own):
        assert own[0] == pytest.approx(found.value, rel=0, abs=PRICED)
    if not family.negative_threshold:
        assert all(int(u) >= 0 for u in found.parameters[:, -1])


@settings(max_examples=60)
@given(FAMILIES, SEEDS, SHAPES, DUALS, st.sampled_from([0, 1, 2, 5]))
def test_an_interrupted_search_bounds_the_largest_price_from_both_sides(family, seed, shape, kind, max_cones):
    inputs, dual, prices = draw_case(family, seed, shape, kind)
    found = price(family.on(inputs), dual, max_cones=max_cones)
    assert found.n_cones <= max_cones
    assert found.value - PRICED <= prices.max() <= found.bound
    late = price(family.on(inputs), dual, max_seconds=0.0)
    assert late.n_cones == 0
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
    assert found.n_cones <= price(family.on(inputs), dual).n_cones


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


def test_a_pattern_that_only_the_tie_at_zero_has_is_priced():
    inputs = np.array([[[1.0]], [[-1.0]]])
    found = price(LIFFamily(0.5).on(inputs), np.ones((2, 1)))
    assert found.value == 2.0
    assert price(LIFFamily(0.5).on(inputs), np.ones((2, 1)), max_cones=0).value == 2.0


def test_a_dual_point_of_zeros_costs_nothing():
    found = price(LIFFamily(0.5).on(np.ones((2, 2, 1))), np.zeros((2, 2)))
    assert (found.value, found.bound, found.parameters.shape) == (0.0, 0.0, (0, 2))


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


def test_a_bound_is_reached_by_looking_at_few_cones_of_many():
    rng = np.random.default_rng(0)
    inputs, dual = rng.normal(size=(12, 3, 1)), rng.normal(size=(12, 3))
    family = LIFFamily(0.5, bias=True)
    found = price(family.on(inputs), dual)
    assert math.isfinite(found.bound)
    assert found.n_cones < 2 * len(enumerate_lif(family, inputs))
