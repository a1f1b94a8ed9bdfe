"""From a convex solution back to a spiking network, and to the proof that it is optimal."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import CASES, FORMS, NEURONS, READOUTS, Case, draw_inputs
from tolerances import CERTIFIED_AGAIN, ROUNDING, UNMISTAKABLE

import cvxsnn as cs
from cvxsnn import (
    ConvexProblem,
    InvalidInputError,
    LIFLayer,
    ThresholdLayer,
    WitnessSet,
    build_dictionary,
    gaussian_witnesses,
    reconstruct,
    roll_out,
    solve,
)
from cvxsnn.convex import Objective
from cvxsnn.convex.penalties import L1
from cvxsnn.core.errors import BudgetError
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.network import Proof
from cvxsnn.witnesses import Provenance

LOSSES = ["squared", "logistic", "squared_hinge", "hinge", "softmax"]


def rows_of(values):
    return values.reshape(-1, values.shape[-1])


def read_spikes(network, inputs):
    """All steps of the neurons that are read."""
    return roll_out(network.layers, inputs, "all")[..., network.neurons]


def witness_spikes(solution, inputs):
    """All steps of the witnesses behind the support."""
    dictionary = solution.problem.dictionary
    return roll_out(dictionary.witnesses.layers, inputs, "all")[..., dictionary.column_of_atom[solution.support]]


def assert_scores_close(found, expected):
    torch.testing.assert_close(rows_of(found), rows_of(expected), rtol=ROUNDING, atol=ROUNDING)


@given(case=CASES)
@settings(max_examples=60)
def test_rebuilt_spikes_and_outputs_are_those_of_the_solution_on_any_sequence(case):
    solution = case.solve()
    support, dictionary, fresh = solution.support, solution.problem.dictionary, draw_inputs(13, 9, case.seed + 1)
    fresh_dictionary = build_dictionary(dictionary.witnesses, fresh, case.readout)
    coef = torch.zeros(fresh_dictionary.n_atoms, solution.coef.shape[1], dtype=torch.float64)
    coef.index_add_(0, fresh_dictionary.atom_of_column[dictionary.column_of_atom], solution.coef)
    outputs = {case.inputs: solution.scores(), fresh: fresh_dictionary.matvec(coef) + solution.intercept}
    for form, width in FORMS:
        network = reconstruct(solution, form, width)
        # The full form reads every witness, the others those of the support, and one of no weight if there are none.
        chosen = dictionary.column_of_atom[support] if form == "full" else slice(len(support) * width)
        for inputs, expected in outputs.items():
            spikes_of_support = witness_spikes(solution, inputs).repeat_interleave(width, -1)
            assert torch.equal(read_spikes(network, inputs)[..., chosen], spikes_of_support)
            with torch.no_grad():
                assert_scores_close(network(inputs), expected)
        columns = dictionary.columns(support).repeat_interleave(width, 1)
        assert torch.equal(rows_of(network.features(case.inputs))[:, chosen], columns)


@given(case=CASES, number=st.integers(0, 2**16))
@settings(max_examples=60)
def test_a_proof_is_about_its_own_network_and_no_other(case, number):
    solution = case.solve()
    proof = Proof.of(solution, Objective(case.loss, case.readout))
    for form in ("compact", "full"):
        network = reconstruct(solution, form)
        proof.check_network(network)
        if len(solution.support):
            row = number % len(solution.support)
            network.weight.data[row if form == "compact" else proof.support[row]] *= 1 + 2.0**-52
            with pytest.raises(InvalidInputError, match="got one with other output weights: nothing is proven"):
                proof.check_network(network)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("max_delay", [None, 3])
def test_the_parallel_form_is_the_papers_algorithm(neuron, width, max_delay):
    case = Case(neuron=neuron, loss="softmax", ratio=0.1, seed=3, max_delay=max_delay)
    solution = case.solve()
    network = reconstruct(solution, "parallel", width)
    support = solution.support
    assert 2 < len(support) < solution.problem.dictionary.n_atoms
    assert network.n_subnetworks == len(support)
    assert torch.equal(network.weight, solution.coef[support].repeat_interleave(width, 0) / width)
    assert torch.equal(network.intercept, solution.intercept)
    # Each subnetwork has the lower layer of its atom's own, and its own atom ``width`` times.
    witnesses = solution.problem.dictionary.witnesses
    subnetworks, neurons = witnesses.locate(solution.problem.dictionary.column_of_atom[support])
    assert torch.equal(network.layers[0].weight, witnesses.layers[0].weight[subnetworks])
    assert network.hidden == (6, width if neuron == "lif" else 8 + width - 1)
    for k in range(len(support)):
        own = network.neurons[k * width : (k + 1) * width]
        assert set(own.tolist()) <= set(range(k * network.hidden[-1], (k + 1) * network.hidden[-1]))
        for name in ("weight",) if max_delay is None else ("weight", "source", "delay"):
            columns = network.layers[1].tensors()[name][k][:, own - k * network.hidden[-1]]
            expected = witnesses.layers[1].tensors()[name][subnetworks[k], :, neurons[k]]
            assert torch.equal(columns, expected[:, None].expand(-1, width))


@given(case=CASES)
@settings(max_examples=60)
def test_the_compact_form_has_no_neuron_without_need(case):
    solution = case.solve()
    network = reconstruct(solution)
    witnesses = solution.problem.dictionary.witnesses
    subnetworks, _ = witnesses.locate(solution.problem.dictionary.column_of_atom[solution.support])
    assert network.n_subnetworks == max(1, len(subnetworks.unique()))
    assert all(found <= sampled for found, sampled in zip(network.hidden, case.hidden, strict=True))
    if case.neuron == "lif" and len(subnetworks):
        assert network.hidden[-1] == subnetworks.bincount().max()
        for lower, upper in pairwise(network.layers):
            # some subnetwork needs them all, or none needs any
            assert max(1, int((upper.fan_out() > 0).sum(1).max())) == lower.width


@given(case=CASES)
@settings(max_examples=20)
def test_neurons_that_fill_up_the_compact_form_never_fire(case):
    solution = replace(case, neuron="lif").solve()
    network = reconstruct(solution)
    is_read = torch.zeros(network.n_subnetworks * network.hidden[-1], dtype=torch.bool)
    is_read[network.neurons] = True
    heard = [(upper.fan_out() > 0).flatten() for upper in network.layers[1:]]
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


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("max_delay", [None, 3])
def test_a_parallel_network_over_its_budget_is_refused_before_it_is_built(monkeypatch, neuron, max_delay):
    solution = Case(neuron=neuron, max_delay=max_delay).solve()
    network = reconstruct(solution, "parallel", 2)
    n_numbers = sum(v.numel() for layer in network.layers for n, v in layer.tensors().items() if n.endswith("weight"))
    reconstruct(solution, "parallel", 2, max_weights=n_numbers)
    monkeypatch.setattr(LIFLayer, "take", None)
    monkeypatch.setattr(ThresholdLayer, "take", None)
    with pytest.raises(BudgetError, match=rf"but {len(solution.support)} subnetworks .* use form='compact'"):
        reconstruct(solution, "parallel", 2, max_weights=n_numbers - 1)


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


def test_what_is_no_solution_is_refused():
    with pytest.raises(InvalidInputError, match="expected what solve returns, to rebuild its network, got WitnessSet"):
        reconstruct(Case().witnesses())


def draw_data(loss="logistic", readout="last", n_samples=40, seed=0, lengths=None, **options):
    rng = np.random.default_rng(seed)
    shape = (n_samples, 5) if readout == "all" else n_samples
    labels = rng.normal(size=shape) if loss == "squared" else rng.integers(0, 3 if loss == "softmax" else 2, shape)
    return TrainingSet(
        Sequences(torch.from_numpy(rng.normal(size=(n_samples, 5, 3))), lengths), {"label": labels}, **options
    )


def prove(data, objective, penalty="l1", intercept=True, ratio=0.1, l2_strength=0.0):
    dictionary = build_dictionary(gaussian_witnesses(3, (8, 20), 2), data.sequences, objective.readout)
    problem = ConvexProblem.of(objective, dictionary, data, penalty=penalty, intercept=intercept)
    solution = solve(problem.with_strength(ratio * problem.critical_strength, l2_strength))
    return solution, Proof.of(solution, objective)


def assert_same_certificate(found, expected):
    assert found.primal == pytest.approx(expected.primal, rel=CERTIFIED_AGAIN)
    assert found.dual == pytest.approx(expected.dual, rel=CERTIFIED_AGAIN)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("readout", ["last", "mean", "all"])
def test_the_training_data_give_the_certificate_again(loss, readout):
    data, objective = draw_data(loss, readout), Objective(loss, readout)
    solution, proof = prove(data, objective)
    assert len(solution.support) > 0
    assert proof.certificate is solution.certificate
    assert_same_certificate(proof.certify(data), solution.certificate)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "softmax"])
@pytest.mark.parametrize(("penalty", "intercept"), [("l1", False), ("group", True)])
def test_penalty_and_intercept_are_part_of_the_proof(loss, penalty, intercept):
    data, objective = draw_data(loss), Objective(loss)
    solution, proof = prove(data, objective, penalty, intercept)
    assert_same_certificate(proof.certify(data), solution.certificate)


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("ratio", [0.1, 0.0])
def test_both_strengths_of_an_elastic_net_are_part_of_the_proof(penalty, ratio):
    data, objective = draw_data("softmax"), Objective("softmax")
    solution, proof = prove(data, objective, penalty, ratio=ratio, l2_strength=0.02)
    assert (proof.l1_strength, proof.l2_strength) == (solution.problem.l1_strength, 0.02)
    problem = proof.problem(data)
    assert (problem.l1_strength, problem.l2_strength) == (proof.l1_strength, 0.02)
    assert_same_certificate(proof.certify(data), solution.certificate)
    other = replace(proof, l2_strength=0.03).certify(data)
    assert other.primal == pytest.approx(
        solution.certificate.primal + 0.005 * float(proof.coef.square().sum()), rel=CERTIFIED_AGAIN
    )


def test_a_proof_without_a_second_strength_has_none():
    _, proof = prove(draw_data(), Objective("logistic"))
    assert proof.l2_strength == 0.0
    fields = {name: value for name, value in vars(proof).items() if name != "l2_strength"}
    assert Proof(**fields).l2_strength == 0.0


class ElasticNet(L1):
    """A penalty of a user's own that shares a name with one of ours."""


