"""All LIF neurons with given taps: enumerated, priced and certified."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import tap_spikes
from small_models import assert_one_sentence
from theory.families import SEEDS, as_set, columns_of, draw_parameters, draw_sequences, float_spikes, grid
from tolerances import CERTIFIED_AGAIN, PRICED, UNMISTAKABLE

from cvxsnn import (
    ConvexProblem,
    LIFLayer,
    WitnessSet,
    build_dictionary,
    delayed_witnesses,
    reconstruct,
    roll_out,
    solve,
)
from cvxsnn.convex import Objective
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.network import Proof
from cvxsnn.neurons import Taps
from cvxsnn.theory import (
    LIFFamily,
    certify_complete,
    complete_dictionary,
    enumerate_lif,
    price,
    solve_complete,
)
from cvxsnn.theory.complete_certificate import family_of
from cvxsnn.witnesses import Provenance

N_STEPS, N_SOURCES = 3, 2
PLACES = [(source, delay) for source in range(N_SOURCES) for delay in range(N_STEPS)]


def family_with(places, decay, bias, negative_threshold):
    taps = Taps([source for source, _ in places], [delay for _, delay in places], N_SOURCES)
    return LIFFamily(decay, bias, negative_threshold, taps)


GEOMETRIES = st.lists(st.sampled_from(PLACES), min_size=1, max_size=2, unique=True)
TAPPED = st.builds(family_with, GEOMETRIES, st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.booleans())
KINDS = st.sampled_from(["ties", "generic"])


def lifted(family, inputs):
    """What the taps read, by the definition."""
    values = np.zeros((*inputs.shape[:2], len(family.taps)))
    for k, (source, delay) in enumerate(zip(family.taps.source, family.taps.delay, strict=True)):
        for t in range(delay, inputs.shape[1]):
            values[:, t, k] = inputs[:, t - delay, source]
    return values


def without_taps(family):
    return LIFFamily(family.decay, family.bias, family.negative_threshold)


def draw(seed, n_samples=3, kind="ties"):
    return draw_sequences(np.random.default_rng(seed), n_samples, N_STEPS, N_SOURCES, kind)


@settings(max_examples=40)
@given(TAPPED, SEEDS, KINDS)
def test_neurons_with_taps_are_neurons_on_lifted_inputs(family, seed, kind):
    inputs = draw(seed, kind=kind)
    found, expected = enumerate_lif(family, inputs), enumerate_lif(without_taps(family), lifted(family, inputs))
    assert np.array_equal(found.spikes, expected.spikes)
    assert np.array_equal(found.parameters, expected.parameters)


@settings(max_examples=25)
@given(st.sampled_from([0.0, 0.5]), st.booleans(), SEEDS)
def test_taps_at_all_inputs_without_delay_change_nothing(decay, bias, seed):
    dense, tapped = LIFFamily(decay, bias), LIFFamily(decay, bias, taps=Taps([0, 1], [0, 0], 2))
    rng, inputs = np.random.default_rng(seed), draw(seed)
    assert np.array_equal(enumerate_lif(tapped, inputs).spikes, enumerate_lif(dense, inputs).spikes)
    assert columns_of(complete_dictionary(inputs, tapped)) == columns_of(complete_dictionary(inputs, dense))
    dual = rng.normal(size=inputs.shape[:2])
    one, other = (price(family.on(inputs), dual, max_boxes=2000) for family in (tapped, dense))
    assert (one.value, one.bound, one.n_boxes) == (other.value, other.bound, other.n_boxes)


@settings(max_examples=40)
@given(TAPPED, SEEDS, KINDS)
def test_witnesses_rolled_out_on_the_inputs_have_the_enumerated_spikes(family, seed, kind):
    inputs = draw(seed, kind=kind)
    found = enumerate_lif(family, inputs)
    layer = family.on(inputs).layer(found.parameters)
    assert (layer.n_inputs, layer.has_delays) == (N_SOURCES, True)
    assert np.array_equal(roll_out([layer], inputs, "all").numpy().transpose(2, 0, 1), found.spikes)


@settings(max_examples=40)
@given(TAPPED, SEEDS, KINDS)
def test_every_neuron_with_these_taps_has_an_enumerated_trajectory(family, seed, kind):
    rng, inputs = np.random.default_rng(seed), draw(seed)
    drawn = torch.tensor(draw_parameters(rng, family, 300, len(family.taps), kind))
    layer = family.taps.attach(
        LIFLayer(
            drawn[:, : len(family.taps)].T[None].contiguous(),
            bias=drawn[:, -2][None] if family.bias else 0.0,
            decay=family.decay,
            threshold=drawn[:, -1][None],
            weight_bits=32,
        )
    )
    spikes = tap_spikes(layer, inputs).transpose(2, 0, 1)
    assert as_set(spikes) <= as_set(enumerate_lif(family, inputs).spikes)


@pytest.mark.parametrize("readout", ["last", "all", "mean"])
@settings(max_examples=10)
@given(TAPPED, SEEDS)
def test_a_complete_dictionary_is_built_of_layers_with_taps_on_the_inputs(readout, family, seed):
    inputs = draw(seed)
    found = complete_dictionary(inputs, family, readout=readout)
    assert columns_of(found) == columns_of(
        complete_dictionary(lifted(family, inputs), without_taps(family), readout=readout)
    )
    assert found.is_complete
    assert found.witnesses.n_features == N_SOURCES
    assert Taps.of(found.witnesses.layers[0]).n_sources == N_SOURCES
    recipe = found.witnesses.provenance.recipe["family"]
    assert (recipe["decay"], recipe["taps"]["delay"]) == (family.decay, family.taps.delay)
    again = build_dictionary(found.witnesses, inputs, readout)
    assert torch.equal(again.columns(), found.columns())
    assert not again.is_complete


def test_sequences_that_taps_cannot_tell_apart_count_as_one():
    rng = np.random.default_rng(0)
    inputs = np.concatenate((rng.integers(-1, 2, (400, 3, 1)), rng.normal(size=(400, 3, 1))), axis=2)
    family = LIFFamily(0.5, taps=Taps([0], [1], 2))
    spikes = enumerate_lif(family, inputs, max_patterns=200).spikes
    assert np.array_equal(spikes, family.on(inputs).simulate(enumerate_lif(family, inputs).parameters))


@settings(max_examples=15)
@given(TAPPED, SEEDS)
def test_price_is_the_largest_of_all_neurons_with_these_taps(family, seed):
    rng, inputs = np.random.default_rng(seed), draw(seed)
    dual = rng.normal(size=inputs.shape[:2])
    found = price(family.on(inputs), dual)
    prices = np.abs((enumerate_lif(family, inputs).spikes * dual).sum((1, 2)))
    assert found.value == pytest.approx(prices.max(), rel=0, abs=PRICED)
    assert found.value <= found.bound <= prices.max() + PRICED
    spikes = float_spikes(family, grid(family, len(family.taps), 3), lifted(family, inputs))
    assert np.abs((spikes * dual).sum((1, 2))).max() <= found.bound
    if len(found.parameters):
        rolled = roll_out([family.on(inputs).layer(found.parameters[:1])], inputs, "all").numpy()[:, :, 0]
        assert abs((rolled * dual).sum()) == pytest.approx(found.value, rel=0, abs=PRICED)


@settings(max_examples=10)
@given(TAPPED, SEEDS, st.sampled_from(["last", "all"]))
def test_column_generation_finds_the_optimum_over_all_neurons_with_these_taps(family, seed, readout):
    rng, inputs = np.random.default_rng(seed), draw(seed, 5)
    targets = rng.normal(size=(5, N_STEPS) if readout == "all" else 5)
    found = solve_complete(inputs, targets, family, "squared", 0.02, readout=readout, tol=1e-6, n_start=2)
    best = solve(ConvexProblem(complete_dictionary(inputs, family, readout=readout), targets, "squared", 0.02), 1e-9)
    assert best.certificate.scope == found.certificate.scope == "complete"
    assert found.certificate.relative_gap <= 1e-6
    margin = CERTIFIED_AGAIN * max(1.0, best.certificate.primal)
    assert found.certificate.dual <= best.certificate.primal + margin
    assert best.certificate.dual <= found.certificate.primal + margin
    witnesses = found.solution.problem.dictionary.witnesses
    assert witnesses.layers[0].has_delays
    assert witnesses.n_features == N_SOURCES
    assert witnesses.provenance.recipe["family"] == family.record()
    assert str(family.taps) in str(found)


def sample(family, width, seed):
    """Sampled witnesses of a family."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((1, len(family.taps), width), generator=generator, dtype=torch.float64)
    layer = LIFLayer(weight, decay=family.decay, threshold=1.0)
    return WitnessSet((family.taps.attach(layer),), Provenance("pretrained"))


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_a_certificate_over_sampled_witnesses_covers_all_neurons_with_their_taps(readout):
    family = family_with([(0, 0), (1, 2)], 0.5, False, False)
    inputs, targets = draw(0, 6), np.random.default_rng(1).normal(size=6)
    data, objective = TrainingSet(inputs, {"y": targets}), Objective("squared", readout)
    sampled = build_dictionary(sample(family, 4, 0), inputs, readout)
    solution = solve(ConvexProblem.of(objective, sampled, data, l1_strength=0.01), 1e-9)
    found = certify_complete(Proof.of(solution, objective), data)
    assert (found.family, found.certificate.scope, found.is_finished) == (family, "complete", True)
    complete = complete_dictionary(inputs, family, readout=readout)
    assert found.prices[0].value == pytest.approx(float(complete.rmatvec(solution.dual_point).abs().max()), abs=PRICED)
    best = solve(ConvexProblem.of(objective, complete, data, l1_strength=0.01), 1e-9)
    assert found.certificate.dual <= best.certificate.primal * (1 + CERTIFIED_AGAIN)
    assert found.certificate.primal > best.certificate.primal * (1 + UNMISTAKABLE)
    # Once every neuron is among the witnesses, there is nothing to gain.
    again = certify_complete(Proof.of(best, objective), data)
    assert again.family == family
    assert again.certificate.relative_gap <= 1e-8
    assert str(again).endswith("that read only input 0 at delay 0, input 1 at delay 2")


