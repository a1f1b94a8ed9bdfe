"""Commands with hostile files and options: they do what they say, or refuse in one sentence and change nothing."""

import hashlib
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

from cvxsnn import SequenceScaler, SpikingClassifier, SpikingRegressor, cli, load, save
from cvxsnn.exchange import from_nir
from cvxsnn.experiments import RecordStore

from .harness import Finding, Hunt

_LIMIT = 5.0
"""Seconds in which a command refuses what it does not accept."""

_QUICK = ["--hidden", "8", "--strength", "0.01", "--witnesses", "gaussian"]

_NAMES = (
    "missing", "folder.csv", "", ".", "x" * 300, "x" * 5000, "data.npz/inside", "no/such/folder/file", "é☃🐍", "\udcff",
    " ", "-", "a\nb", "\x1b[31m", "/dev/null/file", "[red]x[/red]", "%s{}", "~", "broken", "empty",
    "data.npz", "rows.csv", "model", "mine.toml", "missing.csv", "missing.parquet", "empty.csv", "broken.csv",
)  # fmt: skip
"""Names of files, none of which a command can make outside of its folder: missing, unusual, and of another kind."""

_VALUES = (
    "", "nan", "inf", "-inf", "-1", "0", "-0.0", "1e308", "1e-320", "-1e308", "1e400", "0.5", "1.5", "abc",
    "None", "auto",
    "true", "é☃🐍", "\udcff", "a\nb", "--", ",", "8,", "8,0", "8,-3", "1e3", "0x10", "1_000", "٣", "few", "last", "all",
    "windows-3", "windows-0", "windows-9999999999", "[red]", "9" * 19, "9" * 31, "9" * 400, "9" * 5000, "x" * 5000,
)  # fmt: skip
"""Values of options."""

_OPTIONS = {
    "fit": (
        "--id", "--time", "--label", "--features", "--layout", "--method", "--hidden", "--subnetworks",
        "--neuron", "--neurons",
        "--sparsity", "--seconds", "--witnesses", "--trials", "--decay", "--threshold", "--readout",
        "--windows", "--loss",
        "--penalty", "--strength", "--l2-strength", "--epochs", "--seed",
    ),
    "predict": ("--id", "--time", "--label", "--features"),
    "certify": ("--id", "--time", "--label", "--features", "--seconds"),
    "export": ("--to", "--dt"),
    "plan": (
        "--rows", "--columns", "--steps", "--outputs", "--features", "--hidden", "--taps", "--loss",
        "--readout", "--windows",
        "--active", "--device", "--memory",
    ),
    "report": ("--scale", "--records", "--tables"),
    "reproduce": ("--scale", "--row", "--method", "--backend", "--scheduler", "--device"),
    "demo": ("--seed",),
}  # fmt: skip
"""Options with a value, by command."""

_FLAGS = ("--series", "--regress", "--proba", "--complete", "--lossy", "--json", "--list", "--no-such-option", "--help")

