"""Records of what was measured: one JSON object a line, each with a checksum.

A line is added when a measurement is complete, so a run that was interrupted goes on where it stopped. A line that was
cut off or changed does not match its checksum, and is not read.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .measure import console


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file, without those that do not match their checksums."""
    records = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], start=1):
        try:
            record = json.loads(line)
            is_whole = record.pop("checksum") == checksum(record)
        except (ValueError, AttributeError, KeyError):
            is_whole = False
        if is_whole:
            records.append(record)
        else:
            console.print(f"{path.name}: line {number} does not match its checksum, and is not read")
    return records


def add_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a record to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**record, "checksum": checksum(record)})
    is_cut_off = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * is_cut_off + text + "\n")


def checksum(record: Mapping[str, Any]) -> str:
    """The first 16 digits of the SHA-256 of a record, which its JSON with sorted names has."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()[:16]
