"""Writing the spikes of a stream of batches to disk, and opening the folder again.

Batches of any size are cut into blocks of equal size, so that the files do not depend on the batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from joblib import effective_n_jobs
from torch import Tensor
from torch.nn.functional import pad

from ..core import bits
from ..core.checks import Array, as_tensor, check_n_jobs, check_positive_int
from ..core.errors import DataFileError, InvalidInputError, first_line
from ..core.formatting import plural
from ..core.parallel import run_tasks
from ..core.storage import make_folder, read_tensors, write_tensors
from ..data.sequences import Sequences
from ..witnesses import WitnessSet
from .base import Readout, parse_readout
from .building import roll_dictionary
from .fingerprint import fingerprint, fingerprint_witnesses
from .sharded import ATOMS, COLUMNS, INDEX, ShardedDictionary, shard_path

Batch = tuple[Array, Array] | tuple[Array, Array, Array] | Sequence[Array]
"""Inputs (n_samples, n_steps, n_features), targets (n_samples, ...) and, if sequences differ in length, lengths."""

_INDEX_KIND, _SHARD_KIND = "sharded dictionary", "dictionary shard"


def stream_dictionary(
    witnesses: WitnessSet,
    batches: Iterable[Batch],
    folder: Path | str,
    readout: Readout = "last",
    *,
    windows: int | None = None,
    shard_rows: int = 2**16,
    restart: bool = False,
    n_jobs: int = 1,
) -> tuple[ShardedDictionary, Tensor]:
    """Roll witnesses through a stream of batches and write their spikes to disk.

    Called again with the same arguments after an interruption, it goes through the batches again and rolls out only
    those rows that are not yet on disk.

    Parameters
    ----------
    witnesses : WitnessSet
        The witnesses.
    batches : iterable of (inputs, targets) or (inputs, targets, lengths)
        Batches that are read once, from a DataLoader or a generator: inputs (n_samples, n_steps, n_features) and
        targets (n_samples, ...).
    folder : Path or str
        Where to write the shards; made if it does not exist.
    readout : "last", "all", "mean" or "windows-k"
        The content of a row.
    windows : int, optional
        The number of windows of time for readout "mean", as for :func:`cvxsnn.build_dictionary`.
    shard_rows : int
        Rows of a shard, which with its inputs must fit into memory a few times.
    restart : bool
        Whether shards of other witnesses or sequences may be overwritten.
    n_jobs : int
        Number of processes; -1 for one per core. The files do not depend on it.

    Returns
    -------
    dictionary : ShardedDictionary
        The dictionary on disk.
    targets : Tensor of shape (n_samples, ...)
        The targets of all batches, in memory.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.dictionary import open_dictionary, stream_dictionary
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dictionary, targets = stream_dictionary(witnesses, batches, folder)
    ...     again, _ = open_dictionary(folder, witnesses)
    >>> dictionary.n_rows == again.n_rows == len(targets)
    True
    """
    parsed = parse_readout(readout, windows)
    readout = str(parsed)
    check_positive_int("shard_rows", shard_rows)
    check_n_jobs(n_jobs)
    folder = Path(folder)
    make_folder(folder, "a dictionary")
    maker = fingerprint_witnesses(witnesses)
    origin = fingerprint([maker, readout, str(shard_rows)])
    targets: list[Tensor] = []

    def tasks() -> Iterator[tuple[Any, ...]]:
        for number, block in enumerate(iterate_blocks(batches, shard_rows, readout)):
            targets.append(block.targets.cpu())
            yield shard_path(folder, number), witnesses, block, readout, origin, restart

    headers: list[dict[str, Any]] = []
    labels = torch.zeros(witnesses.n_witnesses * parsed.n_windows, dtype=torch.int64)
    waiting = tasks()
    # A few blocks per process at a time: little to keep in memory, and enough to keep processes busy.
    while window := list(islice(waiting, 1 if n_jobs == 1 else 4 * effective_n_jobs(n_jobs))):
        # Processes finish in any order, but shards are listed in the order of the rows.
        written = sorted(run_tasks(_write_shard, window, n_jobs=n_jobs), key=lambda numbered: numbered[0])
        for _, (atom_of_column, header) in written:
            headers.append(header)
            # Columns are equal if they are equal in every shard.
            labels = bits.group_equal(torch.stack((labels, atom_of_column), dim=1)).inverse
    sizes, n_steps, sources = ([header[name] for header in headers] for name in ("n_rows", "n_steps", "source"))
    parsed.check_length(max(n_steps))
    groups = bits.group_equal(labels[:, None])
    tensors = {"shard_rows": torch.tensor(sizes), ATOMS: groups.inverse, COLUMNS: groups.first}
    header = {"readout": readout, "n_steps": max(n_steps), "sources": sources, "witnesses": maker}
    # Last: without an index, the folder of an interrupted stream does not open as a dictionary.
    write_tensors(folder / INDEX, _INDEX_KIND, tensors, header)
    return _sharded(folder, tensors, header, witnesses), torch.cat(targets)


def open_dictionary(folder: Path | str, witnesses: WitnessSet | None = None) -> tuple[ShardedDictionary, Tensor]:
    """Open a folder that :func:`stream_dictionary` wrote; every shard is read once and checked.

    Parameters
    ----------
    folder : Path or str
        The folder of the shards.
    witnesses : WitnessSet, optional
        The witnesses that made the spikes, without which no network can be rebuilt.

    Returns
    -------
    dictionary : ShardedDictionary
        The dictionary on disk.
    targets : Tensor of shape (n_samples, ...)
        The targets, in memory.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.dictionary import open_dictionary, stream_dictionary
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dictionary, targets = stream_dictionary(witnesses, batches, folder)
    ...     again, _ = open_dictionary(folder, witnesses)
    >>> dictionary.n_rows == again.n_rows == len(targets)
    True
    """
    folder = Path(folder)
    path = folder / INDEX
    index, header = read_tensors(path, _INDEX_KIND)
    if witnesses is not None and fingerprint_witnesses(witnesses) != header.get("witnesses"):
        raise InvalidInputError(f"expected the witnesses that made the spikes in {folder}, got others")
    targets: list[Tensor] = []
    try:
        _check_index(index, header)
        for number, source in enumerate(header["sources"]):
            path = shard_path(folder, number)
            shard, about = read_tensors(path, _SHARD_KIND)
            _check_shard(shard, about, len(index[ATOMS]), header["readout"])
            targets.append(shard["targets"])
            is_like_first = targets[0].dtype == targets[-1].dtype and targets[0].shape[1:] == targets[-1].shape[1:]
            _require(
                (about["source"], about["n_rows"]) == (source, int(index["shard_rows"][number])) and is_like_first,
                f"a shard of {folder / INDEX}",
            )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataFileError(
            f"expected a part of one dictionary in {path}, got another file ({first_line(error)}): write the folder "
            "anew"
        ) from None
    return _sharded(folder, index, header, witnesses), torch.cat(targets)


def _sharded(
    folder: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any], witnesses: WitnessSet | None
) -> ShardedDictionary:
    return ShardedDictionary(
        folder,
        tuple(tensors["shard_rows"].tolist()),
        atom_of_column=tensors[ATOMS],
        column_of_atom=tensors[COLUMNS],
        witnesses=witnesses,
        readout=header["readout"],
        n_steps=header["n_steps"],
    )


def _check_index(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Refuse an index that does not describe shards and their columns."""
    parse_readout(header["readout"]).check_length(check_positive_int("n_steps", header["n_steps"]))
    sources = header["sources"]
    atoms = tensors[ATOMS]
    columns = tensors[COLUMNS]
    _require(isinstance(sources, list) and _are_indices(tensors["shard_rows"], len(sources), 2**62), "sizes of shards")
    _require(_are_indices(columns, len(columns), len(atoms)), "columns of atoms")
    _require(_are_indices(atoms, len(atoms), len(columns)), "atoms of columns")
    _require(torch.equal(atoms[columns], torch.arange(len(columns))), "the first column of each atom")