def test_neurons_with_different_taps_belong_to_the_family_with_all_of_them():
    places = [(0, 1), (1, 2)]
    one, other = (sample(family_with([place], 0.5, False, False), 3, seed=0).layers[0] for place in places)
    tensors = {name: torch.cat((value, other.tensors()[name]), -1) for name, value in one.tensors().items()}
    family = family_of(WitnessSet((one.with_tensors(tensors),), Provenance("pretrained")))
    assert family == family_with(places, 0.5, False, False)


def test_taps_beyond_the_sequences_add_nothing_to_the_family():
    inputs, targets = draw(0, 6), np.random.default_rng(1).normal(size=6)
    data, objective = TrainingSet(inputs, {"y": targets}), Objective("squared")
    late = sample(family_with([(0, 0), (1, 2), (0, N_STEPS)], 0.5, False, False), 4, seed=0)
    solution = solve(ConvexProblem.of(objective, build_dictionary(late, inputs), data, l1_strength=0.01), 1e-9)
    found = certify_complete(Proof.of(solution, objective), data)
    assert found.family == family_with([(0, 0), (1, 2)], 0.5, False, False)
    assert found.is_finished


def test_delayed_witnesses_are_certified_over_all_neurons_with_their_taps():
    inputs, targets = draw(0, 8), np.random.default_rng(1).normal(size=8)
    data, objective = TrainingSet(inputs, {"y": targets}), Objective("squared")
    witnesses = delayed_witnesses(inputs, hidden=(6,), fan_in=2, decay=0.5, quantiles=None, seed=0)
    solution = solve(ConvexProblem.of(objective, build_dictionary(witnesses, inputs), data, l1_strength=0.05), 1e-9)
    found = certify_complete(Proof.of(solution, objective), data, max_boxes=200)
    assert found.family.taps == Taps.of(witnesses.layers[0], N_STEPS)
    assert found.certificate.dual <= found.certificate.primal


