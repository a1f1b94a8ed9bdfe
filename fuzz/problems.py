"""Convex programs at the edges of float64: certificates are recomputed in decimal numbers of 120 digits.

A case draws a program, of which one thing is extreme. It is solved, or random coefficients are certified. What the
certificate says is compared with :mod:`fuzz.exact`.
"""

import time
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cvxsnn import Certificate, ConvexProblem, Status, certify, solve
from cvxsnn.convex import SOLVERS
from cvxsnn.core.errors import CertificateError, InvalidInputError
from cvxsnn.dictionary import build_dictionary
from cvxsnn.dictionary.dense import DenseDictionary

from .exact import DIGITS, ONE, ZERO, ExactHead, ExactProblem, Matrix, by_columns, decimals
from .harness import Finding, Hunt

LOSSES = ("squared", "hinge", "squared_hinge", "logistic", "softmax")
PENALTIES = ("l1", "group", "elastic-net", "group-elastic-net")
AGREEMENT = Decimal("1e-9")
"""Relative difference at which two numbers that should agree do not."""

EXACT, LOST = Decimal("1e-60"), Decimal("1e-110")
"""What decimal numbers of 120 digits may lose, relative to the objective and to the weights of classes."""

_SECONDS, _HURRIED, _LATE = 0.5, 0.005, 5.0
"""Times that most solves and a few are given, and how much longer a busy machine may take."""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Draw a program and check what the library proves about it."""
    return check(Draw(rng))


def check(draw: "Draw") -> str:
    """Solve or certify a program, and compare with exact arithmetic."""
    torch.set_num_threads(1)
    try:
        problem = draw.problem()
        if draw.kind == "certify":
            return _check_certify(draw, problem)
        return _check_solve(draw, problem)
    except CertificateError as error:
        if "overflow or underflow in float64" in str(error):  # no certificate is issued from numbers that overflowed
            return "overflowed"
        raise
    except InvalidInputError as error:
        sentence = str(error)
        if not sentence.startswith("expected ") or "\n" in sentence:
            raise Finding(f"refused without a sentence: {sentence!r}") from error
        return "refused"


class Draw:
    """A program, drawn in one go so that a case is the same whatever the library does."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.kind = str(rng.choice(["solve", "certify"], p=[0.5, 0.5]))
        most = 40 if rng.random() < 0.03 else 12
        self.n_rows, self.n_columns = (int(rng.integers(1, most + 1)) for _ in range(2))
        self.edge = str(
            rng.choice(["none", "columns", "entries", "targets", "weights", "strength", "offset", "heads", "separable"])
        )
        self.columns, self.is_binary = self._columns()
        n_heads = 2 if self.edge == "heads" else 1
        self.losses = [str(rng.choice(LOSSES)) for _ in range(n_heads)]
        self.targets = [self._targets(loss) for loss in self.losses]
        self.head_weights = [float(10 ** rng.uniform(-3, 3)) if n_heads > 1 else 1.0 for _ in self.losses]
        self.penalty = str(rng.choice(PENALTIES))
        self.intercept = bool(rng.random() < 0.5)
        self.weights = self._weights()
        small = rng.random() < 0.1 or self.edge == "strength"
        self.ratio = float(10 ** (rng.uniform(-13, -4) if small else rng.uniform(-4, 0.3)))
        self.l2_ratio = float(10 ** (rng.uniform(-15, 15) if rng.random() < 0.1 else rng.uniform(-8, 1)))
        self.is_ridge = bool(rng.random() < 0.3)
        self.tol = float(10 ** rng.uniform(-9, -2))
        self.solver = str(rng.choice(SOLVERS)) if rng.random() < 0.2 else "auto"
        self.max_seconds = _HURRIED if rng.random() < 0.05 else _SECONDS
        self.extreme = float(10 ** rng.uniform(-3, 4))

    def problem(self) -> ConvexProblem:
        """Return the program, at strengths relative to the critical one."""
        names = [f"head{place}" for place in range(len(self.losses))]
        problem = ConvexProblem(
            self.dictionary(),
            dict(zip(names, self.targets, strict=True)),
            dict(zip(names, self.losses, strict=True)),
            1.0,
            penalty=self.penalty,
            intercept=self.intercept,
            row_weight=self.weights,
            head_weights=dict(zip(names, self.head_weights, strict=True)),
        )
        strength, quadratic = self.strengths(problem.critical_strength)
        return problem.with_strength(strength, quadratic)

    def strengths(self, critical: float) -> tuple[float, float]:
        """Return the strengths of the norm and of the quadratic."""
        with np.errstate(over="ignore"):
            entry = float(np.square(np.abs(self.columns).max())) or 1.0
        quadratic = self.l2_ratio * entry if "net" in self.penalty else 0.0
        strength = self.ratio * (critical or 1.0)
        return (0.0, quadratic) if quadratic and self.is_ridge else (strength, quadratic)

    def dictionary(self) -> Any:
        """Return the columns as the library holds them."""
        if self.is_binary:
            return build_dictionary(self.columns)
        return DenseDictionary(torch.from_numpy(self.columns.astype(np.float64)))

    def _columns(self) -> tuple[np.ndarray, bool]:
        rng, shape = self.rng, (self.n_rows, self.n_columns)
        is_binary = bool(rng.random() < 0.5) and self.edge != "entries"
        values = (rng.random(shape) < rng.uniform(0.1, 0.9)).astype(np.float64) if is_binary else rng.normal(size=shape)
        if self.edge == "columns":
            one, other = rng.integers(self.n_columns, size=2)
            change = rng.integers(5)
            if change == 0:
                values[:, one] = values[:, other]
            elif change == 1:
                values[:, one] = 1.0
            elif change == 2:
                values[:, one] = 0.0
            elif change == 3:
                values[:] = values[:, :1]
            elif not is_binary:
                values[:, one] = values[:, other] * (1 + 1e-12 * rng.normal(size=self.n_rows))
        if self.edge == "entries":
            scale = 10.0 ** (rng.uniform(-160, 160) if rng.random() < 0.5 else rng.uniform(-8, 8))
            if rng.random() < 0.5:
                values *= scale
            else:
                values[:, rng.integers(self.n_columns)] *= scale
        return values, is_binary

    def _targets(self, loss: str) -> np.ndarray:
        rng = self.rng
        if self.edge == "separable":
            score = self.columns[:, 0] > np.median(self.columns[:, 0])
            return score.astype(np.float64) if loss == "squared" else score.astype(np.int64)
        if loss == "softmax":
            return rng.integers(0, int(rng.integers(2, 5)), self.n_rows)
        shape = (self.n_rows, int(rng.integers(1, 4)))
        if loss != "squared":
            return rng.integers(0, 2, shape)
        targets = rng.normal(size=shape)
        if self.edge == "targets":
            targets *= 10.0 ** rng.uniform(-170, 170)
            if rng.random() < 0.3:
                targets[:] = targets[:1]
        if self.edge == "offset":
            targets += 10.0 ** rng.uniform(0, 16)
        return targets

    def _weights(self) -> np.ndarray | None:
        rng = self.rng
        if self.edge == "weights":
            powers = rng.uniform(-300, 300, self.n_rows) if rng.random() < 0.5 else rng.uniform(-12, 12, self.n_rows)
            weights = 10.0**powers
            weights[rng.random(self.n_rows) < 0.2] = 0.0
            return weights
        return rng.random(self.n_rows) if rng.random() < 0.3 else None

    def exact(self, problem: ConvexProblem) -> ExactProblem:
        """Return the program in decimal numbers; columns of spikes that are equal have one coefficient."""
        given = np.ones(self.n_rows) if self.weights is None else self.weights / self.weights.max()
        if not np.allclose(problem.row_weight, given / given.sum(), rtol=1e-13, atol=1e-300):
            raise Finding(f"{self}: weights {problem.row_weight.tolist()}")
        row_weight, owner = decimals(problem.row_weight.numpy()), problem.dictionary
        atoms = self.columns[:, owner.column_of_atom.numpy()]
        if not np.array_equal(atoms[:, owner.atom_of_column.numpy()], self.columns):
            raise Finding(f"{self}: columns that differ have one atom")
        heads = []
        for loss, targets, weight in zip(self.losses, self.targets, self.head_weights, strict=True):
            if loss == "softmax":
                encoded = np.eye(int(targets.max()) + 1)[targets]
            else:
                encoded = targets.reshape(self.n_rows, -1).astype(np.float64)
                encoded = encoded if loss == "squared" else 2 * encoded - 1
            heads.append(ExactHead(loss, Decimal(weight), by_columns(encoded)))
        return ExactProblem(
            by_columns(atoms),
            row_weight,
            heads,
            "group" in self.penalty,
            self.intercept,
            Decimal(problem.l1_strength),
            Decimal(problem.l2_strength),
        )

    def __str__(self) -> str:
        return (
            f"{self.kind}, edge {self.edge}, {self.n_rows} × {self.n_columns} {'0/1' if self.is_binary else 'real'}, "
            f"{'+'.join(self.losses)} with {self.penalty}, intercept {self.intercept}, ratio {self.ratio:.2g}, "
            f"quadratic {self.l2_ratio:.2g}{' alone' if self.is_ridge else ''}, solver {self.solver}"
        )