def test_a_penalty_of_ones_own_is_part_of_the_proof():
    data, objective = draw_data(), Objective("logistic")
    solution, proof = prove(data, objective, ElasticNet())
    assert proof.penalty is solution.problem.penalty
    assert_same_certificate(proof.certify(data), solution.certificate)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_lengths_and_sample_weights_are_part_of_the_data(readout):
    lengths = torch.arange(40) % 5 + 1
    data = draw_data(lengths=lengths, sample_weight=torch.arange(40.0))
    solution, proof = prove(data, Objective("logistic", readout))
    assert_same_certificate(proof.certify(data), solution.certificate)
    for other in (draw_data(lengths=lengths), draw_data(sample_weight=torch.arange(40.0))):
        assert proof.certify(other).primal != pytest.approx(solution.certificate.primal, rel=UNMISTAKABLE)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("n_samples", [40, 31])
def test_other_data_have_another_objective_and_no_tight_bound(loss, n_samples):
    solution, proof = prove(draw_data(loss), Objective(loss))
    other = proof.certify(draw_data(loss, n_samples=n_samples, seed=1))
    assert other.primal != pytest.approx(solution.certificate.primal, rel=UNMISTAKABLE)
    assert other.relative_gap > UNMISTAKABLE


def test_a_hinge_is_certified_by_its_dual_point_not_by_a_gradient():
    data, objective = draw_data("hinge"), Objective("hinge")
    solution, proof = prove(data, objective)
    problem = solution.problem
    without, _ = cs.certify(problem, solution.coef, solution.intercept)
    assert without.relative_gap > UNMISTAKABLE
    assert proof.certify(data).relative_gap <= 1e-6


