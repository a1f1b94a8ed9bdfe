"""From witnesses and sequences to a dictionary."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..core import bits
from ..core.checks import Array, as_array, check_positive_int
from ..core.errors import BudgetError, InvalidInputError
from ..core.memory import NEGLIGIBLE, check_fits
from ..data.sequences import Sequences
from ..neurons.exact import INPUT_UNIT
from ..neurons.rollout import iterate_counts, iterate_rollout
from ..witnesses import WitnessSet
from .health import DictionaryHealth
from .packed import GROUPING_COPIES, SpikeDictionary, dictionary_bytes
from .readout import Readout, parse_readout

MEMORY_BUDGET = 4 * 2**30
"""Bytes that the packed columns may take, unless the caller says otherwise."""


def build_dictionary(
    witnesses: WitnessSet | Array,
    inputs: Sequences | Array | None = None,
    readout: Readout = "last",
    *,
    windows: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
    chunk_bytes: int | None = None,
) -> SpikeDictionary:
    """Roll witnesses through the inputs and keep their distinct spike patterns.

    Parameters
    ----------
    witnesses : WitnessSet, or a plain 0/1 array of shape (n_rows, n_columns)
        The witnesses. A plain array is taken as the columns themselves, and needs no inputs.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences; the work is done on their device. Sequences of unequal length are not for readout "all".
    readout : "last", "all", "mean" or "windows-k"
        Spikes of the last step; of all steps, one row per step: the trajectory dictionary of the per-timestep theorem;
        their mean over the steps; or their means in k windows of equal length.
    windows : int, optional
        The number of windows for readout "mean": ``readout="mean", windows=4`` is ``readout="windows-4"``. Each witness
        has one column per window: step t of a sequence of n steps is in window ⌊t·k/n⌋, and an entry is the number of
        spikes in the window times k/n.
    memory_budget : int
        Bytes for the packed columns; a dictionary that would not fit is refused before the roll-out.
    chunk_bytes : int, optional
        Bytes for the largest intermediate array. The dictionary does not depend on it.

    Returns
    -------
    SpikeDictionary
        The distinct patterns, each with the witnesses that produce it.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import build_dictionary, gaussian_witnesses
    >>> inputs = np.random.default_rng(0).normal(size=(50, 10, 3))
    >>> dictionary = build_dictionary(gaussian_witnesses(n_features=3, hidden=(64,), seed=0), inputs)
    >>> dictionary.n_rows, dictionary.n_columns
    (50, 64)
    """
    parsed = parse_readout(readout, windows)
    check_positive_int("memory_budget", memory_budget)
    if not isinstance(witnesses, WitnessSet):
        if inputs is not None:
            raise InvalidInputError("expected no inputs beside a plain 0/1 array: its columns are the spikes")
        packed = _pack_columns(_checked_binary(witnesses))
        return _without_duplicates(packed, n_rows=len(witnesses), witnesses=None, readout="last", n_steps=1)
    if inputs is None:
        raise InvalidInputError("expected inputs of shape (n_samples, n_steps, n_features) for the witnesses, got none")
    sequences = Sequences.of(inputs)
    parsed.check_length(sequences.n_steps if sequences.lengths is None else int(sequences.lengths.max()))
    return roll_dictionary(witnesses, sequences, str(parsed), memory_budget, chunk_bytes)


def roll_dictionary(
    witnesses: WitnessSet,
    sequences: Sequences,
    readout: Readout,
    memory_budget: int = MEMORY_BUDGET,
    chunk_bytes: int | None = None,
) -> SpikeDictionary:
    """Build a dictionary of sequences that may be a part of the data, all of them shorter than there are windows."""
    parsed = parse_readout(readout)
    _check_resolution(sequences.inputs)
    if sequences.lengths is not None and parsed.kind == "all":
        raise InvalidInputError("expected readout 'last' or 'mean' for sequences of unequal length, got 'all'")
    n_samples, n_steps, n_columns = len(sequences), sequences.n_steps, witnesses.n_witnesses * parsed.n_windows
    n_rows, n_planes = parsed.n_rows(n_samples, n_steps), parsed.n_planes(n_steps)
    shape = (n_columns, n_planes, bits.packed_bytes(n_rows))
    _check_budget(shape, n_rows, memory_budget)
    needed = build_bytes(n_rows, n_columns, n_planes)
    if needed >= NEGLIGIBLE:
        purpose = f"a dictionary of {n_rows:,} rows × {n_columns:,} columns, while its duplicates are found,"
        check_fits(needed, sequences.device, purpose)
    packed = torch.zeros(shape, dtype=torch.uint8, device=sequences.device)
    layers = witnesses.layers
    if parsed.kind == "mean":
        blocks = iterate_counts(layers, sequences, parsed.n_windows, chunk_bytes=chunk_bytes, row_multiple=8)
    else:
        blocks = iterate_rollout(layers, sequences, parsed.kind, chunk_bytes=chunk_bytes, row_multiple=8)
    for rows, columns, counts in blocks:
        start = (rows.start * n_steps if parsed.kind == "all" else rows.start) // 8
        counts = counts.reshape(-1, counts.shape[-1])
        planes = [counts] if counts.dtype == torch.bool else [(counts >> plane) & 1 == 1 for plane in range(n_planes)]
        for plane, block in enumerate(map(_pack_columns, planes)):
            stop = min(start + block.shape[1], shape[2])
            packed[columns, plane, start:stop] = block[:, : stop - start]
    dictionary = _without_duplicates(packed, n_rows, witnesses, str(parsed), n_steps)
    has_own_counts = parsed.kind == "mean" and sequences.lengths is not None
    return replace(dictionary, lengths=sequences.lengths) if has_own_counts else dictionary


def count_dictionary(counts: Tensor, n_steps: int) -> SpikeDictionary:
    """Build the dictionary of neurons that are known by their spike counts, read as means.

    Parameters
    ----------
    counts : Tensor of shape (n_rows, n_neurons), of an integer dtype
        How often each neuron fired.
    n_steps : int
        The steps that were counted.

    Returns
    -------
    SpikeDictionary
        The distinct columns, with readout "mean".

    Examples
    --------
    >>> import torch
    >>> from cvxsnn.dictionary import count_dictionary
    >>> dictionary = count_dictionary(torch.tensor([[0, 2, 4], [1, 2, 0]]), n_steps=4)
    >>> dictionary.columns().tolist()
    [[0.0, 0.5, 1.0], [0.25, 0.5, 0.0]]
    """
    check_positive_int("n_steps", n_steps)
    if counts.ndim != 2 or 0 in counts.shape or int(counts.min()) < 0 or int(counts.max()) > n_steps:
        raise InvalidInputError(
            f"expected counts of shape (n_rows, n_neurons) from 0 to {n_steps}, got shape {tuple(counts.shape)}"
        )
    planes = [_pack_columns((counts.to(torch.int32) >> plane) & 1 == 1) for plane in range(n_steps.bit_length())]
    return _without_duplicates(torch.stack(planes, dim=1), len(counts), None, "mean", n_steps)


def build_bytes(n_rows: int, n_columns: int, n_planes: int = 1) -> int:
    """Return the peak of bytes while a dictionary is built: its columns, while duplicates are found."""
    return GROUPING_COPIES * dictionary_bytes(n_rows, n_columns, n_planes)


def stack_health(
    witnesses: WitnessSet, inputs: Sequences | Array, readout: Readout = "last"
) -> tuple[DictionaryHealth, ...]:
    """Return the health of every hidden layer's spikes: it shows where a deep stack dies, or confuses rows.

    Parameters
    ----------
    witnesses : WitnessSet
        The witnesses.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences.
    readout : "last", "all", "mean" or "windows-k"
        What a row holds of a sequence.

    Returns
    -------
    tuple of DictionaryHealth
        One per hidden layer, from the inputs up.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.dictionary import stack_health
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> [health.n_columns for health in stack_health(cs.gaussian_witnesses(2, (16, 32), seed=0), inputs)]
    [16, 32]
    """
    stacks = [replace(witnesses, layers=witnesses.layers[:depth]) for depth in range(1, len(witnesses.layers) + 1)]
    return tuple(build_dictionary(stack, inputs, readout).health() for stack in stacks)


def _without_duplicates(
    packed: Tensor, n_rows: int, witnesses: WitnessSet | None, readout: Readout, n_steps: int
) -> SpikeDictionary:
    packed = (packed if packed.ndim == 3 else packed[:, None]).contiguous()
    groups = bits.group_equal(packed.view(torch.int64).flatten(1))
    kept = packed if len(groups.first) == len(packed) else packed[groups.first]
    return SpikeDictionary(kept, n_rows, groups.inverse, groups.first, witnesses, readout, n_steps)


def _pack_columns(spikes: Tensor) -> Tensor:
    """Return booleans of shape (n_rows, n_columns) as packed columns."""
    return bits.transpose(bits.pack(spikes), spikes.shape[1])


def _checked_binary(columns: Array) -> Tensor:
    if not isinstance(columns, Tensor):
        try:
            columns = torch.from_numpy(np.require(as_array("columns", columns), requirements=["C", "W"]))
        except InvalidInputError:
            raise
        except (TypeError, ValueError):  # torch knows no arrays of objects, and NumPy makes none of ragged lists
            raise InvalidInputError(
                "expected a WitnessSet or a 0/1 array of shape (n_rows, n_columns), got rows of unequal length or no "
                "numbers: make the rows equally long"
            ) from None
    if columns.ndim != 2 or 0 in columns.shape:
        raise InvalidInputError(
            f"expected a non-empty 0/1 array of shape (n_rows, n_columns), got shape {tuple(columns.shape)}"
        )
    if columns.dtype == torch.bool:
        return columns
    ones = columns == 1
    if not bool((ones | (columns == 0)).all()):
        raise InvalidInputError("expected a 0/1 array, got other values: threshold them first, for example X >= 0")
    return ones


def _check_budget(shape: tuple[int, int, int], n_rows: int, memory_budget: int) -> None:
    needed = shape[0] * shape[1] * shape[2]
    if needed > memory_budget:
        raise BudgetError(
            f"expected a dictionary within {memory_budget / 2**20:,.0f} MiB, but {n_rows:,} rows × {shape[0]:,} "
            f"columns need {needed / 2**20:,.0f} MiB: raise memory_budget, or use fewer rows or witnesses"
        )


def _check_resolution(inputs: Tensor) -> None:
    largest = float(inputs.abs().max())
    if 0 < largest < 2**6 * INPUT_UNIT:
        raise InvalidInputError(
            f"expected inputs of ordinary size, got none above {largest:.3g}, and they are read in units of "
            f"{INPUT_UNIT:.3g}: scale them first, unless all they vary by is rounding"
        )
