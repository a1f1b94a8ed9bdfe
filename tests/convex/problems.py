"""Small random problems of every kind, hard ones among them, for the tests of the convex core."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cvxsnn import ConvexProblem
from cvxsnn.convex import Penalty

Columns = Literal["random", "few_rows", "equal_rows", "collinear"]

SMOOTH_LOSSES = ("squared", "squared_hinge", "logistic", "softmax")
LOSSES = (*SMOOTH_LOSSES, "hinge")
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


def draw_targets(
    rng: np.random.Generator, loss: str, columns: npt.NDArray[np.bool_], n_outputs: int = 1
) -> npt.NDArray[np.float64]:
    """Targets that the columns explain in part; every class occurs."""
    if loss == "softmax":
        scores = columns[:, :3] + rng.normal(size=(len(columns), 3))
        scores[:3] += 10 * np.eye(3)
        return scores.argmax(1)
    scores = columns[:, :n_outputs] - 0.5 + 0.5 * rng.normal(size=(len(columns), n_outputs))
    if loss == "squared":
        return scores.round(1)
    scores[0], scores[1] = 1, -1
    return (scores > 0).astype(float)


def draw_weight(rng: np.random.Generator, n_rows: int) -> npt.NDArray[np.float64]:
    """Unequal weights, some of them zero, but not those of the first rows, which show every class."""
    weight = rng.integers(0, 4, n_rows).astype(float)
    weight[:3] = 1
    return weight
