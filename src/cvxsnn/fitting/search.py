"""Choosing the family of witnesses on validation data, by many cheap convex fits.

Which neurons are sampled decides more than anything that is done with them. Families are drawn from a broad prior
(:mod:`cvxsnn.witnesses.prior`), which knows nothing of the task. Each is sampled with few neurons, read out by ridge
regression and scored; the better ones are varied and tried with more neurons and data, and the best with all. The fits
run in the workers of joblib.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..convex import solve
from ..convex.objective import Objective
from ..core.checks import check_fields, check_positive_int
from ..core.errors import InvalidInputError
from ..core.parallel import Shared, limit_threads, run_tasks
from ..core.seeds import child_generator, child_seed
from ..data.sequences import TrainingSet, stratified_order
from ..dictionary import Readout, build_dictionary
from ..network.reconstruction import reconstruct
from ..witnesses import sample_witnesses
from ..witnesses.mixed import STEPS_FOR_DELAYS
from ..witnesses.prior import Draw, draw_family, mutate_family
from ..witnesses.tap_sampling import has_variation
from .choosing import choose, judge_for
from .program import Program, ridge_of, with_heads_of
from .scores import Score, ScoreFunction

Value = TypeVar("Value")


@dataclass(frozen=True)
class Evolution:
    """How the search proceeds."""

    generations: int = 5
    """Rounds of variation."""

    parents: int = 8
    """Families that are varied."""

    finalists: int = 3
    """Families that are tried at full size."""

    least_width: int = 32
    """Neurons of a layer below which comparisons are noise."""

    n_subnetworks: int = 4
    """Subnetworks of two layers or more with ``n_subnetworks="auto"``."""


EVOLUTION = Evolution()


@dataclass(frozen=True)
class Tuning:
    """How to search for a family.

    Parameters
    ----------
    n_witnesses : int
        The number of neurons in the last hidden layer of one subnetwork, once a family is chosen, or with
        ``n_subnetworks="auto"`` of all subnetworks; the layers below have a quarter as many.
    n_layers : int, optional
        The number of hidden layers; by default one or two, whichever does better.
    n_trials : int
        The number of families to try: half of them drawn, half of them variations.
    max_seconds : float
        The time after which no new fit begins; the best family so far is taken.
    readouts : tuple of "last", "mean" and "windows-k"
        The read-outs to choose from; if empty, that of the objective.
    hidden : tuple of int, optional
        The widths of the hidden layers of one subnetwork, in place of ``n_witnesses`` and ``n_layers``.
    n_subnetworks : int or "auto"
        The number of subnetworks. "auto", which excludes ``hidden``, divides the witnesses of two layers or more among
        four, whose lower layers differ.
    n_compared : int, optional
        The number of neurons in the last hidden layers while families are compared. The number sampled in the end
        does not depend on it.
    shares : tuple of three int
        Divisors of the number of neurons and sequences while families are drawn, varied and finished. Every trial uses
        at least ``min_rows`` sequences. Whole subnetworks are left out first.
    min_rows : int
        The least number of sequences of a trial, or all sequences if there are fewer.

    Examples
    --------
    >>> from cvxsnn.fitting import Tuning
    >>> Tuning(n_witnesses=256, n_trials=32).n_layers is None
    True
    """

    n_witnesses: int = 1024
    n_layers: int | None = None
    n_trials: int = 192
    max_seconds: float = math.inf
    readouts: tuple[Readout, ...] = ()
    hidden: tuple[int, ...] | None = None
    n_subnetworks: int | Literal["auto"] = 1
    n_compared: int | None = None
    shares: tuple[int, int, int] = (16, 4, 1)
    min_rows: int = 2000

    def __post_init__(self) -> None:
        """Refuse invalid settings."""
        if self.hidden is not None:
            object.__setattr__(self, "n_layers", len(self.hidden))
            if self.n_subnetworks == "auto":
                raise InvalidInputError("expected a number of subnetworks for the widths in hidden, got 'auto': pass 1")
        if len(self.shares) != 3:
            raise InvalidInputError(f"expected three shares, for drawing, varying and finishing, got {self.shares!r}")
        counts = ("n_witnesses", "n_trials", "min_rows", "n_compared", "n_layers")
        check_fields(self, *counts, *[] if self.n_subnetworks == "auto" else ["n_subnetworks"])
        for name in ("hidden", "shares"):
            for number in getattr(self, name) or ():
                check_positive_int(name, number)
        if not self.max_seconds > 0:
            raise InvalidInputError(f"expected max_seconds above zero, got {self.max_seconds!r}")


@dataclass(frozen=True)
class Trial:
    """One family tried once.

    Parameters
    ----------
    family : mapping
        What :func:`cvxsnn.witnesses.sample_witnesses` samples.
    readout : "last", "all", "mean" or "windows-k"
        What was read of the spikes.
    round : "draw", "vary" or "finish"
        The round of the search.
    n_rows : int
        The number of training sequences.
    score : Score
        The score on validation data.
    error : float
        An estimate of the squared error on new data, from the training data alone; it breaks ties.
    seconds : float
        How long the trial took.
    """

    family: Mapping[str, Any]
    readout: Readout
    round: str
    n_rows: int
    score: Score
    error: float
    seconds: float

    @property
    def rank(self) -> tuple[Score, float]:
        """Score and negative error; higher is better."""
        return (self.score, -self.error)


@dataclass(frozen=True)
class Tuned:
    """The outcome of a search.

    Parameters
    ----------
    family : mapping
        The family that did best, which :func:`cvxsnn.witnesses.sample_witnesses` samples.
    readout : "last", "all", "mean" or "windows-k"
        The read-out that it did best with.
    score : Score
        Its score on validation data.
    trials : tuple of Trial
        Everything that was tried, in order.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import TaskScore, Tuning, tune_witnesses
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> data, score = cs.data.TrainingSet.of(task.train), TaskScore(task, task.val)
    >>> tuned = tune_witnesses(data, cs.convex.Objective("logistic"), score, Tuning(n_witnesses=32, n_trials=4))
    >>> len(tuned.trials), tuned.readout
    (6, 'last')
    """

    family: Mapping[str, Any]
    readout: Readout
    score: Score
    trials: tuple[Trial, ...]


def tune_witnesses(
    data: TrainingSet,
    objective: Objective,
    score: ScoreFunction | None,
    tuning: Tuning | None = None,
    *,
    seed: int = 0,
    callback: Callable[[int, int], None] | None = None,
    n_jobs: int | None = None,
) -> Tuned:
    """Search for the family of witnesses whose spikes can be read out best.

    Parameters
    ----------
    data : TrainingSet
        The training data.
    objective : Objective
        The loss, and the read-out unless ``tuning.readouts`` lists several.
    score : callable, optional
        The score of a network on validation data; higher is better. It is called in the workers. Without it, the
        errors on rows left out rank the families.
    tuning : Tuning, optional
        How to search.
    seed : int
        The seed of the search.
    callback : callable, optional
        Called as ``callback(done, total)`` after each trial.
    n_jobs : int, optional
        The number of workers as in joblib: None is what ``joblib.parallel_config`` says, or one, and -1 one per core.
        The outcome does not depend on it.

    Returns
    -------
    Tuned
        The best family, and everything that was tried.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import TaskScore, Tuning, tune_witnesses
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> data, score = cs.data.TrainingSet.of(task.train), TaskScore(task, task.val)
    >>> tuned = tune_witnesses(data, cs.convex.Objective("logistic"), score, Tuning(n_witnesses=32, n_trials=4))
    >>> len(tuned.trials), tuned.readout
    (6, 'last')
    """
    tuning = tuning or Tuning()
    labels = _labels(data) if len(data) > tuning.min_rows else None  # else every trial uses all sequences
    order = stratified_order(labels, child_generator(seed, "tuning", "rows"), len(data))
    search = _FamilySearch(_Bench(data, objective, score, tuning, seed, order), callback or (lambda *_: None), n_jobs)
    search.draw()
    for _ in range(EVOLUTION.generations):
        search.vary()
    return search.finish()


@dataclass(frozen=True)
class _Candidate:
    """A family of any size, with the read-out for it."""

    family: Draw
    readout: Readout


@dataclass(frozen=True, eq=False)
class _Bench:
    """Data and settings that all trials share."""

    data: TrainingSet
    objective: Objective
    score: ScoreFunction | None
    tuning: Tuning
    seed: int
    order: Tensor

    def try_out(self, candidate: _Candidate, name: str, share: int) -> Trial:
        """Read a sample of a family by ridge regression, with one in ``share`` neurons and sequences."""
        begin, data = time.monotonic(), self._take(share)
        family = _sized(candidate.family, self.tuning, share)
        # Thresholds are taken from all training data, as they will be once the family is chosen.
        witnesses = sample_witnesses(family, self.data.sequences, child_seed(self.seed, "tuning", name))
        dictionary = build_dictionary(witnesses.to(data.inputs.device), data.sequences, candidate.readout)
        objective = replace(self.objective, readout=candidate.readout)
        problem = Program(objective, intercept=True).problem(dictionary, data)
        program = Program.ridge(objective)
        with limit_threads(1):  # so that the fit is the same wherever it is made
            ridge = ridge_of(problem)
            verdict = choose(ridge, program, judge_for(ridge, program, self.seed))
            assert verdict.validation is not None
            error = float(verdict.validation.mean()[0])
            score: Score = -error
            if self.score is not None:
                solution = solve(program.at(ridge, verdict.point), program.tol)
                score = self.score(with_heads_of(problem, reconstruct(solution)))
        return Trial(family, candidate.readout, name, len(data), score, error, time.monotonic() - begin)

    def _take(self, share: int) -> TrainingSet:
        n_rows = min(len(self.data), max(self.tuning.min_rows, len(self.data) // share))
        return self.data if n_rows == len(self.data) else self.data.take(self.order[:n_rows].sort().values)


class _FamilySearch:
    """The trials so far, and the ranking of the candidates at the current size."""

    def __init__(self, bench: _Bench, notify: Callable[[int, int], None], n_jobs: int | None) -> None:
        self._tuning, sequences = bench.tuning, bench.data.sequences
        self._bench, self._notify = Shared(bench), notify
        # On a GPU, trials share one device and run one after the other.
        self._n_jobs = n_jobs if sequences.device.type == "cpu" else 1
        can_have_delays = sequences.n_steps >= STEPS_FOR_DELAYS and has_variation(sequences)
        self._limits = sequences.n_features, sequences.n_steps - 1 if can_have_delays else 0
        self._readouts = bench.tuning.readouts or (bench.objective.readout,)
        self._generator = child_generator(bench.seed, "tuning", "families")
        self._begin = time.monotonic()
        self._n_drawn = max(1, self._tuning.n_trials // 2)
        self._n_varied = (self._tuning.n_trials - self._n_drawn) // EVOLUTION.generations
        self._total = self._n_drawn + EVOLUTION.parents + EVOLUTION.generations * self._n_varied + EVOLUTION.finalists
        self._trials: list[Trial] = []
        self._ranked: dict[_Candidate, Trial] = {}
        """The latest trial of each candidate that is still in the race."""

    def draw(self) -> None:
        """Try small families from the prior, and the better ones also at the next size."""
        n_features, max_delay = self._limits
        drawn = []
        for _ in range(self._n_drawn):
            n_layers = self._tuning.n_layers or int(self._generator.integers(1, 3))
            family = draw_family(self._generator, n_features, n_layers, max_delay)
            drawn.append(_Candidate(family, self._any(self._readouts)))
        self._ranked = self._try_all(drawn, "draw", self._tuning.shares[0])
        # If the time is up before the next size, the ranking at the smaller one stays.
        self._ranked = self._try_all(self._best(EVOLUTION.parents), "vary", self._tuning.shares[1]) or self._ranked

    def vary(self) -> None:
        """Try variations of the best."""
        parents, children = self._best(EVOLUTION.parents), []
        for _ in range(self._n_varied):
            parent = self._any(parents)
            family = mutate_family(self._generator, parent.family, *self._limits)
            keeps_readout = self._generator.random() < 0.8
            children.append(_Candidate(family, parent.readout if keeps_readout else self._any(self._readouts)))
        # Seeds do not depend on the generation: the same candidate would get the same neurons again.
        fresh = [child for child in dict.fromkeys(children) if child not in self._ranked]
        self._ranked |= self._try_all(fresh, "vary", self._tuning.shares[1])

    def finish(self) -> Tuned:
        """Try the best at full size, and return the best of them."""
        finalists = self._best(EVOLUTION.finalists)
        ranked = self._try_all(finalists, "finish", self._tuning.shares[2])
        # If the time is up, the order of the smaller trials decides.
        self._ranked = ranked or {candidate: self._ranked[candidate] for candidate in finalists}
        (best,) = self._best(1)
        self._notify(self._total, self._total)
        family, score = _sized(best.family, self._tuning), self._ranked[best].score
        return Tuned(family, best.readout, score, tuple(self._trials))

    def _any(self, values: Sequence[Value]) -> Value:
        return values[int(self._generator.integers(len(values)))]

    def _best(self, number: int) -> list[_Candidate]:
        return sorted(self._ranked, key=lambda candidate: self._ranked[candidate].rank, reverse=True)[:number]

    def _try_all(self, candidates: Sequence[_Candidate], name: str, share: int) -> dict[_Candidate, Trial]:
        tried: dict[int, Trial] = {}

        def is_late() -> bool:
            # One trial is always finished: the search must return a family.
            return bool(self._trials or tried) and time.monotonic() - self._begin >= self._tuning.max_seconds

        tasks = [(self._bench, candidate, name, share) for candidate in candidates]
        for number, trial in run_tasks(_try_out, tasks, n_jobs=self._n_jobs, should_stop=is_late):
            tried[number] = trial
            self._notify(len(self._trials) + len(tried), self._total)
        # In the order of the candidates: the outcome must not depend on which worker ends first.
        self._trials += [tried[number] for number in sorted(tried)]
        return {candidates[number]: tried[number] for number in sorted(tried)}


def _try_out(bench: Shared[_Bench], candidate: _Candidate, name: str, share: int) -> Trial:
    return bench.value.try_out(candidate, name, share)


def _labels(data: TrainingSet) -> npt.NDArray[Any] | None:
    """Return the class of each sequence, that is its targets if they repeat; None if most of them differ."""
    targets = [torch.as_tensor(values).cpu().numpy().reshape(len(data), -1) for values in data.targets.values()]
    values, classes = np.unique(np.concatenate(targets, axis=1), axis=0, return_inverse=True)
    return classes.ravel() if len(values) <= len(data) // 10 else None


def _sized(family: Draw, tuning: Tuning, share: int | None = None) -> dict[str, Any]:
    """Return the family at the widths asked for, or for a comparison at a share of them, but not at too few."""
    n_subnetworks, last = tuning.n_subnetworks, tuning.n_witnesses
    if n_subnetworks == "auto":
        n_subnetworks = 1 if family.n_layers == 1 else EVOLUTION.n_subnetworks
        last = max(1, last // n_subnetworks)
    widths = tuning.hidden or (*[max(EVOLUTION.least_width, last // 4)] * (family.n_layers - 1), last)
    if share is None:
        return {**family.arguments(), "hidden": widths, "n_subnetworks": n_subnetworks}
    # Whole subnetworks are left out first; the widths shrink only for the rest of the share.
    n_neurons = n_subnetworks * widths[-1]
    share *= math.ceil(n_neurons / (tuning.n_compared or n_neurons))
    kept = math.ceil(n_subnetworks / share)
    small = tuple(max(min(width, EVOLUTION.least_width), width * n_subnetworks // (share * kept)) for width in widths)
    return {**family.arguments(), "hidden": small, "n_subnetworks": kept}
