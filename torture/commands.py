"""Every command that writes, with too little disk or permission: one sentence, nothing damaged, and nothing left over.

A command runs in a process of its own, as an ordinary user, whose disk is a small file system in memory, whose files
may not be large, or who may not write.
"""

import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from unittest import mock

import numpy as np

from cvxsnn.cli import app
from cvxsnn.experiments.demo import demo_configs
from fuzz.command_line import contents, files
from fuzz.harness import Finding, Hunt, Skip

from .processes import Report, run
from .shortages import become_nobody, limit_file_size, mount_small_disk

_QUICK = ("--hidden", "8", "--strength", "0.05", "--decay", "0.5", "--loss", "logistic", "--witnesses", "gaussian")

COMMANDS: dict[str, tuple[str, ...]] = {
    "fit": ("fit", "data.npz", "-o", "OUT/model", *_QUICK),
    "predict": ("predict", "model", "data.npz", "-o", "OUT/y.npz"),
    "predict --proba": ("predict", "rows-model", "rows.csv", "-o", "OUT/y.csv", "--proba", "--label", "kind"),
    "export": ("export", "model", "-o", "OUT/graph.nir"),
    "explore": ("explore", "model", "data.npz", "-o", "OUT/page.html", "--seconds", "0"),
    "report": ("report", "mine.toml", "--records", "records", "-o", "OUT/page.html", "--tables", "OUT/tables"),
    "reproduce": ("reproduce", "mine.toml", "-o", "OUT/new", "--jobs", "1", "--device", "cpu"),
    "certify": (
        *("certify", "small", "small.npz", "--certificate", "OUT/proof.json", "--improved", "OUT/better"),
        *("--seconds", "0.2"),
    ),
    "demo": ("demo", "--output", "OUT/demo"),
}
"""Every command that writes, and all that it writes, into a folder called OUT."""

_REASONS = ("No space left on device", "File too large", "ermission denied")
_DISK = 2**25


def case(rng: np.random.Generator, folder: Path) -> str:
    """Let one command run into a shortage."""
    *quick, slow = COMMANDS
    name = slow if rng.integers(40) == 0 else str(rng.choice(quick))
    shortage = str(rng.choice(list(SHORTAGES)))
    return f"{shortage}: {starve(rng, name, shortage, folder)}"


def starve(rng: np.random.Generator, name: str, shortage: str, folder: Path) -> str:
    """Let a command run into a shortage, with an earlier result or without, and return how it ended."""
    inputs, out = folder / "inputs", folder / "out"
    for place in (folder, inputs, out):
        place.mkdir(exist_ok=True)
        place.chmod(0o755)
    for file, content in files().items():
        path = inputs / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sequences = np.rint(4 * np.random.default_rng(0).normal(size=(8, 2, 1))) / 4
    np.savez(inputs / "small.npz", X=sequences, y=(sequences[:, 0, 0] > 0).astype(int))

    def work(report: Report) -> list[str]:
        os.chdir(inputs)
        runs = [(name, config) for name, config in demo_configs() if config.method == "cvx"]
        with mock.patch("cvxsnn.experiments.demo.demo_configs", return_value=runs):
            _command(("fit", "small.npz", "-o", "small", *_QUICK), out)
            (inputs / "first").mkdir()
            _command(COMMANDS[name], inputs / "first")  # what it imports may be out of reach later
            SHORTAGES[shortage](rng, out, lambda: _command(COMMANDS[name], out) if rng.integers(2) else None)
            before = contents(out)
            status, said = _command(COMMANDS[name], out)
        _judge(status, said, before, contents(out))
        return ["refused" if status else "written"]

    end = run(work)
    if end.status != "finished":
        raise Skip("no right to mount") if "may not mount" in end.text else Finding(f"{name}: {end.text}")
    return str(end.values[0])


def _command(command: tuple[str, ...], out: Path) -> tuple[int, str]:
    with redirect_stderr(StringIO()) as said, redirect_stdout(StringIO()):
        status = app([word.replace("OUT", str(out)) for word in command], standalone_mode=False)
    return status or 0, said.getvalue()


def _judge(status: int, said: str, before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """Raise what a command must not do."""
    lines = said.splitlines()
    if status not in (0, 1):
        raise Finding(f"expected status 0 or 1, got {status}: {said}")
    if status and not (lines[-1].startswith("cvxsnn: ") and any(words in lines[-1] for words in _REASONS)):
        raise Finding(f"expected a sentence that names the shortage, got {said!r}")
    left = [file for file in after if Path(file).name.startswith(".")]
    lost = [file for file in before if file not in after or (before[file] and not after[file])]
    if left or lost:
        raise Finding(f"expected no temporary and no lost files, got {left} and {lost}")


Before = Callable[[], object]
"""Makes an earlier result, or does not."""


def _full_disk(rng: np.random.Generator, out: Path, before: Before) -> None:
    mount_small_disk(out, _DISK)
    before()
    with suppress(OSError), (out / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    os.truncate(out / "filler", max(0, (out / "filler").stat().st_size - 4096 * int(rng.integers(0, 6))))
    _open(out)
    become_nobody()


def _small_files(rng: np.random.Generator, out: Path, before: Before) -> None:
    before()
    _open(out)
    become_nobody()
    limit_file_size(int(2 ** rng.uniform(0, 20)))


def _read_only_folder(rng: np.random.Generator, out: Path, before: Before) -> None:
    before()
    for path in (out, *out.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    become_nobody()


def _open(out: Path) -> None:
    for path in (out, *out.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)


SHORTAGES: dict[str, Callable[[np.random.Generator, Path, Before], None]] = {
    "full disk": _full_disk,
    "small files": _small_files,
    "read-only folder": _read_only_folder,
}
"""Functions that make something short."""

HUNT = Hunt(
    "commands", "Every command that writes, as an ordinary user with too little disk.", case, 500, 2, seconds=120.0
)
