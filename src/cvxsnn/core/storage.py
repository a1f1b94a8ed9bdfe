"""Tensors and a JSON header in one safetensors file: checked when read, written whole or not at all.

Reading a file never runs code: safetensors holds numbers, the header is JSON.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save as pack_tensors
from torch import Tensor

from .errors import DataFileError, first_line

VERSION = 1
"""Of the files that are written. Older ones can be read, newer ones not."""

_FORMAT = "cvxsnn"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataFileError(
            f"expected to write {path}, got: {reason}; nothing was changed, choose another place"
        ) from error


def write_tensors(path: Path | str, kind: str, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write tensors and a header.

    Parameters
    ----------
    path : Path or str
    kind : str
        What the file holds; it is asked for when the file is read.
    tensors : mapping of names to tensors
    header : mapping of plain values, as JSON knows them
    """
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    text = json.dumps(header, sort_keys=True)
    metadata = {"format": _FORMAT, "version": str(VERSION), "kind": kind, "header": text}
    metadata["checksum"] = _checksum(metadata, plain)
    write_atomically(Path(path), pack_tensors(plain, metadata))


def read_tensors(path: Path | str, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the header that :func:`write_tensors` wrote; a damaged file is one sentence."""
    path = Path(path)
    if not path.is_file():
        raise DataFileError(f"expected a {kind} file at {path}, found {'a folder' if path.is_dir() else 'nothing'}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = dict(file.metadata() or {})
            if metadata.get("format") != _FORMAT:
                raise DataFileError(f"expected a {kind} file written by cvxsnn, got another safetensors file: {path}")
            _check_version(path, metadata.get("version", ""))
            if metadata.get("kind") != kind:
                raise DataFileError(f"expected a {kind} file, got a {metadata.get('kind')} file: {path}")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError, ValueError, RuntimeError, MemoryError) as error:
        if isinstance(error, DataFileError):
            raise
        raise DataFileError(
            f"expected a {kind} file, but {path} is truncated or damaged ({first_line(error)}): copy or make it again"
        ) from None
    found = metadata.pop("checksum", "")
    if found != _checksum(metadata, tensors):
        raise DataFileError(
            f"expected the contents of {path} to match their checksum, and they do not: the file was altered or "
            "damaged, copy or make it again"
        )
    try:
        header: dict[str, Any] = json.loads(metadata["header"])
    except (KeyError, ValueError, RecursionError):
        raise DataFileError(f"expected a header in {path}, got none that can be read: make the file again") from None
    return tensors, header


def _check_version(path: Path, version: str) -> None:
    if not version.isdigit():
        raise DataFileError(f"expected a file version, got {version!r}: {path} was altered or damaged")
    if int(version) > VERSION:
        raise DataFileError(
            f"expected a file of version {VERSION} or older, got version {version}: update cvxsnn to read {path}"
        )


def _checksum(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
        digest.update(value.contiguous().numpy().tobytes())
    return digest.hexdigest()
