"""A dictionary whose rows lie on disk, in shards of packed bits: each pass reads every shard once.

A folder has one safetensors file per shard, which is written whole or not at all, and ``dictionary.safetensors``, which
is written last and lists the shards. A shard is a :class:`SpikeDictionary` of its own rows, mapped into memory while it
is in use, so a product holds one shard and what has an entry for each row or each atom, and nothing else.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import DataFileError, InvalidInputError, first_line
from ..core.storage import make_folder, read_tensors, utf8_name, write_tensors
from ..witnesses import WitnessSet
from .base import add_row_products
from .blocks import Batch, Block, iterate_blocks, map_in_order
from .fingerprint import fingerprint, fingerprint_witnesses
from .health import DictionaryHealth
from .packed import SpikeDictionary
from .readout import Readout, parse_readout

SHARD_ROWS = 2**16
"""Rows of a shard, unless the caller says otherwise: 8 MiB for 1,024 witnesses."""

_INDEX = "dictionary.safetensors"
_INDEX_KIND, _SHARD_KIND = "sharded dictionary", "dictionary shard"
_ATOMS, _COLUMNS = "atom_of_witness", "witness_of_atom"
"""Names in files of ``atom_of_column`` and ``column_of_atom``."""


@dataclass(frozen=True, eq=False)
class ShardedDictionary:
    """Distinct columns of spikes, packed, with their rows in files. Made by :func:`stream_dictionary`.

    Parameters
    ----------
    folder : Path
        The folder of the shards.
    shard_rows : tuple of int
        Rows of each shard.
    atom_of_column : Tensor of shape (n_columns,), dtype int64
        The atom that each column is equal to. Witness j in window w of k is column ``j * k + w``.
    column_of_atom : Tensor of shape (n_atoms,), dtype int64
        The first column that is equal to each atom.
    witnesses : WitnessSet or None
        The witnesses that made the columns, where they are known.
    readout : "last", "all", "mean" or "windows-k"
        What a row holds of a sequence.
    n_steps : int
        Steps of the longest sequence.
    is_complete : bool
        Whether the atoms are all patterns of a family of witnesses.

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

    folder: Path
    shard_rows: tuple[int, ...]
    atom_of_column: Tensor
    column_of_atom: Tensor
    witnesses: WitnessSet | None
    readout: Readout
    n_steps: int
    is_complete: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows of all shards."""
        return sum(self.shard_rows)

    @property
    def n_atoms(self) -> int:
        """Number of distinct columns."""
        return len(self.column_of_atom)

    @property
    def n_columns(self) -> int:
        """Number of columns before duplicates were removed: one for each witness and window of time."""
        return len(self.atom_of_column)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_rows, n_atoms)``."""
        return self.n_rows, self.n_atoms

    @property
    def device(self) -> torch.device:
        """Shards are mapped into the processor's memory."""
        return self.atom_of_column.device

    @property
    def is_binary(self) -> bool:
        """Whether every entry is 0 or 1; means are not."""
        return parse_readout(self.readout).kind != "mean"

    @property
    def n_windows(self) -> int:
        """Windows of time that each witness is read in."""
        return parse_readout(self.readout).n_windows

    @cached_property
    def largest_entry(self) -> float:
        """Spikes and their means are at most one; in a window that contains more than n/k steps they may be more."""
        return 1.0 if self.n_windows == 1 else max(shard.largest_entry for _, shard in self.iterate_shards())

    @property
    def is_in_memory(self) -> bool:
        """The rows are on disk."""
        return False

    def iterate_shards(self, atoms: Tensor | None = None) -> Iterator[tuple[slice, SpikeDictionary]]:
        """Iterate over the shards.

        Parameters
        ----------
        atoms : Tensor, optional
            The columns to return; all of them when not given.

        Yields
        ------
        rows : slice
            Which rows these are.
        shard : SpikeDictionary
            The dictionary of these rows.
        """
        start = 0
        for number, n_rows in enumerate(self.shard_rows):
            yield slice(start, start + n_rows), self._open(number, atoms)
            start += n_rows

    def columns(self, atoms: Tensor | slice = slice(None), dtype: torch.dtype = torch.float64) -> Tensor:
        """Return columns as numbers, which must fit into memory.

        Parameters
        ----------
        atoms : Tensor or slice
            The columns to return; all of them by default.
        dtype : torch.dtype
            The type of the numbers.

        Returns
        -------
        Tensor of shape (n_rows, n_chosen)
            The columns.
        """
        chosen = torch.arange(self.n_atoms)[atoms]
        columns = torch.empty(self.n_rows, len(chosen), dtype=dtype)
        for rows, block in self.iterate_rows(dtype=dtype, atoms=chosen):
            columns[rows] = block
        return columns

    def iterate_rows(
        self, n_rows: int = 4096, dtype: torch.dtype = torch.float64, atoms: Tensor | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """Iterate over blocks of rows; blocks end where shards do.

        Parameters
        ----------
        n_rows : int
            About how many rows a block has.
        dtype : torch.dtype
            The type of the numbers.
        atoms : Tensor, optional
            The columns to return; all of them when not given.

        Yields
        ------
        rows : slice
            Which rows these are.
        block : Tensor of shape (n_rows_of_block, n_chosen)
            Their entries.
        """
        for own, shard in self.iterate_shards(atoms):
            for rows, block in shard.iterate_rows(n_rows, dtype):
                yield slice(own.start + rows.start, own.start + rows.stop), block

    def matvec(self, coef: Tensor) -> Tensor:
        """Return the product D·W, from the rows of W that are not zero.

        Parameters
        ----------
        coef : Tensor of shape (n_atoms, n_outputs), dtype float64
            The matrix W.

        Returns
        -------
        Tensor of shape (n_rows, n_outputs), dtype float64
            The product.
        """
        scores = coef.new_zeros(self.n_rows, coef.shape[1])
        active = torch.nonzero(coef.any(1)).squeeze(1)
        if len(active) > 0:
            for rows, shard in self.iterate_shards(active):
                scores[rows] = shard.matvec(coef[active])
        return scores

    def rmatvec(self, rows: Tensor) -> Tensor:
        """Return the product Dᵀ·R.

        Parameters
        ----------
        rows : Tensor of shape (n_rows, n_outputs), dtype float64
            The matrix R.

        Returns
        -------
        Tensor of shape (n_atoms, n_outputs), dtype float64
            The product.
        """
        product = rows.new_zeros(self.n_atoms, rows.shape[1])
        for own, shard in self.iterate_shards():
            product += shard.rmatvec(rows[own])
        return product

    def score_roundings(self, n_active: int) -> int:
        """Return how often an entry of :meth:`matvec` is rounded at most.

        Parameters
        ----------
        n_active : int
            Number of rows of W that are not zero.

        Returns
        -------
        int
            The roundings of a term, from its product to the end of the sum.
        """
        return n_active

    @property
    def correlation_roundings(self) -> int:
        """How often a term of a sum of :meth:`rmatvec` is rounded at most, from its product to the end."""
        return self.n_rows

    def gram(self) -> Tensor:
        """Return the Gram matrix DᵀD, free of rounding where columns are spikes and not means.

        Returns
        -------
        Tensor of shape (n_atoms, n_atoms), dtype float64
            The products of all pairs of columns.
        """
        total = torch.zeros(self.n_atoms, self.n_atoms, dtype=torch.float64)
        if not self.is_binary:
            for _, block in self.iterate_rows():
                total.addmm_(block.T, block)
        else:
            for _, shard in self.iterate_shards():
                total += shard.gram()
        return total

    def row_gram(self) -> Tensor:
        """Return the products of rows DDᵀ, for few rows.

        Returns
        -------
        Tensor of shape (n_rows, n_rows), dtype float64
            The products of all pairs of rows.
        """
        return add_row_products(self)

    def take_rows(self, rows: Tensor) -> SpikeDictionary:
        """Return the dictionary of some rows, in memory; atoms keep their places, even where they become equal.

        Parameters
        ----------
        rows : Tensor of shape (n_chosen,), dtype int64
            The rows to keep, in this order.

        Returns
        -------
        SpikeDictionary
            A dictionary in memory.
        """
        n_planes = parse_readout(self.readout).n_planes(self.n_steps)
        taken = torch.zeros(n_planes, len(rows), bits.packed_bytes(self.n_atoms), dtype=torch.uint8)
        lengths = torch.zeros(len(rows), dtype=torch.int64)
        for own, shard in self.iterate_shards():
            place = torch.nonzero((rows >= own.start) & (rows < own.stop)).squeeze(1)
            chosen = rows[place] - own.start
            for plane in range(shard.packed.shape[1]):
                taken[plane, place] = bits.transpose(shard.packed[:, plane].contiguous(), shard.n_rows)[chosen]
            if shard.lengths is not None:
                lengths[place] = shard.lengths[chosen]
        return SpikeDictionary(
            packed=torch.stack([bits.transpose(plane, self.n_atoms) for plane in taken], dim=1),
            n_rows=len(rows),
            atom_of_column=self.atom_of_column,
            column_of_atom=self.column_of_atom,
            witnesses=self.witnesses,
            readout=self.readout,
            n_steps=self.n_steps,
            lengths=None if self.is_binary else lengths,
        )

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        """Return each row by itself: to find equal ones, all would have to be held at once.

        Parameters
        ----------
        labels : Tensor of shape (n_rows,) or (n_rows, n_labels), optional
            Labels, which make no difference.

        Returns
        -------
        Groups
            The first row and the number of rows of each group, and the group of each row.
        """
        own = torch.arange(self.n_rows)
        return bits.Groups(own, own, torch.ones_like(own))

    def health(self) -> DictionaryHealth:
        """Count dead, saturated, duplicate and complementary columns; rows are told apart by two 64-bit hashes.

        Returns
        -------
        DictionaryHealth
            The counts; as a string, one line.
        """
        gram, sums = self.gram(), self.rmatvec(torch.ones(self.n_rows, 1, dtype=torch.float64))
        # ‖d + e − 1‖², which is zero for complements and at least one over the squared steps for others.
        distance = gram.diagonal() + gram.diagonal()[:, None] + self.n_rows + 2 * (gram - sums - sums.T)
        parsed = parse_readout(self.readout)
        of_column = sums[self.atom_of_column, 0].view(-1, parsed.n_windows)
        width = (parsed.n_planes(self.n_steps) * bits.packed_bytes(self.n_atoms)) // 8 + 1
        hashes, most = [], sums.new_zeros(parsed.n_windows)
        for _, shard in self.iterate_shards():
            most += (shard.window_steps() * parsed.scale(shard.row_counts()[:, None].double())).sum(0)
            words = shard.row_words()
            words = torch.nn.functional.pad(words, (0, width - words.shape[1]))
            hashes.append(torch.stack([bits.hash_rows(words, salt) for salt in range(2)], dim=1))
        return DictionaryHealth(
            n_columns=self.n_columns,
            n_atoms=self.n_atoms,
            n_dead=int((of_column == 0).sum()),
            n_saturated=int((of_column > most - 0.5 / self.n_steps).sum()),
            n_duplicate=self.n_columns - self.n_atoms,
            n_complementary=int((distance < 0.5 / self.n_steps**2).sum()) // 2,
            density=float(of_column.mean() / self.n_rows),
            n_rows=self.n_rows,
            n_distinct_rows=len(torch.unique(torch.cat(hashes), dim=0)),
        )

    def _open(self, number: int, atoms: Tensor | None) -> SpikeDictionary:
        path, n_rows = self.folder / _shard_name(number), self.shard_rows[number]
        try:
            # Mapped: what is not asked for is not read.
            with utf8_name(path) as name, safe_open(name, framework="pt") as file:
                packed, atom_of_column = file.get_tensor("packed"), file.get_tensor(_ATOMS)
                lengths = None if self.is_binary else file.get_tensor("lengths")
        except (SafetensorError, OSError, RuntimeError) as error:
            raise DataFileError(
                f"expected a dictionary shard at {path}, but it is missing, truncated or damaged ({first_line(error)}):"
                " call stream_dictionary again, which makes what is missing"
            ) from None
        if packed.shape[2] != bits.packed_bytes(n_rows) or len(atom_of_column) != self.n_columns:
            raise DataFileError(f"expected {n_rows} rows in {path}, got others: the folder was written anew")
        column = self.column_of_atom if atoms is None else self.column_of_atom[atoms]
        own = self.atom_of_column if atoms is None else torch.arange(len(column))
        place = atom_of_column[column]
        if not torch.equal(place, torch.arange(len(packed))):
            packed = packed[place]
        return SpikeDictionary(packed, n_rows, own, column, None, self.readout, self.n_steps, lengths)

    def __repr__(self) -> str:
        """Return sizes and place on one line."""
        return (
            f"ShardedDictionary({self.n_rows} rows × {self.n_atoms} atoms, readout={self.readout!r}, in "
            f"{len(self.shard_rows)} shards at {self.folder})"
        )


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
            yield folder / _shard_name(number), witnesses, block, readout, origin, restart

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
        folder / _INDEX,
        _INDEX_KIND,
        {
            "shard_rows": torch.tensor(sizes),
            _ATOMS: groups.inverse,
            _COLUMNS: groups.first,
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
    path = folder / _INDEX
    index, header = read_tensors(path, _INDEX_KIND)
    if witnesses is not None and fingerprint_witnesses(witnesses) != header.get("witnesses"):
        raise InvalidInputError(f"expected the witnesses that made the spikes in {folder}, got others")
    targets: list[Tensor] = []
    try:
        _check_index(index, header)
        for number, source in enumerate(header["sources"]):
            path = folder / _shard_name(number)
            shard, own = read_tensors(path, _SHARD_KIND)
            _check_shard(shard, own, len(index[_ATOMS]), header["readout"])
            like = [*targets[:1], shard["targets"]][0]
            if (own["source"], own["n_rows"]) != (source, int(index["shard_rows"][number])) or (
                (shard["targets"].dtype, shard["targets"].shape[1:]) != (like.dtype, like.shape[1:])
            ):
                raise InvalidInputError(f"it does not belong to {folder / _INDEX}")
            targets.append(shard["targets"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise DataFileError(
            f"expected a part of one dictionary in {path}, got another file ({first_line(error)}): write the folder "
            "anew"
        ) from None
    dictionary = ShardedDictionary(
        folder,
        tuple(index["shard_rows"].tolist()),
        index[_ATOMS],
        index[_COLUMNS],
        witnesses,
        header["readout"],
        header["n_steps"],
    )
    return dictionary, torch.cat(targets)


def _check_index(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Refuse what does not describe shards and their columns."""
    parse_readout(header["readout"]).check_length(check_positive_int("n_steps", header["n_steps"]))
    rows, sources = tensors["shard_rows"], header["sources"]
    if not isinstance(sources, list) or not sources:
        raise InvalidInputError("expected a list of shards, got none")
    _check_places("shard_rows", rows, len(sources), 2**62)
    columns = tensors[_COLUMNS]
    _check_places(_COLUMNS, columns, len(columns), len(tensors[_ATOMS]))
    _check_places(_ATOMS, tensors[_ATOMS], len(tensors[_ATOMS]), len(columns))
    if not torch.equal(tensors[_ATOMS][columns], torch.arange(len(columns))):
        raise InvalidInputError("expected the first column of each atom, got others")


def _check_shard(tensors: Mapping[str, Tensor], header: Mapping[str, Any], n_columns: int, readout: Readout) -> None:
    """Refuse what cannot be the spikes of some rows."""
    parsed = parse_readout(readout)
    n_rows, n_steps = (check_positive_int(name, header[name]) for name in ("n_rows", "n_steps"))
    packed, n_samples = tensors["packed"], n_rows // (n_steps if parsed.kind == "all" else 1)
    shape = (parsed.n_planes(n_steps), bits.packed_bytes(n_rows))
    if packed.dtype != torch.uint8 or tuple(packed.shape[1:]) != shape or len(tensors["targets"]) != n_samples:
        raise InvalidInputError(f"expected the spikes and the targets of {n_rows} rows, got others")
    _check_places(_ATOMS, tensors[_ATOMS], n_columns, len(packed))
    if parsed.kind == "mean":
        _check_places("lengths", tensors["lengths"], n_rows, n_steps + 1)


def _check_places(name: str, value: Tensor, size: int, limit: int) -> None:
    """Refuse what is not so many whole numbers from 0 to ``limit - 1``."""
    if tuple(value.shape) != (size,) or value.dtype != torch.int64 or not size:
        raise InvalidInputError(
            f"expected {name} to be {size} whole numbers, got {value.dtype} of {tuple(value.shape)}"
        )
    if not 0 <= int(value.min()) <= int(value.max()) < limit:
        raise InvalidInputError(f"expected {name} from 0 to {limit - 1}, got others")


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
    tensors = {"packed": dictionary.packed, _ATOMS: dictionary.atom_of_column, "targets": block.targets}
    if not dictionary.is_binary:
        tensors["lengths"] = dictionary.row_counts()
    shard = _Shard(dictionary.n_rows, block.sequences.n_steps, dictionary.atom_of_column.cpu(), source)
    write_tensors(path, _SHARD_KIND, tensors, {"n_rows": shard.n_rows, "n_steps": shard.n_steps, "source": source})
    return shard


def _finished(path: Path, source: str, restart: bool, n_columns: int, readout: Readout) -> _Shard | None:
    """Return a shard that exists already; None if it does not, or is damaged."""
    try:
        tensors, header = read_tensors(path, _SHARD_KIND)
    except DataFileError:
        return None
    if header.get("source") == source:
        try:
            _check_shard(tensors, header, n_columns, readout)
        except (LookupError, TypeError, ValueError, AttributeError):
            return None
        return _Shard(header["n_rows"], header["n_steps"], tensors[_ATOMS], source)
    if restart:
        return None
    raise InvalidInputError(
        f"expected a new folder or one that was begun with these witnesses and sequences, but {path} is of others: "
        "choose another folder, or pass restart=True to overwrite it"
    )


def _shard_name(number: int) -> str:
    return f"shard-{number:06d}.safetensors"
