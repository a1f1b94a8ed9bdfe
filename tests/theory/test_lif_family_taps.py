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

from cvxsnn import ConvexProblem, LIFLayer, WitnessSet, build_dictionary, reconstruct, roll_out, solve
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
    verify_strong_duality,
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
    places = [(0, 1), (1, 2)]
    one, other = (sample(family_with([place], 0.5, False, False), 3, seed=0).layers[0] for place in places)
    tensors = {name: torch.cat((value, other.tensors()[name]), -1) for name, value in one.tensors().items()}
    family = family_of(WitnessSet((one.with_tensors(tensors),), Provenance("pretrained")))
    assert family == family_with(places, 0.5, False, False)


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
    assert np.array_equal(np.sign(network(torch.from_numpy(inputs)).detach().numpy()[:, 0]), targets)
    assert solution.certificate.scope == "complete"
    assert verify_strong_duality(problem, inputs, width=2).largest_difference <= 1e-9


def test_what_no_enumeration_is_about_is_refused_in_one_sentence():
    family = LIFFamily(0.5, taps=Taps([0, 1], [0, 3], 2))
    for refused, message in [
        (lambda: enumerate_lif(family, np.ones((2, 3, 2))), "delays shorter than the sequences of 3 steps, got 3"),
        (lambda: family.on(np.ones((2, 4, 1))), "sequences of 2 features"),
        (lambda: complete_dictionary(np.ones((2, 4, 2)), family, (2,)), "no lower layers"),
        (lambda: family.on(Sequences(np.ones((2, 4, 2)), [4, 3])), "sequences of equal length"),
    ]:
        with pytest.raises(InvalidInputError, match=message) as caught:
            refused()
        assert_one_sentence(caught.value)
