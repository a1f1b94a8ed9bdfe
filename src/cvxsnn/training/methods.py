"""The training methods: how the hidden neurons come about, and how the read-out is trained.

=========  ==============  ===============  ===============
method     hidden neurons  first stage      second stage
=========  ==============  ===============  ===============
sg         sampled         gradient
cvx        sampled         convex
sg-cvx     sampled         gradient         convex
sg-sg      sampled         gradient         gradient
cvx-sg     sampled         convex           gradient
r          reservoir       ridge
r-cvx      reservoir       convex
=========  ==============  ===============  ===============

"sampled" neurons are of one family, or of the one that a search finds (:mod:`cvxsnn.training.search`). The first five
methods are the paper's (appendix "Training Algorithms and Witness Regimes"). *gradient* trains all layers by surrogate
gradients; *convex* freezes the hidden neurons and finds the optimal read-out, with a certificate; *ridge* is its
least-squares sibling without one. The first stage sees the training split, the second the finetuning split.
"""

import copy
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from ..convex import Certificate, Solution
from ..convex.objective import Objective
from ..core.checks import check_choice, check_device
from ..core.errors import InvalidInputError
from ..core.seeds import child_seed
from ..data.tasks import Task
from ..data.training_set import TrainingSet
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from ..witnesses import Provenance, WitnessSet, gaussian_witnesses
from .convex_stage import best_readout
from .reservoir import fit_ridge, tune_reservoir
from .search import Tuned, Tuning, tune_witnesses
from .settings import Settings, Split
from .surrogate.crowd import TaskScore
from .surrogate.settings import SurrogateRun, SurrogateSettings, average_networks, initial_network
from .surrogate.trainer import Job, train_jobs

Report = Callable[[str, int, int], None]
"""Told of progress as ``report(stage, done, total)``."""

StageName = Literal["tuning", "gradient", "convex", "ridge"]


@dataclass(frozen=True)
class Method:
    """One line of the table above."""

    hidden: Literal["sampled", "reservoir"]
    stages: tuple[StageName, ...]


METHODS = {
    "sg": Method("sampled", ("gradient",)),
    "cvx": Method("sampled", ("convex",)),
    "sg-cvx": Method("sampled", ("gradient", "convex")),
    "sg-sg": Method("sampled", ("gradient", "gradient")),
    "cvx-sg": Method("sampled", ("convex", "gradient")),
    "r": Method("reservoir", ("ridge",)),
    "r-cvx": Method("reservoir", ("convex",)),
}


@dataclass(frozen=True, eq=False)
class Stage:
    """What one stage did.

    Attributes
    ----------
    name : "tuning", "gradient", "convex" or "ridge"
    network : SpikingNetwork, at the end of it
    score : float, on validation data
    seconds : float
    solution : Solution, of a convex stage
    run : SurrogateRun, of a gradient stage
    tuned : Tuned, of a search for a family
    """

    name: StageName
    network: SpikingNetwork
    score: float
    seconds: float
    solution: Solution | None = None
    run: SurrogateRun | None = None
    tuned: Tuned | None = None


@dataclass(frozen=True, eq=False)
class Trained:
    """What every method returns.

    Attributes
    ----------
    method : str
    network : SpikingNetwork
    history : tuple of Stage
    settings : Settings
    """

    method: str
    network: SpikingNetwork
    history: tuple[Stage, ...]
    settings: Settings

    @property
    def solution(self) -> Solution | None:
        """The convex solution that the network was rebuilt from, if the last stage was convex."""
        return self.history[-1].solution

    @property
    def certificate(self) -> Certificate | None:
        """Its certificate. None where the network is the outcome of gradients or ridge: nothing is proven then."""
        return None if self.solution is None else self.solution.certificate

    @property
    def seconds(self) -> float:
        """For all stages."""
        return sum(stage.seconds for stage in self.history)


def train(
    method: str,
    first: Split,
    settings: Settings,
    second: Split | None = None,
    *,
    report: Report | None = None,
    checkpoints: Path | None = None,
    device: torch.device | str | None = None,
) -> Trained:
    """Train a spiking network by one of the methods in the table.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.
    first : Split
        For the first stage.
    settings : Settings
    second : Split, optional
        For the second stage; the first again when not given.
    report : function, optional
        Called as ``report(stage, done, total)``.
    checkpoints : Path, optional
        A folder in which gradient stages keep their state, to go on after an interruption.
    device : torch.device or str, optional
        Where to compute, "auto" for the GPU where there is one; there, candidates of a gradient stage train side by
        side. By default where the data are.
    """
    training = Training(method, first, settings, second, report, checkpoints, device)
    return train_together([training])[0]


