"""From witnesses and sequences to a dictionary."""

from typing import Any

import torch
from torch import Tensor

from ..core import bits
from ..core.checks import Array, as_tensor, check_positive_int
from ..core.errors import BudgetError, InvalidInputError
from ..core.formatting import plural
from ..core.memory import check_fits
from ..data.sequences import Sequences
from ..neurons.exact import INPUT_UNIT
from ..neurons.rollout import iterate_rollout
from ..witnesses import WitnessSet
from .base import Dictionary, Readout, parse_readout
from .spikes import GROUPING_COPIES, SpikeDictionary, dictionary_bytes, pad_words
from .statistics import StatisticsDictionary

MEMORY_BUDGET = 4 * 2**30
"""Default limit on the bytes of the columns."""


def build_dictionary(
    witnesses: WitnessSet | Array,
    inputs: Sequences | Array | None = None,
    readout: Readout = "last",
    *,
    windows: int | None = None,
    memory_budget: int = MEMORY_BUDGET,
    chunk_bytes: int | None = None,
    unit: Tensor | None = None,
) -> Dictionary:
    """Roll witnesses through the inputs and keep their distinct spike patterns.

    Parameters
    ----------
    witnesses : WitnessSet, or a plain 0/1 array of shape (n_rows, n_columns)
        The witnesses. A plain array is taken as the columns themselves, and needs no inputs.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences; the roll-out runs on their device. Readout "all" needs sequences of equal length.
    readout : "last", "all", "mean" or "windows-k"
        Spikes of the last step; spikes of all steps, one row per step, which is the trajectory dictionary of the
        per-timestep theorem; their mean over the steps; or their means in k windows of equal length.
    windows : int, optional
        The number of windows for readout "mean": ``readout="mean", windows=4`` is ``readout="windows-4"``. Each witness
        has one column per window: step t of a sequence of n steps is in window ⌊t·k/n⌋, and an entry is the number of
        spikes in the window times k/n.
    memory_budget : int
        Bytes for the columns; a larger dictionary is refused before the roll-out.
    chunk_bytes : int, optional
        Bytes for the largest intermediate array. The dictionary does not depend on it.
    unit : Tensor of shape (n_columns,), optional
        The units of statistics, as the training data have decided them. By default the inputs are the training data.

    Returns
    -------
    SpikeDictionary or StatisticsDictionary
        The distinct patterns, each with the witnesses that produce it; or, for a read-out such as "mean+burst", a
        column for each statistic of each witness.

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
        patterns = _pack_columns(_checked_binary(witnesses))
        return _without_duplicates(patterns, n_rows=len(witnesses))
    if inputs is None:
        raise InvalidInputError("expected inputs of shape (n_samples, n_steps, n_features) for the witnesses, got none")
    sequences = Sequences.of(inputs)
    if parsed.kind == "statistics":
        _check_size(sequences)
        return StatisticsDictionary.roll(witnesses, sequences, parsed, unit)
    return build_spikes(witnesses, sequences, str(parsed), memory_budget, chunk_bytes)


def build_spikes(
    witnesses: WitnessSet,
    inputs: Sequences | Array,
    readout: Readout,
    memory_budget: int = MEMORY_BUDGET,
    chunk_bytes: int | None = None,
) -> SpikeDictionary:
    """Build a dictionary of spikes or of their means; statistics are refused."""
    sequences = Sequences.of(inputs)
    n_steps = sequences.n_steps if sequences.lengths is None else int(sequences.lengths.max())
    parse_readout(readout).check_length(n_steps)
    return roll_dictionary(witnesses, sequences, readout, memory_budget, chunk_bytes)


def roll_dictionary(
    witnesses: WitnessSet,
    sequences: Sequences,
    readout: Readout,
    memory_budget: int = MEMORY_BUDGET,
    chunk_bytes: int | None = None,
) -> SpikeDictionary:
    """Build a dictionary without checking the number of windows: a shard may contain only short sequences."""
    parsed = parse_readout(readout)
    if parsed.kind == "statistics":
        raise InvalidInputError(f"expected readout 'last', 'all', 'mean' or windows for spikes, got {readout!r}")
    _check_size(sequences)
    if sequences.lengths is not None and parsed.kind == "all":
        raise InvalidInputError("expected readout 'last' or 'mean' for sequences of unequal length, got 'all'")
    n_steps, n_columns = sequences.n_steps, witnesses.n_witnesses * parsed.n_windows
    n_rows, dtype = parsed.n_rows(len(sequences), n_steps), parsed.dtype(n_steps)
    needed = dictionary_bytes(n_rows, n_columns, readout, n_steps)
    if needed > memory_budget:
        raise BudgetError(
            f"expected a dictionary within {memory_budget / 2**20:,.0f} MiB, but {plural(n_rows, 'row')} × "
            f"{n_columns:,} "
            f"columns need {needed / 2**20:,.0f} MiB: raise memory_budget, or use fewer rows or witnesses"
        )
    purpose = (
        f"a dictionary of {plural(n_rows, 'row')} × {plural(n_columns, 'column')}, while its duplicates are found,"
    )
    check_fits(GROUPING_COPIES * needed, sequences.device, purpose)
    width = parsed.column_bytes(n_rows, n_steps) // dtype.itemsize
    # Columns are compared as 64-bit words, so the bits of the padding must be equal: zero.
    patterns = torch.zeros(n_columns, width, dtype=dtype, device=sequences.device)
    if parsed.kind == "mean":
        blocks = iterate_rollout(witnesses.layers, sequences, parsed.n_windows, chunk_bytes=chunk_bytes)
        for rows, columns, counts in blocks:
            patterns[columns, rows] = counts.T
    else:
        # With multiples of 8 rows, blocks fill whole bytes of the packed columns.
        blocks = iterate_rollout(witnesses.layers, sequences, parsed.kind, chunk_bytes=chunk_bytes, row_multiple=8)
        for rows, columns, spikes in blocks:
            start = (rows.start * n_steps if parsed.kind == "all" else rows.start) // 8
            packed = _pack_columns(spikes.reshape(-1, spikes.shape[-1]))[:, : width - start]
            patterns[columns, start : start + packed.shape[1]] = packed
    lengths = sequences.lengths if parsed.kind == "mean" else None
    return _without_duplicates(
        patterns, n_rows=n_rows, witnesses=witnesses, readout=str(parsed), n_steps=n_steps, lengths=lengths
    )


def _check_size(sequences: Sequences) -> None:
    """Refuse inputs that rounding to their grid would change beyond recognition."""
    largest = float(sequences.inputs.abs().max())
    if 0 < largest < 2**6 * INPUT_UNIT:
        raise InvalidInputError(
            f"expected inputs of ordinary size, got none above {largest:.3g}, and they are rounded to multiples of "
            f"{INPUT_UNIT:.3g}: scale them first, unless their variation is only rounding"
        )


def count_dictionary(counts: Tensor, n_steps: int) -> SpikeDictionary:
    """Build the dictionary of neurons from their spike counts, read as means.

    Parameters
    ----------
    counts : Tensor of shape (n_rows, n_neurons), of an integer dtype
        The number of spikes of each neuron.
    n_steps : int
        Number of steps in which they were counted.

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
    patterns = pad_words(counts.T.to(parse_readout("mean").dtype(n_steps)))
    return _without_duplicates(patterns, n_rows=len(counts), readout="mean", n_steps=n_steps)


def _without_duplicates(patterns: Tensor, **fields: Any) -> SpikeDictionary:
    groups = bits.group_equal(patterns.view(torch.int64))
    # Without duplicates, indexing would only copy the largest array.
    kept = patterns if len(groups.first) == len(patterns) else patterns[groups.first]
    return SpikeDictionary(kept, atom_of_column=groups.inverse, column_of_atom=groups.first, **fields)


def _pack_columns(spikes: Tensor) -> Tensor:
    """Return booleans of shape (n_rows, n_columns) as packed columns."""
    return bits.transpose(bits.pack(spikes), spikes.shape[1])


def _checked_binary(columns: Array) -> Tensor:
    columns = as_tensor("columns", columns)
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
