"""One run: from a configuration to a record of scores."""

import itertools
import platform
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..convex.objective import Objective
from ..core import __version__
from ..core.errors import CvxsnnError, DataFileError, is_out_of_memory
from ..data.tasks import Task, make_task
from ..fitting.methods import Settings, Trained, train_task
from ..fitting.program import Program
from ..fitting.search import Tuning
from ..fitting.surrogate_settings import SurrogateSettings
from ..network.evaluation import accuracy, predict_autoregressive, score_tokens
from ..network.spiking_network import SpikingNetwork
from ..witnesses import describe_family, parse_distribution
from . import ridge
from .experiment import RunConfig

_ABSENT: Mapping[str, str] = {"fan_in": "all", "max_delay": "all", "quantiles": "none"}
"""Values that stand for None, which TOML does not have."""


def execute(config: RunConfig, device: str = "cpu", stages: Path | None = None) -> dict[str, Any]:
    """Train, score, and return the record of the run; a failure is a record, too.

    Parameters
    ----------
    config : RunConfig
        The configuration.
    device : str
        Where to compute. Results do not depend on it beyond the rounding of gradients.
    stages : Path, optional
        Folder for the state of gradient stages, which methods with the same first stage share.

    Returns
    -------
    dict of str to object
        The record.
    """
    begin = time.perf_counter()
    try:
        if config.method == ridge.METHOD:
            result = _run_ridge(config, device)
        else:
            result = _train_and_describe(config, device, stages)
    except (CvxsnnError, MemoryError, RuntimeError) as error:
        is_storage = isinstance(error, StageStorageError)
        if is_storage or not (isinstance(error, CvxsnnError) or is_out_of_memory(error)):
            raise
        seconds = round(time.perf_counter() - begin, 3)
        result = {"status": "failed", "error": f"{type(error).__name__}: {error}", "seconds": seconds}
    return {"config": config.as_dict(), **_circumstances(device), **result}


class StageStorageError(DataFileError):
    """A gradient stage could not be stored; the run itself did not fail."""


def _train_and_describe(config: RunConfig, device: str, stages: Path | None) -> dict[str, Any]:
    task = make_task(**config.task, seed=config.seed)
    try:
        trained = _train(config, task, device, stages)
    except DataFileError as error:
        raise StageStorageError(f"{error}; then run the same command again") from None
    return {
        "status": "done",
        "val": trained.history[-1].score,
        "scores": _scores(trained.network.to(device), task),
        **_facts(trained),
        "seconds": round(trained.seconds, 3),
    }


def train_and_score(config: RunConfig) -> tuple[Task, Trained, dict[str, float]]:
    """Return the task of a run, what was trained, and its test scores."""
    task = make_task(**config.task, seed=config.seed)
    trained = _train(config, task, "cpu", None)
    return task, trained, _scores(trained.network, task)


def _train(config: RunConfig, task: Task, device: str, stages: Path | None) -> Trained:
    folder = None if stages is None else stages / config.start_id
    return train_task(config.method, task, make_settings(config), checkpoints=folder, device=device)


def _run_ridge(config: RunConfig, device: str) -> dict[str, Any]:
    task = make_task(**config.task, seed=config.seed)
    families, settings = ridge_settings(config)
    begin = time.perf_counter()
    run = ridge.run_ridge(task, families, config.objective["readout"], settings, config.seed, device)
    seconds = round(time.perf_counter() - begin, 3)
    return {"status": "done", **ridge.describe_run(run, task), "seconds": seconds}


def ridge_settings(config: RunConfig) -> tuple[list[dict[str, Any]], ridge.RidgeSettings]:
    """Return the families and the settings of ridge that a configuration describes."""
    return list(map(_family, config.family.get("join", [config.family]))), ridge.RidgeSettings(**config.convex)


def make_settings(config: RunConfig) -> Settings:
    """Return the settings that a configuration describes."""
    family: Mapping[str, Any] | Tuning
    if "tune" in config.family:
        table = config.family["tune"].items()
        search: dict[str, Any] = {key: tuple(value) if key == "readouts" else value for key, value in table}
        family = Tuning(**search)
    else:
        family = _family(config.family)
    surrogate = dict(config.surrogate)
    n_networks = surrogate.pop("n_networks", 1)
    candidates = tuple(SurrogateSettings(**{"seed": config.seed, **choice}) for choice in iterate_grid(surrogate))
    # The paper's penalty, also over trained neurons, for which the library has another default.
    program = Program(Objective(**config.objective), **{"penalty": "l1", **config.convex})
    return Settings(program, family, surrogate=candidates, n_networks=n_networks, seed=config.seed)


def iterate_grid(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of a table whose values may be lists."""
    values = (value if isinstance(value, list) else [value] for value in table.values())
    return (dict(zip(table, choice, strict=True)) for choice in itertools.product(*values))


def _family(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _family_value(name, value) for name, value in table.items()}


def _family_value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return parse_distribution(value)
    if isinstance(value, list):
        return tuple(_family_value(name, entry) for entry in value)
    return None if _ABSENT.get(name) == value else value


def _scores(network: SpikingNetwork, task: Task) -> dict[str, float]:
    """Return test accuracies, also on longer sequences; with feedback, of whole sequences and single heads too."""
    scores = {"test": accuracy(network, task, task.test)}
    scores |= {name: accuracy(network, task, data) for name, data in task.ood.items()}
    if task.feedback is not None:
        tokens = score_tokens(predict_autoregressive(network, task.test, task.feedback), task.test)
        scores |= {"sequence": tokens.joint_sequence, "first_error": tokens.mean_first_error_step}
        scores |= {f"{head}_token": value for head, value in tokens.head_token.items()}
    return scores


def _facts(trained: Trained) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "n_active": trained.network.n_active,
        "stages": [
            {"name": stage.name, "score": stage.score, "seconds": round(stage.seconds, 3)} for stage in trained.history
        ],
    }
    for stage in trained.history:
        if stage.run is not None:
            surrogate = stage.run.settings
            facts |= {"learning_rate": surrogate.learning_rate, "weight_decay": surrogate.weight_decay}
        if stage.tuned is not None:
            tuned = stage.tuned
            facts |= {"family": describe_family(tuned.family), "readout": tuned.readout, "n_trials": len(tuned.trials)}
    if trained.solution is not None:
        facts |= ridge.describe_solution(trained.solution)
        facts["l1_strength"] = trained.solution.problem.l1_strength
        facts["n_pool"] = trained.solution.certificate.n_witnesses
    return facts


def _circumstances(device: str) -> dict[str, Any]:
    return {
        "versions": {"cvxsnn": __version__, "torch": torch.__version__, "numpy": np.__version__},
        "machine": {"platform": platform.platform(), "python": platform.python_version(), "device": device},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