@dataclass(frozen=True, eq=False)
class Training:
    """The arguments of :func:`train`, for one of many trainings."""

    method: str
    first: Split
    settings: Settings
    second: Split | None = None
    report: Report | None = None
    checkpoints: Path | None = None
    device: torch.device | str | None = None

    def __post_init__(self) -> None:
        """Find the device that is meant."""
        if self.device is not None:
            object.__setattr__(self, "device", check_device(self.device))


def train_together(trainings: Sequence[Training]) -> list[Trained]:
    """:func:`train` many times; on a GPU, gradient stages that come up together train side by side."""
    courses = dict(enumerate(_course(training) for training in trainings))
    done: dict[int, Trained] = {}
    answers: dict[int, list[SurrogateRun] | None] = dict.fromkeys(courses)
    while answers:
        asked: dict[int, tuple[str, list[Job]]] = {}
        for number, answer in answers.items():
            try:
                asked[number] = courses[number].send(answer)  # type: ignore[arg-type]
            except StopIteration as end:
                done[number] = end.value
        # Methods that begin alike ask for the same job, which its file tells.
        distinct = {_name(job): job for _, jobs in asked.values() for job in jobs}
        # On a GPU a crowd of small networks costs what one does; on a CPU they are faster one after the other.
        side_by_side = any(job.network.weight.is_cuda for job in distinct.values())
        tells = [_labelled(trainings[number].report, label) for number, (label, _) in asked.items()]
        runs = train_jobs(list(distinct.values()), side_by_side=side_by_side, report=_told_to(tells))
        by_name = dict(zip(distinct, runs, strict=True))
        answers = {number: [by_name[_name(job)] for job in jobs] for number, (_, jobs) in asked.items()}
    return [done[number] for number in range(len(trainings))]


def _name(job: Job) -> object:
    return id(job) if job.checkpoint is None else job.checkpoint


def _course(training: Training) -> Generator[tuple[str, list[Job]], list[SurrogateRun], Trained]:
    """One training from stage to stage: asks for the gradient jobs of a stage to be done, goes on with their runs."""
    method, first, settings, checkpoints = training.method, training.first, training.settings, training.checkpoints
    check_choice("method", method, tuple(METHODS))
    plan = METHODS[method]
    if settings.pool and (plan.hidden, plan.stages) != ("sampled", ("convex",)):
        raise InvalidInputError(f"expected method 'cvx' for a pool, which is sampled and not trained, got {method!r}")
    if checkpoints is not None:
        checkpoints.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    history: list[Stage] = []
    if isinstance(settings.family, Tuning):
        tell = _labelled(training.report, "0. tuning")
        tuned = tune_witnesses(
            first.data, settings.objective, first.score, settings.family, seed=settings.seed, report=tell
        )
        objective = replace(settings.objective, readout=tuned.readout)
        settings = replace(settings, family=tuned.family, objective=objective)
    else:
        tuned = None
    witnesses = _sample(first.data, settings)
    if plan.hidden == "reservoir":
        witnesses = tune_reservoir(witnesses, first.data)
    network = initial_network(witnesses.layers, settings.objective, first.data, settings.seed)
    if tuned is not None:
        begin, seconds = time.perf_counter(), time.perf_counter() - begin
        history.append(Stage("tuning", network, tuned.score, seconds, tuned=tuned))
    for number, name in enumerate(plan.stages):
        split = first if number == 0 or training.second is None else training.second
        label = f"{number + 1}. {name}"
        tell = _labelled(training.report, label)
        tell(0, 1)
        solution, run = None, None
        if name == "gradient":
            candidates = _listed(settings.surrogate) if number == 0 else _finetuning(settings)
            # A first stage is the same for every method that begins with it.
            name_of_file = f"{method}-{number}" if number else "gradient"
            file = None if checkpoints is None else checkpoints / f"{name_of_file}.safetensors"
            home = network.weight.device
            runs = yield label, _jobs(network, split, settings.objective, candidates, training.device, file)
            # Of equal scores the first.
            run = max(runs, key=lambda run: run.best.score)
            if number == 0 and settings.n_networks > 1:
                others = yield label, _siblings(run.settings, split, settings, training.device, file)
                runs = [*runs, *others]
                run = replace(run, network=average_networks([run.network, *(other.network for other in others)]))
            run = replace(run, network=run.network.to(home))
            network = run.network
            witnesses = WitnessSet(network.layers, Provenance("pretrained", {"method": "surrogate gradient"}))
            seconds = sum(one.seconds for one in runs)
        elif name == "convex":
            solution = best_readout(witnesses, split, settings, training.device)
            # A stage that follows goes on training every sampled neuron, also those that the solution does not use.
            is_last = number == len(plan.stages) - 1
            network = reconstruct(solution, "compact" if is_last else "full").to(split.data.inputs.device)
            seconds = time.perf_counter() - begin
        else:
            network = fit_ridge(network, split.data, settings.objective, split.score)
            seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        history.append(Stage(name, network, float(split.score(network)), seconds, solution, run))
        if run is None:
            tell(1, 1)
    return Trained(method, network, tuple(history), settings)


