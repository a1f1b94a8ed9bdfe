"""Everybody's solver under one contract.

All minimise the mean loss plus ``strength`` times the L1 norm of the coefficients plus half ``l2_strength`` times their
sum of squares, without an intercept, and hand back nothing but coefficients (and a dual variable where they have one);
:func:`cvxsnn.certify` says how good those are. A contender goes through its settings from loose to tight and stops at
the first that reaches the goal.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cvxsnn import ConvexProblem, SpikeDictionary, solve, solve_path

Vector = npt.NDArray[np.float64]

GOAL = 1e-6
"""Certified relative gap to reach."""

UNLIMITED = 10**8
"""Iterations, for peers whose tolerance is to decide."""

N_STRENGTHS = 50
"""Points of the regularisation path."""


@dataclass(frozen=True, eq=False)
class Case:
    """A problem as the contenders get it: ours the packed dictionary, the others a dense matrix.

    ``targets`` are real numbers for the squared loss, with a column for each output where there are several, −1 and 1
    for logistic and hinge, classes for softmax.
    """

    dictionary: SpikeDictionary
    targets: npt.NDArray[Any]
    loss: str
    strength: float
    critical_strength: float
    l2_strength: float = 0.0

    @cached_property
    def columns(self) -> npt.NDArray[np.float64]:
        """The dictionary's distinct columns, in the order of memory that coordinate methods like."""
        return np.asfortranarray(self.dictionary.columns().numpy())

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_rows, n_atoms)``."""
        return self.dictionary.shape

    @property
    def is_tall(self) -> bool:
        """Whether a Gram matrix is smaller than the data."""
        return self.shape[1] <= self.shape[0]

    @property
    def problem(self) -> ConvexProblem:
        """The problem that all are judged by."""
        return ConvexProblem(
            self.dictionary,
            self.targets,
            loss=self.loss,
            l1_strength=self.strength,
            l2_strength=self.l2_strength,
            penalty=penalty_of(self.l2_strength),
        )

    @property
    def total_strength(self) -> float:
        """The strength of a mixture of both penalties, as other libraries have it."""
        return self.strength + self.l2_strength

    @property
    def l1_ratio(self) -> float:
        """The share of the L1 norm in this mixture."""
        return self.strength / self.total_strength

    @property
    def outputs(self) -> list[Vector]:
        """The targets of each output, for those that fit one at a time."""
        return [self.targets] if self.targets.ndim == 1 else list(np.ascontiguousarray(self.targets.T))

    def normal_equations(self) -> tuple[npt.NDArray[np.float64], Vector]:
        """Gram matrix and correlations with the targets, both divided by the number of rows."""
        n_rows = self.shape[0]
        return self.columns.T @ self.columns / n_rows, self.columns.T @ self.targets / n_rows


@dataclass(frozen=True, eq=False)
class Fit:
    """What a contender found: coefficients of shape (n_atoms,) or (n_atoms, n_outputs), and a dual point λ.

    ``history`` holds (seconds, relative gap) as the solver itself saw them.
    """

    coef: npt.NDArray[np.float64]
    dual: npt.NDArray[np.float64] | None = None
    history: tuple[tuple[float, float], ...] = ()


def penalty_of(l2_strength: float) -> str:
    """The penalty's name in our library."""
    return "elastic-net" if l2_strength else "l1"


def kind_of(strength: float, l2_strength: float) -> str:
    """Which parts of the penalty there are: "l1", "ridge" or "elastic-net"."""
    return penalty_of(l2_strength) if strength else "ridge"


@dataclass(frozen=True)
class Contender:
    """A solver with the losses it takes under each kind of penalty and its settings, from loose to tight."""

    name: str
    losses: Mapping[str, tuple[str, ...]]
    settings: tuple[float, ...]
    fit: Callable[[Case, float], Fit]
    tall_only: bool = False

    def takes(self, kind: str, loss: str, is_tall: bool) -> bool:
        """Whether it can solve problems of this kind of penalty, of this loss, and of this shape."""
        return loss in self.losses.get(kind, ()) and (is_tall or not self.tall_only)


def powers_of_ten(first: int, last: int, step: int = 1) -> tuple[float, ...]:
    """10^−first, ..., 10^−last."""
    return tuple(10.0**-power for power in range(first, last + 1, step))


