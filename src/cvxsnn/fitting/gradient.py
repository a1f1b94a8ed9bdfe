"""Training by surrogate gradients as a stage: candidates of settings, and several networks that are averaged."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import torch

from ..convex.objective import Objective
from ..core.checks import check_device
from ..core.errors import InvalidInputError
from ..core.seeds import child_seed
from ..data.sequences import TrainingSet
from ..network.spiking_network import SpikingNetwork
from .engine import sample
from .program import Program
from .scores import ScoreFunction
from .surrogate.settings import SurrogateRun, average_networks, initial_network
from .surrogate.trainer import SurrogateJob, train_jobs
from .surrogate_settings import SurrogateSettings


@dataclass(frozen=True, eq=False)
class Split:
    """Data to train on, and how to judge a network that was trained on them.

    Parameters
    ----------
    data : TrainingSet
        The training data.
    score : callable
        The validation score of a network; higher is better.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Split, TaskScore
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> len(split.data)
    40
    """

    data: TrainingSet
    score: ScoreFunction


@dataclass(frozen=True, eq=False)
class GradientPlan:
    """A gradient stage as jobs: one for each candidate, then, if asked for, further networks by the best of them.

    :func:`gradient_stage` carries it out. Code that runs many trainings may train the jobs of several plans together.

    Parameters
    ----------
    network : SpikingNetwork
        Where to start.
    split : Split
        The training data, and the score that chooses epoch and candidate.
    objective : Objective
        What to minimise.
    candidates : sequence of SurrogateSettings
        Settings that are all tried.
    n_networks : int
        The number of networks, each from another sample of the family, that are trained by the best settings and
        averaged.
    family : mapping, optional
        The family of the further networks.
    seed : int
        The seed of the further networks.
    device : torch.device or str, optional
        Where to compute; by default the device of the network.
    checkpoint : Path, optional
        A file for the state of training. Further jobs have files next to it.
    program : Program, optional
        The program whose optimum the read-out is at all times. By default gradients train it with the other layers.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import GradientPlan, Split, SurrogateSettings, TaskScore
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (16,), seed=0), task.train.inputs)
    >>> start = cs.reconstruct(cs.solve(cs.ConvexProblem(dictionary, task.train.targets, "logistic", 0.01)))
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> plan = GradientPlan(start, split, cs.convex.Objective("logistic"), [SurrogateSettings(epochs=2)])
    >>> plan.n_networks
    1
    """

    network: SpikingNetwork
    split: Split
    objective: Objective
    candidates: Sequence[SurrogateSettings]
    n_networks: int = 1
    family: Mapping[str, Any] | None = None
    seed: int = 0
    device: torch.device | str | None = None
    checkpoint: Path | None = None
    program: Program | None = None

    def jobs(self) -> list[SurrogateJob]:
        """Return one job for each candidate.

        Returns
        -------
        list of SurrogateJob
            The jobs, in the order of the candidates.
        """
        device = self.network.weight.device if self.device is None else check_device(self.device)
        # A copy, because ``to`` moves a module in place.
        network, data = copy.deepcopy(self.network).to(device), self.split.data.to(device)
        return [
            SurrogateJob(
                *(network, data, self.objective, settings, self.split.score, self._file(f"-{n}" if n else "")),
                program=self.program,
            )
            for n, settings in enumerate(self.candidates)
        ]

    def further_jobs(self, runs: Sequence[SurrogateRun]) -> list[SurrogateJob]:
        """Return a job for each further network, with its own sample and its own order of batches.

        Parameters
        ----------
        runs : sequence of SurrogateRun
            The outcomes of the candidates. Further networks train with the settings of the best.

        Returns
        -------
        list of SurrogateJob
            The jobs; none for one network.
        """
        jobs = []
        # Further samples start elsewhere, so that their errors differ and the average cancels a part of them.
        for number in range(1, self.n_networks):
            if self.family is None:
                raise InvalidInputError(
                    "expected a family to sample several networks from, got none: pass n_networks=1"
                )
            seed = child_seed(self.seed, "network", number)
            layers = sample(self.family, self.split.data, seed).layers
            sibling = replace(
                self,
                network=initial_network(layers, self.objective, self.split.data, seed),
                candidates=[replace(best_run(runs).settings, seed=seed)],
                checkpoint=self._file(f"-network-{number}"),
            )
            jobs += sibling.jobs()
        return jobs

    def finish(self, runs: Sequence[SurrogateRun], further: Sequence[SurrogateRun]) -> SurrogateRun:
        """Return the outcome of the stage.

        Parameters
        ----------
        runs : sequence of SurrogateRun
            The outcomes of the candidates.
        further : sequence of SurrogateRun
            The outcomes of the further networks.

        Returns
        -------
        SurrogateRun
            The best run, its network averaged with the further ones, and the seconds of all.
        """
        best = best_run(runs)
        network = best.network
        if further:
            network = average_networks([network, *(run.network for run in further)])
        seconds = sum(run.seconds for run in [*runs, *further])
        return replace(best, network=network.to(self.network.weight.device), seconds=seconds)

    def _file(self, suffix: str) -> Path | None:
        return None if self.checkpoint is None else self.checkpoint.with_stem(f"{self.checkpoint.stem}{suffix}")


def gradient_stage(
    plan: GradientPlan, callback: Callable[[int, int], None] | None = None, max_seconds: float = inf
) -> SurrogateRun:
    """Train all layers of a network by surrogate gradients.

    Parameters
    ----------
    plan : GradientPlan
        The network, the data and the settings to try.
    callback : callable, optional
        Called as ``callback(done, epochs)`` after each epoch.
    max_seconds : float
        The time after which no further epoch begins.

    Returns
    -------
    SurrogateRun
        The run that validates best.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import GradientPlan, Split, SurrogateSettings, TaskScore, gradient_stage
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (16,), seed=0), task.train.inputs)
    >>> start = cs.reconstruct(cs.solve(cs.ConvexProblem(dictionary, task.train.targets, "logistic", 0.01)))
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> plan = GradientPlan(start, split, cs.convex.Objective("logistic"), [SurrogateSettings(epochs=2)])
    >>> len(gradient_stage(plan).history)
    3
    """
    train = partial(train_jobs, callback=callback, max_seconds=max_seconds)
    runs = train(plan.jobs())
    return plan.finish(runs, train(plan.further_jobs(runs)))


def best_run(runs: Sequence[SurrogateRun]) -> SurrogateRun:
    """Return the run that validates best, of equal ones the first."""
    return max(runs, key=lambda run: run.best.score)
