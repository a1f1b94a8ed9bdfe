"""Many trainings at once: on a GPU, the gradient stages of many small networks share a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..fitting.gradient import Split, trains_side_by_side
from ..fitting.methods import METHODS, Settings, Stage, Trained, gradient_plan, prepare, train
from ..fitting.surrogate.settings import SurrogateRun, initial_network
from ..fitting.surrogate.trainer import SurrogateJob, train_jobs


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
    stages = {
        stage for training in trainings if training.method in METHODS for stage in METHODS[training.method].stages
    }
    if len(trainings) > 1 and stages == {"gradient"}:
        return _train_simultaneously(trainings)
    return [
        train(
            training.method,
            training.first,
            training.settings,
            training.second,
            checkpoints=training.checkpoints,
            device=training.device,
        )
        for training in trainings
    ]


def _train_simultaneously(trainings: Sequence[PlannedTraining]) -> list[Trained]:
    """Train by gradient stages alone: the first stages of all networks, then the second ones."""
    settings, networks, histories = [], [], []
    for training in trainings:
        chosen, witnesses, history = prepare(training.method, training.first, training.settings)
        settings.append(chosen)
        networks.append(initial_network(witnesses.layers, chosen.objective, training.first.data, chosen.seed))
        histories.append(history)
    for number in range(max(training.n_stages for training in trainings)):
        plans = {
            index: gradient_plan(
                training.method,
                number,
                networks[index],
                training.split(number),
                settings[index],
                training.checkpoints,
                training.device,
            )
            for index, training in enumerate(trainings)
            if number < training.n_stages
        }
        runs = _train_jobs({index: plan.jobs() for index, plan in plans.items()})
        further = _train_jobs({index: plan.further_jobs(runs[index]) for index, plan in plans.items()})
        for index, plan in plans.items():
            run = plan.finish(runs[index], further[index])
            networks[index] = run.network
            histories[index].append(Stage("gradient", run.network, plan.split.score(run.network), run.seconds, run=run))
    return [
        Trained(training.method, networks[index], tuple(histories[index]), settings[index])
        for index, training in enumerate(trainings)
    ]


def _train_jobs(jobs: Mapping[int, Sequence[SurrogateJob]]) -> dict[int, list[SurrogateRun]]:
    """Train the jobs of several trainings together, each job once."""
    # Methods that begin alike have the same job, which its checkpoint identifies.
    distinct = {_identity(job): job for several in jobs.values() for job in several}
    together = list(distinct.values())
    runs = dict(zip(distinct, train_jobs(together, side_by_side=trains_side_by_side(together)), strict=True))
    return {index: [runs[_identity(job)] for job in several] for index, several in jobs.items()}


def _identity(job: SurrogateJob) -> object:
    return id(job) if job.checkpoint is None else job.checkpoint