def first_last_xor(n_steps):
    """All sequences of signs, and whether the first differs from the last, as ±1."""
    signs = np.array(list(product((-1.0, 1.0), repeat=n_steps)))
    return signs[:, :, None], -signs[:, 0] * signs[:, -1]


def test_xor_of_the_first_and_the_last_step_needs_delays_where_nothing_else_remembers():
    inputs, targets = first_last_xor(4)
    dense, delayed = LIFFamily(0.0, bias=True), LIFFamily(0.0, bias=True, taps=Taps([0, 0], [0, 3], 1))
    # Some sequences of different labels look the same to every neuron without delays, whatever the read-out.
    labels = {}
    for row, label in zip(complete_dictionary(inputs, dense).columns().numpy(), targets, strict=True):
        labels.setdefault(row.tobytes(), set()).add(label)
    assert any(len(both) == 2 for both in labels.values())
    problem = ConvexProblem(complete_dictionary(inputs, delayed), targets, "squared", 0.01)
    solution = solve(problem, 1e-9)
    network = reconstruct(solution)
    assert np.array_equal(np.sign(network(torch.tensor(inputs)).detach().numpy()[:, 0]), targets)
    assert solution.certificate.scope == "complete"


def test_what_no_enumeration_is_about_is_refused_in_one_sentence():
    family = LIFFamily(0.5, taps=Taps([0, 1], [0, 3], 2))
    for refused, message in [
        (lambda: enumerate_lif(family, np.ones((2, 3, 2))), "delays shorter than the sequences of 3 steps, got 3"),
        (lambda: family.on(np.ones((2, 4, 1))), "sequences of 2 features"),
        (lambda: complete_dictionary(np.ones((2, 4, 2)), family, (2,)), "no lower layers"),
        (lambda: LIFFamily(0.5, taps=([0, 1], [0, 3], 2)), r"taps to be Taps\(source, delay, n_sources\), or None"),
        (lambda: family.on(Sequences(np.ones((2, 4, 2)), [4, 3])), "sequences of equal length"),
    ]:
        with pytest.raises(InvalidInputError, match=message) as caught:
            refused()
        assert_one_sentence(caught.value)