def fit_ours(case: Case, tol: float) -> Fit:
    """Merging rows, the Gram matrix where there is one, and the certificate are all part of it."""
    begin = time.perf_counter()
    solution = solve(case.problem, tol=tol)
    ahead = time.perf_counter() - begin - solution.seconds
    history = tuple((ahead + moment.seconds, moment.relative_gap) for moment in solution.history)
    return Fit(solution.coef.numpy(), solution.dual_point.numpy(), history)


def fit_our_path(case: Case, tol: float) -> Fit:
    """The problem is the last of fifty strengths, all certified."""
    path = solve_path(case.problem, np.geomspace(case.critical_strength, case.strength, N_STRENGTHS).tolist(), tol=tol)
    assert all(solution.has_converged for solution in path), "a strength of the path has not converged"
    return Fit(path[-1].coef.numpy(), path[-1].dual_point.numpy())


def fit_sklearn_lasso(case: Case, tol: float, precompute: bool = False) -> Fit:
    from sklearn.linear_model import Lasso

    model = Lasso(case.strength, fit_intercept=False, precompute=precompute, max_iter=UNLIMITED, tol=tol)
    return Fit(model.fit(case.columns, case.targets).coef_)


def fit_sklearn_ridge(case: Case, tol: float, solver: str) -> Fit:
    from sklearn.linear_model import Ridge

    alpha = case.shape[0] * case.l2_strength
    model = Ridge(alpha, fit_intercept=False, solver=solver, tol=tol, max_iter=UNLIMITED)
    return Fit(model.fit(case.columns, case.targets).coef_.T)


def fit_sklearn_elastic_net(case: Case, tol: float, precompute: bool = False) -> Fit:
    from sklearn.linear_model import ElasticNet

    model = ElasticNet(
        case.total_strength,
        l1_ratio=case.l1_ratio,
        fit_intercept=False,
        precompute=precompute,
        max_iter=UNLIMITED,
        tol=tol,
    )
    return Fit(model.fit(case.columns, case.targets).coef_.T)


def fit_sklearn_lars(case: Case, _: float) -> Fit:
    """The exact homotopy, which has no tolerance."""
    from sklearn.linear_model import lars_path, lars_path_gram

    options = {"alpha_min": case.strength, "method": "lasso", "return_path": False, "max_iter": UNLIMITED}
    if case.is_tall:
        gram, correlation = case.columns.T @ case.columns, case.columns.T @ case.targets
        coef = lars_path_gram(correlation, gram, n_samples=case.shape[0], copy_Gram=False, **options)[2]
    else:
        coef = lars_path(case.columns, case.targets, Gram=None, **options)[2]
    return Fit(coef)


def fit_sklearn_logistic(case: Case, tol: float, solver: str) -> Fit:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=1 / (case.shape[0] * case.total_strength),
        l1_ratio=case.l1_ratio,
        fit_intercept=False,
        solver=solver,
        tol=tol,
        max_iter=UNLIMITED,
        random_state=0,
    )
    return Fit(model.fit(case.columns, case.targets).coef_.T)


def fit_celer(case: Case, tol: float) -> Fit:
    import celer

    options = {"fit_intercept": False, "tol": tol, "max_iter": 1000, "max_epochs": UNLIMITED}
    if case.loss == "logistic":
        model = celer.LogisticRegression(1 / (case.shape[0] * case.strength), **options)
    elif case.l2_strength:
        model = celer.ElasticNet(case.total_strength, l1_ratio=case.l1_ratio, **options)
    else:
        model = celer.Lasso(case.strength, **options)
    return fit_each_output(model, case)


def fit_skglm(case: Case, tol: float) -> Fit:
    """Its tolerance is on the violation of the optimality conditions, so it is taken relative to the strength."""
    import skglm

    options = {"fit_intercept": False, "tol": tol * case.strength, "max_iter": 1000, "max_epochs": 50_000}
    if case.loss == "logistic":
        model = skglm.SparseLogisticRegression(case.total_strength, l1_ratio=case.l1_ratio, **options)
    elif case.l2_strength:
        model = skglm.ElasticNet(case.total_strength, l1_ratio=case.l1_ratio, **options)
    else:
        model = skglm.Lasso(case.strength, **options)
    return fit_each_output(model, case)


