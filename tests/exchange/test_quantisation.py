from dataclasses import replace

import numpy as np
import pytest
import torch
from exchange.cases import train_xor
from layers import draw_layer
from networks import NEURONS, READOUTS, Case
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from small_models import (
    assert_close_certificates,
    assert_one_sentence,
    classes_of,
    classifier,
    make_sequences,
    regressor,
    sums,
)
from tolerances import CERTIFIED_AGAIN, EASY_SCORE, ROUNDING
from torch import nn

from cvxsnn import InvalidInputError, SequenceScaler, Status, WitnessSet, load, reconstruct, save
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.tasks import digits_seq, first_last_xor
from cvxsnn.exchange import quantise, quantise_and_solve, quantise_estimator
from cvxsnn.fitting import Program, Settings, TaskScore, train_task
from cvxsnn.network.reconstruction import Proof
from cvxsnn.witnesses import Provenance

SEQUENCES = make_sequences()
LABELS = classes_of(SEQUENCES)
BITS = (8, 4, 2)
TOL = 1e-7


@pytest.fixture(scope="module")
def xor():
    return train_xor()


@pytest.mark.parametrize("neuron", NEURONS)
def test_a_network_and_its_witnesses_are_rounded_alike(neuron):
    case = Case(neuron, n_outputs=2)
    solution = case.solve()
    proof = Proof.of(solution, Objective("squared"))
    rounded = quantise(proof.witnesses, 4)
    data = TrainingSet(case.inputs, {"label": solution.problem.heads[0].targets})
    problem = replace(proof, witnesses=rounded).problem(data)
    coef = torch.zeros(problem.dictionary.n_atoms, 2, dtype=torch.float64)
    coef.index_add_(0, problem.dictionary.atom_of_column[proof.support], proof.coef)
    scores = problem.dictionary.matvec(coef) + proof.intercept
    torch.testing.assert_close(quantise(reconstruct(solution), 4)(case.inputs), scores, rtol=ROUNDING, atol=ROUNDING)


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
        assert torch.equal(rounded.network.weight, rounded.proof.coef)
        problem = rounded.solution.problem
        loss = problem.loss_value(rounded.network(data.inputs).detach())
        objective = float(loss + problem.l1_strength * rounded.network.weight.detach().abs().sum())
        assert objective == pytest.approx(rounded.certificate.primal, rel=CERTIFIED_AGAIN)
        assert_close_certificates(rounded.proof.certify(data), rounded.certificate)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_quantised_estimator_predicts_saves_loads_and_certifies(make, tmp_path):
    targets = LABELS if make is classifier else sums(SEQUENCES)
    model = make(hidden=(128,)).fit(SEQUENCES, targets)
    small = quantise_estimator(model, SEQUENCES, targets, 4, readout_bits=8)
    assert small is not model
    assert {layer.weight_bits for layer in small.network_.layers} == {4}
    assert {layer.weight_bits for layer in model.network_.layers} == {15}
    assert_close_certificates(small.certify(SEQUENCES, targets), small.certificate_)
    save(small, tmp_path / "small.safetensors")
    again = load(tmp_path / "small.safetensors")
    assert np.array_equal(again.predict(SEQUENCES), small.predict(SEQUENCES))
    assert small.score(SEQUENCES, targets) >= EASY_SCORE


def test_a_quantised_estimator_keeps_its_delays():
    witnesses = WitnessSet((draw_layer(0, width=20),), Provenance("pretrained"))
    model = classifier(witnesses=witnesses).fit(SEQUENCES, LABELS)
    small = quantise_estimator(model, SEQUENCES, LABELS, 4)
    (layer,) = small.proof_.witnesses.layers
    assert layer.weight_bits == 4
    assert torch.equal(layer.delay, witnesses.layers[0].delay)
    assert_close_certificates(small.certify(SEQUENCES, LABELS), small.certificate_)


@pytest.mark.parametrize("l1_strength", [0.003, 0.0])
def test_a_quantised_elastic_net_keeps_both_strengths(l1_strength, tmp_path):
    options = {"penalty": "elastic-net", "l1_strength": l1_strength, "l2_strength": 0.01, "decay": 0.8}
    model = classifier(**options).fit(SEQUENCES, LABELS)
    small = quantise_estimator(model, SEQUENCES, LABELS, 4, readout_bits=8)
    assert (small.proof_.l1_strength, small.proof_.l2_strength) == (l1_strength, 0.01)
    weight = small.network_.weight.detach()
    problem = small.proof_.problem(small.training_set(SEQUENCES, LABELS))
    loss = problem.loss_value(torch.tensor(small.decision_function(SEQUENCES))[:, None])
    objective = float(loss + l1_strength * weight.abs().sum() + 0.005 * weight.square().sum())
    assert objective == pytest.approx(small.certificate_.primal, rel=CERTIFIED_AGAIN)
    save(small, tmp_path / "small")
    assert_close_certificates(load(tmp_path / "small").certify(SEQUENCES, LABELS), small.certificate_)


