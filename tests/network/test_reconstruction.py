"""From a convex solution back to a spiking network."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import CASES, FORMS, NEURONS, READOUTS, Case, draw_inputs
from tolerances import ROUNDING

import cvxsnn.network.reconstruction
from cvxsnn import (
    ConvexProblem,
    InvalidInputError,
    LIFLayer,
    ThresholdLayer,
    WitnessSet,
    build_dictionary,
    reconstruct,
    roll_out,
    solve,
)
from cvxsnn.core.errors import BudgetError
from cvxsnn.network import rescale_hidden, weight_decay_objective
from cvxsnn.network.weight_decay import weight_decay
from cvxsnn.witnesses import Provenance

SCALES = [2.0**power for power in (4, 0, -1, -8, -30)]


def rows_of(values):
    return values.reshape(-1, values.shape[-1])


def read_spikes(network, inputs):
    """All steps of the neurons that are read."""
    return roll_out(network.layers, inputs, "all")[..., network.neurons]


def witness_spikes(solution, inputs):
    """All steps of the witnesses behind the support."""
    dictionary = solution.problem.dictionary
    return roll_out(dictionary.witnesses.layers, inputs, "all")[..., dictionary.witness_of_atom[solution.support]]


def assert_scores_close(found, expected):
    torch.testing.assert_close(rows_of(found), rows_of(expected), rtol=ROUNDING, atol=ROUNDING)


@given(case=CASES)
@settings(max_examples=60)
def test_rebuilt_spikes_are_the_dictionarys_on_any_sequence(case):
    solution = case.solve()
    support, dictionary = solution.support, solution.problem.dictionary
    for form, width in FORMS:
        network = reconstruct(solution, form, width)
        # The full form reads every witness, the others those of the support, and one of no weight if there are none.
        chosen = dictionary.witness_of_atom[support] if form == "full" else slice(len(support) * width)
        for inputs in (case.inputs, draw_inputs(13, 9, case.seed + 1)):
            expected = witness_spikes(solution, inputs).repeat_interleave(width, -1)
            assert torch.equal(read_spikes(network, inputs)[..., chosen], expected)
        columns = dictionary.columns(support).repeat_interleave(width, 1)
        assert torch.equal(rows_of(network.features(case.inputs))[:, chosen], columns)


@given(case=CASES)
@settings(max_examples=60)
def test_outputs_are_those_of_the_solution_on_any_sequence(case):
    solution = case.solve()
    witnesses, fresh = solution.problem.dictionary.witnesses, draw_inputs(13, 5, case.seed + 1)
    dictionary = build_dictionary(witnesses, fresh, case.readout)
    coef = torch.zeros(dictionary.n_atoms, solution.coef.shape[1], dtype=torch.float64)
    coef.index_add_(0, dictionary.atom_of_witness[solution.problem.dictionary.witness_of_atom], solution.coef)
    for form, width in FORMS:
        network = reconstruct(solution, form, width)
        with torch.no_grad():
            assert_scores_close(network(case.inputs), solution.scores())
            assert_scores_close(network(fresh), dictionary.matvec(coef) + solution.intercept)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("neuron", NEURONS)
def test_the_parallel_form_is_the_papers_algorithm(neuron, width):
    case = Case(neuron=neuron, loss="softmax", ratio=0.1, seed=3)
    solution = case.solve()
    network = reconstruct(solution, "parallel", width)
    support = solution.support
    assert 2 < len(support) < solution.problem.dictionary.n_atoms
    assert network.n_subnetworks == len(support)
    assert torch.equal(network.weight, solution.coef[support].repeat_interleave(width, 0) / width)
    assert torch.equal(network.intercept, solution.intercept)
    # Each subnetwork has the lower layer of its atom's own, and its own atom ``width`` times.
    witnesses = solution.problem.dictionary.witnesses
    subnetworks, neurons = witnesses.locate(solution.problem.dictionary.witness_of_atom[support])
    assert torch.equal(network.layers[0].weight, witnesses.layers[0].weight[subnetworks])
    assert network.hidden == (6, width if neuron == "lif" else 8 + width - 1)
    for k in range(len(support)):
        own = network.neurons[k * width : (k + 1) * width]
        assert set(own.tolist()) <= set(range(k * network.hidden[-1], (k + 1) * network.hidden[-1]))
        columns = network.layers[1].weight[k][:, own - k * network.hidden[-1]]
        expected = witnesses.layers[1].weight[subnetworks[k], :, neurons[k]]
        assert torch.equal(columns, expected[:, None].expand(-1, width))


@given(case=CASES)
@settings(max_examples=60)
def test_the_compact_form_has_no_neuron_without_need(case):
    solution = case.solve()
    network = reconstruct(solution)
    witnesses = solution.problem.dictionary.witnesses
    subnetworks, _ = witnesses.locate(solution.problem.dictionary.witness_of_atom[solution.support])
    assert network.n_subnetworks == max(1, len(subnetworks.unique()))
    assert all(found <= sampled for found, sampled in zip(network.hidden, case.hidden, strict=True))
    if case.neuron == "lif" and len(subnetworks):
        assert network.hidden[-1] == subnetworks.bincount().max()
        for lower, upper in pairwise(network.layers):
            # some subnetwork needs them all, or none needs any
            assert max(1, int((upper.weight != 0).any(2).sum(1).max())) == lower.width


@given(case=CASES)
@settings(max_examples=20)
def test_neurons_that_fill_up_the_compact_form_never_fire(case):
    solution = replace(case, neuron="lif").solve()
    network = reconstruct(solution)
    is_read = torch.zeros(network.n_subnetworks * network.hidden[-1], dtype=torch.bool)
    is_read[network.neurons] = True
    heard = [(upper.weight != 0).any(2).flatten() for upper in network.layers[1:]]
    for depth, is_live in enumerate([*heard, is_read], 1):
        assert not roll_out(network.layers[:depth], case.inputs, "all")[..., ~is_live].any()


def test_the_compact_form_of_separate_chains_keeps_the_chain_alone():
    # Four chains of two neurons; input n drives chain n, and the targets follow chain 2.
    layers = tuple(LIFLayer(torch.eye(4)[None], bias=-0.5, decay=0.0, threshold=0.0) for _ in range(2))
    inputs = torch.randint(0, 2, (40, 1, 4), generator=torch.Generator().manual_seed(0))
    dictionary = build_dictionary(WitnessSet(layers, Provenance("pretrained")), inputs)
    network = reconstruct(solve(ConvexProblem(dictionary, inputs[:, 0, 2].numpy(), "squared", 0.01, intercept=True)))
    assert network.hidden == (1, 1)
    assert torch.equal(network.layers[0].weight.flatten(), torch.tensor([0.0, 0.0, 1.0, 0.0]))


def test_the_compact_form_keeps_whom_a_recurrent_neuron_hears_of():
    # A ring: neuron j hears of neuron j − 1, and of the inputs only neuron 0 does; two further neurons are idle.
    recurrent = torch.zeros(1, 5, 5)
    recurrent[0, 0, 1] = recurrent[0, 1, 2] = 1.0
    weight = torch.zeros(1, 1, 5)
    weight[0, 0, 0] = 1.0
    layer = ThresholdLayer(weight, bias=-0.5, recurrent_weight=recurrent)
    inputs = torch.randint(0, 2, (40, 3, 1), generator=torch.Generator().manual_seed(0))
    dictionary = build_dictionary(WitnessSet((layer,), Provenance("pretrained")), inputs)
    network = reconstruct(solve(ConvexProblem(dictionary, inputs[:, 0, 0].numpy(), "squared", 0.01, intercept=True)))
    assert network.hidden == (3,)
    assert torch.equal(network.features(inputs).flatten(), inputs[:, 0, 0].double())


@pytest.mark.parametrize(("form", "width"), FORMS)
@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", READOUTS)
def test_an_empty_support_gives_a_constant_network(readout, neuron, form, width):
    case = Case(neuron=neuron, readout=readout, ratio=1.5, loss="logistic")
    solution = case.solve()
    assert len(solution.support) == 0
    network = reconstruct(solution, form, width)
    with torch.no_grad():
        assert torch.equal(rows_of(network(case.inputs)).unique(dim=0), solution.intercept[None])
        if form != "full":
            assert network.n_subnetworks == 1


@pytest.mark.parametrize("width", [1, 3])
@given(case=CASES)
@settings(max_examples=30)
def test_weight_decay_falls_to_the_convex_value_as_the_membranes_shrink(width, case):
    case = replace(case, penalty="group")
    solution = case.solve()
    network = reconstruct(solution, "parallel", width)
    values = [weight_decay_objective(rescale_hidden(network, s), solution.problem, case.inputs) for s in SCALES]
    primal, dual = solution.certificate.primal, solution.certificate.dual
    rounding = ROUNDING * max(1.0, primal)
    assert all(upper >= lower - rounding for upper, lower in pairwise(values))
    assert all(value >= dual - rounding for value in values)
    assert all(value >= primal - rounding for value in values)
    limit = weight_decay_objective(rescale_hidden(network, 2.0**-60), solution.problem, case.inputs)
    assert limit == pytest.approx(primal, rel=ROUNDING, abs=ROUNDING)


@given(case=CASES, width=st.sampled_from([1, 2]))
@settings(max_examples=20)
def test_weight_decay_of_several_outputs_is_at_most_the_l1_value(case, width):
    case = replace(case, loss="squared", n_outputs=2)
    solution = case.solve()
    network = rescale_hidden(reconstruct(solution, "parallel", width), 2.0**-60)
    value = weight_decay_objective(network, solution.problem, case.inputs)
    assert value <= solution.certificate.primal + ROUNDING * max(1.0, solution.certificate.primal)


def test_weight_decay_counts_every_parameter_of_a_hand_made_network():
    # loss 0, s = 0.1, one neuron that is read: 0.1 / 2 · (2·|w_out| + 2·|w_2| + w_1² + b² + U_thr² + U_0² of both)
    lower = LIFLayer(torch.full((1, 1, 1), 2.0), bias=0.5, threshold=3.0, initial_membrane=0.25, decay=0.5)
    upper = LIFLayer(torch.full((1, 1, 1), -4.0), bias=5.0, threshold=1.0, decay=0.5)
    inputs = torch.tensor([[[1.0]], [[-2.0]]])
    dictionary = build_dictionary(WitnessSet((lower, upper), Provenance("pretrained")), inputs)
    assert dictionary.columns().flatten().tolist() == [1.0, 1.0]
    solution = solve(ConvexProblem(dictionary, np.array([1.0, 1.0]), "squared", 0.1))
    network = reconstruct(solution, "parallel")
    weight = float(network.weight.detach())
    hidden = 2 * 4 + 4 + 0.25 + 9 + 0.0625 + 25 + 1
    expected = 0.5 * (weight - 1) ** 2 + 0.05 * (2 * weight + hidden)
    value = weight_decay_objective(network, solution.problem, inputs)
    assert value == pytest.approx(expected, rel=ROUNDING)


def test_weight_decay_grows_with_the_root_of_the_width():
    assert weight_decay(0.5, 1) == 0.5
    assert weight_decay(0.5, 4) == 1.0


@given(case=CASES, power=st.integers(-40, 20))
@settings(max_examples=30)
def test_rescaling_changes_no_spike(case, power):
    network = reconstruct(case.solve(), "full")
    scaled = rescale_hidden(network, 2.0**power)
    inputs = draw_inputs(13, 7, case.seed + 1)
    assert torch.equal(read_spikes(scaled, inputs), read_spikes(network, inputs))
    assert torch.equal(scaled(inputs), network(inputs))
    assert torch.equal(scaled.layers[-1].weight, network.layers[-1].weight * 2.0**power)


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, 0.1, float("inf"), float("nan")])
def test_rescaling_by_anything_but_a_power_of_two_is_refused(scale):
    with pytest.raises(InvalidInputError, match="scale to be a power of two, got"):
        rescale_hidden(reconstruct(Case().solve()), scale)


@pytest.mark.parametrize("neuron", NEURONS)
def test_a_parallel_network_over_its_budget_is_refused_before_it_is_built(monkeypatch, neuron):
    solution = Case(neuron=neuron).solve()
    network = reconstruct(solution, "parallel", 2)
    n_numbers = sum(v.numel() for layer in network.layers for n, v in layer.tensors().items() if n.endswith("weight"))
    # what is built is counted, give or take the copies of recurrent neurons
    monkeypatch.setattr(cvxsnn.network.reconstruction, "_MAX_NUMBERS", 2 * n_numbers)
    reconstruct(solution, "parallel", 2)
    monkeypatch.setattr(cvxsnn.network.reconstruction, "_MAX_NUMBERS", n_numbers - 1)
    monkeypatch.setattr(LIFLayer, "take", None)
    monkeypatch.setattr(ThresholdLayer, "take", None)
    with pytest.raises(BudgetError, match=rf"but {len(solution.support)} subnetworks .* use form='compact'"):
        reconstruct(solution, "parallel", 2)


def test_a_huge_width_is_refused():
    with pytest.raises(BudgetError, match="use form='compact'"):
        reconstruct(Case().solve(), "parallel", 10**9)


def test_a_plain_array_has_no_neurons_to_rebuild():
    rng = np.random.default_rng(0)
    problem = ConvexProblem(rng.integers(0, 2, (20, 5)), rng.normal(size=20), "squared", 0.01)
    with pytest.raises(InvalidInputError, match="built from witnesses, got one over a plain array: it has no neurons"):
        reconstruct(solve(problem))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "serial"}, "form to be one of 'compact', 'parallel', 'full', got 'serial'"),
        ({"width": 2}, "width=1 for the compact form, got 2: pass form='parallel'"),
        ({"form": "full", "width": 2}, "width=1 for the full form, got 2"),
        ({"form": "parallel", "width": 0}, "width to be a positive integer, got 0"),
    ],
)
def test_misuse_is_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        reconstruct(Case().solve(), **options)
    assert "\n" not in str(caught.value)
