"""Objectives against scikit-learn, whose coefficients are certified by the same rule."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, ELASTIC_NETS, Columns, Kind
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, MultiTaskElasticNet, MultiTaskLasso, Ridge
from sklearn.svm import SVC, LinearSVC
from tolerances import COORDINATE_DESCENT, ROUNDING

from cvxsnn import ConvexProblem, certify, solve

RATIOS = [0.5, 0.05]


def assert_agrees(
    problem: ConvexProblem,
    coef: np.ndarray,
    intercept: np.ndarray | float = 0.0,
    duals: Sequence[np.ndarray] = (),
    tol: float = 1e-9,
) -> None:
    """Their coefficients are good, and our objective is within the gaps of theirs."""
    theirs, _ = certify(
        problem,
        torch.from_numpy(np.asarray(coef, dtype=float).reshape(problem.n_outputs, -1).T.copy()),
        torch.as_tensor(np.atleast_1d(intercept)).double() if problem.intercept else None,
        duals,
    )
    ours = solve(problem, tol).certificate
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


def elastic_shares(problem: ConvexProblem) -> dict[str, float]:
    """The two strengths as scikit-learn has them: their sum, and the share of the norm."""
    total = problem.l1_strength + problem.l2_strength
    return {"alpha": total, "l1_ratio": problem.l1_strength / total}


@pytest.mark.parametrize("l2_strength", [1e-3, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_with_an_elastic_net_is_theirs(
    columns: Columns, intercept: bool, weighted: bool, l2_strength: float
) -> None:
    problem = Kind("squared", "elastic-net", intercept, columns, weighted, l2_strength=l2_strength).draw(0, 0.05)
    model = ElasticNet(**elastic_shares(problem), fit_intercept=intercept, tol=1e-12, max_iter=100_000)
    model.fit(
        problem.dictionary.columns().numpy(),
        problem.heads[0].targets[:, 0].numpy(),
        sample_weight=problem.row_weight.numpy(),
    )
    assert_agrees(problem, model.coef_, model.intercept_)


@pytest.mark.parametrize("l2_strength", [1e-3, 0.1])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_with_a_group_elastic_net_is_their_multi_task_one(
    columns: Columns, intercept: bool, l2_strength: float
) -> None:
    kind = Kind("squared", "group-elastic-net", intercept, columns, n_outputs=2, l2_strength=l2_strength)
    problem = kind.draw(0, 0.05)
    model = MultiTaskElasticNet(**elastic_shares(problem), fit_intercept=intercept, tol=1e-12, max_iter=100_000)
    model.fit(problem.dictionary.columns().numpy(), problem.heads[0].targets.numpy())
    assert_agrees(problem, model.coef_, model.intercept_)


RIDGES = [1e-3, 0.1, 10.0]


@pytest.mark.parametrize("l2_strength", RIDGES)
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_without_a_norm_is_ridge_with_rows_times_strength_as_alpha(
    columns: Columns, intercept: bool, weighted: bool, penalty: str, l2_strength: float
) -> None:
    problem = Kind("squared", penalty, intercept, columns, weighted, 2, l2_strength).draw(0, 0.0)
    n_rows = problem.shape[0]
    model = Ridge(n_rows * l2_strength, fit_intercept=intercept, solver="cholesky")
    model.fit(
        problem.dictionary.columns().numpy(),
        problem.heads[0].targets.numpy(),
        sample_weight=n_rows * problem.row_weight.numpy() if weighted else None,
    )
    assert_agrees(problem, model.coef_, model.intercept_, tol=1e-6)


@pytest.mark.parametrize("l2_strength", RIDGES)
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_logistic_and_softmax_without_a_norm_are_theirs_with_rows_times_strength_as_inverse_of_c(
    loss: str, intercept: bool, weighted: bool, penalty: str, l2_strength: float
) -> None:
    problem = Kind(loss, penalty, intercept, "collinear", weighted, l2_strength=l2_strength).draw(0, 0.0)
    n_rows, targets = problem.shape[0], problem.heads[0].targets
    model = LogisticRegression(
        C=1 / (n_rows * l2_strength), solver="newton-cholesky", fit_intercept=intercept, tol=1e-10
    )
    model.fit(
        problem.dictionary.columns().numpy(),
        (targets.argmax(1) if loss == "softmax" else targets[:, 0]).numpy(),
        sample_weight=n_rows * problem.row_weight.numpy() if weighted else None,
    )
    assert_agrees(problem, model.coef_, model.intercept_, tol=1e-6)


@pytest.mark.parametrize("l2_strength", RIDGES)
@pytest.mark.parametrize("columns", COLUMNS)
def test_squared_hinge_without_a_norm_is_the_support_vector_machine(columns: Columns, l2_strength: float) -> None:
    problem = Kind("squared_hinge", "elastic-net", columns=columns, l2_strength=l2_strength).draw(0, 0.0)
    model = LinearSVC(
        C=1 / (problem.shape[0] * l2_strength), dual=False, fit_intercept=False, tol=1e-9, max_iter=100_000
    )
    model.fit(problem.dictionary.columns().numpy(), problem.heads[0].targets[:, 0].numpy())
    assert_agrees(problem, model.coef_, tol=1e-6)


@pytest.mark.parametrize("l2_strength", RIDGES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", COLUMNS)
def test_hinge_without_a_norm_is_the_support_vector_machine_with_its_dual(
    columns: Columns, weighted: bool, l2_strength: float
) -> None:
    problem = Kind("hinge", "elastic-net", True, columns, weighted, l2_strength=l2_strength).draw(0, 0.0)
    rows = problem.row_weight.numpy().nonzero()[0]
    model = SVC(C=1 / l2_strength, kernel="linear", tol=1e-9)
    model.fit(
        problem.dictionary.columns().numpy()[rows],
        problem.heads[0].targets[:, 0].numpy()[rows],
        sample_weight=problem.row_weight.numpy()[rows],
    )
    dual = np.zeros((problem.shape[0], 1))
    dual[rows[model.support_], 0] = l2_strength * model.dual_coef_[0]
    assert_agrees(problem, model.coef_, model.intercept_, [dual], tol=1e-6)