def _check_solve(draw: Draw, problem: ConvexProblem) -> str:
    begin = time.perf_counter()
    try:
        solution = solve(problem, draw.tol, draw.solver, max_seconds=draw.max_seconds)
    except InvalidInputError as error:
        if draw.solver != "auto" and "expected solver" in str(error):
            return "refused by the solver"
        raise
    seconds = time.perf_counter() - begin
    if seconds > draw.max_seconds + _LATE:
        raise Finding(f"{draw}: {seconds:.1f} s instead of {draw.max_seconds}")
    with localcontext(DIGITS):
        _compare(
            draw,
            draw.exact(problem),
            solution.certificate,
            by_columns(solution.coef.numpy()),
            decimals(solution.intercept.numpy()),
            by_columns(solution.dual_point.numpy()),
            draw.tol if solution.status is Status.CONVERGED else None,
        )
    return solution.status.name.lower()


def _check_certify(draw: Draw, problem: ConvexProblem) -> str:
    """Certify random coefficients, with scores up to saturation, and random guesses of the dual point."""
    rng, shape = draw.rng, (problem.dictionary.n_atoms, problem.n_outputs)
    largest = problem.dictionary.largest_entry or 1.0
    coef = draw.extreme / largest * rng.normal(size=shape) * (rng.random(shape) < 0.7)
    intercept = draw.extreme * rng.normal(size=shape[1]) if draw.intercept else np.zeros(shape[1])
    guess = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(problem.dictionary.n_rows, shape[1]))
    certificate, dual_point = certify(
        problem, torch.from_numpy(coef), torch.from_numpy(intercept), [torch.from_numpy(guess)]
    )
    with localcontext(DIGITS):
        dual = by_columns(dual_point.numpy())
        _compare(draw, draw.exact(problem), certificate, by_columns(coef), decimals(intercept), dual, None)
    return "certified"


