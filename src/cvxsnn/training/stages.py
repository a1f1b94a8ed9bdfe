"""The stages of training, each a function that can be called alone.

*search* chooses a family of witnesses (:func:`cvxsnn.training.search.tune_witnesses`). *gradient* trains all layers by
surrogate gradients. *convex* freezes the hidden neurons and finds the optimal read-out, with a certificate. *ridge* is
its least-squares sibling without one. :func:`cvxsnn.training.train` strings them together.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from ..convex import ConvexProblem, Solution, solve, solve_path
from ..convex.objective import Objective
from ..convex.penalties import PENALTIES
from ..core.checks import check_choice, check_device, check_positive_int
from ..core.errors import InvalidInputError
from ..core.seeds import child_seed
from ..data.sequences import TrainingSet
from ..dictionary import build_dictionary
from ..dictionary.pooled import PoolSpikes
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from ..witnesses import WitnessSet, gaussian_witnesses
from ..witnesses.pool import WitnessPool
from .pools import PoolSolution, solve_pool
from .reservoir import fit_ridge
from .scores import Score, ScoreFunction
from .surrogate.settings import SurrogateRun, SurrogateSettings, average_networks, initial_network
from .surrogate.trainer import SurrogateJob, train_jobs

Family = Mapping[str, Any] | WitnessSet
"""Arguments of :func:`cvxsnn.gaussian_witnesses` other than ``n_features`` and ``seed``, or witnesses to use as they
are."""

_POOL_WIDTHS = (32, 128)
"""Most neurons in a lower layer and in the last layer of a pool's subnetworks: many small ones differ more."""

_POOL_STRENGTHS = 6
"""Strengths to try over a pool, each half of the one before."""


@dataclass(frozen=True, eq=False)
class Split:
    """Data to train on, and how to judge a network that was trained on them.

    Parameters
    ----------
    data : TrainingSet
        The training data.
    score : callable
        The validation score of a network; higher is better.
    """

    data: TrainingSet
    score: ScoreFunction


@dataclass(frozen=True)
class ConvexSettings:
    """The convex program of a read-out, and how to choose its strength.

    Parameters
    ----------
    l1_strength : float, sequence of float, or "auto"
        The strength of the penalty. Several strengths, or for "auto" a path of ``n_strengths`` of them, are compared on
        validation data.
    n_strengths : int
        The number of strengths on the path.
    smallest_ratio : float
        The end of the path, relative to the strength at which all coefficients vanish.
    penalty : "l1" or "group"
        The penalty of the coefficients.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    tol : float
        The relative gap to certify.
    pool : int
        The number of witnesses of the family that the optimum is over, which are priced and never held at once. With 0
        it is over the witnesses that were sampled.
    """

    l1_strength: float | Sequence[float] | Literal["auto"] = "auto"
    n_strengths: int = 12
    smallest_ratio: float = 1e-3
    penalty: str = "l1"
    intercept: bool = False
    tol: float = 1e-6
    pool: int = 0

    def __post_init__(self) -> None:
        """Refuse what no program could use."""
        check_choice("penalty", self.penalty, tuple(PENALTIES))
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

    @property
    def is_fixed(self) -> bool:
        """Whether there is one strength and nothing to choose."""
        return isinstance(self.l1_strength, (int, float))


def draw_witnesses(data: TrainingSet, family: Family, seed: int) -> WitnessSet:
    """Return witnesses for the data: a sample of the family, or the given witnesses.

    Parameters
    ----------
    data : TrainingSet
        The data, which decide the number of features and the device.
    family : mapping or WitnessSet
        Arguments of :func:`cvxsnn.gaussian_witnesses`, or witnesses to use as they are.
    seed : int
        The seed of the sample.

    Returns
    -------
    WitnessSet
        The witnesses, on the device of the data.
    """
    n_features, device = data.sequences.n_features, data.sequences.device
    if isinstance(family, WitnessSet):
        if family.n_features != n_features:
            raise InvalidInputError(
                f"expected witnesses that read {n_features} features, got witnesses that read {family.n_features}: "
                f"build them with n_features={n_features}"
            )
        return family.to(device)
    known = set(gaussian_witnesses.__kwdefaults__ or {}) | {"hidden", "n_subnetworks"}
    unknown = sorted(set(family) - known | set(family) & {"seed"})
    if unknown:
        raise InvalidInputError(f"expected a family of {sorted(known - {'seed'})}, got {unknown} too")
    if "hidden" not in family:
        raise InvalidInputError("expected a family with the widths of its hidden layers, got none: add hidden=(256,)")
    return gaussian_witnesses(n_features, seed=seed, **family).to(device)


def convex_stage(
    witnesses: WitnessSet,
    split: Split,
    objective: Objective,
    settings: ConvexSettings | None = None,
    *,
    family: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
) -> Solution:
    """Return the certified optimum over the spikes of some witnesses, at the strength that validates best.

    Parameters
    ----------
    witnesses : WitnessSet
        The hidden neurons, which stay as they are.
    split : Split
        The training data, and the score that chooses the strength.
    objective : Objective
        The loss and what is read of the spikes.
    settings : ConvexSettings, optional
        The penalty, the strengths and the tolerance.
    family : mapping, optional
        The family of a pool, which ``settings.pool`` asks for.
    seed : int
        The seed of the pool.
    device : torch.device or str, optional
        Where to compute; by default where the data are.

    Returns
    -------
    Solution
        The optimum with its certificate.
    """
    settings = settings or ConvexSettings()
    data = split.data if device is None else split.data.to(check_device(device))
    witnesses = witnesses.to(data.inputs.device)
    dictionary = build_dictionary(witnesses, data.sequences, objective.readout)
    problem = ConvexProblem.of(objective, dictionary, data, penalty=settings.penalty, intercept=settings.intercept)
    best = _best_strength(problem, split.score, settings)
    if settings.pool == 0:
        return best
    if family is None:
        raise InvalidInputError("expected a family to draw a pool from, got witnesses or none: pass pool=0")
    widths = [*[min(width, _POOL_WIDTHS[0]) for width in witnesses.hidden[:-1]], min(_POOL_WIDTHS[1], settings.pool)]
    pool = WitnessPool(witnesses.n_features, {**family, "hidden": tuple(widths)}, settings.pool, seed)
    return _best_over_pool(best, pool, replace(split, data=data), objective, settings)


