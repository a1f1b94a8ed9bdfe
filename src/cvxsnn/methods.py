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

The first five are the paper's (appendix "Training Algorithms and Witness Regimes"). *gradient* trains all layers by
surrogate gradients; *convex* freezes the hidden neurons and finds the optimal read-out, with a certificate; *ridge* is
its least-squares sibling without one. The first stage sees the training split, the second the finetuning split.
"""

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch

from .checks import check_choice, check_positive_int
from .convex import Certificate, ConvexProblem, Solution, solve, solve_path
from .convex import Path as StrengthPath
from .convex.penalties import make_penalty
from .dictionary import build_dictionary
from .errors import InvalidInputError
from .evaluation import accuracy
from .network import SpikingNetwork
from .reconstruction import reconstruct
from .reservoir import fit_ridge, tune_reservoir
from .surrogate import SurrogateRun, SurrogateSettings, initial_network, train_side_by_side
from .tasks import Task
from .training_set import Objective, TrainingSet
from .witnesses import Provenance, WitnessSet, gaussian_witnesses

Report = Callable[[str, int, int], None]
"""Told of progress as ``report(stage, done, total)``."""

StageName = Literal["gradient", "convex", "ridge"]


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


@dataclass(frozen=True)
class Settings:
    """What a method needs to know beside the data.

    Parameters
    ----------
    objective : Objective
    family : mapping
        Arguments of :func:`cvxsnn.gaussian_witnesses` other than ``n_features`` and ``seed``.
    l1_strength : float, sequence of float, or "auto"
        Several strengths, or for "auto" a path of ``n_strengths`` of them, are compared on validation data.
    n_strengths : int
    smallest_ratio : float
        The end of the path, relative to the strength at which all coefficients vanish.
    penalty : "l1" or "group"
    intercept : bool
    tol : float
        Relative gap to certify.
    surrogate : SurrogateSettings, or a sequence of them
        Several are all tried, and the one that does best on validation data is kept.
    finetuning : SurrogateSettings, or a sequence of them, optional
        For a second gradient stage, or one after a convex stage; by default ``surrogate`` at a fifth of its rate.
    seed : int
    """

    objective: Objective
    family: Mapping[str, Any]
    l1_strength: float | Sequence[float] | Literal["auto"] = "auto"
    n_strengths: int = 12
    smallest_ratio: float = 1e-3
    penalty: str = "l1"
    intercept: bool = False
    tol: float = 1e-6
    surrogate: SurrogateSettings | Sequence[SurrogateSettings] = field(default_factory=SurrogateSettings)
    finetuning: SurrogateSettings | Sequence[SurrogateSettings] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no stage could use, whether the method has that stage or not."""
        make_penalty(self.penalty)
        check_positive_int("n_strengths", self.n_strengths)
        if isinstance(self.l1_strength, str):
            check_choice("l1_strength", self.l1_strength, ("auto",))
            return
        given = self.l1_strength if isinstance(self.l1_strength, Sequence) else [self.l1_strength]
        if len(given) == 0:
            raise InvalidInputError("expected at least one strength, got none: pass l1_strength='auto'")
        if not all(isinstance(strength, (int, float)) and 0 < strength < math.inf for strength in given):
            raise InvalidInputError(
                f"expected l1_strength to be a finite number above zero, or 'auto', got {self.l1_strength!r}"
            )


@dataclass(frozen=True, eq=False)
class Split:
    """Sequences to train on, and the validation score of a network; higher is better."""

    data: TrainingSet
    score: Callable[[SpikingNetwork], float]


