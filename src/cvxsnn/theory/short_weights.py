"""Short weights for a neuron: the middle of all neurons with the same spikes, rounded.

A search can return a point near the edge of its cell, which needs many bits. The middle of the cell needs few.
"""

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from .integers import IntArray


def middle_of_cell(normals: IntArray, fires: npt.NDArray[np.bool_], has_wall: bool) -> npt.NDArray[np.float64] | None:
    """Return the point of a cell that is farthest from all its walls; None if the cell has no inner point.

    Parameters
    ----------
    normals : integer array of shape (n_events, dimension)
        The events of a neuron, one for each sample and step, with its own history of spikes.
    fires : array of shape (n_events,), bool
        On which side of each the neuron is.
    has_wall : bool
        Whether the last parameter must not be negative.

    Returns
    -------
    array of shape (dimension,), or None
        A point of the unit cube, in floating point: whoever rounds it must check its spikes.
    """
    exact, first = np.unique(np.asarray(normals, dtype=object).astype(np.float64), axis=0, return_index=True)
    size = np.linalg.norm(exact, axis=1)
    inward = np.where(fires[first], 1.0, -1.0)[:, None] * exact
    kept = size > 0
    rows = np.column_stack((-inward[kept] / size[kept, None], np.ones(int(kept.sum()))))
    dimension = exact.shape[1]
    limits = [(-1.0, 1.0)] * (dimension - 1) + [(0.0 if has_wall else -1.0, 1.0)]
    found = linprog(np.eye(dimension + 1)[-1] * -1, A_ub=rows, b_ub=np.zeros(len(rows)), bounds=[*limits, (0.0, 1.0)])
    if found.x is None or found.x[-1] <= 0:
        return None
    point: npt.NDArray[np.float64] = found.x[:-1]
    return point
