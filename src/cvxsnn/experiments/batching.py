"""Many trainings at once: on a GPU, the gradient stages of many small networks share a batch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ..fitting import METHODS
from ..fitting.gradient import Split
from ..fitting.methods import Settings, Stage, Trained, gradient_plan, prepare, train
from ..fitting.surrogate.settings import SurrogateRun, initial_network
from ..fitting.surrogate.trainer import SurrogateJob, train_jobs


class PlannedTraining(NamedTuple):
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


def train_many(trainings: Sequence[PlannedTraining]) -> list[Trained]:
    """Train several networks; if all of them have gradient stages alone, they train simultaneously, stage by stage.

    Parameters
    ----------
    trainings : sequence of PlannedTraining
        The trainings.

    Returns
    -------
    list of Trained
        The results of :func:`cvxsnn.train`, one for each of them.
    """
    stages = {stage for plan in trainings if plan.method in METHODS for stage in METHODS[plan.method].stages}
    if len(trainings) > 1 and stages == {"gradient"}:
        return _train_simultaneously(trainings)
    return [train(*plan[:4], checkpoints=plan.checkpoints, device=plan.device) for plan in trainings]


def _train_simultaneously(trainings: Sequence[PlannedTraining]) -> list[Trained]:
    """Train by gradient stages alone: the first stages of all networks, then the second ones."""
    settings = []
    networks = []
    histories = []
    for method, first, planned, *_ in trainings:
        chosen, witnesses, history = prepare(method, first, planned)
        settings.append(chosen)
        networks.append(initial_network(witnesses.layers, chosen.objective, first.data, chosen.seed))
        histories.append(history)
    for number in range(max(len(METHODS[training.method].stages) for training in trainings)):
        plans = {
            index: gradient_plan(
                method, number, networks[index], second if number else first, settings[index], checkpoints, device
            )
            for index, (method, first, _, second, checkpoints, device) in enumerate(trainings)
            if number < len(METHODS[method].stages)
        }
        runs = _train_jobs({index: plan.jobs() for index, plan in plans.items()})
        further = _train_jobs({index: plan.further_jobs(runs[index]) for index, plan in plans.items()})
        for index, plan in plans.items():
            run = plan.finish(runs[index], further[index])
            networks[index] = run.network
            histories[index].append(Stage("gradient", run.network, plan.split.score(run.network), run.seconds, run=run))
    return [
        Trained(training.method, network, tuple(history), chosen)
        for training, network, history, chosen in zip(trainings, networks, histories, settings, strict=True)
    ]


def _train_jobs(jobs: Mapping[int, Sequence[SurrogateJob]]) -> dict[int, list[SurrogateRun]]:
    """Train the jobs of several trainings together, each job once."""

    def identity(job: SurrogateJob) -> object:
        """Return the checkpoint of a job: methods that begin alike have the same one."""
        return id(job) if job.checkpoint is None else job.checkpoint

    distinct = {identity(job): job for several in jobs.values() for job in several}
    together = list(distinct.values())
    runs = dict(zip(distinct, train_jobs(together, side_by_side=None), strict=True))
    return {index: [runs[identity(job)] for job in several] for index, several in jobs.items()}