@dataclass(frozen=True, eq=False)
class Stage:
    """What one stage did.

    Attributes
    ----------
    name : "gradient", "convex" or "ridge"
    network : SpikingNetwork, at the end of it
    score : float, on validation data
    seconds : float
    solution : Solution, of a convex stage
    run : SurrogateRun, of a gradient stage
    """

    name: StageName
    network: SpikingNetwork
    score: float
    seconds: float
    solution: Solution | None = None
    run: SurrogateRun | None = None


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
        Where to compute; on a GPU, candidates of a gradient stage train side by side. By default where the data are.
    """
    check_choice("method", method, tuple(METHODS))
    plan = METHODS[method]
    if checkpoints is not None:
        checkpoints.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    witnesses = _sample(first.data, settings)
    if plan.hidden == "reservoir":
        witnesses = tune_reservoir(witnesses, first.data)
    network = initial_network(witnesses.layers, settings.objective, first.data, settings.seed)
    history: list[Stage] = []
    for number, name in enumerate(plan.stages):
        split = first if number == 0 or second is None else second
        tell = _labelled(report, f"{number + 1}. {name}")
        tell(0, 1)
        solution, run = None, None
        if name == "gradient":
            candidates = _listed(settings.surrogate) if number == 0 else _finetuning(settings)
            # A first stage is the same for every method that begins with it.
            name_of_file = f"{method}-{number}" if number else "gradient"
            file = None if checkpoints is None else checkpoints / f"{name_of_file}.safetensors"
            run = _best_run(network, split, settings.objective, candidates, device, tell, file)
            network = run.network
            witnesses = WitnessSet(network.layers, Provenance("pretrained", {"method": "surrogate gradient"}))
        elif name == "convex":
            solution = best_readout(witnesses, split, settings, device)
            # A stage that follows goes on training every sampled neuron, also those that the solution does not use.
            is_last = number == len(plan.stages) - 1
            network = reconstruct(solution, "compact" if is_last else "full").to(split.data.inputs.device)
        else:
            network = fit_ridge(network, split.data, settings.objective, split.score)
        begin, seconds = time.perf_counter(), time.perf_counter() - begin
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
    settings = replace(settings, objective=settings.objective.for_classes(task.n_classes))
    splits = [Split(TrainingSet.of(task.train), lambda network: accuracy(network, task, task.val))]
    if task.finetune is not None and task.finetune_val is not None:
        later = task.finetune_val
        splits.append(Split(TrainingSet.of(task.finetune), lambda network: accuracy(network, task, later)))
    return train(method, splits[0], settings, splits[-1], report=report, checkpoints=checkpoints, device=device)


def best_readout(
    witnesses: WitnessSet, split: Split, settings: Settings, device: torch.device | str | None = None
) -> Solution:
    """The certified optimum over the spikes of these witnesses, at the strength that validates best."""
    data = split.data if device is None else split.data.to(device)
    witnesses = witnesses.to(data.inputs.device)
    dictionary = build_dictionary(witnesses, data.inputs, settings.objective.readout, lengths=data.lengths)
    problem = settings.objective.problem(dictionary, data, penalty=settings.penalty, intercept=settings.intercept)
    if isinstance(settings.l1_strength, (int, float)):
        return solve(problem.with_strength(settings.l1_strength), settings.tol)
    return _path(problem, settings).select(lambda solution: split.score(reconstruct(solution)))


def _labelled(report: Report | None, label: str) -> Callable[[int, int], None]:
    return lambda done, total: None if report is None else report(label, done, total)


def _path(problem: ConvexProblem, settings: Settings) -> StrengthPath:
    if settings.l1_strength == "auto":
        return solve_path(
            problem, n_strengths=settings.n_strengths, smallest_ratio=settings.smallest_ratio, tol=settings.tol
        )
    return solve_path(problem, list(settings.l1_strength), tol=settings.tol)  # type: ignore[arg-type]


def _sample(data: TrainingSet, settings: Settings) -> WitnessSet:
    known = set(gaussian_witnesses.__kwdefaults__ or {}) | {"hidden", "n_subnetworks"}
    unknown = sorted(set(settings.family) - known | set(settings.family) & {"seed"})
    if unknown:
        raise InvalidInputError(f"expected a family of {sorted(known - {'seed'})}, got {unknown} too")
    if "hidden" not in settings.family:
        raise InvalidInputError("expected a family with the widths of its hidden layers, got none: add hidden=(256,)")
    return gaussian_witnesses(data.inputs.shape[2], seed=settings.seed, **settings.family).to(data.inputs.device)


def _best_run(
    network: SpikingNetwork,
    split: Split,
    objective: Objective,
    candidates: Sequence[SurrogateSettings],
    device: torch.device | str | None,
    tell: Callable[[int, int], None],
    file: Path | None,
) -> SurrogateRun:
    """Train by each candidate, and keep the run that validates best; ties go to the first."""
    home = network.weight.device
    place = torch.device(home if device is None else device)
    network = copy.deepcopy(network).to(place)
    data = split.data.to(place)
    runs: list[SurrogateRun] = []
    # On a GPU a crowd of small networks costs what one does; on a CPU they are faster one after the other.
    groups = _alike(candidates) if place.type == "cuda" else [[own] for own in candidates]
    for number, group in enumerate(groups):
        own_file = file if file is None or number == 0 else file.with_stem(f"{file.stem}-{number}")
        runs += train_side_by_side(
            [network] * len(group),
            data,
            objective,
            group,
            score=split.score,
            report=lambda done, total, number=number: tell(number * total + done, len(groups) * total),  # type: ignore[misc]
            checkpoint=own_file,
        )
    best = max(runs, key=lambda run: run.best.score)
    return replace(best, network=best.network.to(home))


def _alike(candidates: Sequence[SurrogateSettings]) -> list[list[SurrogateSettings]]:
    """Candidates in groups that can train side by side."""
    groups: dict[SurrogateSettings, list[SurrogateSettings]] = {}
    for own in candidates:
        groups.setdefault(own.kind, []).append(own)
    return list(groups.values())


def _listed(settings: SurrogateSettings | Sequence[SurrogateSettings]) -> list[SurrogateSettings]:
    return [settings] if isinstance(settings, SurrogateSettings) else list(settings)


def _finetuning(settings: Settings) -> list[SurrogateSettings]:
    if settings.finetuning is not None:
        return _listed(settings.finetuning)
    return [replace(own, learning_rate=0.2 * own.learning_rate) for own in _listed(settings.surrogate)]
