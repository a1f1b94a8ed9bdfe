"""All patterns of threshold neurons on given points, and of a family's neurons on given sequences, exactly."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core.checks import Array, check_positive_int
from ..core.errors import BudgetError, InvalidInputError, RealisationError
from ..core.formatting import plural
from ..data.sequences import as_inputs
from ..dictionary import Readout, SpikeDictionary
from ..dictionary.building import build_spikes
from ..neurons import HiddenLayer
from ..neurons.exact import snap_inputs
from ..witnesses import Provenance, WitnessSet
from .cones import Cone, Frontier
from .integers import IntArray, as_integers
from .lif_family import LIFFamily, check_complete_readout

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
    _check_estimate(count_cells(n_points, dimension), max_patterns)
    frontier = Frontier(Cone.whole_space(dimension), dimension)
    patterns = np.zeros((1, 0), dtype=bool)
    for point in rows:
        frontier.cut(np.broadcast_to(point, (len(frontier), len(point))))
        patterns = np.concatenate((patterns[frontier.origin], frontier.spikes[:, None]), axis=1)
    witnesses = np.array(list(frontier.witnesses()), dtype=object)
    return Patterns(patterns, witnesses)


@dataclass(frozen=True, eq=False)
class Trajectories:
    """Distinct spike trajectories of single neurons, with parameters that produce them.

    Parameters
    ----------
    spikes : array of shape (n_trajectories, n_samples, n_steps), dtype bool
        The trajectories.
    parameters : array of shape (n_trajectories, dimension)
        Integer parameters of a neuron for each.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> len(theory.enumerate_lif(family, inputs))
    7
    """

    spikes: npt.NDArray[np.bool_]
    parameters: IntArray

    def __len__(self) -> int:
        """Return the number of trajectories."""
        return len(self.spikes)


def enumerate_lif(family: LIFFamily, inputs: Array, *, max_patterns: int = MAX_PATTERNS) -> Trajectories:
    """Enumerate all spike trajectories that LIF neurons of a family have on given sequences.

    The space of parameters is cut sample by sample and step by step. Where a cut leaves two parts, the neurons in one
    have fired and those in the other have not, and they continue with different pasts.

    Parameters
    ----------
    family : LIFFamily
        The neurons.
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences.
    max_patterns : int
        Raise an error if more are to be expected, or are found.

    Returns
    -------
    Trajectories
        The distinct trajectories, with parameters for each.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> len(theory.enumerate_lif(family, inputs))
    7
    """
    inputs = as_inputs(inputs).cpu()
    distinct, inverse = torch.unique(family.read(inputs), dim=0, return_inverse=True)
    samples = torch.zeros(len(distinct), dtype=torch.int64).scatter_(0, inverse, torch.arange(len(inverse)))
    events = family.on(inputs[samples])
    _check_estimate(count_cells(events.n_samples * events.n_steps, events.dimension), max_patterns)
    frontier = Frontier(events.cone(), events.dimension)
    spikes = np.zeros((1, events.n_samples, events.n_steps), dtype=bool)
    for sample in range(events.n_samples):
        resets = np.zeros(len(frontier), dtype=events.sums.dtype)
        for step in range(events.n_steps):
            if step:
                resets = events.advance(resets, spikes[:, sample, step - 1], step)
            frontier.cut(events.normals(sample, step, resets))
            spikes, resets = spikes[frontier.origin], resets[frontier.origin]
            spikes[:, sample, step] = frontier.spikes
            _check_count(len(frontier), max_patterns)
    parameters = np.array(list(frontier.witnesses()), dtype=object)
    return Trajectories(spikes[:, inverse.numpy()], parameters)


def complete_dictionary(
    inputs: Array,
    family: LIFFamily | None = None,
    lower: Sequence[int] = (),
    readout: Readout = "last",
    *,
    max_patterns: int = MAX_PATTERNS,
) -> SpikeDictionary:
    """Build the complete witnessed dictionary of LIF networks with one fixed decay.

    Every atom has a witness that was rolled out and found to produce it, so an optimum over the dictionary is one over
    *all* networks of the family with these lower widths: certificates have scope "complete".

    Parameters
    ----------
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences. With one step this is a feedforward threshold network.
    family : LIFFamily, optional
        The neurons. By default decay 0 without bias, which is the feedforward threshold network.
    lower : sequence of int
        Widths of the hidden layers below the last one. The last layer's neurons do not interact, so it needs no width.
        A family with taps has none, because its taps read the inputs.
    readout : "last", "all" or "mean"
        Which steps the read-out sees.
    max_patterns : int
        Raise an error if more are to be expected, or are found.

    Returns
    -------
    SpikeDictionary
        The dictionary, marked as complete.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> family = theory.LIFFamily(decay=0.5)
    >>> dictionary = theory.complete_dictionary(inputs, family, readout="all")
    >>> dictionary.is_complete, dictionary.n_atoms
    (True, 7)
    """
    readout = check_complete_readout(readout)
    family = family or LIFFamily(0.0)
    if family.taps is not None and len(lower) > 0:
        raise InvalidInputError(
            f"expected no lower layers for neurons whose taps read the inputs, got lower={tuple(lower)}: leave out one "
            "of the two"
        )
    inputs = as_inputs(inputs).cpu()
    stacks: list[tuple[tuple[HiddenLayer, ...], torch.Tensor]] = [((), snap_inputs(inputs))]
    for width in lower:
        check_positive_int("lower", width)
        stacks = _stack_layer(stacks, family, width, max_patterns)
    found: dict[bytes, tuple[tuple[HiddenLayer, ...], HiddenLayer]] = {}
    for layers, values in stacks:
        events = family.on(values)
        trajectories = enumerate_lif(family, values, max_patterns=max_patterns)
        seen = _visible(trajectories.spikes, readout)
        fresh: dict[bytes, IntArray] = {}
        for pattern, parameters in zip(seen, trajectories.parameters, strict=True):
            if (key := pattern.tobytes()) not in found:
                fresh.setdefault(key, parameters)
        if fresh:
            layer = events.layer(np.array(list(fresh.values()), dtype=object))
            for number, key in enumerate(fresh):
                found[key] = (layers, layer.take_neuron(number))
        _check_count(len(found), max_patterns)
    witnesses = _join(list(found.values()), {"family": family.record(), "lower": tuple(lower), "readout": readout})
    dictionary = build_spikes(witnesses, inputs, readout)
    _check_realised(dictionary, len(found))
    return dictionary.as_complete()


def _stack_layer(
    stacks: list[tuple[tuple[HiddenLayer, ...], torch.Tensor]], family: LIFFamily, width: int, max_patterns: int
) -> list[tuple[tuple[HiddenLayer, ...], torch.Tensor]]:
    """Return all choices of ``width`` distinct trajectories of one more layer, over every stack below it."""
    grown = {}
    for layers, values in stacks:
        events = family.on(values)
        trajectories = enumerate_lif(family, values, max_patterns=max_patterns)
        n_choices = comb(len(trajectories), min(width, len(trajectories)))
        _check_estimate(len(stacks) * n_choices, max_patterns)
        for chosen in combinations(range(len(trajectories)), min(width, len(trajectories))):
            repeated = [*chosen, *[chosen[0]] * (width - len(chosen))]
            spikes = torch.from_numpy(trajectories.spikes[repeated]).permute(1, 2, 0).double()
            key = spikes.numpy().tobytes()
            if key not in grown:
                grown[key] = ((*layers, events.layer(trajectories.parameters[repeated])), spikes)
    return list(grown.values())


def _visible(spikes: npt.NDArray[np.bool_], readout: Readout) -> npt.NDArray[Any]:
    """Return what a read-out sees of trajectories (n, n_samples, n_steps)."""
    if readout == "last":
        return spikes[:, :, -1]
    return spikes if readout == "all" else spikes.sum(2)


def _join(witnesses: list[tuple[tuple[HiddenLayer, ...], HiddenLayer]], recipe: dict[str, Any]) -> WitnessSet:
    """Join witnesses: one subnetwork per stack of lower layers, or all neurons in one layer if there are none."""
    if all(not layers for layers, _ in witnesses):
        layers = (_cat([top for _, top in witnesses], -1),)
        return WitnessSet(layers, Provenance("enumerated", recipe))
    stacks = [(*layers, top) for layers, top in witnesses]
    return WitnessSet(
        tuple(_cat(list(level), 0) for level in zip(*stacks, strict=True)), Provenance("enumerated", recipe)
    )


def _cat(layers: list[HiddenLayer], axis: int) -> HiddenLayer:
    tensors = [layer.tensors() for layer in layers]
    return layers[0].with_tensors({name: torch.cat([own[name] for own in tensors], axis) for name in tensors[0]})


def _check_realised(dictionary: SpikeDictionary, n_patterns: int) -> None:
    """Check that the witnesses, which were rolled out to build the dictionary, produced as many atoms as patterns."""
    if dictionary.n_atoms != n_patterns:
        raise RealisationError(
            f"expected {plural(n_patterns, 'pattern')} from their witnesses, got {dictionary.n_atoms}"
        )


def _check_estimate(estimate: int, max_patterns: int) -> None:
    if estimate > max_patterns:
        raise BudgetError(
            f"expected at most {max_patterns:,} patterns, but about {estimate:,} may exist: use fewer points, "
            "samples, steps or neurons, or raise max_patterns"
        )


def _check_count(count: int, max_patterns: int) -> None:
    if count > max_patterns:
        raise BudgetError(
            f"expected at most {max_patterns:,} patterns, and found more than {count:,}: raise max_patterns"
        )
