"""The files of a dictionary on disk: shards of packed bits, and an index.

A folder has one safetensors file per shard, which is written whole or not at all, and ``dictionary.safetensors``, which
is written last and lists the shards.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import DataFileError, InvalidInputError, first_line
from ..core.storage import check_memory, utf8_name
from .readout import Readout, parse_readout

INDEX = "dictionary.safetensors"
INDEX_KIND, SHARD_KIND = "sharded dictionary", "dictionary shard"

ATOMS, COLUMNS = "atom_of_witness", "witness_of_atom"
"""Names in files of ``atom_of_column`` and ``column_of_atom``."""


def shard_name(number: int) -> str:
    """Return the name of a shard's file."""
    return f"shard-{number:06d}.safetensors"


def check_index(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Refuse what does not describe shards and their columns."""
    parse_readout(header["readout"]).check_length(check_positive_int("n_steps", header["n_steps"]))
    rows, sources = tensors["shard_rows"], header["sources"]
    if not isinstance(sources, list) or not sources:
        raise InvalidInputError("expected a list of shards, got none")
    _check_places("shard_rows", rows, len(sources), 2**62)
    columns = tensors[COLUMNS]
    _check_places(COLUMNS, columns, len(columns), len(tensors[ATOMS]))
    _check_places(ATOMS, tensors[ATOMS], len(tensors[ATOMS]), len(columns))
    if not torch.equal(tensors[ATOMS][columns], torch.arange(len(columns))):
        raise InvalidInputError("expected the first column of each atom, got others")


def check_shard(tensors: Mapping[str, Tensor], header: Mapping[str, Any], n_columns: int, readout: Readout) -> None:
    """Refuse what cannot be the spikes of some rows."""
    parsed = parse_readout(readout)
    n_rows, n_steps = (check_positive_int(name, header[name]) for name in ("n_rows", "n_steps"))
    packed, n_samples = tensors["packed"], n_rows // (n_steps if parsed.kind == "all" else 1)
    shape = (parsed.n_planes(n_steps), bits.packed_bytes(n_rows))
    if packed.dtype != torch.uint8 or tuple(packed.shape[1:]) != shape or len(tensors["targets"]) != n_samples:
        raise InvalidInputError(f"expected the spikes and the targets of {n_rows} rows, got others")
    _check_places(ATOMS, tensors[ATOMS], n_columns, len(packed))
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


def map_shard(path: Path, n_rows: int, n_columns: int, *, has_lengths: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the bits of a shard, the atom of each column and, for means, the lengths of the sequences."""
    check_memory(0)
    try:
        # Mapped: what is not asked for is not read.
        with utf8_name(path) as name, safe_open(name, framework="pt") as file:
            packed, atom_of_column = file.get_tensor("packed"), file.get_tensor(ATOMS)
            lengths = file.get_tensor("lengths") if has_lengths else None
    except (SafetensorError, OSError, RuntimeError) as error:
        raise DataFileError(
            f"expected a dictionary shard at {path}, but it is missing, truncated or damaged ({first_line(error)}):"
            " call stream_dictionary again, which makes what is missing"
        ) from None
    if packed.shape[2] != bits.packed_bytes(n_rows) or len(atom_of_column) != n_columns:
        raise DataFileError(f"expected {n_rows} rows in {path}, got others: the folder was written anew")
    return packed, atom_of_column, lengths
