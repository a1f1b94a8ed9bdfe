"""Blocks of samples, cut from batches of any size: what blocks give does not depend on the batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import torch
from joblib import effective_n_jobs
from torch import Tensor
from torch.nn.functional import pad

from ..core.checks import Array, check_positive_int
from ..core.errors import InvalidInputError
from ..core.parallel import run_tasks
from ..data.sequences import Sequences
from ..witnesses import WitnessSet
from .building import roll_dictionary
from .packed import SpikeDictionary
from .readout import Readout

Batch = tuple[Array, Array] | tuple[Array, Array, Array] | Sequence[Array]
"""Inputs (n_samples, n_steps, n_features), targets (n_samples, ...) and, where sequences differ in length, lengths."""

T = TypeVar("T")

_BLOCKS_PER_PROCESS = 4
"""Blocks that are handed to each process before results are awaited: few to hold, and enough to keep it busy."""


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive samples.

    Attributes
    ----------
    sequences : Sequences
    targets : Tensor of shape (n_samples, ...)
    """

    sequences: Sequences
    targets: Tensor

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.sequences)

    def __reduce__(self) -> tuple[type["Block"], tuple[Sequences, Tensor]]:
        """Pickle what the block shows, not all of the batch that it was cut from."""
        inputs, lengths = self.sequences.inputs, self.sequences.lengths
        sequences = Sequences(inputs.clone(), None if lengths is None else lengths.clone())
        return Block, (sequences, self.targets.clone())

    def cut(self, start: int, stop: int) -> "Block":
        """Return some of the samples, without a copy."""
        return Block(self.sequences.take(slice(start, stop)), self.targets[start:stop])

    def dictionary(self, witnesses: WitnessSet, readout: Readout) -> SpikeDictionary:
        """Return the spikes of witnesses on these samples."""
        return roll_dictionary(witnesses, self.sequences, readout)

    def row_targets(self, readout: Readout) -> Tensor:
        """Return targets with one entry per row of the dictionary."""
        if readout != "all":
            return self.targets
        if tuple(self.targets.shape[:2]) != tuple(self.sequences.inputs.shape[:2]):
            raise InvalidInputError(
                f"expected targets of shape {tuple(self.sequences.inputs.shape[:2])}, one per step, for readout 'all', "
                f"got {tuple(self.targets.shape)}"
            )
        return self.targets.flatten(0, 1)


def iterate_blocks(batches: Iterable[Batch], n_rows: int, readout: Readout) -> Iterator[Block]:
    """Cut a stream of batches into blocks of equal size, but for the last.

    Parameters
    ----------
    batches : iterable of (inputs, targets) or (inputs, targets, lengths)
        Batches that are read once, for example from a DataLoader or a generator. Those whose sequences differ in
        length from those of other batches are padded.
    n_rows : int
        Rows of a block: samples or, with readout "all", steps of samples.
    """
    n_samples = check_positive_int("n_rows", n_rows)
    waiting: list[Block] = []
    first: Block | None = None
    for batch in batches:
        block = _as_block(batch)
        if first is None:
            first = block.cut(0, 1)
            n_samples = max(1, n_rows // (block.sequences.inputs.shape[1] if readout == "all" else 1))
        _check_alike(block, first)
        start = 0
        while (missing := n_samples - sum(map(len, waiting))) <= len(block) - start:
            yield _join([*waiting, block.cut(start, start + missing)])
            waiting, start = [], start + missing
        if start < len(block):
            waiting.append(block.cut(start, len(block)))
    if first is None:
        raise InvalidInputError("expected at least one batch (inputs, targets), got none")
    if waiting:
        yield _join(waiting)


def map_in_order(function: Callable[..., T], arguments: Iterable[tuple[object, ...]], n_jobs: int) -> Iterator[T]:
    """Yield results of a function in the order of its arguments, which may be a stream.

    Parameters
    ----------
    function : function
        A function of a module, called as ``function(*own)`` for each of the arguments.
    arguments : iterable of tuple
        The arguments, read as results are asked for.
    n_jobs : int
        Number of processes; -1 for one per core.

    Yields
    ------
    object
        The results.
    """
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or (n_jobs < 1 and n_jobs != -1):
        raise InvalidInputError(f"expected n_jobs to be a positive integer, or -1 for one per core, got {n_jobs!r}")
    return _map_windows(function, iter(arguments), n_jobs)


def _map_windows(function: Callable[..., T], arguments: Iterator[tuple[object, ...]], n_jobs: int) -> Iterator[T]:
    size = 1 if n_jobs == 1 else _BLOCKS_PER_PROCESS * effective_n_jobs(n_jobs)
    while window := list(islice(arguments, size)):
        results = dict(run_tasks(function, window, n_jobs=n_jobs))
        yield from (results[number] for number in range(len(window)))


def _as_block(batch: Batch) -> Block:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise InvalidInputError(
            f"expected batches (inputs, targets) or (inputs, targets, lengths), got {type(batch).__name__}"
        )
    sequences = Sequences(batch[0], *batch[2:])
    try:
        targets = torch.as_tensor(batch[1])
    except (TypeError, ValueError):
        raise InvalidInputError("expected targets that are numbers, got others: number the classes first") from None
    if targets.ndim == 0 or len(targets) != len(sequences):
        raise InvalidInputError(
            f"expected one target for each of {len(sequences)} samples of a batch, got shape {tuple(targets.shape)}"
        )
    return Block(sequences, targets)


def _check_alike(block: Block, first: Block) -> None:
    if block.sequences.n_features != first.sequences.n_features or block.targets.shape[1:] != first.targets.shape[1:]:
        raise InvalidInputError(
            f"expected every batch to have {first.sequences.n_features} features and targets of shape "
            f"{('n_samples', *first.targets.shape[1:])}, as the first has, got inputs "
            f"{tuple(block.sequences.inputs.shape)} and targets {tuple(block.targets.shape)}"
        )


def _join(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    n_steps = max(block.sequences.n_steps for block in blocks)
    inputs = [pad(block.sequences.inputs, (0, 0, 0, n_steps - block.sequences.n_steps)) for block in blocks]
    lengths = torch.cat([_lengths(block.sequences) for block in blocks])
    return Block(Sequences(torch.cat(inputs), lengths), torch.cat([block.targets for block in blocks]))


def _lengths(sequences: Sequences) -> Tensor:
    if sequences.lengths is not None:
        return sequences.lengths
    return torch.full((len(sequences),), sequences.n_steps, dtype=torch.int64, device=sequences.device)
