"""Every pattern that a hyperplane through the origin cuts out of some points, exactly."""

from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from ..core.checks import Array
from ..core.errors import BudgetError, InvalidInputError
from .cones import Cone, Frontier, IntArray
from .integers import as_integers

MAX_PATTERNS = 2_000_000
"""Patterns beyond which an enumeration is refused, unless the caller says otherwise."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """Distinct patterns with a witness each.

    Attributes
    ----------
    patterns : array of shape (n_patterns, n_points), dtype bool
    witnesses : array of shape (n_patterns, dimension), integers of any size
        ``patterns[k] == (Z @ witnesses[k] >= 0)``, exactly.
    """

    patterns: npt.NDArray[np.bool_]
    witnesses: IntArray

    def __len__(self) -> int:
        """Number of patterns."""
        return len(self.patterns)


def count_cells(n_points: int, dimension: int) -> int:
    """Cover's formula: the parts into which n hyperplanes through the origin, in general position, cut the space."""
    return 2 * sum(comb(n_points - 1, k) for k in range(min(dimension, n_points)))


def enumerate_patterns(points: Array, *, max_patterns: int = MAX_PATTERNS) -> Patterns:
    """Every pattern ``1{Zu ≥ 0}`` over all vectors u, each once, with a u that gives it.

    Ties fire, so beside the cells that Cover's formula counts there may be patterns that only ties produce, such as
    the one of u = 0, which is all ones. Points may be repeated, collinear or zero.

    Parameters
    ----------
    points : array Z of shape (n_points, dimension)
        Floating-point numbers are taken for exactly what they are.
    max_patterns : int
        Refuse the work when more are to be expected.
    """
    rows, _ = as_integers(points)
    if rows.ndim != 2:
        raise InvalidInputError(f"expected points of shape (n_points, dimension), got shape {rows.shape}")
    n_points, dimension = rows.shape
    estimate = count_cells(n_points, dimension)
    if estimate > max_patterns:
        raise BudgetError(
            f"expected at most {max_patterns:,} patterns, but {n_points} points in dimension {dimension} can have "
            f"{estimate:,}: use fewer points or raise max_patterns"
        )
    frontier = Frontier(Cone.whole_space(dimension), dimension)
    patterns = np.zeros((1, 0), dtype=bool)
    for point in rows:
        frontier.cut(np.broadcast_to(point, (len(frontier), len(point))))
        patterns = np.concatenate((patterns[frontier.origin], frontier.spikes[:, None]), axis=1)
    witnesses = np.array(list(frontier.witnesses()), dtype=object)
    return Patterns(patterns, witnesses)
