r"""Exact pricing: the largest correlation of a dual point with any neuron of a family, or a proven bound on it.

.. math:: \max_\omega \Big| \sum_{i,t} \lambda_{i,t}\, S_i^t(\omega) \Big|

The dual point is rounded to multiples of a power of two, so that sums of it are exact integers too; what rounding
changes is added to the bound.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..dictionary import Dictionary
from ..dictionary.base import parse_readout
from .box_search import BoxSearch
from .cone_search import search_cones
from .family_union import UnionEvents
from .integers import IntArray
from .lif_family import LIFEvents, check_complete_readout
from .spike_trees import SpikeTrees


@dataclass(frozen=True, eq=False)
class Price:
    """The outcome of pricing.

    Parameters
    ----------
    value : float
        The largest ``|λᵀψ|`` of the neurons found.
    bound : float
        An upper bound over all neurons of the family.
    parameters : integer array of shape (n_found, dimension)
        Neurons with high prices, best first.
    n_boxes : int
        Number of boxes examined.
    is_finished : bool
        Whether the search was completed before it reached a limit.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> cost = theory.price(family.on(inputs), np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]))
    >>> cost.value <= cost.bound, cost.is_finished
    (True, True)
    """

    value: float
    bound: float
    parameters: IntArray
    n_boxes: int
    is_finished: bool


def price(
    events: LIFEvents | UnionEvents,
    dual: npt.NDArray[np.float64],
    *,
    enough: float = 0.0,
    is_thorough: bool = True,
    max_boxes: int = 10**9,
    max_seconds: float = inf,
    n_found: int = 16,
    exempt: Dictionary | None = None,
    is_group: bool = False,
    pulse: Callable[[int, int], bool] | None = None,
    start: IntArray | None = None,
) -> Price:
    """Maximise ``|Σ dual · spikes|`` over all neurons of a family, and over the outputs if there are several.

    On a box of neurons, each output's sum has a range. The norm of the vector of the largest sizes bounds the norm of
    all sums, so that the same search serves the group penalty.

    Parameters
    ----------
    events : LIFEvents or UnionEvents
        The family on the sequences, from :meth:`LIFFamily.on`.
    dual : array of shape (n_samples, n_steps) or (n_samples, n_steps, n_outputs)
        The dual point, as weights of single spikes.
    enough : float
        Stop once the bound is at most this value.
    is_thorough : bool
        Whether to find the largest price, where one above ``enough`` is known, or to be content with a larger bound.
    max_boxes : int
        Limit on the boxes examined. A search that stops early gives a larger bound, but a valid one.
    max_seconds : float
        Limit on the time.
    n_found : int
        Largest number of neurons to return.
    exempt : Dictionary, optional
        A dictionary on the same sequences. Neurons that its read-out cannot tell from one of its atoms are not priced.
        This search is slower and has one output.
    is_group : bool
        Whether the price of a neuron is the Euclidean norm of its prices for the outputs, or the largest of them.
    pulse : callable, optional
        Called as ``pulse(n_boxes, n_open)`` while boxes are searched; True stops the search.
    start : integer array of shape (n_neurons, dimension), optional
        Neurons near which better ones are looked for first.

    Returns
    -------
    Price
        The best neurons found and a bound on all of them.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> cost = theory.price(family.on(inputs), np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]))
    >>> cost.value <= cost.bound, cost.is_finished
    (True, True)
    """
    if isinstance(events, UnionEvents):
        limits: dict[str, Any] = {"max_boxes": max_boxes, "max_seconds": max_seconds, "n_found": n_found}
        choices: dict[str, Any] = {"is_thorough": is_thorough, "is_group": is_group, "exempt": exempt, "pulse": pulse}
        starts = [None] * len(events.members) if start is None else [own for _, own in events.split(start)]
        found_by_member = [
            price(member, dual, enough=enough, start=own, **limits, **choices)
            for member, own in zip(events.members, starts, strict=True)
        ]
        return _join(events, found_by_member)
    weights = np.asarray(dual, dtype=np.float64)
    weights = weights[:, :, None] if weights.ndim == 2 else weights
    deadline = time.monotonic() + max_seconds
    if exempt is not None:
        n_rows = parse_readout(check_complete_readout(exempt.readout)).n_rows(events.n_samples, events.n_steps)
        if exempt.n_rows != n_rows:
            raise InvalidInputError(
                f"expected atoms on the same sequences, of {plural(n_rows, 'row')}, got {exempt.n_rows}"
            )
        if weights.shape[2] != 1:
            raise InvalidInputError(f"expected one output for a search with exempt atoms, got {weights.shape[2]}")
        return Price(*search_cones(events, weights[:, :, 0], enough, max_boxes, deadline, n_found, exempt))
    whole, unit = round_dual(weights)
    trees = SpikeTrees.of(events, whole)
    search = BoxSearch(enough / unit, max_boxes, deadline, is_thorough, is_group=is_group, pulse=pulse, start=start)
    found = search.run(trees)
    lost = np.abs(weights - whole * unit).sum((0, 1)) * (1 + weights.size * 2.0**-52)
    rounding = float(np.linalg.norm(lost) if is_group else lost.max(initial=0.0)) * (1 + 2.0**-40)
    bound = found.bound * unit  # exactly; the sum is rounded upwards
    bound = float(np.nextafter(bound + rounding, inf)) if rounding else bound
    if not found.is_exact and weights.shape[2] == 1:  # the numbers have too many bits
        return Price(*search_cones(events, weights[:, :, 0], enough, max_boxes, deadline, n_found, None))
    parameters = _distinct(events, [own for _, own in found.parameters], n_found)
    return Price(found.value * unit, bound, parameters, found.n_boxes, found.is_finished)


def _join(events: UnionEvents, found: list[Price]) -> Price:
    """Return the price of a union: the largest of its members."""
    return Price(
        max(own.value for own in found),
        max(own.bound for own in found),
        events.join([own.parameters for own in found]),
        sum(own.n_boxes for own in found),
        all(own.is_finished for own in found),
    )


def round_dual(weights: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], float]:
    """Return weights as integers times a power of two."""
    total = float(np.abs(weights).sum())
    if not np.isfinite(total):
        raise InvalidInputError("expected a dual point of finite numbers, got NaN or infinite ones")
    # The sum of all sizes, as integers, has 50 bits: float64 holds such sums exactly.
    unit = float(2.0 ** (np.ceil(np.log2(total)) - 50)) if total > 0 else 1.0
    return np.rint(weights / unit).astype(np.int64), unit


def _distinct(events: LIFEvents, parameters: list[IntArray], n_found: int) -> IntArray:
    """Return the first neurons of each kind of spikes."""
    chosen = np.array(parameters, dtype=object).reshape(-1, events.dimension)
    kept: dict[bytes, int] = {}
    for start in range(0, len(chosen), 64):
        for number, spikes in enumerate(events.simulate(chosen[start : start + 64])):
            kept.setdefault(np.packbits(spikes).tobytes(), start + number)
        if len(kept) >= n_found:
            break
    return chosen[list(kept.values())[:n_found]]
