"""Writing the spikes of a stream of batches to disk, and opening what was written."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import DataFileError, InvalidInputError, first_line
from ..core.storage import make_folder, read_tensors, write_tensors
from ..witnesses import WitnessSet
from .blocks import Batch, Block, iterate_blocks, map_in_order
from .fingerprint import fingerprint, fingerprint_witnesses
from .readout import Readout, parse_readout
from .shard_files import ATOMS, COLUMNS, INDEX, INDEX_KIND, SHARD_KIND, check_index, check_shard, shard_name
from .sharded import ShardedDictionary

SHARD_ROWS = 2**16
"""Rows of a shard, unless the caller says otherwise: 8 MiB for 1,024 witnesses."""


def stream_dictionary(
    witnesses: WitnessSet,
    batches: Iterable[Batch],
    folder: Path | str,
    readout: Readout = "last",
    *,
    windows: int | None = None,
    shard_rows: int = SHARD_ROWS,
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
        What a row holds of a sequence.
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
    folder = Path(folder)
    make_folder(folder, "a dictionary")
    origin = fingerprint([fingerprint_witnesses(witnesses), readout, str(shard_rows)])
    targets: list[Tensor] = []

    def shards() -> Iterator[tuple[object, ...]]:
        for number, block in enumerate(iterate_blocks(batches, shard_rows, readout)):
            targets.append(block.targets.cpu().clone())
            yield folder / shard_name(number), witnesses, block, readout, origin, restart

    sizes: list[int] = []
    sources: list[str] = []
    n_steps, labels = 1, torch.zeros(witnesses.n_witnesses * parsed.n_windows, dtype=torch.int64)
    for shard in map_in_order(_write_shard, shards(), n_jobs):
        sizes.append(shard.n_rows)
        sources.append(shard.source)
        n_steps = max(n_steps, shard.n_steps)
        # Columns are equal if they are equal in every shard.
        labels = bits.group_equal(torch.stack((labels, shard.atom_of_column), dim=1)).inverse
    parsed.check_length(n_steps)
    groups = bits.group_equal(labels[:, None])
    write_tensors(
        folder / INDEX,
        INDEX_KIND,
        {
            "shard_rows": torch.tensor(sizes),
            ATOMS: groups.inverse,
            COLUMNS: groups.first,
        },
        {"readout": readout, "n_steps": n_steps, "sources": sources, "witnesses": fingerprint_witnesses(witnesses)},
    )
    dictionary = ShardedDictionary(folder, tuple(sizes), groups.inverse, groups.first, witnesses, readout, n_steps)
    return dictionary, torch.cat(targets)


def open_dictionary(folder: Path | str, witnesses: WitnessSet | None = None) -> tuple[ShardedDictionary, Tensor]:
    """Open what :func:`stream_dictionary` wrote; every shard is read once and checked.

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
    index, header = read_tensors(path, INDEX_KIND)
    if witnesses is not None and fingerprint_witnesses(witnesses) != header.get("witnesses"):
        raise InvalidInputError(f"expected the witnesses that made the spikes in {folder}, got others")
    targets: list[Tensor] = []
    try:
        check_index(index, header)
        for number, source in enumerate(header["sources"]):
            path = folder / shard_name(number)
            shard, own = read_tensors(path, SHARD_KIND)
            check_shard(shard, own, len(index[ATOMS]), header["readout"])
            like = [*targets[:1], shard["targets"]][0]
            if (own["source"], own["n_rows"]) != (source, int(index["shard_rows"][number])) or (
                (shard["targets"].dtype, shard["targets"].shape[1:]) != (like.dtype, like.shape[1:])
            ):
                raise InvalidInputError(f"it does not belong to {folder / INDEX}")
            targets.append(shard["targets"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataFileError(
            f"expected a part of one dictionary in {path}, got another file ({first_line(error)}): write the folder "
            "anew"
        ) from None
    dictionary = ShardedDictionary(
        folder,
        tuple(index["shard_rows"].tolist()),
        index[ATOMS],
        index[COLUMNS],
        witnesses,
        header["readout"],
        header["n_steps"],
    )
    return dictionary, torch.cat(targets)


class _Shard(NamedTuple):
    """What is to be known of a shard on disk: its size, which of its columns are equal, and what it was made from."""

    n_rows: int
    n_steps: int
    atom_of_column: Tensor
    source: str


def _write_shard(
    path: Path, witnesses: WitnessSet, block: Block, readout: Readout, origin: str, restart: bool
) -> _Shard:
    """Write one shard, unless it is there."""
    source = fingerprint([origin, block.sequences.inputs, block.targets, block.sequences.lengths])
    found = _finished(path, source, restart, witnesses.n_witnesses * parse_readout(readout).n_windows, readout)
    if found is not None:
        return found
    dictionary = block.dictionary(witnesses, readout)
    tensors = {"packed": dictionary.packed, ATOMS: dictionary.atom_of_column, "targets": block.targets}
    if not dictionary.is_binary:
        tensors["lengths"] = dictionary.row_counts()
    shard = _Shard(dictionary.n_rows, block.sequences.n_steps, dictionary.atom_of_column.cpu(), source)
    write_tensors(path, SHARD_KIND, tensors, {"n_rows": shard.n_rows, "n_steps": shard.n_steps, "source": source})
    return shard


def _finished(path: Path, source: str, restart: bool, n_columns: int, readout: Readout) -> _Shard | None:
    """Return a shard that exists already; None if it does not, or is damaged."""
    try:
        tensors, header = read_tensors(path, SHARD_KIND)
    except DataFileError:
        return None
    if header.get("source") == source:
        try:
            check_shard(tensors, header, n_columns, readout)
        except (LookupError, TypeError, ValueError, AttributeError):
            return None
        return _Shard(header["n_rows"], header["n_steps"], tensors[ATOMS], source)
    if restart:
        return None
    raise InvalidInputError(
        f"expected a new folder or one that was begun with these witnesses and sequences, but {path} is of others: "
        "choose another folder, or pass restart=True to overwrite it"
    )