def fit_each_output(model: Any, case: Case) -> Fit:
    """Fit a model of one output to each."""
    return Fit(np.column_stack([model.fit(case.columns, targets).coef_.ravel() for targets in case.outputs]))


def fit_adelie(case: Case, tol: float) -> Fit:
    """Warm-started down a short path, as it is meant to be used.

    With several outputs its groups are whole features: their penalty is ours for ridge alone. It has no part in
    softmax with an L1 norm, and is given the outputs of the squared loss one by one.
    """
    import adelie

    options = {"intercept": False, **adelie_options(case, tol)}
    if case.loss == "logistic":
        family = adelie.glm.binomial((case.targets + 1) / 2)
        return Fit(last_coef(adelie.grpnet(case.columns, family, irls_tol=tol, **options)))
    if case.loss == "softmax":
        one_hot = np.eye(case.targets.max() + 1)[case.targets]
        return Fit(fit_adelie_together(case, adelie.glm.multinomial(one_hot), {"irls_tol": tol, **options}))
    if case.targets.ndim == 2 and not case.strength:
        return Fit(fit_adelie_together(case, adelie.glm.multigaussian(case.targets), options))
    families = [adelie.glm.gaussian(targets) for targets in case.outputs]
    return Fit(np.column_stack([last_coef(adelie.grpnet(case.columns, family, **options)) for family in families]))


def fit_adelie_together(case: Case, family: Any, options: dict[str, Any]) -> npt.NDArray[np.float64]:
    """Ridge with several outputs, by which adelie divides its loss."""
    import adelie

    n_atoms, n_outputs = case.shape[1], family.y.shape[1]
    options["lmda_path"] = options["lmda_path"] / n_outputs
    state = adelie.grpnet(case.columns, family, penalty=np.ones(n_atoms), **options)
    return last_coef(state).reshape(n_atoms, n_outputs)


def fit_adelie_gram(case: Case, tol: float) -> Fit:
    import adelie

    gram, correlation = case.normal_equations()
    gram, options = np.asfortranarray(gram), adelie_options(case, tol)
    options["alpha"] = max(options["alpha"], 1e-12)  # of zero it makes an argument that it does not take
    columns = np.ascontiguousarray(np.atleast_2d(correlation.T))
    return Fit(np.column_stack([last_coef(adelie.solver.gaussian_cov(gram, own, **options)) for own in columns]))


def adelie_options(case: Case, tol: float) -> dict[str, Any]:
    """Down to the strength from the critical one, with the same share of the L1 norm; ridge needs no path."""
    ratio, last = case.l1_ratio, case.total_strength
    return {
        "alpha": ratio,
        "lmda_path": np.geomspace(case.critical_strength / ratio, last, 20) if ratio else np.array([last]),
        "tol": tol,
        "max_iters": UNLIMITED,
        "early_exit": False,
        "n_threads": torch.get_num_threads(),
        "progress_bar": False,
    }


def last_coef(state: Any) -> Vector:
    """Coefficients at the end of a path; it is shorter than asked for where adelie gave up."""
    if len(state.lmdas) < len(state.lmda_path):
        raise ArithmeticError(f"adelie stopped after {len(state.lmdas)} of {len(state.lmda_path)} strengths")
    return state.betas[-1].toarray().ravel()


def fit_clarabel(case: Case, tol: float) -> Fit:
    """Through cvxpy, whose modelling time counts."""
    import cvxpy as cp

    n_rows, n_atoms = case.shape
    n_outputs = int(case.targets.max()) + 1 if case.loss == "softmax" else len(case.outputs)
    coef, scores = cp.Variable((n_atoms, n_outputs)), cp.Variable((n_rows, n_outputs))
    link = scores == case.columns @ coef
    targets = np.column_stack(case.outputs)
    if case.loss == "squared":
        loss = cp.sum_squares(scores - targets) / 2
    elif case.loss == "hinge":
        loss = cp.sum(cp.pos(1 - cp.multiply(targets, scores)))
    elif case.loss == "logistic":
        loss = cp.sum(cp.logistic(-cp.multiply(targets, scores)))
    else:
        chosen = np.eye(n_outputs)[case.targets]
        loss = cp.sum(cp.log_sum_exp(scores, axis=1)) - cp.sum(cp.multiply(chosen, scores))
    penalty = case.strength * cp.sum(cp.abs(coef)) + case.l2_strength / 2 * cp.sum_squares(coef)
    program = cp.Problem(cp.Minimize(loss / n_rows + penalty), [link])
    solve_with_clarabel(program, tol)
    return Fit(coef.value, link.dual_value)


