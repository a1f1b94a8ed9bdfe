"""Newton steps without columns in memory."""

import numpy as np
import pytest
import torch

import cvxsnn as cs
from cvxsnn.convex.solvers import newton_stream
from cvxsnn.convex.solvers.columns import HeldColumns, StreamedColumns
from cvxsnn.dictionary import count_dictionary

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
    found, other = (cs.solve(problem, 1e-8, solver) for solver in ("newton-stream", "newton-cg"))
    assert found.has_converged
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-8)


@pytest.mark.parametrize("loss", LOSSES)
def test_strengths_of_a_path_share_a_matrix_that_is_left_as_it_was(loss):
    path = cs.solve_path(problem_of(loss), [0.0], l2_strengths=[1e-1, 1e-2, 1e-4], tol=1e-7, solver="newton-stream")
    assert all(solution.has_converged for solution in path)


def test_rows_may_have_different_weights():
    weight = np.random.default_rng(1).uniform(0.1, 2.0, 150)
    problem = problem_of("squared_hinge", row_weight=weight)
    found, other = (cs.solve(problem, 1e-8, solver) for solver in ("newton-stream", "newton-cg"))
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-8)


def test_a_preconditioner_without_a_factor_costs_steps_and_no_proof(monkeypatch):
    monkeypatch.setattr(newton_stream, "_MAX_ATTEMPTS", 1)
    monkeypatch.setattr(newton_stream, "_centred_gram", lambda problem: -torch.eye(problem.dictionary.n_atoms))
    assert cs.solve(problem_of("logistic"), 1e-6, "newton-stream").has_converged


@pytest.mark.parametrize(("room", "solver"), [(10**5, "newton-stream"), (10**9, "newton-cg")])
def test_it_is_chosen_where_columns_would_hardly_fit(monkeypatch, room, solver):
    monkeypatch.setattr(newton_stream, "available_bytes", lambda device: room)
    assert cs.solve(problem_of("squared_hinge")).solver == solver


def test_streamed_columns_are_those_in_memory(monkeypatch):
    monkeypatch.setattr("cvxsnn.convex.solvers.columns._BLOCK", 40 * 24)
    dictionary = problem_of("squared").dictionary
    streamed = StreamedColumns(dictionary, torch.float32)
    blocks = [block for _, block in streamed.iterate()]
    ((rows, held),) = HeldColumns(dictionary.columns(dtype=torch.float32)).iterate()
    assert len(blocks) == 7
    assert rows == slice(0, 150)
    assert torch.equal(torch.cat(blocks), held)
