"""The stages of training, each a function that can be called alone.

*search* chooses a family of witnesses (:func:`cvxsnn.training.search.tune_witnesses`). *gradient* trains all layers by
surrogate gradients. *convex* freezes the hidden neurons and finds the optimal read-out, with a certificate. *ridge* is
its least-squares sibling without one. :func:`cvxsnn.training.train` strings them together.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from ..convex import ConvexProblem, Solution, solve, solve_path
from ..convex.objective import Objective
from ..convex.path import l2_strengths_of
from ..convex.penalties import PENALTIES, make_penalty
from ..convex.strengths import check_prices, check_strengths
from ..core.checks import check_choice, check_device, check_positive_int
from ..core.errors import InvalidInputError
from ..core.seeds import child_seed
from ..data.sequences import TrainingSet
from ..dictionary import build_dictionary
from ..dictionary.pooled import PoolSpikes
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from ..witnesses import WitnessSet, sample_witnesses
from ..witnesses.pool import WitnessPool
from .pools import PoolSolution, solve_pool
from .reservoir import fit_ridge
from .scores import Score, ScoreFunction
from .surrogate.settings import SurrogateRun, SurrogateSettings, average_networks, initial_network
from .surrogate.trainer import SurrogateJob, train_jobs

Family = Mapping[str, Any] | WitnessSet
"""What :func:`cvxsnn.witnesses.sample_witnesses` samples, or witnesses to use as they are."""

Strengths = float | Sequence[float] | Literal["auto"]
"""One strength, several to choose from, or a choice of the library's own."""

_NET_STRENGTHS = (8, 10)
"""The most strengths of the norm above zero, and the strengths of the quadratic, where both are tried."""

_NET_NEIGHBOURS = 3
"""Strengths of the quadratic that are tried with a norm: the best for ridge, and the next smaller ones."""

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

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import Split, TaskScore
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> len(split.data)
    40
    """

    data: TrainingSet
    score: ScoreFunction


@dataclass(frozen=True)
class ConvexSettings:
    """The convex program of a read-out, and how to choose its strengths.

    Several strengths, or those that "auto" stands for, are compared on validation data; of equally good ones the
    larger wins, first of the norm, then of the quadratic.

    Parameters
    ----------
    l1_strength : float, sequence of float, or "auto"
        The strength of the norm. "auto" is a path of ``n_strengths`` of them. For the elastic nets it may be zero,
        which is ridge, and "auto" tries that too.
    n_strengths : int
        The number of strengths on the path; at most 8 of them are tried with each of several ``l2_strength``.
    smallest_ratio : float
        The end of the path, relative to the strength at which all coefficients vanish.
    penalty : "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the coefficients.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    tol : float
        The relative gap to certify.
    pool : int
        The number of witnesses of the family that the optimum is over, which are priced and never held at once. With 0
        it is over the witnesses that were sampled.
    l2_strength : float, sequence of float, or "auto"
        The strength of the quadratic. "auto" is ten of them for the elastic nets, and none for other penalties, which
        have no quadratic.

    Examples
    --------
    >>> from cvxsnn.training import ConvexSettings
    >>> ConvexSettings(l1_strength=0.01).is_fixed, ConvexSettings().is_fixed
    (True, False)
    """

    l1_strength: Strengths = "auto"
    n_strengths: int = 12
    smallest_ratio: float = 1e-3
    penalty: str = "l1"
    intercept: bool = False
    tol: float = 1e-6
    pool: int = 0
    l2_strength: Strengths = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what no program could use."""
        check_choice("penalty", self.penalty, tuple(PENALTIES))
        check_positive_int("n_strengths", self.n_strengths)
        if not 0 < self.smallest_ratio < 1:
            raise InvalidInputError(f"expected smallest_ratio between 0 and 1, got {self.smallest_ratio!r}")
        norm = _given("l1_strength", self.l1_strength)
        quadratic = _given("l2_strength", self.l2_strength)
        for l1_strength in [1.0] if norm is None else norm:
            for l2_strength in [float(self.has_quadratic)] if quadratic is None else quadratic:
                check_strengths(l1_strength, l2_strength, make_penalty(self.penalty))
        if self.pool and norm is not None:
            check_prices(min(norm), "a pool of witnesses")

    @property
    def has_quadratic(self) -> bool:
        """Whether the penalty is an elastic net."""
        return make_penalty(self.penalty).has_quadratic

    @property
    def is_fixed(self) -> bool:
        """Whether there is one pair of strengths and nothing to choose."""
        return isinstance(self.l1_strength, Real) and (isinstance(self.l2_strength, Real) or not self.has_quadratic)


def _given(name: str, strength: Strengths) -> list[float] | None:
    """Return the strengths that were given; None for "auto"."""
    if isinstance(strength, str):
        check_choice(name, strength, ("auto",))
        return None
    given: list[Any] = list(strength) if isinstance(strength, Sequence) else [strength]
    if len(given) == 0:
        raise InvalidInputError(f"expected at least one strength, got none: pass {name}='auto'")
    if not all(isinstance(one, Real) for one in given):
        raise InvalidInputError(f"expected {name} to be a number, a list of numbers, or 'auto', got {strength!r}")
    return given