def fit_clarabel_gram(case: Case, tol: float) -> Fit:
    import cvxpy as cp

    gram, correlation = case.normal_equations()
    hessian = cp.psd_wrap(gram + case.l2_strength * np.eye(len(gram)))
    coefs = []
    for own in np.atleast_2d(correlation.T):
        coef = cp.Variable(case.shape[1])
        quadratic = cp.quad_form(coef, hessian) / 2 - own @ coef
        solve_with_clarabel(cp.Problem(cp.Minimize(quadratic + case.strength * cp.norm1(coef))), tol)
        coefs.append(coef.value)
    return Fit(np.column_stack(coefs))


def solve_with_clarabel(program: Any, tol: float) -> None:
    import cvxpy as cp

    program.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
    if program.status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        raise ArithmeticError(f"Clarabel ended with status {program.status}")


def fit_linprog(case: Case, tol: float, method: str) -> Fit:
    """The program min 1ᵀξ + ns·1ᵀ(p + q) over p, q, ξ ≥ 0 with Z(p − q) + ξ ≥ 1, where Z = diag(y) D."""
    from scipy import sparse
    from scipy.optimize import linprog

    n_rows, n_atoms = case.shape
    margin = sparse.csc_matrix(case.targets[:, None] * case.columns)
    constraints = sparse.hstack([-margin, margin, -sparse.eye(n_rows)], format="csc")
    cost = np.concatenate((np.full(2 * n_atoms, n_rows * case.strength), np.ones(n_rows)))
    options = {"primal_feasibility_tolerance": tol, "dual_feasibility_tolerance": tol}
    if method == "highs-ipm":
        options["ipm_optimality_tolerance"] = 0.1 * tol
    result = linprog(cost, A_ub=constraints, b_ub=-np.ones(n_rows), method=method, options=options)
    if result.x is None:
        raise ArithmeticError(f"HiGHS found nothing: {result.message}")
    coef = result.x[:n_atoms] - result.x[n_atoms : 2 * n_atoms]
    return Fit(coef, -case.targets * result.ineqlin.marginals / n_rows)


def fit_highs_dual(case: Case, tol: float, solver: str) -> Fit:
    """Its dual, max 1ᵀa over 0 ≤ a ≤ 1 with |Zᵀa| ≤ ns: far fewer rows. A vertex is not needed, so no crossover."""
    import highspy
    from scipy import sparse

    n_rows, n_atoms = case.shape
    margin = sparse.csc_matrix((case.targets[:, None] * case.columns).T)
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = n_rows, n_atoms
    program.col_cost_, program.col_lower_, program.col_upper_ = -np.ones(n_rows), np.zeros(n_rows), np.ones(n_rows)
    bound = np.full(n_atoms, n_rows * case.strength)
    program.row_lower_, program.row_upper_ = -bound, bound
    matrix = program.a_matrix_
    matrix.start_, matrix.index_, matrix.value_ = margin.indptr, margin.indices, margin.data
    highs = highspy.Highs()
    for option, value in {
        "output_flag": False,
        "solver": solver,
        "run_crossover": "off",
        "primal_feasibility_tolerance": tol,
        "dual_feasibility_tolerance": tol,
        "ipm_optimality_tolerance": 0.1 * tol,
    }.items():
        highs.setOptionValue(option, value)
    highs.passModel(program)
    highs.run()
    solution = highs.getSolution()
    return Fit(-np.array(solution.row_dual), case.targets * np.array(solution.col_value) / n_rows)


OURS, OUR_PATH = "cvxsnn", f"cvxsnn path of {N_STRENGTHS}"

