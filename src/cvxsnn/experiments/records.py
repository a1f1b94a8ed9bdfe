"""Records of finished runs: one small JSON file each, with a checksum, written whole or not at all."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.storage import make_folder, write_atomically

_KINDS: Mapping[str, type] = {"config": dict, "scores": dict, "machine": dict, "versions": dict, "stages": list}
"""Types of the entries that are not single values; a record of a failed run has fewer entries."""


@dataclass(frozen=True)
class Damaged:
    """A record that cannot be used, and why."""

    path: Path
    reason: str


class RecordStore:
    """The records in one folder.

    Parameters
    ----------
    folder : Path
        Created if needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_folder(folder, "records")

    def write(self, run_id: str, record: Mapping[str, Any]) -> None:
        """Write the record of a finished run."""
        text = json.dumps(record, sort_keys=True, ensure_ascii=False)
        # From the text: a reader parses the record and must come to the same checksum.
        contents = {"checksum": _checksum(text), "record": json.loads(text)}
        write_atomically(self._path(run_id), (json.dumps(contents, sort_keys=True, indent=1) + "\n").encode())

    def read(self, run_id: str) -> dict[str, Any] | None:
        """Return a record, or None if there is none or a damaged one."""
        record = _read(self._path(run_id))
        return None if isinstance(record, Damaged) else record

    def read_all(self) -> tuple[dict[str, dict[str, Any]], list[Damaged]]:
        """Return every record by its id, and the damaged ones."""
        records, damaged = {}, []
        for path in sorted(self.folder.glob("*.json")):
            record = _read(path)
            if isinstance(record, Damaged):
                damaged.append(record)
            else:
                records[path.stem] = record
        return records, damaged

    def _path(self, run_id: str) -> Path:
        return self.folder / f"{run_id}.json"


def _read(path: Path) -> dict[str, Any] | Damaged:
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
        record: dict[str, Any] = dict(contents["record"])
        text = json.dumps(record, sort_keys=True, ensure_ascii=False)
        is_intact = contents["checksum"] == _checksum(text)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return Damaged(path, f"a file that is cut off or no record ({type(error).__name__})")
    if not is_intact:
        return Damaged(path, "contents that do not match their checksum")
    misfit = next((name for name, kind in _KINDS.items() if not isinstance(record.get(name, kind()), kind)), None)
    return record if misfit is None else Damaged(path, f"another kind of value than a record under {misfit!r}")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