def train_task(
    method: str,
    task: Task,
    settings: Settings,
    *,
    report: Report | None = None,
    checkpoints: Path | None = None,
    device: torch.device | str | None = None,
) -> Trained:
    """:func:`train` on a task's own splits; accuracy on its validation data decides."""
    return train_together([task_training(method, task, settings, report, checkpoints, device)])[0]


def task_training(
    method: str,
    task: Task,
    settings: Settings,
    report: Report | None = None,
    checkpoints: Path | None = None,
    device: torch.device | str | None = None,
) -> Training:
    """The training on a task's own splits."""
    settings = replace(settings, objective=settings.objective.for_classes(task.n_classes))
    splits = [Split(TrainingSet.of(task.train), TaskScore(task, task.val))]
    if task.finetune is not None and task.finetune_val is not None:
        splits.append(Split(TrainingSet.of(task.finetune), TaskScore(task, task.finetune_val)))
    return Training(method, splits[0], settings, splits[-1], report, checkpoints, device)


def _labelled(report: Report | None, label: str) -> Callable[[int, int], None]:
    return lambda done, total: None if report is None else report(label, done, total)


def _told_to(tells: Sequence[Callable[[int, int], None]]) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        for tell in tells:
            tell(done, total)

    return report


def _sample(data: TrainingSet, settings: Settings) -> WitnessSet:
    assert isinstance(settings.family, Mapping)
    known = set(gaussian_witnesses.__kwdefaults__ or {}) | {"hidden", "n_subnetworks"}
    unknown = sorted(set(settings.family) - known | set(settings.family) & {"seed"})
    if unknown:
        raise InvalidInputError(f"expected a family of {sorted(known - {'seed'})}, got {unknown} too")
    if "hidden" not in settings.family:
        raise InvalidInputError("expected a family with the widths of its hidden layers, got none: add hidden=(256,)")
    return gaussian_witnesses(data.inputs.shape[2], seed=settings.seed, **settings.family).to(data.inputs.device)


def _jobs(
    network: SpikingNetwork,
    split: Split,
    objective: Objective,
    candidates: Sequence[SurrogateSettings],
    device: torch.device | str | None,
    file: Path | None,
) -> list[Job]:
    """What it takes to train by each candidate."""
    place = torch.device(network.weight.device if device is None else device)
    network, data = copy.deepcopy(network).to(place), split.data.to(place)
    files = [file if file is None or n == 0 else file.with_stem(f"{file.stem}-{n}") for n in range(len(candidates))]
    return [Job(network, data, objective, own, split.score, path) for own, path in zip(candidates, files, strict=True)]


def _siblings(
    own: SurrogateSettings,
    split: Split,
    settings: Settings,
    device: torch.device | str | None,
    file: Path | None,
) -> list[Job]:
    """What it takes to train further networks, each from its own sample and with its own order of batches."""
    jobs = []
    for number in range(1, settings.n_networks):
        seed = child_seed(settings.seed, "network", number)
        network = initial_network(
            _sample(split.data, replace(settings, seed=seed)).layers, settings.objective, split.data, seed
        )
        path = None if file is None else file.with_stem(f"{file.stem}-network-{number}")
        jobs += _jobs(network, split, settings.objective, [replace(own, seed=seed)], device, path)
    return jobs


def _listed(settings: SurrogateSettings | Sequence[SurrogateSettings]) -> list[SurrogateSettings]:
    return [settings] if isinstance(settings, SurrogateSettings) else list(settings)


def _finetuning(settings: Settings) -> list[SurrogateSettings]:
    if settings.finetuning is not None:
        return _listed(settings.finetuning)
    return [replace(own, learning_rate=0.2 * own.learning_rate) for own in _listed(settings.surrogate)]