_EXPERIMENT = """
title = "Mine"
[[cell]]
row = "XOR"
column = "CVX"
[defaults]
seeds = [0]
task = { name = "first_last_xor", n_steps = 3, n_train = 24, n_val = 12, n_test = 12 }
family = { hidden = [8], decay = 0.9 }
objective = { loss = "hinge" }
convex = { n_strengths = 3 }
"""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Run one command."""
    command = str(rng.choice(list(_OPTIONS), p=(0.3, 0.15, 0.12, 0.1, 0.12, 0.12, 0.07, 0.02)))
    for name, content in files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (folder / "folder.csv").mkdir()
    arguments, output = _plain(command, rng)
    for _ in range(rng.choice((0, 1, 2), p=(0.1, 0.75, 0.15))):
        output = _spoil(command, arguments, output, folder, rng)
    with inside(folder) as written:
        before, begin = contents(folder), time.perf_counter()
        outcome = CliRunner().invoke(cli.app, arguments)
        seconds = time.perf_counter() - begin
        try:
            return _judge(command, arguments, output, outcome, seconds, contents(folder), before, written)
        except Finding as finding:
            shown = " ".join(repr(argument if len(argument) < 60 else f"{argument[:20]}...") for argument in arguments)
            raise Finding(f"{finding}\ncvxsnn {shown}\n{outcome.stderr[-800:]}") from outcome.exception


def _plain(command: str, rng: np.random.Generator) -> tuple[list[str], str]:
    """Return arguments that a command accepts, and the file that it then writes."""
    model, *data = (
        ("model", "data.npz"),
        ("pipeline", "data.npz"),
        ("regressor", "numbers.npz"),
        ("rows-model", "rows.csv", "--label", "kind"),
    )[rng.integers(4)]
    if command == "fit":
        return ["fit", *data, "-o", "new", *_QUICK, *(["--regress"] if model == "regressor" else [])], "new"
    if command == "predict":
        output = str(rng.choice(["", "out.npz", "out.csv"]))
        return ["predict", model, *data, *(["-o", output] if output else [])], output
    if command == "certify":
        return ["certify", model, *data], ""
    if command == "export":
        return ["export", str(rng.choice(["model", "regressor", "network"])), "-o", "new.nir"], "new.nir"
    if command == "plan":
        return ["plan", "--rows", "1000", "--columns", "200", "--steps", "5"], ""
    if command == "report":
        return ["report", "mine.toml", "--records", "records", "-o", "page.html", "--tables", "tables"], "page.html"
    if command == "reproduce":
        return ["reproduce", "mine.toml", "-o", "new", "--jobs", "1", "--device", "cpu"], "new"
    return ["demo", "--output", "data.npz", "--seed", "0"], ""  # a demonstration takes long, so it is always refused


def _spoil(command: str, arguments: list[str], output: str, folder: Path, rng: np.random.Generator) -> str:
    """Make one bad change to arguments or files, and return the output that is left."""
    if command == "demo":
        kind = rng.choice(("option", "flag"))
    else:
        kind = rng.choice(("option", "name", "file", "output", "flag", "drop"), p=(0.3, 0.15, 0.35, 0.1, 0.06, 0.04))
    if kind == "option":
        arguments += [str(rng.choice(_OPTIONS[command])), str(rng.choice(_VALUES))]
    elif kind == "flag":
        arguments.append(str(rng.choice(_FLAGS)))
    elif kind == "drop":
        del arguments[rng.integers(1 + (command == "reproduce"), len(arguments))]  # without a name, all are run
    elif kind == "output":
        if output in arguments:
            arguments[arguments.index(output)] = output = str(rng.choice(_NAMES))
    else:
        read = [number for number, name in enumerate(arguments) if name in files() and name != output]
        if not read:
            return _spoil(command, arguments, output, folder, rng)
        if kind == "name":
            arguments[rng.choice(read)] = str(rng.choice(_NAMES))
        else:
            name = arguments[rng.choice(read)]
            if command == "report" and rng.integers(2):
                name = next(path for path in files() if path.startswith("records/"))
            (folder / name).write_bytes(_spoiled(name, (folder / name).read_bytes(), rng))
    return output


def _spoiled(name: str, content: bytes, rng: np.random.Generator) -> bytes:
    """Return the content of a file with something wrong in it."""
    kind = rng.integers(6)
    if kind == 0:
        return content[: rng.integers(len(content))]
    if kind == 1:
        changed = bytearray(content)
        for _ in range(rng.integers(1, 8)):
            changed[rng.integers(len(changed))] = rng.integers(256)
        return bytes(changed)
    if name.endswith(".npz"):
        return _odd_archive(rng)
    if name.endswith(".csv"):
        return _odd_table(content.decode(errors="replace"), rng)
    if name.endswith(".toml"):
        return _odd_text(content.decode(errors="replace"), rng).encode()
    if name.endswith(".json") and content.endswith(b"}\n"):
        record: dict[str, Any] = json.loads(content)["record"]
        _alter(record, rng)
        text = json.dumps(record, sort_keys=True, ensure_ascii=False)
        checksum = hashlib.sha256(text.encode()).hexdigest()
        return json.dumps({"checksum": checksum, "record": record}).encode()
    return bytes(content[::-1]) if kind == 2 else rng.bytes(int(rng.integers(200)))


def _odd_archive(rng: np.random.Generator) -> bytes:
    """Return an archive with an array of any type and rank in place of one."""
    arrays: dict[str, Any] = dict(_arrays())
    name = str(rng.choice(["X", "y", "lengths", "sample_weight"]))
    array = arrays.get(name, np.full(len(arrays["y"]), 3))
    change = rng.integers(6)
    if change == 0:
        types = ("?", "i1", "u8", "f2", "f4", "f8", "g", "c16", "S3", "U3", "M8[s]", "m8[s]", "V4", ">f8", "i8,f8")
        array = np.zeros(array.shape, rng.choice(types))
    elif change == 1:
        array = np.asarray(array).reshape(rng.choice([-1]), *[1] * int(rng.integers(5)))
    elif change == 2:
        array = array[: rng.integers(len(array))]
    elif change == 3:
        array = np.array(array.flat[0])
    elif change == 4:
        array = np.array(array, dtype=None if array.dtype.kind == "U" else float)
        if array.dtype.kind == "f":
            array.flat[rng.integers(array.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320])
    else:
        array = np.repeat(array[..., None], rng.integers(3), -1)
    stream = io.BytesIO()
    np.savez(stream, **{**arrays, name: array})
    return stream.getvalue()


def _odd_table(text: str, rng: np.random.Generator) -> bytes:
    """Return a table with one cell, separator or line replaced."""
    lines = [line.split(",") for line in text.splitlines()]
    change = rng.integers(4)
    if change == 0:
        line = lines[rng.integers(len(lines))]
        line[rng.integers(len(line))] = str(rng.choice(_VALUES))
    elif change == 1:
        lines[rng.integers(len(lines))] *= 2
    elif change == 2:
        del lines[rng.integers(len(lines)) :]
    separator = str(rng.choice([",", ";", "\t", "|"])) if change == 3 else ","
    encoding = str(rng.choice(["utf-8", "utf-16", "latin-1"]))
    return "\n".join(separator.join(line) for line in lines).encode(encoding, errors="ignore")


def _odd_text(text: str, rng: np.random.Generator) -> str:
    """Return an experiment with one value replaced."""
    places = [(found.start(1), found.end(1)) for found in re.finditer(r"= (\[?[\w\".]+\]?)", text)]
    start, end = places[rng.integers(len(places))]
    values = (
        "nan",
        "inf",
        "-1",
        "0",
        "1.5",
        '"abc"',
        '""',
        "[]",
        "[[]]",
        "{}",
        "true",
        "99999999999999999999",
        "1979-05-27",
        '"☃"',
    )
    return text[:start] + str(rng.choice(values)) + text[end:]  # fmt: skip


def _alter(record: dict[str, Any], rng: np.random.Generator) -> None:
    """Replace or remove one value of a record, at any depth."""
    key = str(rng.choice(list(record)))
    if isinstance(record[key], dict) and record[key] and rng.integers(2):
        _alter(record[key], rng)
    elif rng.integers(4) == 0:
        del record[key]
    else:
        odd: list[Any] = [None, True, -1, 1e308, float("nan"), float("inf"), 10**400, "", "☃", [], [[]], {}, {"a": {}}]
        record[key] = odd[rng.integers(len(odd))]


def _judge(
    command: str,
    arguments: list[str],
    output: str,
    outcome: Any,
    seconds: float,
    after: Mapping[str, bytes],
    before: Mapping[str, bytes],
    written: list[str],
) -> str:
    """Return what a command did, or raise what it must not do."""
    if outcome.exception is not None and not isinstance(outcome.exception, SystemExit):
        raise Finding(f"expected an exit status, got {type(outcome.exception).__name__}: {outcome.exception}")
    if written:
        raise Finding(f"expected to write in the present folder only, but also wrote {written}")
    if "Traceback" in outcome.stdout + outcome.stderr:
        raise Finding("expected no traceback")
    if outcome.exit_code == 0:
        _check_done(command, arguments, output, outcome.stdout, after)
        return f"{command} done"
    if seconds > _LIMIT:
        raise Finding(f"expected a refusal within {_LIMIT:g} s, it took {seconds:.1f} s")
    if outcome.exit_code == 2 and re.search("^Usage: |─ Error ─", outcome.stderr, re.MULTILINE):
        _check_unchanged(after, before)
        return "usage"
    if outcome.exit_code == 2 and command == "certify" and "the objectives differ" in outcome.stdout:
        return "other data"
    if outcome.exit_code != 1:
        raise Finding(f"expected exit status 0, 1 or 2, got {outcome.exit_code}")
    if command == "reproduce" and "first failure: " in outcome.stderr:
        return "run failed"
    lines = outcome.stderr.splitlines()
    if not lines or not all(line.startswith("cvxsnn: ") and len(line) > 20 for line in lines):
        raise Finding("expected one sentence that begins with 'cvxsnn: ', after warnings")
    if outcome.stdout.strip() and not (command == "report" or outcome.stdout.startswith(("read: ", "found now: "))):
        raise Finding(f"expected no output of a command that is refused, got {outcome.stdout[:100]!r}")
    _check_unchanged(after, before)
    return f"{command} refused"


def _check_unchanged(after: Mapping[str, bytes], before: Mapping[str, bytes]) -> None:
    changed = [name for name in {*before, *after} if before.get(name) != after.get(name) and name != "page.html"]
    if changed:
        raise Finding(f"expected no change of a command that is refused, got {changed}")


def _check_done(command: str, arguments: list[str], output: str, said: str, after: Mapping[str, bytes]) -> None:
    """Look at what a command says that it has written."""
    if "--help" in arguments or "--list" in arguments:
        return
    if command in ("fit", "export", "predict") and output:
        if "saved: " not in said or not Path(output).is_file():
            raise Finding(f"expected a file {output!r}, got none")
        if command == "fit":
            load(output).network_  # noqa: B018 - it is there
        elif command == "export":
            from_nir(output)
        elif output.endswith(".csv"):
            _check_length(len(Path(output).read_text().splitlines()) - 1)
        else:
            with np.load(output) as archive:
                _check_length(len(archive["y"]))
    elif command == "predict":
        _check_length(len(said.splitlines()) - ("--proba" in arguments))
    elif command == "plan":
        if "--json" in arguments:
            json.loads(said)
        elif "runs " not in said:
            raise Finding("expected a plan, got none")
    elif command == "report" and ("report: " not in said or not Path(output).is_file()):
        raise Finding(f"expected a page {output!r}, got none")
    elif command == "reproduce" and RecordStore(Path(output) / "smoke").read_all()[1]:
        raise Finding("expected whole records, got damaged ones")


def _check_length(n_found: int) -> None:
    if n_found > len(_arrays()["y"]) or n_found == 0:
        raise Finding(f"expected as many predictions as samples, got {n_found}")


@contextmanager
def inside(folder: Path) -> Iterator[list[str]]:
    """Work in a folder, and list what is written elsewhere."""
    _listen()
    home = Path.cwd()
    os.chdir(folder)
    _watched.append((os.path.realpath(folder), []))
    try:
        yield _watched[-1][1]
    finally:
        _watched.pop()
        os.chdir(home)


_watched: list[tuple[str, list[str]]] = []

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate")


@cache
def _listen() -> None:
    """Ask Python to report what is opened for writing, made, renamed and removed."""

    def hear(event: str, details: tuple[Any, ...]) -> None:
        if not _watched or not (event in _CHANGES or (event == "open" and details[2] & _WRITING)):
            return
        home, found = _watched[-1]
        if not isinstance(details[0], (str, bytes, os.PathLike)):
            return
        path = os.path.realpath(os.fsdecode(details[0]))
        allowed = (home + os.sep, "/dev/null")
        if path != home and not path.startswith(allowed) and "__pycache__" not in path:
            found.append(f"{event} {path}")

    sys.addaudithook(hear)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@cache
def _arrays() -> dict[str, Any]:
    sequences = np.random.default_rng(0).normal(size=(24, 4, 2))
    return {"X": sequences, "y": np.where(sequences.sum((1, 2)) > 0, "up", "down")}


@cache
def files() -> dict[str, bytes]:
    """Return small files of every kind, by name."""
    import tempfile

    X, y = _arrays().values()
    rows = [*zip(*X[:, 0].T.tolist(), y.tolist(), strict=True)]
    settings: dict[str, Any] = {"hidden": (8,), "witnesses": "gaussian", "l1_strength": 0.01, "random_state": 0}
    models: dict[str, Callable[[], Any]] = {
        "model": lambda: SpikingClassifier(**settings).fit(X, y),
        "regressor": lambda: SpikingRegressor(**settings).fit(X, X.sum((1, 2))),
        "pipeline": lambda: make_pipeline(SequenceScaler(), SpikingClassifier(**settings)).fit(X, y),
        "network": lambda: SpikingClassifier(**settings).fit(X, y).network_,
        "rows-model": lambda: SpikingClassifier(**settings).fit(X[:, 0], y),
    }
    with tempfile.TemporaryDirectory(prefix="cvxsnn-fuzz-") as name:
        folder = Path(name)
        np.savez(folder / "data.npz", X=X, y=y)
        np.savez(folder / "numbers.npz", X=X, y=X.sum((1, 2)))
        (folder / "rows.csv").write_text("a,b,kind\n" + "".join(f"{a!r},{b!r},{kind}\n" for a, b, kind in rows))
        for file, make in models.items():
            save(make(), folder / file)
        (folder / "mine.toml").write_text(_EXPERIMENT)
        (folder / "broken").write_bytes((folder / "model").read_bytes()[:-100])
        (folder / "broken.csv").write_bytes(b"a,b\n1\n1,2,3\n\xff\xfe")
        for file in ("empty", "empty.csv"):
            (folder / file).touch()
        kept = contents(folder)
        with inside(folder):
            for command in (
                _plain("reproduce", np.random.default_rng(0))[0],
                ["report", "mine.toml", "--records", "new", "-o", "page.html"],
            ):
                outcome = CliRunner().invoke(cli.app, command)  # the second also fills the caches of matplotlib
                assert outcome.exit_code == 0, outcome.output
        records = {f"records/{path}": content for path, content in contents(folder / "new").items()}
        return kept | {path: content for path, content in records.items() if path.startswith("records/smoke/")}


HUNT = Hunt(
    "command_line",
    "Every command with hostile files, names and options.",
    case,
    cases=2_500,
    short=8,
    seconds=30.0,
)