def _best_strength(problem: ConvexProblem, score: ScoreFunction, settings: ConvexSettings) -> Solution:
    """Return the solution that validates best; of equal ones the sparser."""
    if isinstance(settings.l1_strength, (int, float)):
        return solve(problem.with_strength(settings.l1_strength), settings.tol)
    if settings.l1_strength == "auto":
        path = solve_path(
            problem, n_strengths=settings.n_strengths, smallest_ratio=settings.smallest_ratio, tol=settings.tol
        )
    else:
        path = solve_path(problem, [float(strength) for strength in settings.l1_strength], tol=settings.tol)
    return max(path, key=lambda solution: score(reconstruct(solution)))


def _best_over_pool(
    first: Solution, pool: WitnessPool, split: Split, objective: Objective, settings: ConvexSettings
) -> Solution:
    """Return the optimum over a pool, at the strength that validates best near that of a smaller optimum.

    More witnesses fit better at the same price, so weaker penalties may pay; they are tried as long as they do.
    """
    spikes = PoolSpikes(pool, split.data.sequences, objective.readout)
    strength = first.problem.l1_strength
    best: tuple[Score, PoolSolution] | None = None
    found: PoolSolution | None = None
    for _ in range(1 if settings.is_fixed else _POOL_STRENGTHS):
        found = solve_pool(
            pool,
            split.data,
            objective,
            strength,
            penalty=settings.penalty,
            intercept=settings.intercept,
            tol=settings.tol,
            start=found,
            spikes=spikes,
        )
        score = split.score(reconstruct(found.solution))
        if best is not None and score < best[0]:
            break
        best = (score, found)
        strength *= 0.5
    assert best is not None
    return best[1].solution


def ridge_stage(witnesses: WitnessSet, split: Split, objective: Objective) -> SpikingNetwork:
    """Return a network with a ridge regression on the spikes as its read-out, at the strength that validates best.

    Parameters
    ----------
    witnesses : WitnessSet
        The hidden neurons, which stay as they are.
    split : Split
        The training data, and the score that chooses the strength.
    objective : Objective
        The targets, and what is read of the spikes.

    Returns
    -------
    SpikingNetwork
        The network that validates best.
    """
    return fit_ridge(witnesses, split.data, objective, split.score)


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
        Where to compute; by default where the network is. On a GPU the candidates train side by side.
    checkpoint : Path, optional
        A file for the state of training. Further jobs have files next to it.
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

    def jobs(self) -> list[SurrogateJob]:
        """Return one job for each candidate.

        Returns
        -------
        list of SurrogateJob
            The jobs, in the order of the candidates.
        """
        place = self.network.weight.device if self.device is None else check_device(self.device)
        network, data = copy.deepcopy(self.network).to(place), self.split.data.to(place)
        return [
            SurrogateJob(network, data, self.objective, own, self.split.score, self._file(f"-{n}" if n else ""))
            for n, own in enumerate(self.candidates)
        ]

    def further_jobs(self, runs: Sequence[SurrogateRun]) -> list[SurrogateJob]:
        """Return a job for each further network, with its own sample and its own order of batches.

        Parameters
        ----------
        runs : sequence of SurrogateRun
            The outcomes of the candidates, of which the best decides the settings.

        Returns
        -------
        list of SurrogateJob
            The jobs; none for one network.
        """
        jobs = []
        for number in range(1, self.n_networks):
            if self.family is None:
                raise InvalidInputError(
                    "expected a family to sample several networks from, got none: pass n_networks=1"
                )
            seed = child_seed(self.seed, "network", number)
            layers = draw_witnesses(self.split.data, self.family, seed).layers
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


def gradient_stage(plan: GradientPlan, callback: Callable[[int, int], None] | None = None) -> SurrogateRun:
    """Train all layers of a network by surrogate gradients.

    Parameters
    ----------
    plan : GradientPlan
        The network, the data and the settings to try.
    callback : callable, optional
        Called as ``callback(done, epochs)`` after each epoch.

    Returns
    -------
    SurrogateRun
        The run that validates best.
    """
    jobs = plan.jobs()
    runs = train_jobs(jobs, side_by_side=trains_side_by_side(jobs), callback=callback)
    jobs = plan.further_jobs(runs)
    further = train_jobs(jobs, side_by_side=trains_side_by_side(jobs), callback=callback) if jobs else []
    return plan.finish(runs, further)


def trains_side_by_side(jobs: Sequence[SurrogateJob]) -> bool:
    """Return whether jobs should train in one batch.

    On a GPU many small networks cost what one does; on a CPU they are faster one after the other.
    """
    return any(job.network.weight.is_cuda for job in jobs)


def best_run(runs: Sequence[SurrogateRun]) -> SurrogateRun:
    """Return the run that validates best, of equal ones the first."""
    return max(runs, key=lambda run: run.best.score)