def test_a_network_that_gradients_trained_has_no_program_to_solve_again():
    with pytest.raises(InvalidInputError, match="convex"):
        quantise_estimator(classifier("r").fit(SEQUENCES, LABELS), SEQUENCES, LABELS)
    stages = train_task(
        "r", first_last_xor(4, n_train=50, n_val=20, n_test=20), Settings(Objective("hinge"), {"hidden": (8,)})
    )
    with pytest.raises(InvalidInputError, match="'cvx'"):
        quantise_and_solve(stages, TrainingSet(torch.ones(1, 1, 1), {"label": torch.ones(1)}))


STRANGERS = [nn.Sequential(nn.Linear(2, 2)), reconstruct(Case().solve()), torch.ones(2, 2), None]


@pytest.mark.parametrize("stranger", [*STRANGERS, classifier()], ids=lambda own: type(own).__name__)
def test_what_was_not_trained_is_refused_in_one_sentence(stranger):
    with pytest.raises(
        InvalidInputError, match=f"expected what train returns.*got {type(stranger).__name__}"
    ) as caught:
        quantise_and_solve(stranger, TrainingSet(torch.ones(1, 1, 1), {"label": torch.ones(1)}))
    assert_one_sentence(caught.value)


def test_data_that_is_no_training_set_is_refused_in_one_sentence(xor):
    task, trained = xor
    with pytest.raises(InvalidInputError, match="trained on, got ndarray") as caught:
        quantise_and_solve(trained, task.train.inputs)
    assert_one_sentence(caught.value)


def test_the_estimator_at_the_end_of_a_pipeline_is_quantised(tmp_path):
    pipeline = make_pipeline(SequenceScaler(), classifier()).fit(SEQUENCES, LABELS)
    small = quantise_estimator(pipeline, SEQUENCES, LABELS, 4)
    scaled = pipeline[:-1].transform(SEQUENCES)
    alone = quantise_estimator(pipeline[-1], scaled, LABELS, 4)
    np.testing.assert_array_equal(small.decision_function(SEQUENCES), alone.decision_function(scaled))
    assert pipeline[-1].network_ is not small[-1].network_
    save(small, tmp_path / "pipeline")


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda own: type(own).__name__)
def test_what_is_no_estimator_is_refused_in_one_sentence(stranger):
    with pytest.raises(InvalidInputError, match=f"expected a fitted .*got {type(stranger).__name__}") as caught:
        quantise_estimator(stranger, SEQUENCES, LABELS)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("make", [classifier, regressor])
def test_an_estimator_that_is_not_fitted_is_asked_to_be(make):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        quantise_estimator(make(), SEQUENCES, LABELS)


def test_ternary_neurons_with_a_new_readout_learn_what_the_old_readout_has_lost(xor):
    task, trained = xor
    data, score = TrainingSet.of(task.train), TaskScore(task, task.test)
    proof = Proof.of(trained.solution, trained.settings.objective)
    for bits in (15, 2):
        solved = quantise_and_solve(trained, data, bits)
        as_is = proof.certify(data, solved.solution.problem)  # the old coefficients on the new spikes
        assert score(solved.network) >= EASY_SCORE
        assert (score(quantise(trained.network, bits)) >= EASY_SCORE) == (bits == 15)
        assert solved.certificate.primal <= as_is.primal + solved.certificate.gap
        assert solved.with_readout_bits(8).certificate.primal >= solved.certificate.dual


def test_on_digits_a_new_readout_keeps_what_four_bits_leave():
    task = digits_seq()
    settings = Settings(Program(Objective("softmax", "mean"), l1_strength=0.002), {"hidden": (96,), "decay": 0.9})
    trained = train_task("cvx", task, settings)
    score = TaskScore(task, task.test)
    for bits in (4, 2):
        solved = quantise_and_solve(trained, TrainingSet.of(task.train), bits, tol=TOL)
        assert score(solved.network) > score(quantise(trained.network, bits))
        assert solved.certificate.relative_gap <= TOL