def _check_shard(tensors: Mapping[str, Tensor], header: Mapping[str, Any], n_columns: int, readout: Readout) -> None:
    """Refuse tensors that cannot be the spikes of some rows."""
    parsed = parse_readout(readout)
    n_rows, n_steps = (check_positive_int(name, header[name]) for name in ("n_rows", "n_steps"))
    patterns = tensors["patterns"]
    n_samples = n_rows // (n_steps if parsed.kind == "all" else 1)
    is_stored = patterns.dtype == parsed.dtype(n_steps) and patterns.ndim == 2
    _require(is_stored and patterns[0].nbytes == parsed.column_bytes(n_rows, n_steps), "patterns of all rows")
    _require(len(tensors["targets"]) == n_samples, "targets of all rows")
    _require(_are_indices(tensors[ATOMS], n_columns, len(patterns)), "atoms of columns")
    _require(parsed.kind != "mean" or _are_indices(tensors["lengths"], n_rows, n_steps + 1), "lengths of sequences")


def _require(is_valid: bool, content: str) -> None:
    if not is_valid:
        raise InvalidInputError(f"expected {content}, got others")


def _are_indices(value: Tensor, size: int, limit: int) -> bool:
    """Return whether a tensor has ``size`` whole numbers from 0 to ``limit - 1``, at least one."""
    is_vector = tuple(value.shape) == (size,) and value.dtype == torch.int64 and size > 0
    return is_vector and 0 <= int(value.min()) <= int(value.max()) < limit


