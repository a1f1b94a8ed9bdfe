"""Small random problems of every kind, hard ones among them, for the tests of the convex core."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from tolerances import ROUNDING
from torch import Tensor

from cvxsnn import Certificate, ConvexProblem, Solution
from cvxsnn.convex import LOSSES as KNOWN_LOSSES
from cvxsnn.convex import Penalty

Values = npt.NDArray[np.float64]
Columns = Literal["random", "few_rows", "equal_rows", "collinear"]

SMOOTH_LOSSES = ("squared", "squared_hinge", "logistic", "softmax")
LOSSES = (*SMOOTH_LOSSES, "hinge")
FORMULAS: dict[str, Callable[[Values, Values], Values]] = {
    "squared": lambda f, y: 0.5 * (f - y) ** 2,
    "hinge": lambda f, y: np.maximum(0, 1 - y * f),
    "squared_hinge": lambda f, y: np.maximum(0, 1 - y * f) ** 2,
    "logistic": lambda f, y: np.logaddexp(0, -y * f),
    "softmax": lambda f, y: np.logaddexp.reduce(f, axis=1, keepdims=True) - (f * y).sum(1, keepdims=True),
}
"""Each loss as its docstring has it, for scores f and encoded targets y; columns are summed."""
TWO_HEADS = ("squared + logistic", "softmax + logistic", "hinge + squared_hinge")
PENALTIES = ("l1", "group")
ELASTIC_NETS = ("elastic-net", "group-elastic-net")
COLUMNS: tuple[Columns, ...] = ("random", "few_rows", "equal_rows", "collinear")


@dataclass(frozen=True)
class Kind:
    """What a random problem is like; ``loss`` names one head or two."""

    loss: str
    penalty: str | Penalty = "l1"
    intercept: bool = False
    columns: Columns = "random"
    weighted: bool = False
    n_outputs: int = 1
    l2_strength: float = 0.0
    centre: float = 0.0
    """Size of the random coefficients to which the quadratic draws; zero for none."""

    def draw(self, seed: int, ratio: float = 0.1) -> ConvexProblem:
        """The problem of that seed, its strength ``ratio`` times the critical one."""
        rng = np.random.default_rng(seed)
        columns = draw_columns(rng, self.columns)
        names = self.loss.split(" + ")
        problem = ConvexProblem(
            columns,
            {name: draw_targets(rng, name, columns, self.n_outputs) for name in names},
            {name: name for name in names},
            1.0,
            l2_strength=self.l2_strength,
            penalty=self.penalty,
            intercept=self.intercept,
            row_weight=draw_weight(rng, len(columns)) if self.weighted else None,
            head_weights=dict(zip(names, (1.0, 2.5), strict=False)),
        )
        if self.centre:
            problem = problem.with_centre(self.centre * rng.normal(size=problem.shape[1:]))
        return problem.with_strength(ratio * (problem.critical_strength or 1.0))


def draw_columns(rng: np.random.Generator, kind: Columns) -> npt.NDArray[np.bool_]:
    """A 0/1 matrix; all kinds but the first have linearly dependent columns."""
    n_rows, n_atoms = (6, 15) if kind == "few_rows" else (24, 12)
    columns = rng.random((n_rows, n_atoms)) < 0.5
    if kind == "equal_rows":
        columns = columns[rng.integers(0, 8, n_rows)]
    if kind == "collinear":
        columns[:, 4:8] = ~columns[:, :4]
        columns[:, 8] = True
        columns[:, 9] = False
    return columns


def has_real_targets(loss: str) -> bool:
    """Whether targets of the loss are real numbers, and not classes."""
    return KNOWN_LOSSES[loss].is_regression


def draw_targets(
    rng: np.random.Generator, loss: str, columns: npt.NDArray[np.bool_], n_outputs: int = 1
) -> npt.NDArray[np.float64]:
    """Targets that the columns explain in part; every class occurs."""
    if loss == "softmax":
        scores = columns[:, :3] + rng.normal(size=(len(columns), 3))
        scores[:3] += 10 * np.eye(3)
        return scores.argmax(1)
    scores = columns[:, :n_outputs] - 0.5 + 0.5 * rng.normal(size=(len(columns), n_outputs))
    if has_real_targets(loss):
        return scores.round(1)
    scores[0], scores[1] = 1, -1
    return (scores > 0).astype(float)


def draw_weight(rng: np.random.Generator, n_rows: int) -> npt.NDArray[np.float64]:
    """Unequal weights, some of them zero, but not those of the first rows, which show every class."""
    weight = rng.integers(0, 4, n_rows).astype(float)
    weight[:3] = 1
    return weight


def draw_point(problem: ConvexProblem, seed: int, size: float) -> tuple[Tensor, Tensor | None]:
    """Any coefficients and, where the problem has one, any intercept."""
    generator = torch.Generator().manual_seed(seed)
    _, n_atoms, n_outputs = problem.shape
    coef = size * torch.randn(n_atoms, n_outputs, generator=generator, dtype=torch.float64)
    intercept = size * torch.randn(n_outputs, generator=generator, dtype=torch.float64)
    return coef, intercept if problem.intercept else None


def draw_dual(problem: ConvexProblem, seed: int, size: float) -> Tensor:
    """Any guess of the dual point, in the domain or not."""
    shape = (problem.shape[0], problem.n_outputs)
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def objective(problem: ConvexProblem, coef: Tensor, intercept: Tensor | None) -> float:
    """The docstring's formula, term by term."""
    scores = problem.dictionary.columns().numpy() @ coef.numpy()
    if intercept is not None:
        scores = scores + intercept.numpy()
    total = 0.0
    for head in problem.heads:
        f, y = scores[:, head.columns], head.targets.numpy()
        by_row = FORMULAS[head.loss.name](f, y)
        total += head.weight * (problem.row_weight.numpy() @ by_row.sum(1))
    is_group = problem.penalty.name.startswith("group")
    norm = np.linalg.norm(coef.numpy(), axis=1).sum() if is_group else np.abs(coef.numpy()).sum()
    away = coef.numpy() - (0.0 if problem.centre is None else problem.centre.numpy())
    return float(total + problem.l1_strength * norm + problem.l2_strength * np.square(away).sum() / 2)


def assert_agree(first: Solution | Certificate, second: Solution | Certificate) -> None:
    """Both objectives are within the larger gap of each other."""
    one, other = (given if isinstance(given, Certificate) else given.certificate for given in (first, second))
    assert abs(one.primal - other.primal) <= max(one.gap, other.gap) + ROUNDING * max(1.0, one.primal)


def draw_scores(problem: ConvexProblem, seed: int = 0) -> Tensor:
    shape = (problem.shape[0], problem.n_outputs)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def conjugate(problem: ConvexProblem, unit_dual: Tensor) -> Tensor:
    """Return the conjugate of the weighted loss, term by term; rows without weight add nothing."""
    kept = problem.row_weight > 0
    terms = [
        h.weight * problem.row_weight[kept] @ h.loss.conjugate(unit_dual[kept, h.columns] / h.weight, h.targets[kept])
        for h in problem.heads
    ]
    return torch.stack(terms).sum()