def test_changed_coefficients_lose_their_proof():
    data = draw_data()
    _, proof = prove(data, Objective("logistic"))
    changed = Proof(**{**proof.__dict__, "coef": 1.5 * proof.coef})
    assert changed.certify(data).relative_gap > UNMISTAKABLE


def test_an_empty_support_is_proven_too():
    data = draw_data()
    solution, proof = prove(data, Objective("logistic"), ratio=2.0)
    assert len(proof.support) == 0
    assert_same_certificate(proof.certify(data), solution.certificate)


def test_a_plain_array_has_nothing_to_certify_again():
    rng = np.random.default_rng(0)
    solution = solve(cs.ConvexProblem(rng.integers(0, 2, (20, 5)), rng.normal(size=20), "squared", 0.01))
    with pytest.raises(InvalidInputError, match="over witnesses, got one over a plain array"):
        Proof.of(solution, Objective("squared"))


def test_proof_of_a_solution_over_a_part_of_the_atoms_is_refused():
    dictionary = build_dictionary(gaussian_witnesses(2, (9,)), np.random.default_rng(0).normal(size=(12, 4, 2)))
    problem = ConvexProblem(dictionary, np.linspace(-1, 1, 12), "squared", l1_strength=0.01)
    solution = solve(problem.take_atoms(torch.tensor([3, 1])))
    assert solution.certificate.scope == "selected"
    with pytest.raises(InvalidInputError, match="over all atoms of its witnesses, got one over 2 of them"):
        Proof.of(solution, Objective("squared"))