def _compare(
    draw: Draw,
    exact: ExactProblem,
    certificate: Certificate,
    coef: Matrix,
    intercept: list[Decimal],
    dual_point: Matrix,
    tol: float | None,
) -> None:
    """Compare what a certificate says with what is true; ``tol`` is what the solve says it has reached."""
    primal, dual = Decimal(certificate.primal), Decimal(certificate.dual)
    if not (primal.is_finite() and dual.is_finite() and certificate.gap >= 0):
        raise Finding(f"{draw}: {certificate}")
    objective, gap = exact.objective(coef, intercept), primal - dual
    lost = max((LOST * head.weight for head in exact.heads if head.loss != "squared"), default=ZERO)
    bound = exact.bound(dual_point) + EXACT * objective + lost

    def found(what: str) -> Finding:
        return Finding(
            f"{draw}: {what}; stated {certificate.primal!r} and {certificate.dual!r}, true {objective:.20g} and "
            f"{bound:.20g}"
        )

    if objective > primal * (1 + EXACT):
        raise found("objective above the one stated")
    if primal - objective > AGREEMENT * objective + gap:
        raise found("objective far below the one stated")
    if dual > bound:
        raise found("lower bound not that of the dual point")
    if dual > objective:
        raise found("lower bound above the objective")
    if objective - bound > gap:
        raise found("gap larger than stated")
    if (imbalance := exact.imbalance(dual_point, objective)) > AGREEMENT:
        raise found(f"dual point not balanced: {imbalance:.3g}")
    if not exact.l2_strength and exact.violation(dual_point) > ONE + AGREEMENT:
        raise found(f"dual point outside of the constraint: {exact.violation(dual_point):.12g}")
    if tol is not None and objective - bound > Decimal(tol) * objective * (1 + AGREEMENT):
        raise found(f"called optimal to {tol:.3g}")


HUNT = Hunt(
    name="problems",
    purpose="Convex programs at the edges of float64, certificates recomputed with 120 digits.",
    case=case,
    cases=100_000,
    short=40,
    seconds=30.0,
)
