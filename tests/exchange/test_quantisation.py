from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import NEURONS, READOUTS, Case
from small_models import assert_close_certificates, classes_of, classifier, make_sequences, regressor, sums
from tolerances import CERTIFIED_AGAIN, EASY_SCORE, ROUNDING

from cvxsnn import InvalidInputError, Status, load, reconstruct, save
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.tasks import digits_seq, first_last_xor
from cvxsnn.exchange.quantisation import (
    DECAY_GRID,
    MEMBRANE_GRID,
    compare_bits,
    quantise,
    quantise_and_solve,
    quantise_estimator,
    quantise_readout,
    round_weights,
)
from cvxsnn.network.proof import Proof
from cvxsnn.neurons.exact import snap_weights
from cvxsnn.training import ConvexSettings, Settings, TaskScore, train_task

SEQUENCES = make_sequences()
LABELS = classes_of(SEQUENCES)
BITS = (8, 4, 2)
TOL = 1e-7


@pytest.fixture(scope="module")
def model():
    return classifier().fit(SEQUENCES, LABELS)


@pytest.fixture(scope="module")
def xor():
    task = first_last_xor(4, n_train=200, n_val=100, n_test=200)
    family = {"hidden": (8, 48), "n_subnetworks": 2, "decay": 0.99}
    return task, train_task("cvx", task, Settings(Objective("hinge"), family, ConvexSettings(n_strengths=5)))


def weights_of(layer):
    return torch.cat([value for value in layer.tensors().values() if value.ndim == 3], dim=1)