class Block(NamedTuple):
    """Consecutive samples: sequences, and targets of shape (n_samples, ...)."""

    sequences: Sequences
    targets: Tensor

    def cut(self, start: int, stop: int) -> "Block":
        """Return a copy of some of the samples, so that the rest of a batch is not kept or sent to other processes."""
        samples = torch.arange(start, stop)
        return Block(self.sequences.take(samples), self.targets[samples])


def iterate_blocks(batches: Iterable[Batch], n_rows: int, readout: Readout) -> Iterator[Block]:
    """Cut a stream of batches into blocks of equal size, except for the last.

    Parameters
    ----------
    batches : iterable of (inputs, targets) or (inputs, targets, lengths)
        Batches that are read once, for example from a DataLoader or a generator. Sequences that are shorter than those
        of other batches are padded.
    n_rows : int
        Rows of a block: samples or, with readout "all", steps of samples.
    """
    waiting: list[Block] = []
    first: Block | None = None
    n_samples = n_rows
    for batch in batches:
        block = _as_block(batch)
        size = len(block.targets)
        if first is None:
            # One sample is enough to compare shapes with; the whole batch would stay in memory.
            first = block.cut(0, 1)
            n_samples = max(1, n_rows // (block.sequences.n_steps if readout == "all" else 1))
        is_alike = block.sequences.n_features == first.sequences.n_features
        if not is_alike or block.targets.shape[1:] != first.targets.shape[1:]:
            raise InvalidInputError(
                f"expected every batch to have {plural(first.sequences.n_features, 'feature')} and targets of shape "
                f"{('n_samples', *first.targets.shape[1:])}, as the first has, got inputs "
                f"{tuple(block.sequences.inputs.shape)} and targets {tuple(block.targets.shape)}"
            )
        start = 0
        while (missing := n_samples - sum(len(part.targets) for part in waiting)) <= size - start:
            yield _join([*waiting, block.cut(start, start + missing)])
            waiting, start = [], start + missing
        if start < size:
            waiting.append(block.cut(start, size))
    if first is None:
        raise InvalidInputError("expected at least one batch (inputs, targets), got none")
    if waiting:
        yield _join(waiting)


def _as_block(batch: Batch) -> Block:
    if not isinstance(batch, (tuple, list)) or len(batch) not in (2, 3):
        raise InvalidInputError(
            f"expected batches (inputs, targets) or (inputs, targets, lengths), got {type(batch).__name__}"
        )
    sequences = Sequences(batch[0], *batch[2:])
    targets = as_tensor("targets", batch[1])
    if targets.ndim == 0 or len(targets) != len(sequences):
        raise InvalidInputError(
            f"expected one target for each of {plural(len(sequences), 'sample')} of a batch, got shape "
            f"{tuple(targets.shape)}"
        )
    return Block(sequences, targets)


def _join(blocks: Sequence[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    n_steps = max(block.sequences.n_steps for block in blocks)
    inputs, lengths = [], []
    for sequences, _ in blocks:
        inputs.append(pad(sequences.inputs, (0, 0, 0, n_steps - sequences.n_steps)))
        full = torch.full((len(sequences),), sequences.n_steps, dtype=torch.int64, device=sequences.device)
        lengths.append(full if sequences.lengths is None else sequences.lengths)
    return Block(Sequences(torch.cat(inputs), torch.cat(lengths)), torch.cat([block.targets for block in blocks]))


def _write_shard(
    path: Path, witnesses: WitnessSet, block: Block, readout: Readout, origin: str, restart: bool
) -> tuple[Tensor, dict[str, Any]]:
    """Write one shard, unless it exists; return which of its columns are equal, and its header."""
    # Of the data too: a shard is kept only if it would be written again bit for bit.
    source = fingerprint([origin, block.sequences.inputs, block.targets, block.sequences.lengths])
    is_other = False
    try:
        tensors, header = read_tensors(path, _SHARD_KIND)
        is_other = header.get("source") != source
        if not is_other:
            _check_shard(tensors, header, witnesses.n_witnesses * parse_readout(readout).n_windows, readout)
            return tensors[ATOMS], header
    except (DataFileError, LookupError, TypeError, ValueError, AttributeError):
        pass  # there is none, or it is damaged: it is written again
    if is_other and not restart:
        raise InvalidInputError(
            f"expected a new folder or one that was begun with these witnesses and sequences, but {path} is of others: "
            "choose another folder, or pass restart=True to overwrite it"
        )
    # The length of windows is checked once all shards are known: this one may have short sequences only.
    dictionary = roll_dictionary(witnesses, block.sequences, readout)
    tensors = {"patterns": dictionary.patterns, ATOMS: dictionary.atom_of_column, "targets": block.targets}
    if not dictionary.is_binary:
        tensors["lengths"] = dictionary.row_counts()
    header = {"n_rows": dictionary.n_rows, "n_steps": block.sequences.n_steps, "source": source}
    write_tensors(path, _SHARD_KIND, tensors, header)
    return dictionary.atom_of_column.cpu(), header
