"""Samples a block at a time, from batches of any size: what blocks give does not depend on the batches."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from joblib import Parallel, delayed
from torch import Tensor
from torch.nn.functional import pad

from ..checks import Array, check_positive_int
from ..errors import InvalidInputError
from ..neurons.rollout import as_inputs, as_lengths
from ..witnesses import WitnessSet
from .build import build_dictionary
from .spike_dictionary import Readout, SpikeDictionary

Batch = tuple[Array, Array] | tuple[Array, Array, Array] | Sequence[Array]
"""Inputs (n_samples, n_steps, n_features), targets (n_samples, ...) and, where sequences differ in length, lengths."""

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive samples.

    Attributes
    ----------
    inputs : Tensor of shape (n_samples, n_steps, n_features)
    targets : Tensor of shape (n_samples, ...)
    lengths : Tensor of shape (n_samples,), dtype int64, or None where every sequence fills its array
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.inputs)

    def __reduce__(self) -> tuple[type["Block"], tuple[Tensor | None, ...]]:
        """To another process goes what the block shows, not all of the batch it was cut from."""
        lengths = None if self.lengths is None else self.lengths.clone()
        return Block, (self.inputs.clone(), self.targets.clone(), lengths)

    def cut(self, start: int, stop: int) -> "Block":
        """Some of the samples, without a copy."""
        lengths = None if self.lengths is None else self.lengths[start:stop]
        return Block(self.inputs[start:stop], self.targets[start:stop], lengths)

    def dictionary(self, witnesses: WitnessSet, readout: Readout) -> SpikeDictionary:
        """What the witnesses do on these samples."""
        return build_dictionary(witnesses, self.inputs, readout, lengths=self.lengths)

    def row_targets(self, readout: Readout) -> Tensor:
        """Targets with one entry a row of the dictionary."""
        if readout != "all":
            return self.targets
        if tuple(self.targets.shape[:2]) != tuple(self.inputs.shape[:2]):
            raise InvalidInputError(
                f"expected targets of shape {tuple(self.inputs.shape[:2])}, one a step, for readout 'all', got "
                f"{tuple(self.targets.shape)}"
            )
        return self.targets.flatten(0, 1)


def iterate_blocks(batches: Iterable[Batch], n_rows: int, readout: Readout) -> Iterator[Block]:
    """Cut a stream of batches into blocks of equal size, but for the last.

    Parameters
    ----------
    batches : iterable of (inputs, targets) or (inputs, targets, lengths)
        Gone through once, for example a DataLoader or a generator. Batches whose sequences differ in length from those
        of other batches are padded.
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
            n_samples = max(1, n_rows // (block.inputs.shape[1] if readout == "all" else 1))
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
    """Results of a function in the order of its arguments, by ``n_jobs`` processes; -1 stands for one a core."""
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or (n_jobs < 1 and n_jobs != -1):
        raise InvalidInputError(f"expected n_jobs to be a positive integer, or -1 for one a core, got {n_jobs!r}")
    if n_jobs == 1:
        return (function(*own) for own in arguments)
    results: Iterator[T] = Parallel(n_jobs, return_as="generator")(delayed(function)(*own) for own in arguments)
    return results


def _as_block(batch: Batch) -> Block:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise InvalidInputError(
            f"expected batches (inputs, targets) or (inputs, targets, lengths), got {type(batch).__name__}"
        )
    inputs = as_inputs(batch[0])
    try:
        targets = torch.as_tensor(batch[1])
    except (TypeError, ValueError):
        raise InvalidInputError("expected targets that are numbers, got others: number the classes first") from None
    if targets.ndim == 0 or len(targets) != len(inputs):
        raise InvalidInputError(
            f"expected one target for each of {len(inputs)} samples of a batch, got shape {tuple(targets.shape)}"
        )
    return Block(inputs, targets, as_lengths(batch[2], inputs) if len(batch) == 3 else None)


def _check_alike(block: Block, first: Block) -> None:
    if block.inputs.shape[2] != first.inputs.shape[2] or block.targets.shape[1:] != first.targets.shape[1:]:
        raise InvalidInputError(
            f"expected every batch to have {first.inputs.shape[2]} features and targets of shape "
            f"{('n_samples', *first.targets.shape[1:])}, as the first has, got inputs {tuple(block.inputs.shape)} and "
            f"targets {tuple(block.targets.shape)}"
        )


def _join(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    n_steps = max(block.inputs.shape[1] for block in blocks)
    inputs = [pad(block.inputs, (0, 0, 0, n_steps - block.inputs.shape[1])) for block in blocks]
    lengths = None
    if any(block.lengths is not None or block.inputs.shape[1] < n_steps for block in blocks):
        lengths = torch.cat([_lengths(block) for block in blocks])
    return Block(torch.cat(inputs), torch.cat([block.targets for block in blocks]), lengths)


def _lengths(block: Block) -> Tensor:
    if block.lengths is not None:
        return block.lengths
    n_samples, n_steps, _ = block.inputs.shape
    return torch.full((n_samples,), n_steps, dtype=torch.int64, device=block.inputs.device)
