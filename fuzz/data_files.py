"""Damaged and odd CSV and Parquet tables: they are read as numbers, or refused in one sentence."""

import bz2
import gzip
import io
import lzma
from datetime import datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from cvxsnn.core.errors import CvxsnnError
from cvxsnn.data.table_files import Columns, read_samples
from cvxsnn.data.tables import numbers_of

from .harness import Finding, Hunt, Skip

_MEMORY = 2**28
"""Bytes that are said to be available: more is refused."""

_COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zip": bytes, "zst": bytes}
_CELLS = (
    *("", " ", "nan", "NaN", "NULL", "inf", "-Infinity", "1e400", "1e-400", "1,5", "1 000", "٣", "½", "0x10", "True"),
    *("2024-01-01", "12:30", "=1+1", '"', '""', "'", "\0", "\r", "\n", "é", "x" * 5000, "9" * 400, "-0", "+1", "1_0"),
)
_OBJECTS: tuple[Any, ...] = (
    *(
        None,
        True,
        "text",
        b"bytes",
        1.5,
        10**18,
        float("inf"),
        datetime(2024, 1, 1),
        Decimal("1.5"),
        [1.0, 2.0],
        {"a": 1},
    ),
)
_NAMES = ("", "a", "id", "time", "label", "Unnamed: 0", "x,y", "ä", "1", " a", "index", "__index_level_0__")


def case(rng: np.random.Generator, folder: Path) -> str:
    """Read one table."""
    if find_spec("pandas") is None or find_spec("pyarrow") is None:
        raise Skip("pandas and pyarrow are needed")
    kind = str(rng.choice(["long", "rows", "series"]))
    table = _table(rng, kind)
    columns = {
        "long": Columns("id", "time", "label"),
        "rows": Columns(label="label"),
        "series": Columns(label="label", is_series=True),
    }[kind]
    is_damaged, is_parquet = bool(rng.integers(2)), bool(rng.integers(2))
    if not is_damaged:
        (_change_types if is_parquet else _change_cells)(rng, table)
    content = _parquet(table) if is_parquet else _csv(rng, table)
    if is_damaged:
        content = _damage(rng, content)
    path = folder / f"data.{'parquet' if is_parquet else 'csv'}"
    if not is_parquet and not rng.integers(4):
        suffix = str(rng.choice(list(_COMPRESS)))
        path, content = folder / f"data.csv.{suffix}", _COMPRESS[suffix](content)
        content = _damage(rng, content) if rng.integers(2) else content
    path.write_bytes(content)
    if not rng.integers(20):
        path, kind = _bomb(rng, folder), "bomb"
    try:
        with mock.patch("cvxsnn.core.memory.available_bytes", return_value=_MEMORY):
            inputs, targets, ids, _ = read_samples(path, columns, needs_targets=True)
        parts = inputs if isinstance(inputs, list) else [inputs]
        numbers = [part if isinstance(part, np.ndarray) else numbers_of(part, "row") for part in parts]
    except CvxsnnError as error:
        if "\n" in str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        return f"{kind}, refused"
    if not all(part.dtype.kind == "f" and np.isfinite(part).all() for part in numbers):
        raise Finding(f"expected finite numbers, got {numbers!r}")
    if len(targets) != len(inputs) or (ids is not None and len(ids) != len(inputs)):
        raise Finding(f"expected one target and one id for each of {len(inputs)} samples, got {len(targets)}")
    return f"{kind}, read"