@pytest.mark.parametrize("ratio", [0.1, 0.0])
@pytest.mark.parametrize("readout", ["last", "windows-2", "mean+burst"])
def test_the_centre_of_a_quadratic_is_part_of_the_proof(readout, ratio):
    data, objective = draw_data("softmax", readout), Objective("softmax", readout)
    witnesses = gaussian_witnesses(3, (40,), bias=cs.witnesses.Normal(-4.0, 4.0))
    dictionary = build_dictionary(witnesses, data.sequences, readout)
    assert dictionary.n_atoms < dictionary.n_columns  # silent neurons are equal
    weight = np.random.default_rng(0).normal(size=(dictionary.n_columns, 3))
    centre = dictionary.coefficients(torch.arange(dictionary.n_columns), torch.from_numpy(weight))
    problem = ConvexProblem.of(objective, dictionary, data, l2_strength=0.1, penalty="elastic-net", centre=centre)
    solution = solve(problem.with_strength(ratio * problem.critical_strength, 0.1))
    proof = Proof.of(solution, objective).to("cpu")
    torch.testing.assert_close(proof.problem(data).centre, problem.centre, rtol=ROUNDING, atol=0)
    assert_same_certificate(proof.certify(data), solution.certificate)
    to_zero = replace(proof, centre=None).certify(data)
    assert to_zero.primal > solution.certificate.primal * (1 + UNMISTAKABLE)


def test_targets_of_other_sizes_are_refused_for_a_proof_with_a_centre():
    data, objective = draw_data("softmax"), Objective("softmax")
    dictionary = build_dictionary(gaussian_witnesses(3, (8,)), data.sequences)
    terms = {"l2_strength": 0.1, "penalty": "elastic-net", "centre": np.ones((dictionary.n_atoms, 3))}
    proof = Proof.of(solve(ConvexProblem.of(objective, dictionary, data, **terms)), objective)
    with pytest.raises(InvalidInputError, match="targets for 3 outputs, as in training, got 2 outputs"):
        proof.certify(replace(data, targets={"label": data.targets["label"] % 2}))
