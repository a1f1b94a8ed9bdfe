"""Work that stores its results in a folder, and continues where it stopped when it is done again in the same folder."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.core.storage import read_tensors
from cvxsnn.data import TrainingSet
from cvxsnn.dictionary import open_dictionary, stream_dictionary
from cvxsnn.experiments import RecordStore, all_runs, run_all
from cvxsnn.fitting import Settings, SurrogateSettings
from cvxsnn.fitting.methods import train_task
from cvxsnn.witnesses import Normal, Uniform, sample_witnesses
from fuzz.harness import Finding

from .processes import Report, run

_N_SAVES, _N_EPOCHS, _N_SHARDS = 40, 12, 12
_TIMES = ("seconds", "finished", "stages")
"""Entries of a record that differ from run to run."""

_SWEEP = """
title = "Tiny"
kind = "table"
quantity = "test accuracy"
cell = [
  { row = "a", column = "cvx", methods = ["cvx"] },
  { row = "a", column = "sg", methods = ["sg"] },
  { row = "a", column = "sg-cvx", methods = ["sg-cvx"] },
]
[defaults]
seeds = [0, 1]
task = { name = "first_last_xor", n_steps = 3, n_train = 24, n_val = 12, n_test = 12 }
family = { hidden = [6, 8], decay = 0.9 }
objective = { loss = "hinge" }
surrogate = { epochs = 2, learning_rate = [0.01, 0.03] }
convex = { n_strengths = 3 }
"""


@dataclass(frozen=True)
class Work:
    """Something to be disturbed.

    Parameters
    ----------
    do : callable
        ``do(folder, report)`` does what is left to do, and reports the number of steps stored.
    look : callable
        ``look(folder)`` reads what is stored. It returns a digest of each piece, without times, and raises what the
        library raises if a piece is damaged.
    count : callable
        The number of steps stored, from the digests.
    n_steps : int
        Number of steps of the whole work.
    """

    do: Callable[[Path, Report], None]
    look: Callable[[Path], Mapping[str, str]]
    count: Callable[[Mapping[str, str]], int]
    n_steps: int


def digest(value: object) -> str:
    """Return a short digest of tensors, arrays, numbers and plain values."""
    if isinstance(value, Mapping):
        value = {str(name): digest(own) for name, own in value.items()}
    elif isinstance(value, torch.Tensor):
        value = [str(value.dtype), list(value.shape), value.contiguous().numpy().tobytes().hex()]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def digest_file(path: Path, kind: str) -> str:
    """Return a digest of what a file of tensors holds."""
    tensors, header = read_tensors(path, kind)
    header.pop("seconds", None)
    return digest({"tensors": digest(tensors), "header": header})


@cache
def _models() -> list[cs.SpikingClassifier]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(48, 4, 3))
    labels = (inputs.sum((1, 2)) > 0).astype(int)
    models = [cs.SpikingClassifier("cvx", hidden=(24,), l1_strength=0.003, random_state=seed) for seed in range(3)]
    return [model.fit(inputs, labels) for model in models]


def _save(folder: Path, report: Report) -> None:
    path = folder / "model.safetensors"
    begin = _saved(_look_at_model(folder)) if path.exists() else 0
    for number in range(begin, _N_SAVES):
        model = _models()[number % 3]
        model.random_state = number  # which is stored in the file
        cs.save(model, path)
        report(number + 1)


def _look_at_model(folder: Path) -> dict[str, str]:
    path = folder / "model.safetensors"
    if not path.exists():
        return {}
    model = cs.load(path)
    return {"number": str(model.random_state), "network": digest(model.network_.state_dict())}


def _saved(found: Mapping[str, str]) -> int:
    return int(found["number"]) + 1 if found else 0


def _train(folder: Path, report: Report) -> None:
    task = cs.tasks.first_last_xor(3, n_train=24, n_val=12, n_test=12)
    surrogate = SurrogateSettings(epochs=_N_EPOCHS, batch_size=8)
    settings = Settings(Objective("logistic"), {"hidden": (6, 8)}, surrogate=(surrogate,))

    def tell(stage: str, done: int, total: int) -> None:
        if "gradient" in stage and total > 1:
            report(done)

    trained = train_task("sg-cvx", task, settings, checkpoints=folder, callback=tell)
    cs.save(trained.network, folder / "network.safetensors")


def _look_at_training(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.glob("*.safetensors"):
        if path.name == "network.safetensors":
            found["network"] = digest(cs.load(path).state_dict())
        else:
            header = read_tensors(path, "checkpoint")[1]
            found[f"{path.stem} has epochs"] = str(len(header["history"]) - 1)
            found[path.stem] = digest_file(path, "checkpoint")
    return found


def _trained(found: Mapping[str, str]) -> int:
    return sum(int(value) for name, value in found.items() if name.endswith("has epochs"))


def _stream(folder: Path, report: Report) -> None:
    witnesses = sample_witnesses({"hidden": (64,)}, 3)
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(_N_SHARDS, 16, 6, 3)))
    batches = [(batch, torch.arange(16) % 2) for batch in inputs]
    stream_dictionary(witnesses, batches, folder, shard_rows=16)


def _look_at_shards(folder: Path) -> dict[str, str]:
    found = {path.stem: digest_file(path, "dictionary shard") for path in folder.glob("shard-*.safetensors")}
    if (folder / "dictionary.safetensors").exists():
        dictionary, targets = open_dictionary(folder)
        found["index"] = digest({"columns": dictionary.columns(), "targets": targets})
    return found


@cache
def _experiment() -> TemporaryDirectory[str]:
    folder = TemporaryDirectory(prefix="cvxsnn-torture-")
    (Path(folder.name) / "tiny.toml").write_text(_SWEEP)
    return folder


def _sweep(folder: Path, report: Report) -> None:
    from cvxsnn.cli import app

    command = ["reproduce", str(Path(_experiment().name) / "tiny.toml"), "-o", str(folder / "out"), "--scale", "paper"]
    with redirect_stderr(StringIO()) as said:
        status = app([*command, "--jobs", "1", "--device", "cpu"], standalone_mode=False)
    if status == 130:
        raise KeyboardInterrupt
    if status:
        raise CvxsnnError(said.getvalue().strip())


def run_sweep(folder: Path) -> None:
    """Do the same work by the workers that joblib is configured for."""
    runs = all_runs([str(Path(_experiment().name) / "tiny.toml")], "paper")
    run_all(runs, RecordStore(folder / "out" / "paper"), n_jobs=None)


def _look_at_records(folder: Path) -> dict[str, str]:
    if not (folder / "out" / "paper").is_dir():
        return {}
    records, damaged = RecordStore(folder / "out" / "paper").read_all()
    if damaged:
        raise Finding(f"damaged record {damaged[0].path}: {damaged[0].reason}")
    return {
        name: digest({key: value for key, value in record.items() if key not in _TIMES})
        for name, record in records.items()
    }


def _solve_pool(folder: Path, report: Report) -> None:
    cs.save(solve_pool(lambda rounds: None), folder / "network.safetensors")


def solve_pool(report: Report) -> cs.network.SpikingNetwork:
    """Solve over a pool of 16,384 witnesses, drawn again in each round."""
    task = cs.tasks.first_last_xor(6, n_train=150, n_val=100, n_test=100)
    family = {"hidden": (4, 16), "decay": Uniform(0, 1), "bias": Normal(0, 0.5)}
    pool = cs.witnesses.WitnessPool(2, family, 4 * 4096)
    rounds: list[object] = []

    def tell(moment: object) -> None:
        rounds.append(moment)
        report(len(rounds))

    found = cs.fitting.solve_pool(
        pool, TrainingSet.of(task.train), Objective("logistic"), 0.01, memory_budget=1, callback=tell
    )
    return cs.network.reconstruct(found.solution)


def _look_at_network(folder: Path) -> dict[str, str]:
    path = folder / "network.safetensors"
    return {"network": digest(cs.load(path).state_dict())} if path.exists() else {}


WORKS: dict[str, Work] = {
    "saves": Work(_save, _look_at_model, _saved, _N_SAVES),
    "checkpoints": Work(_train, _look_at_training, _trained, _N_EPOCHS),
    "shards": Work(_stream, _look_at_shards, len, _N_SHARDS + 1),
    "sweep": Work(_sweep, _look_at_records, len, 6),
    "pool": Work(_solve_pool, _look_at_network, lambda found: 0, 0),
}


@dataclass(frozen=True)
class Undisturbed:
    """What work comes to if nothing disturbs it: what it stores, its files with their sizes, and its time."""

    found: Mapping[str, str]
    files: Mapping[str, int]
    seconds: float


@cache
def undisturbed(name: str) -> Undisturbed:
    """Return what work comes to if nothing disturbs it."""
    with TemporaryDirectory(prefix="cvxsnn-torture-") as place, redirect_stdout(StringIO()):
        WORKS[name].do(Path(place), lambda steps: None)  # what it imports and compiles is there in every fork
    with TemporaryDirectory(prefix="cvxsnn-torture-") as place:
        folder = Path(place)
        begin = time.perf_counter()
        work_to_the_end(name, folder)
        seconds = time.perf_counter() - begin
        found = look(name, folder)
        if WORKS[name].count(found) != WORKS[name].n_steps:
            raise Finding(f"expected {WORKS[name].n_steps} steps of {name}, got {WORKS[name].count(found)}: {found}")
        return Undisturbed(found, {file: (folder / file).stat().st_size for file in list_files(folder)}, seconds)


def work_to_the_end(name: str, folder: Path) -> None:
    """Do what is left of some work in a process of its own; raise a finding if it does not come to its end."""
    end = run(lambda report: WORKS[name].do(folder, report))
    if end.status != "finished":
        raise Finding(f"undisturbed work ({name}) {end.status}: {end.text}")


def look(name: str, folder: Path) -> Mapping[str, str]:
    """Read what is stored, in a process of its own; raise a finding if something is damaged."""
    end = run(lambda report: [dict(WORKS[name].look(folder))])
    if end.status != "finished":
        raise Finding(f"expected to read what {name} stored, got {end.status}: {end.text}")
    found = end.values[0]
    assert isinstance(found, dict)
    return found


def list_files(folder: Path) -> list[str]:
    """Return the files below a folder."""
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def finish(name: str, folder: Path) -> None:
    """Do what is left of some work; raise a finding unless it comes to what it comes to undisturbed."""
    before = look(name, folder)
    work_to_the_end(name, folder)
    found, expected = look(name, folder), undisturbed(name)
    if found != expected.found:
        raise Finding(f"expected {name} to come to {expected.found}, got {found}; it continued from {before}")
    if differing := expected.files.keys() ^ set(list_files(folder)):
        raise Finding(f"expected the files of undisturbed {name}, {sorted(differing)} are missing or left over")


def check_kept(name: str, folder: Path, steps: int) -> int:
    """Return the steps stored; raise a finding if one that was reported is lost."""
    stored = WORKS[name].count(look(name, folder))
    if stored < steps:
        raise Finding(f"expected {steps} steps of {name} to be stored, which were reported, got {stored}")
    return stored
