"""All patterns that hyperplanes through the origin cut out of a set of points, in exact arithmetic."""

from dataclasses import dataclass
from math import comb

import numpy as np
import numpy.typing as npt

from ..core.checks import Array
from ..core.errors import BudgetError, InvalidInputError
from .cones import Cone, Frontier
from .integers import IntArray, as_integers

MAX_PATTERNS = 2_000_000
"""Largest number of patterns that an enumeration accepts by default."""


@dataclass(frozen=True, eq=False)
class Patterns:
    """Distinct patterns, each with a witness.

    Parameters
    ----------
    patterns : array of shape (n_patterns, n_points), dtype bool
        The patterns.
    witnesses : array of shape (n_patterns, dimension)
        Integers of any size such that ``patterns[k] == (Z @ witnesses[k] >= 0)``, exactly.

    Examples
    --------
    >>> from cvxsnn.theory import enumerate_patterns
    >>> found = enumerate_patterns([[1, 0], [0, 1]])
    >>> found.patterns.shape, found.witnesses.shape
    ((4, 2), (4, 2))
    """

    patterns: npt.NDArray[np.bool_]
    witnesses: IntArray

    def __len__(self) -> int:
        """Return the number of patterns."""
        return len(self.patterns)


def count_cells(n_points: int, dimension: int) -> int:
    """Return the number of cells into which hyperplanes through the origin, in general position, cut the space.

    This is Cover's formula.

    Parameters
    ----------
    n_points : int
        Number of hyperplanes: one per point.
    dimension : int
        Dimension of the space.

    Returns
    -------
    int
        The number of cells.

    Examples
    --------
    >>> from cvxsnn.theory import count_cells
    >>> count_cells(10, 3)
    92
    """
    return 2 * sum(comb(n_points - 1, k) for k in range(min(dimension, n_points)))


def enumerate_patterns(points: Array, *, max_patterns: int = MAX_PATTERNS) -> Patterns:
    """Enumerate all patterns ``1{Zu ≥ 0}`` over all vectors u, each with a u that produces it.

    Ties fire, so besides the cells that Cover's formula counts there may be patterns that only ties produce, such as
    the one of u = 0, which is all ones. Points may be repeated, collinear or zero.

    Parameters
    ----------
    points : array Z of shape (n_points, dimension)
        The points. Floating-point numbers are used exactly as they are.
    max_patterns : int
        Raise an error if more patterns are to be expected.

    Returns
    -------
    Patterns
        The distinct patterns and their witnesses.

    Examples
    --------
    >>> from cvxsnn.theory import enumerate_patterns
    >>> found = enumerate_patterns([[1, 0], [0, 1]])
    >>> len(found)
    4
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