@given(bits=st.integers(2, 9), spread=st.sampled_from([0.0, 1.0, 3.0]), seed=st.integers(0, 2**16))
def test_rounded_weights_are_signed_integers_of_their_bits_times_a_power_of_two(bits, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(2, 30, 4, generator=generator) * torch.exp(spread * torch.randn(2, 1, 4, generator=generator))
    rounded, unit = round_weights(weight, bits)
    assert bool((torch.frexp(unit).mantissa == 0.5).all())
    integers = rounded / unit
    assert torch.equal(integers, integers.round())
    assert float(integers.abs().max()) <= 2 ** (bits - 1) - 1
    assert max(len(column.unique()) for column in integers.movedim(1, -1).reshape(-1, 30)) <= 2**bits
    assert torch.equal(round_weights(rounded, bits)[0], rounded)
    assert torch.equal(snap_weights(rounded, bits), rounded)  # so a layer of these bits leaves them alone


@given(bits=st.integers(2, 6), seed=st.integers(0, 2**16))
def test_no_other_power_of_two_has_a_smaller_squared_error(bits, seed):
    weight = torch.randn(1, 12, 1, generator=torch.Generator().manual_seed(seed)).double()
    error = float((round_weights(weight, bits)[0] - weight).square().sum())
    largest = 2 ** (bits - 1) - 1
    for power in range(-12, 4):
        unit = 2.0**power
        other = (weight / unit).round().clamp(-largest, largest) * unit
        assert error <= float((other - weight).square().sum())


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("bits", BITS)
def test_a_quantised_neuron_counts_in_units_of_its_own(neuron, bits):
    for layer in quantise(Case(neuron).witnesses(), bits).layers:
        assert layer.weight_bits == bits
        _, unit = round_weights(weights_of(layer), bits)
        for name in ("bias", "threshold", "initial_membrane"):
            levels = layer.tensors().get(name, torch.zeros(1)) / (MEMBRANE_GRID * unit[:, 0])
            assert torch.equal(levels, levels.round())
        levels = layer.tensors().get("decay", torch.zeros(1)) / DECAY_GRID
        assert torch.equal(levels, levels.round())


@pytest.mark.parametrize("neuron", NEURONS)
def test_quantising_twice_changes_nothing(neuron):
    once = quantise(Case(neuron).witnesses(), 4)
    for before, after in zip(once.layers, quantise(once, 4).layers, strict=True):
        for name, value in before.tensors().items():
            assert torch.equal(value, after.tensors()[name])


@pytest.mark.parametrize("neuron", NEURONS)
def test_a_network_and_its_witnesses_are_rounded_alike(neuron):
    case = Case(neuron, n_outputs=2)
    solution = case.solve()
    proof = Proof.of(solution, Objective("squared"))
    rounded = quantise(proof.witnesses, 4)
    data = TrainingSet(case.inputs, {"label": solution.problem.heads[0].targets})
    problem = replace(proof, witnesses=rounded).problem(data)
    coef = torch.zeros(problem.dictionary.n_atoms, 2, dtype=torch.float64)
    coef.index_add_(0, problem.dictionary.atom_of_witness[proof.support], proof.coef)
    scores = problem.dictionary.matvec(coef) + proof.intercept
    torch.testing.assert_close(quantise(reconstruct(solution), 4)(case.inputs), scores, rtol=ROUNDING, atol=ROUNDING)


def test_output_weights_take_few_values_for_each_output():
    network = reconstruct(Case(n_outputs=2, ratio=0.1).solve())
    for bits in BITS:
        rounded = quantise_readout(network, bits)
        assert all(len(column.unique()) <= 2**bits for column in rounded.weight.detach().T)
        assert rounded.layers is network.layers


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("bits", BITS)
def test_the_new_readout_is_certified_and_no_worse_than_the_old_one(readout, bits):
    case = Case(readout=readout, n_outputs=2, ratio=0.1)
    solution = case.solve()
    proof = Proof.of(solution, Objective("squared", readout))
    targets = solution.problem.heads[0].targets
    shape = (len(case.inputs), -1, 2) if readout == "all" else (len(case.inputs), 2)
    data = TrainingSet(case.inputs, {"label": targets.reshape(shape)})
    found = quantise_and_solve(proof, data, bits, tol=TOL)
    assert found.solution.status is Status.CONVERGED
    assert found.certificate.relative_gap <= TOL
    assert found.certificate.scope == "sampled"
    old = proof.certify(data, found.solution.problem)
    assert found.certificate.primal <= old.primal + found.certificate.gap
    scores = found.network(case.inputs).reshape(targets.shape)
    torch.testing.assert_close(scores, found.solution.scores(), rtol=ROUNDING, atol=ROUNDING)


def test_what_rounding_the_readout_costs_is_part_of_the_certificate(xor):
    task, trained = xor
    data = TrainingSet.of(task.train)
    exact = quantise_and_solve(trained, data, 4)
    before = exact.certificate
    for bits in BITS:
        rounded = quantise_and_solve(trained, data, 4, readout_bits=bits)
        assert rounded.certificate.primal >= before.dual
        assert rounded.certificate.dual <= before.primal
        assert len(rounded.network.weight.detach().unique()) <= 2**bits
        problem = rounded.solution.problem
        loss = problem.loss_value(rounded.network(data.inputs).detach())
        objective = float(loss + problem.l1_strength * rounded.network.weight.detach().abs().sum())
        assert objective == pytest.approx(rounded.certificate.primal, rel=CERTIFIED_AGAIN)
        assert_close_certificates(rounded.proof.certify(data), rounded.certificate)


def test_ternary_neurons_with_a_new_readout_learn_what_the_old_readout_has_lost(xor):
    task, trained = xor
    comparison = compare_bits(trained, TrainingSet.of(task.train), TaskScore(task, task.test), (15, 2))
    fine, coarse = comparison.rows
    assert comparison.score >= EASY_SCORE
    assert fine.as_is >= EASY_SCORE
    assert coarse.solved >= EASY_SCORE > coarse.as_is
    for row in comparison.rows:
        assert row.certificate.primal <= row.as_is_objective + row.certificate.gap
        assert row.rounded_certificate.primal >= row.certificate.dual
    assert [line.split()[0] for line in str(comparison).splitlines()] == ["hidden", "not", "15", "2"]


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_quantised_estimator_predicts_saves_loads_and_certifies(make, tmp_path):
    targets = LABELS if make is classifier else sums(SEQUENCES)
    model = make().fit(SEQUENCES, targets)
    small = quantise_estimator(model, SEQUENCES, targets, 4, readout_bits=8)
    assert small is not model
    assert {layer.weight_bits for layer in small.network_.layers} == {4}
    assert {layer.weight_bits for layer in model.network_.layers} == {15}
    assert_close_certificates(small.certify(SEQUENCES, targets), small.certificate_)
    save(small, tmp_path / "small.safetensors")
    again = load(tmp_path / "small.safetensors")
    assert np.array_equal(again.predict(SEQUENCES), small.predict(SEQUENCES))
    assert small.score(SEQUENCES, targets) >= EASY_SCORE


def test_on_digits_a_new_readout_keeps_what_four_bits_leave():
    task = digits_seq()
    family = {"hidden": (96,), "decay": 0.9}
    settings = Settings(Objective("softmax", "mean"), family, ConvexSettings(0.002))
    trained = train_task("cvx", task, settings)
    comparison = compare_bits(trained, TrainingSet.of(task.train), TaskScore(task, task.test), (4, 2), tol=TOL)
    for row in comparison.rows:
        assert row.solved > row.as_is
        assert row.certificate.relative_gap <= TOL


@pytest.mark.parametrize("bits", [1, 17, 4.0, True])
def test_bits_that_no_integer_has_are_refused(model, bits):
    with pytest.raises(InvalidInputError, match="from 2 to 16"):
        quantise(model.network_, bits)


def test_a_network_that_gradients_trained_has_no_program_to_solve_again(model):
    with pytest.raises(InvalidInputError, match="convex"):
        quantise_estimator(classifier("r").fit(SEQUENCES, LABELS), SEQUENCES, LABELS)
    stages = train_task(
        "r", first_last_xor(4, n_train=50, n_val=20, n_test=20), Settings(Objective("hinge"), {"hidden": (8,)})
    )
    with pytest.raises(InvalidInputError, match="'cvx'"):
        quantise_and_solve(stages, TrainingSet(torch.ones(1, 1, 1), {"label": torch.ones(1)}))
