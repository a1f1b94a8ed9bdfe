"""Certifying again, from witnesses, coefficients and data."""

import numpy as np
import pytest
import torch
from tolerances import CERTIFIED_AGAIN, UNMISTAKABLE

import cvxsnn as cs
from cvxsnn import InvalidInputError, build_dictionary, gaussian_witnesses, solve
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.network.reconstruction import Proof

LOSSES = ["squared", "logistic", "squared_hinge", "hinge", "softmax"]


def draw_data(loss="logistic", readout="last", n_samples=40, seed=0, lengths=None, **options):
    rng = np.random.default_rng(seed)
    shape = (n_samples, 5) if readout == "all" else n_samples
    labels = rng.normal(size=shape) if loss == "squared" else rng.integers(0, 3 if loss == "softmax" else 2, shape)
    return TrainingSet(
        Sequences(torch.from_numpy(rng.normal(size=(n_samples, 5, 3))), lengths), {"label": labels}, **options
    )


def prove(data, objective, penalty="l1", intercept=True, ratio=0.1):
    dictionary = build_dictionary(gaussian_witnesses(3, (8, 20), 2), data.sequences, objective.readout)
    problem = objective.problem(dictionary, data, penalty=penalty, intercept=intercept)
    solution = solve(problem.with_strength(ratio * problem.critical_strength))
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
