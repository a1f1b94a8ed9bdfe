"""Many trainings at once: on a GPU, the gradient stages of many small networks share a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ...training.methods import METHODS, Settings, Stage, Trained, gradient_plan, prepare, train
from ...training.stages import Split, trains_side_by_side
from ...training.surrogate.settings import SurrogateRun, initial_network
from ...training.surrogate.trainer import SurrogateJob, train_jobs


@dataclass(frozen=True, eq=False)
class PlannedTraining:
    """The arguments of :func:`cvxsnn.train`, for one of many trainings.

    Parameters
    ----------
    method : str
        A key of ``METHODS``.
    first : Split
        The data of the first stage.
    settings : Settings
        The settings of all stages.
    second : Split
        The data of the second stage.
    checkpoints : Path, optional
        A folder in which gradient stages keep their state.
    device : torch.device or str, optional
        Where to compute.
    """

    method: str
    first: Split
    settings: Settings
    second: Split
    checkpoints: Path | None = None
    device: torch.device | str | None = None

    def split(self, number: int) -> Split:
        """Return the data of a stage."""
        return self.first if number == 0 else self.second

    @property
    def n_stages(self) -> int:
        """Number of stages after a search."""
        return len(METHODS[self.method].stages)


def train_many(trainings: Sequence[PlannedTraining]) -> list[Trained]:
    """Train several networks; those of gradient stages alone train simultaneously, stage by stage.

    Parameters
    ----------
    trainings : sequence of PlannedTraining
        What to train.

    Returns
    -------
    list of Trained
        What :func:`cvxsnn.train` returns for each of them.
    """
    stages = {stage for own in trainings if own.method in METHODS for stage in METHODS[own.method].stages}
    if len(trainings) > 1 and stages == {"gradient"}:
        return _train_simultaneously(trainings)
    return [
        train(own.method, own.first, own.settings, own.second, checkpoints=own.checkpoints, device=own.device)
        for own in trainings
    ]


def _train_simultaneously(trainings: Sequence[PlannedTraining]) -> list[Trained]:
    """Train by gradient stages alone: the first stages of all networks, then the second ones."""
    settings, networks, histories = [], [], []
    for own in trainings:
        found, witnesses, history = prepare(own.method, own.first, own.settings)
        settings.append(found)
        networks.append(initial_network(witnesses.layers, found.objective, own.first.data, found.seed))
        histories.append(history)
    for number in range(max(own.n_stages for own in trainings)):
        plans = {
            place: gradient_plan(
                own.method,
                number,
                networks[place],
                own.split(number),
                settings[place],
                own.checkpoints,
                own.device,
            )
            for place, own in enumerate(trainings)
            if number < own.n_stages
        }
        runs = _train_jobs({place: plan.jobs() for place, plan in plans.items()})
        further = _train_jobs({place: plan.further_jobs(runs[place]) for place, plan in plans.items()})
        for place, plan in plans.items():
            run = plan.finish(runs[place], further[place])
            networks[place] = run.network
            histories[place].append(Stage("gradient", run.network, plan.split.score(run.network), run.seconds, run=run))
    return [
        Trained(own.method, networks[place], tuple(histories[place]), settings[place])
        for place, own in enumerate(trainings)
    ]


def _train_jobs(jobs: Mapping[int, Sequence[SurrogateJob]]) -> dict[int, list[SurrogateRun]]:
    """Train the jobs of several trainings together, each job once."""
    # Methods that begin alike have the same job, which its checkpoint identifies.
    distinct = {_identity(job): job for own in jobs.values() for job in own}
    together = list(distinct.values())
    runs = dict(zip(distinct, train_jobs(together, side_by_side=trains_side_by_side(together)), strict=True))
    return {place: [runs[_identity(job)] for job in own] for place, own in jobs.items()}


def _identity(job: SurrogateJob) -> object:
    return id(job) if job.checkpoint is None else job.checkpoint