def draw_witnesses(data: TrainingSet, family: Family, seed: int) -> WitnessSet:
    """Return witnesses for the data: a sample of the family, or the given witnesses.

    Parameters
    ----------
    data : TrainingSet
        The data, which decide the number of features and the device. Neurons with delays take thresholds from them.
    family : mapping or WitnessSet
        What :func:`cvxsnn.witnesses.sample_witnesses` samples, or witnesses to use as they are.
    seed : int
        The seed of the sample.

    Returns
    -------
    WitnessSet
        The witnesses, on the device of the data.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import draw_witnesses
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> draw_witnesses(cs.data.TrainingSet.of(task.train), {"hidden": (16, 32)}, seed=0)
    WitnessSet(sampled lif, 1 × (2→16→32))
    """
    n_features, device = data.sequences.n_features, data.sequences.device
    if isinstance(family, WitnessSet):
        if family.n_features != n_features:
            raise InvalidInputError(
                f"expected witnesses that read {n_features} features, got witnesses that read {family.n_features}: "
                f"build them with n_features={n_features}"
            )
        return family.to(device)
    return sample_witnesses(family, data.sequences, seed).to(device)


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
    """Return the certified optimum over the spikes of some witnesses, at the strengths that validate best.

    Parameters
    ----------
    witnesses : WitnessSet
        The hidden neurons, which stay as they are.
    split : Split
        The training data, and the score that chooses the strengths.
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

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import ConvexSettings, Split, TaskScore, convex_stage
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> objective = cs.convex.Objective("logistic")
    >>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
    >>> solution = convex_stage(witnesses, split, objective, ConvexSettings(l1_strength=0.01))
    >>> solution.certificate.relative_gap <= 1e-6
    True
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
    pooled = {**family, "hidden": tuple(widths)}
    pool = WitnessPool(witnesses.n_features, pooled, settings.pool, seed, inputs=data.sequences)
    return _best_over_pool(best, pool, replace(split, data=data), objective, settings)


def _best_strength(problem: ConvexProblem, score: ScoreFunction, settings: ConvexSettings) -> Solution:
    """Return the solution that validates best; of equal ones that of the larger strengths, which is the sparser."""
    norm, quadratic = _given("l1_strength", settings.l1_strength), _given("l2_strength", settings.l2_strength)
    if not settings.has_quadratic:
        quadratic = None
    elif quadratic is None:
        quadratic = l2_strengths_of(problem, _NET_STRENGTHS[1])
    if norm is not None and settings.is_fixed:
        return solve(problem.with_strength(norm[0], quadratic[0] if quadratic else None), settings.tol)

    def rank(solution: Solution) -> tuple[Score, float, float]:
        return score(reconstruct(solution)), solution.problem.l1_strength, solution.problem.l2_strength

    tried: list[Solution] = []
    if norm is None and quadratic is not None:
        norm = _strengths_beside(problem, quadratic, settings)
        if 0.0 in norm and len(quadratic) > _NET_NEIGHBOURS:
            # Ridge, which is fast, shows where to look: a norm beside it needs a quadratic that is no larger.
            tried = list(solve_path(problem, [0.0], l2_strengths=quadratic, tol=settings.tol))
            best = max(tried, key=rank).problem.l2_strength
            quadratic = sorted((own for own in quadratic if own <= best), reverse=True)[:_NET_NEIGHBOURS]
            norm = [own for own in norm if own]
    path = solve_path(
        problem,
        norm,
        l2_strengths=quadratic,
        n_strengths=settings.n_strengths,
        smallest_ratio=settings.smallest_ratio,
        tol=settings.tol,
    )
    chosen: Solution = max((*path, *tried), key=rank)
    return chosen


def _strengths_beside(problem: ConvexProblem, quadratic: Sequence[float], settings: ConvexSettings) -> list[float]:
    """Return the strengths of the norm to try with those of the quadratic: a path, then zero where it is possible."""
    n_strengths = settings.n_strengths if len(quadratic) == 1 else min(settings.n_strengths, _NET_STRENGTHS[0])
    largest = problem.critical_strength or 1.0
    path: list[float] = np.geomspace(largest, settings.smallest_ratio * largest, n_strengths).tolist()
    return path if settings.pool or 0 in quadratic else [*path, 0.0]


def _best_over_pool(
    first: Solution, pool: WitnessPool, split: Split, objective: Objective, settings: ConvexSettings
) -> Solution:
    """Return the optimum over a pool, at the strength that validates best near that of a smaller optimum.

    More witnesses fit better at the same price, so weaker penalties may pay; they are tried as long as they do. The
    strength of a quadratic stays as it is.
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
            l2_strength=first.problem.l2_strength,
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

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import Split, TaskScore, ridge_stage
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> network = ridge_stage(cs.gaussian_witnesses(2, (16,), seed=0), split, cs.convex.Objective("logistic"))
    >>> network.predict(task.test.inputs)["label"].shape
    (40,)
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

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import GradientPlan, Split, SurrogateSettings, TaskScore
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

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import GradientPlan, Split, SurrogateSettings, TaskScore, gradient_stage
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (16,), seed=0), task.train.inputs)
    >>> start = cs.reconstruct(cs.solve(cs.ConvexProblem(dictionary, task.train.targets, "logistic", 0.01)))
    >>> split = Split(cs.data.TrainingSet.of(task.train), TaskScore(task, task.val))
    >>> plan = GradientPlan(start, split, cs.convex.Objective("logistic"), [SurrogateSettings(epochs=2)])
    >>> len(gradient_stage(plan).history)
    3
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
