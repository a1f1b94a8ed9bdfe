import numpy as np
import pytest
import torch

import cvxsnn as cs
from cvxsnn.convex.choice import choose
from cvxsnn.convex.solvers import RidgeCG, ridge
from cvxsnn.dictionary import count_dictionary

STREAMED = RidgeCG(is_streamed=True)
LOSSES = ("squared", "squared_hinge", "logistic", "softmax")


def problem_of(loss, intercept=True, l2_strength=1e-3, row_weight=None):
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(150, 4))
    counts = np.clip(np.round(8 + 4 * np.tanh(hidden @ rng.normal(size=(4, 40)))), 0, 16).astype(np.int32)
    labels = (hidden[:, 0] + 0.5 * hidden[:, 1] * hidden[:, 2] > 0).astype(int) + (hidden[:, 3] > 0.7)
    targets = labels if loss == "softmax" else np.eye(3)[labels]
    terms = {"l2_strength": l2_strength, "penalty": "elastic-net", "intercept": intercept}
    dictionary = count_dictionary(torch.from_numpy(counts), 16)
    return cs.ConvexProblem(dictionary, targets, loss, 0.0, **terms, row_weight=row_weight)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_optima_are_certified_and_those_of_columns_in_memory(loss, intercept):
    problem = problem_of(loss, intercept)
    found, other = (cs.solve(problem, 1e-8, solver) for solver in (STREAMED, RidgeCG()))
    assert found.has_converged
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_strengths_of_a_path_share_a_matrix_that_is_left_as_it_was(loss):
    path = cs.solve_path(problem_of(loss), [0.0], l2_strengths=[1e-1, 1e-2, 1e-4], tol=1e-7, solver=STREAMED)
    assert all(solution.has_converged for solution in path)


def test_rows_may_have_different_weights():
    weight = np.random.default_rng(1).uniform(0.1, 2.0, 150)
    problem = problem_of("squared_hinge", row_weight=weight)
    found, other = (cs.solve(problem, 1e-8, solver) for solver in (STREAMED, RidgeCG()))
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-8)


def test_a_preconditioner_without_a_factor_costs_steps_and_no_proof(monkeypatch):
    monkeypatch.setattr(ridge, "_centred_gram", lambda problem: torch.full((40, 40), torch.nan))
    assert cs.solve(problem_of("logistic"), 1e-6, STREAMED).has_converged


@pytest.mark.parametrize(("room", "is_streamed"), [(10**5, True), (10**9, False)])
def test_columns_are_streamed_if_they_would_hardly_fit(monkeypatch, room, is_streamed):
    monkeypatch.setattr(ridge, "available_bytes", lambda device: room)
    solver = choose(problem_of("squared_hinge"))
    assert isinstance(solver, RidgeCG)
    assert (solver.is_streamed, solver.merges_rows) == (is_streamed, not is_streamed)
