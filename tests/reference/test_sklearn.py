"""Objectives against scikit-learn, whose coefficients are certified by the same rule."""

import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, Columns, Kind
from sklearn.linear_model import Lasso, LogisticRegression, MultiTaskLasso
from sklearn.svm import LinearSVC
from tolerances import COORDINATE_DESCENT, ROUNDING

from cvxsnn import ConvexProblem, certify, solve

RATIOS = [0.5, 0.05]


def assert_agrees(problem: ConvexProblem, coef: np.ndarray, intercept: np.ndarray | float = 0.0) -> None:
    """Their coefficients are good, and our objective is within the gaps of theirs."""
    theirs, _ = certify(
        problem,
        torch.from_numpy(np.asarray(coef, dtype=float).reshape(problem.n_outputs, -1).T.copy()),
        torch.as_tensor(np.atleast_1d(intercept)).double() if problem.intercept else None,
    )
    ours = solve(problem, 1e-9).certificate
    assert theirs.relative_gap <= COORDINATE_DESCENT
    assert abs(ours.primal - theirs.primal) <= max(ours.gap, theirs.gap) + ROUNDING
    assert ours.primal <= theirs.primal + ours.gap + ROUNDING


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_is_lasso_with_the_strength_as_alpha(
    columns: Columns, intercept: bool, weighted: bool, ratio: float
) -> None:
    problem = Kind("squared", "l1", intercept, columns, weighted).draw(0, ratio)
    model = Lasso(problem.l1_strength, fit_intercept=intercept, tol=1e-12, max_iter=100_000)
    model.fit(
        problem.dictionary.columns().numpy(),
        problem.heads[0].targets[:, 0].numpy(),
        sample_weight=problem.row_weight.numpy(),
    )
    assert_agrees(problem, model.coef_, model.intercept_)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_with_the_group_penalty_is_multi_task_lasso(columns: Columns, intercept: bool, ratio: float) -> None:
    problem = Kind("squared", "group", intercept, columns, n_outputs=2).draw(0, ratio)
    model = MultiTaskLasso(problem.l1_strength, fit_intercept=intercept, tol=1e-12, max_iter=100_000)
    model.fit(problem.dictionary.columns().numpy(), problem.heads[0].targets.numpy())
    assert_agrees(problem, model.coef_, model.intercept_)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_logistic_is_liblinears_with_the_strength_as_inverse_of_c(
    columns: Columns, weighted: bool, ratio: float
) -> None:
    problem = Kind("logistic", "l1", False, columns, weighted).draw(0, ratio)
    model = LogisticRegression(
        l1_ratio=1.0, C=1 / problem.l1_strength, solver="liblinear", fit_intercept=False, tol=1e-9, max_iter=10_000
    )
    model.fit(
        problem.dictionary.columns().numpy(),
        problem.heads[0].targets[:, 0].numpy(),
        sample_weight=problem.row_weight.numpy(),
    )
    assert_agrees(problem, model.coef_)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("intercept", [False, True])
def test_logistic_and_softmax_are_sagas_with_rows_times_strength_as_inverse_of_c(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept).draw(0, 0.2)
    targets = problem.heads[0].targets
    model = LogisticRegression(
        l1_ratio=1.0,
        C=1 / (problem.shape[0] * problem.l1_strength),
        solver="saga",
        fit_intercept=intercept,
        tol=1e-10,
        max_iter=100_000,
        random_state=0,
    )
    model.fit(
        problem.dictionary.columns().numpy(),
        (targets.argmax(1) if loss == "softmax" else targets[:, 0]).numpy(),
    )
    assert_agrees(problem, model.coef_, model.intercept_)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_hinge_is_the_sparse_support_vector_machine(columns: Columns, ratio: float) -> None:
    problem = Kind("squared_hinge", columns=columns).draw(0, ratio)
    model = LinearSVC(
        penalty="l1",
        C=1 / (problem.shape[0] * problem.l1_strength),
        dual=False,
        fit_intercept=False,
        tol=1e-9,
        max_iter=100_000,
    )
    model.fit(problem.dictionary.columns().numpy(), problem.heads[0].targets[:, 0].numpy())
    assert_agrees(problem, model.coef_)