EVERY_LOSS = ("squared", "logistic", "softmax", "hinge")
SMOOTH_LOSSES = ("squared", "logistic", "softmax")
SQUARED, LOGISTIC, CLASSES, SCALAR = ("squared",), ("logistic",), ("logistic", "softmax"), ("squared", "logistic")
HINGE = {"l1": ("hinge",)}


def all_kinds(losses: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """For those that take the same losses under every penalty."""
    return dict.fromkeys(("l1", "ridge", "elastic-net"), losses)


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender(OURS, {**all_kinds(SMOOTH_LOSSES), "l1": EVERY_LOSS}, powers_of_ten(6, 10, 2), fit_ours),
        Contender("scikit-learn Lasso", {"l1": SQUARED}, powers_of_ten(3, 14), fit_sklearn_lasso),
        Contender(
            "scikit-learn Lasso (Gram)",
            {"l1": SQUARED},
            powers_of_ten(3, 14),
            partial(fit_sklearn_lasso, precompute=True),
            tall_only=True,
        ),
        Contender("scikit-learn LARS", {"l1": SQUARED}, (0.0,), fit_sklearn_lars),
        Contender("scikit-learn Ridge", {"ridge": SQUARED}, (1e-4,), partial(fit_sklearn_ridge, solver="cholesky")),
        Contender(
            "scikit-learn Ridge (LSQR)",
            {"ridge": SQUARED},
            powers_of_ten(3, 12),
            partial(fit_sklearn_ridge, solver="lsqr"),
        ),
        Contender("scikit-learn ElasticNet", {"elastic-net": SQUARED}, powers_of_ten(3, 14), fit_sklearn_elastic_net),
        Contender(
            "scikit-learn ElasticNet (Gram)",
            {"elastic-net": SQUARED},
            powers_of_ten(3, 14),
            partial(fit_sklearn_elastic_net, precompute=True),
            tall_only=True,
        ),
        Contender(
            "scikit-learn saga",
            all_kinds(CLASSES),
            powers_of_ten(2, 9),
            partial(fit_sklearn_logistic, solver="saga"),
        ),
        Contender(
            "scikit-learn liblinear",
            {"l1": LOGISTIC, "ridge": LOGISTIC},
            powers_of_ten(1, 12),
            partial(fit_sklearn_logistic, solver="liblinear"),
        ),
        *(
            Contender(
                f"scikit-learn {solver}",
                {"ridge": CLASSES},
                powers_of_ten(2, 12),
                partial(fit_sklearn_logistic, solver=solver),
            )
            for solver in ("lbfgs", "newton-cg", "newton-cholesky")
        ),
        Contender("celer", {"l1": SCALAR, "elastic-net": SQUARED}, powers_of_ten(3, 14), fit_celer),
        Contender("skglm", {"l1": SCALAR, "elastic-net": SCALAR}, powers_of_ten(1, 10), fit_skglm),
        Contender("adelie", {**all_kinds(SCALAR), "ridge": SMOOTH_LOSSES}, powers_of_ten(7, 19, 2), fit_adelie),
        Contender("adelie (Gram)", all_kinds(SQUARED), powers_of_ten(7, 19, 2), fit_adelie_gram, tall_only=True),
        Contender("Clarabel", {**all_kinds(SMOOTH_LOSSES), "l1": EVERY_LOSS}, powers_of_ten(4, 12, 2), fit_clarabel),
        Contender("Clarabel (Gram)", all_kinds(SQUARED), powers_of_ten(4, 12, 2), fit_clarabel_gram, tall_only=True),
        Contender("HiGHS interior point", HINGE, powers_of_ten(5, 10), partial(fit_linprog, method="highs-ipm")),
        Contender("HiGHS simplex", HINGE, powers_of_ten(5, 10), partial(fit_linprog, method="highs-ds")),
        Contender("HiGHS interior point (dual)", HINGE, powers_of_ten(5, 10), partial(fit_highs_dual, solver="ipm")),
        Contender("HiGHS simplex (dual)", HINGE, powers_of_ten(5, 10), partial(fit_highs_dual, solver="simplex")),
        Contender(OUR_PATH, {"l1": SQUARED}, (GOAL,), fit_our_path),
    )
}