def _bomb(rng: np.random.Generator, folder: Path) -> Path:
    """Write a small file of a large table."""
    import pyarrow
    import pyarrow.parquet

    if rng.integers(2):
        path = folder / "bomb.parquet"
        table = pyarrow.table({name: np.zeros(2**20) for name in ("id", "time", "label", "t0")})
        with pyarrow.parquet.ParquetWriter(path, table.schema, compression="zstd") as file:
            for _ in range(16):
                file.write_table(table)
        return path
    suffix = str(rng.choice(["gz", "bz2", "xz"]))
    path = folder / f"bomb.csv.{suffix}"
    row = [b"1,2,3,4\n", b"x" * 1000 + b"\n", b"\n", b",,,\n"][rng.integers(4)]
    head, block = (_COMPRESS[suffix](text) for text in (b"id,time,label,t0\n", row * (2**20 // len(row))))
    path.write_bytes(head + int(rng.choice([2**9, 2**11])) * block)  # one stream after the other
    return path


def _table(rng: np.random.Generator, kind: str) -> dict[str, list[Any]]:
    """Return the columns of a table that can be read."""
    n_rows = int(rng.integers(2, 12))
    if kind == "series":
        features = {f"t{step}": rng.normal(size=n_rows).round(3).tolist() for step in range(4)}
    else:
        features = {name: rng.normal(size=n_rows).round(3).tolist() for name in "ab"}
    ids = [number // 2 for number in range(n_rows)]
    order = {"id": ids, "time": list(range(n_rows))} if kind == "long" else {}
    return {**order, **features, "label": [f"class {number % 2}" for number in ids]}


def _change_cells(rng: np.random.Generator, table: dict[str, list[Any]]) -> None:
    """Put odd texts into some cells, or rename, repeat or drop a column."""
    name = str(rng.choice(list(table)))
    match rng.integers(5):
        case 0:
            table[str(rng.choice(_NAMES))] = list(table[name])
        case 1:
            del table[name]
        case 2:
            table[name] = [str(rng.choice(_CELLS))] * len(table[name])
        case _:
            for _ in range(int(rng.integers(1, 4))):
                table[name][int(rng.integers(len(table[name])))] = str(rng.choice(_CELLS))


def _change_types(rng: np.random.Generator, table: dict[str, list[Any]]) -> None:
    """Give a column another type, or change its name."""
    name = str(rng.choice(list(table)))
    value = _OBJECTS[rng.integers(len(_OBJECTS))]
    match rng.integers(4):
        case 0:
            table[str(rng.choice(_NAMES))] = list(table[name])
        case 1:
            del table[name]
        case _:
            table[name] = [value] * len(table[name])
            if rng.integers(2):
                table[name][int(rng.integers(len(table[name])))] = None


def _csv(rng: np.random.Generator, table: dict[str, list[Any]]) -> bytes:
    """Return a table as text, without any care for quotes."""
    separator, end = str(rng.choice([",", ",", ";", "\t"])), str(rng.choice(["\n", "\n", "\r\n"]))
    rows = [list(table), *([str(cell) for cell in row] for row in zip(*table.values(), strict=True))]
    if not rng.integers(6):
        row = rows[rng.integers(len(rows))]
        row += ["1"] if rng.integers(2) or not row else []
        del row[int(rng.integers(len(row))) :]
    text = end.join(separator.join(row) for row in rows) + end
    return text.encode(str(rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"])), errors="replace")


def _parquet(table: dict[str, list[Any]]) -> bytes:
    import pandas

    stream = io.BytesIO()
    pandas.DataFrame(table).to_parquet(stream)
    return stream.getvalue()


def _damage(rng: np.random.Generator, content: bytes) -> bytes:
    """Return a file with some bytes changed, added or gone."""
    damaged = bytearray(content or b" ")
    place, length = int(rng.integers(len(damaged))), int(rng.integers(1, 30))
    match rng.integers(4):
        case 0:
            for _ in range(int(rng.integers(1, 6))):
                damaged[int(rng.integers(len(damaged)))] = int(rng.integers(256))
        case 1:
            del damaged[place:]
        case 2:
            del damaged[place : place + length]
        case _:
            damaged[place:place] = rng.bytes(length)
    return bytes(damaged)


HUNT = Hunt(
    "data_files",
    "Damaged and odd CSV and Parquet tables, and small files of large ones.",
    case,
    cases=5_000,
    short=100,
    seconds=20.0,
)
