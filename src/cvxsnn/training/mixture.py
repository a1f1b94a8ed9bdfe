"""The optimal read-out of a mixture of families, with every choice made by leave-one-out errors.

Ridge regression has leave-one-out errors in closed form, so that all rows are used to train and to judge. They choose
what is read of the spikes, the mixture, the number of neurons and the strength of the penalty. A choice other than the
default must be better by more than the standard error of the difference; twice as many neurons must lower the error
noticeably.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, solve
from ..convex.folds import deal_rows
from ..convex.leave_one_out import mean_eigenvalue, ridge_fold_scores, ridge_scores, validation_of
from ..convex.objective import Objective
from ..convex.validation import Validation, paired_difference
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator, child_seed
from ..data.sequences import TrainingSet
from ..dictionary import Readout, build_dictionary
from ..witnesses import WitnessSet
from ..witnesses.delayed import log_calibration
from ..witnesses.mixture import Mixture, mixed_witnesses, mixtures_for
from .selection import CONSTANT, Sparsity, select_neurons

_LOGGER = logging.getLogger("cvxsnn")

RATIOS: tuple[float, ...] = tuple((10.0 ** np.arange(3, -5.1, -0.5)).tolist())
"""Strengths of ridge to choose from, relative to the mean eigenvalue of the products of rows."""

N_COMPARED, ROWS_COMPARED = 2048, 1000
"""Neurons, and at most rows, with which read-outs and mixtures are compared."""

SIZES, ROWS_GROWN = (8192, 16_384), 2000
"""Numbers of neurons to try in turn, with at most so many rows."""

_MAX_ROWS, _MOST_BEYOND = 5000, 8192
"""Rows up to which errors are those of leaving one out. Beyond, they are those of leaving a fifth out, and there are at
most so many neurons."""

HELD_OUT = "held out"
"""Method of a validation with rows that were left out all at once."""

_PER_CENT = 100

_ROUGHLY = 1e-4
"""Relative gap of solutions that are only compared."""

_PATIENCE = 3
"""Strengths in a row that are no better than the best, after which held-out rows are not tried with weaker ones."""

_CLEARLY = 1.0
"""Standard errors by which a choice must be better than the default."""

_FOLDS = 5
"""Folds in which few neurons are chosen without a part of the rows."""

_SOLVE_SHARE = 0.4
"""Time of the final solve relative to the ridge regressions of a trial of the same neurons and rows: at most that."""

_NO_TIME = "no time was left to try more"

_WORTH = 0.005
"""Fall of the loss that is worth twice as many neurons, as a share of the loss of the best constant."""


@dataclass(frozen=True)
class Mixing:
    """What is left open of a mixture.

    Parameters
    ----------
    n_witnesses : int, optional
        Number of neurons. By default 8,192, or 16,384 if that lowers the errors noticeably.
    readouts : tuple of str
        The read-outs to choose from; the first is the default.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    tol : float
        The relative gap to certify.
    max_seconds : float
        Time for everything. Nothing is begun that would end later, judged by the trials so far. The first trial, the
        spikes of as few neurons on all rows and the final solve are always finished, and with a given number of neurons
        a trial with these, and the choice of few of them.
    sparsity : int or "few", optional
        At most how many neurons are read; or the fewest whose error is within one standard error of the best. By
        default all are read.
    """

    n_witnesses: int | None = None
    readouts: tuple[Readout, ...] = ("mean", "last")
    intercept: bool = True
    tol: float = 1e-6
    max_seconds: float = inf
    sparsity: Sparsity | None = None


@dataclass(frozen=True, eq=False)
class MixtureTrial:
    """Ridge over some neurons, judged on rows that it did not see.

    Parameters
    ----------
    mixture : "all", "dilated" or "scattered"
        The families.
    readout : str
        What is read of the spikes.
    n_witnesses : int
        Number of neurons.
    n_rows : int
        Number of rows that were left out.
    ratio : float
        The best strength, relative to the mean eigenvalue of the products of rows.
    validation : Validation
        The errors at this strength.
    seconds : float
        How long the trial took.
    """

    mixture: Mixture
    readout: Readout
    n_witnesses: int
    n_rows: int
    ratio: float
    validation: Validation
    seconds: float

    @property
    def loss(self) -> float:
        """Mean loss on rows left out."""
        return float(self.validation.mean()[0])

    def is_clearly_better(self, other: "MixtureTrial") -> bool:
        """Return whether the loss on the same rows is lower by more than the standard error of the difference."""
        own, others = self.validation.loss[0], other.validation.loss[0]
        mean, error = paired_difference(others, own, self.validation.weight)
        return bool(mean > _CLEARLY * error)


@dataclass(frozen=True, eq=False)
class MixtureFit:
    """The certified read-out, and how it was chosen.

    Parameters
    ----------
    solution : Solution
        The optimum on all rows.
    readout : str
        What is read of the spikes.
    trials : tuple of MixtureTrial
        Everything that was tried, in order.
    chosen : MixtureTrial
        The trial that has the neurons and the strength of the solution.
    scores : Tensor of shape (n_judged, n_outputs)
        Outputs for rows that were left out, at the chosen strength.
    rows : Tensor of shape (n_judged,), dtype int64
        Which rows these are.
    n_sampled : int
        Number of neurons that were sampled, of which the solution may read few.
    reason : str
        Why these neurons were chosen, on one line.
    """

    solution: Solution
    readout: Readout
    trials: tuple[MixtureTrial, ...]
    chosen: MixtureTrial
    scores: Tensor
    rows: Tensor
    n_sampled: int
    reason: str


def fit_mixture(
    data: TrainingSet,
    objective: Objective,
    mixing: Mixing | None = None,
    *,
    seed: int = 0,
    callback: Callable[[int, int], None] | None = None,
) -> MixtureFit:
    """Choose a mixture on the training data, and return its certified optimal read-out.

    Parameters
    ----------
    data : TrainingSet
        The training data.
    objective : Objective
        The squared loss. What is read of the spikes is chosen.
    mixing : Mixing, optional
        What is left open.
    seed : int
        The seed of all draws.
    callback : callable, optional
        Called as ``callback(done, total)`` after each trial, in per cent of the work: neurons times rows.

    Returns
    -------
    MixtureFit
        The solution with its certificate, and what was tried.
    """
    return _MixtureSearch(data, objective, mixing or Mixing(), seed, callback or (lambda done, total: None)).run()


class _Tried(NamedTuple):
    """A trial with its problem, the outputs for rows left out, and which rows these are."""

    problem: ConvexProblem
    trial: MixtureTrial
    scores: Tensor
    rows: Tensor


class _Cost(NamedTuple):
    """What a trial takes in seconds: for the spikes of neurons, and for ridge regressions on them."""

    n_witnesses: int
    n_rows: int
    spikes: float
    ridge: float

    def of(self, n_witnesses: int, n_rows: int) -> "_Cost":
        """Forecast the cost of another trial, rather too much than too little.

        Spikes take time in proportion to neurons and rows, ridge in proportion to products of rows or columns, of
        whichever there are fewer, and their eigenvalues.
        """
        work = n_witnesses / self.n_witnesses * n_rows / self.n_rows
        size = min(n_witnesses, n_rows) / min(self.n_witnesses, self.n_rows)
        return _Cost(n_witnesses, n_rows, self.spikes * work, self.ridge * max(work * size, size**3))


class _MixtureSearch:
    def __init__(
        self,
        data: TrainingSet,
        objective: Objective,
        mixing: Mixing,
        seed: int,
        callback: Callable[[int, int], None],
    ) -> None:
        self._data, self._objective, self._mixing, self._seed = data, objective, mixing, seed
        self._callback, self._begin = callback, time.perf_counter()
        self._trials: list[MixtureTrial] = []
        self._costs: list[_Cost] = []
        self._witnesses: dict[tuple[Mixture, int], WitnessSet] = {}
        self._mixtures = mixtures_for(data.sequences.n_steps, data.sequences.n_features)
        self._sizes: Sequence[int] = (mixing.n_witnesses,) if mixing.n_witnesses is not None else SIZES
        if mixing.n_witnesses is None and len(data) > _MAX_ROWS:
            self._sizes = [size for size in SIZES if size <= _MOST_BEYOND]
        self._reasons: list[str] = []
        n_rows, largest = len(data), self._sizes[-1]
        n_compared = len(mixing.readouts) + len(self._mixtures) - 1
        self._done, self._planned = 0, 0
        self._expect(
            n_compared * min(self._sizes[0], N_COMPARED) * min(n_rows, ROWS_COMPARED) * (n_compared > 1),
            sum(self._sizes) * min(n_rows, ROWS_GROWN) * (len(self._sizes) > 1),
            largest * n_rows * (1 + (n_rows > ROWS_GROWN or len(self._sizes) == 1)),
        )

    def run(self) -> MixtureFit:
        """Compare read-outs and mixtures, then numbers of neurons; choose the strength with all rows, and solve."""
        n_rows = len(self._data)
        log_calibration(n_rows)
        self._callback(0, _PER_CENT)
        mixture, readout, compared = self._compare()
        n_witnesses, tried = self._grow(mixture, readout, compared)
        is_tried = tried is not None and tried.problem.dictionary.n_rows == n_rows
        self._expect(n_witnesses * n_rows * (2 - is_tried))
        if tried is None or (not is_tried and self._has_time(n_witnesses, n_rows)):
            tried = self._try(self._data, mixture, readout, n_witnesses)
        elif not is_tried:
            self._reasons.append(f"strength judged on {tried.trial.n_rows:,} samples: no time was left for all of them")
            problem, rows = self._problem(self._data, mixture, readout, n_witnesses), self._rows(len(tried.rows))
            tried = tried._replace(problem=problem, rows=rows)
        if self._mixing.sparsity is not None:
            tried = self._select(tried)
        problem, trial, scores, rows = tried
        solution = solve(problem.with_strength(0.0, trial.ratio * _scale(problem)), self._mixing.tol)
        self._callback(_PER_CENT, _PER_CENT)
        reason = "; ".join(self._reasons)
        return MixtureFit(solution, readout, tuple(self._trials), trial, scores, rows, n_witnesses, reason)

    def _select(self, tried: "_Tried") -> "_Tried":
        """Return the trial with few of its neurons, or as it is if all of them are to be read."""
        problem, trial, _, rows = tried
        begin, sparsity, weight = time.perf_counter(), self._mixing.sparsity, problem.row_weight
        assert sparsity is not None
        assert problem.dictionary.witnesses is not None
        is_large = len(weight) > _MAX_ROWS
        if is_large:
            dense = tried.scores
            fold_of_row = torch.full(weight.shape, -1, device=weight.device).index_fill_(0, rows, 0)
        else:
            if int((weight > 0).sum()) < 2 * _FOLDS:
                raise InvalidInputError(
                    f"expected at least {2 * _FOLDS} samples with weight to choose neurons, got "
                    f"{int((weight > 0).sum())}: pass more samples or sparsity=None"
                )
            generator = child_generator(self._seed, "mixture", "folds")
            fold_of_row = deal_rows(problem, np.arange(len(weight)), _FOLDS, generator)
            dense = ridge_fold_scores(problem, trial.ratio * _scale(problem), fold_of_row)
        found = select_neurons(problem, sparsity, fold_of_row, dense, RATIOS)
        if found is None:
            why = "fewer have a clearly higher error" if sparsity == "few" else f"no more than {sparsity:,} differ"
            self._reasons.append(f"all neurons are read: {why}")
            return tried
        why = "the fewest within one standard error of the best" if sparsity == "few" else "as given"
        self._reasons.append(f"{len(found.neurons):,} neurons are read: {why}")
        problem = self._ridge(self._data, problem.dictionary.witnesses.take_neurons(found.neurons), trial.readout)
        few = replace(
            trial,
            n_witnesses=len(found.neurons),
            n_rows=len(found.rows),
            ratio=found.ratio,
            validation=replace(found.validation, method=trial.validation.method if is_large else f"{_FOLDS} folds"),
            seconds=time.perf_counter() - begin,
        )
        self._trials.append(few)
        return _Tried(problem, few, found.scores, found.rows)

    def _compare(self) -> "tuple[Mixture, Readout, _Tried | None]":
        """Return mixture and read-out, those that come first unless others are clearly better, and their trial."""
        mixtures, readouts = self._mixtures, self._mixing.readouts
        has_choice = len(mixtures) + len(readouts) > 2
        if not has_choice:
            self._reasons.append(f"mixture {mixtures[0]!r} and read-out {readouts[0]!r}: no choice was left open")
            if self._mixing.n_witnesses is not None or not self._is_limited:
                return mixtures[0], readouts[0], None
        data, n_witnesses = self._subset(ROWS_COMPARED, "mixtures and read-outs"), self._fewest
        first = best = self._try(data, mixtures[0], readouts[0], n_witnesses)
        others = [(None, readout) for readout in readouts[1:]] + [(mixture, None) for mixture in mixtures[1:]]
        is_late = False
        for mixture, readout in others:
            is_late = not self._has_time(n_witnesses, len(data))
            if is_late:
                break
            other = self._try(data, mixture or best.trial.mixture, readout or best.trial.readout, n_witnesses)
            if other.trial.is_clearly_better(best.trial):
                best = other
        if has_choice:
            is_default = "the default, and nothing else that was tried was clearly better"
            why = is_default if best is first else "clearly better than the default"
            why = f"{why}, and {_NO_TIME}" if is_late else why
            self._reasons.append(f"mixture {best.trial.mixture!r} and read-out {best.trial.readout!r}: {why}")
        return best.trial.mixture, best.trial.readout, best

    def _grow(self, mixture: Mixture, readout: Readout, compared: "_Tried | None") -> "tuple[int, _Tried | None]":
        """Return the number of neurons, and the trial with these on the most rows that was made."""
        if self._mixing.n_witnesses is not None:
            self._reasons.append(f"{self._mixing.n_witnesses:,} neurons: as given")
            is_whole = compared is not None and compared.trial.n_witnesses == self._mixing.n_witnesses
            return self._mixing.n_witnesses, compared if is_whole and self._is_limited else None
        best, why = None, "the largest number that is tried"
        if len(self._sizes) == 1 and self._has_time(self._sizes[0], len(self._data)):
            self._reasons.append(f"{self._sizes[0]:,} neurons: for more than {_MAX_ROWS:,} samples")
            return self._sizes[0], None
        data = self._subset(ROWS_GROWN, "numbers of neurons")
        for n_witnesses in self._sizes:
            if not self._has_time(n_witnesses, len(data)):
                why = _NO_TIME
                break
            tried = self._try(data, mixture, readout, n_witnesses)
            if best is not None and best.trial.loss - tried.trial.loss < _WORTH * _null_loss(tried.problem):
                why = f"{n_witnesses:,} do not lower the error noticeably"
                break
            best = tried
        best = best or compared
        assert best is not None
        self._reasons.append(f"{best.trial.n_witnesses:,} neurons: {why}")
        return best.trial.n_witnesses, best

    def _subset(self, n_most: int, compared: str) -> TrainingSet:
        """Return a random part of the data, with which something is compared."""
        n_rows = len(self._data)
        if n_rows <= n_most:
            return self._data
        _LOGGER.info("%s are compared on %d of %d samples", compared, n_most, n_rows)
        return self._data.take(self._rows(n_most))

    def _rows(self, n_chosen: int) -> Tensor:
        """Return the rows of a random part of the data."""
        chosen = child_generator(self._seed, "mixture", "rows").choice(len(self._data), n_chosen, replace=False)
        return torch.from_numpy(np.sort(chosen))

    def _problem(self, data: TrainingSet, mixture: Mixture, readout: Readout, n_witnesses: int) -> ConvexProblem:
        """Return ridge over a sample of a mixture."""
        drawn = mixture, n_witnesses
        if drawn not in self._witnesses:
            sequences, seed = self._data.sequences, child_seed(self._seed, "mixture", mixture)
            self._witnesses[drawn] = mixed_witnesses(
                sequences, n_witnesses, mixture, seed=seed, device=sequences.device
            )
        return self._ridge(data, self._witnesses[drawn], readout)

    def _ridge(self, data: TrainingSet, witnesses: WitnessSet, readout: Readout) -> ConvexProblem:
        """Return ridge over witnesses."""
        dictionary = build_dictionary(witnesses, data.sequences, readout)
        return ConvexProblem.of(
            self._objective,
            dictionary,
            data,
            l1_strength=0.0,
            l2_strength=1.0,
            penalty="elastic-net",
            intercept=self._mixing.intercept,
        )

    def _try(self, data: TrainingSet, mixture: Mixture, readout: Readout, n_witnesses: int) -> "_Tried":
        """Return the best strength with its errors."""
        begin = time.perf_counter()
        whole = problem = self._problem(data, mixture, readout, n_witnesses)
        spikes = time.perf_counter() - begin
        strengths = [ratio * _scale(problem) for ratio in RATIOS]
        if problem.dictionary.n_rows > _MAX_ROWS:
            problem, scores, rows = self._hold_out(problem, strengths)
        else:
            scores, rows = ridge_scores(problem, strengths), torch.arange(problem.dictionary.n_rows)
        validation = validation_of(problem, scores)
        place = int(validation.mean().argmin())
        own = Validation(
            validation.method if problem is whole else HELD_OUT,
            validation.loss[place : place + 1],
            None if validation.accuracy is None else validation.accuracy[place : place + 1],
            validation.weight,
        )
        seconds = time.perf_counter() - begin
        trial = MixtureTrial(mixture, readout, n_witnesses, len(rows), RATIOS[place], own, seconds)
        self._trials.append(trial)
        self._costs.append(_Cost(n_witnesses, len(data), spikes, seconds - spikes))
        self._done += n_witnesses * len(data)
        self._report()
        return _Tried(whole, trial, scores[place], rows)

    def _hold_out(self, problem: ConvexProblem, strengths: Sequence[float]) -> tuple[ConvexProblem, Tensor, Tensor]:
        """Return held-out rows as a problem, their scores at each strength, and which rows these are.

        Strengths fall. Those after several that were no better than the best are not tried.
        """
        n_rows, n_columns = problem.dictionary.n_rows, problem.dictionary.n_columns
        order = torch.from_numpy(child_generator(self._seed, "mixture", "held out").permutation(n_rows))
        order = order.to(problem.row_weight.device)
        n_held = min(n_rows // 5, _MAX_ROWS)
        _LOGGER.info("strengths are compared on %d of %d samples, held out all at once", n_held, n_rows)
        held, kept = order[:n_held].sort().values, order[n_held:].sort().values
        left, fitted, scores, best, n_idle = problem.take_rows(held), problem.take_rows(kept), [], inf, 0
        for number, strength in enumerate(strengths, 1):
            solution = solve(fitted.with_strength(0.0, strength), _ROUGHLY)
            scores.append(left.dictionary.matvec(solution.coef) + solution.intercept)
            loss = float(validation_of(left, scores[-1:]).mean()[0])
            best, n_idle = min(best, loss), 0 if loss < best else n_idle + 1
            self._report(n_columns * n_rows * number / len(strengths))
            if n_idle == _PATIENCE or self._seconds > self._mixing.max_seconds:
                break
        return left, torch.stack(scores), held

    def _report(self, more: float = 0.0) -> None:
        """Report progress, with some work done of the trial that is going on."""
        share = int(_PER_CENT * (self._done + more) / self._planned)
        self._callback(min(share, _PER_CENT - 1), _PER_CENT)

    def _expect(self, *work: int) -> None:
        """Plan the work, in neurons times rows, from here on."""
        self._planned = self._done + sum(work)

    @property
    def _fewest(self) -> int:
        """The number of neurons that is compared, and read if there is no time for more."""
        return min(self._sizes[0], N_COMPARED)

    @property
    def _seconds(self) -> float:
        return time.perf_counter() - self._begin

    @property
    def _is_limited(self) -> bool:
        return self._mixing.max_seconds < inf

    def _has_time(self, n_witnesses: int, n_rows: int) -> bool:
        """Return whether a trial is likely to end in time, with the fit of these neurons to all rows after it."""
        if not self._is_limited:
            return True
        n_last = max(n_witnesses, self._mixing.n_witnesses or 0)
        known = max(self._costs, key=lambda cost: cost.n_witnesses * cost.n_rows)
        trial, last = known.of(n_witnesses, n_rows), known.of(n_last, len(self._data))
        after = _SOLVE_SHARE * last.ridge + last.spikes * (n_rows < len(self._data))
        return self._seconds + trial.spikes + trial.ridge + after <= self._mixing.max_seconds


def _null_loss(problem: ConvexProblem) -> float:
    """Return the loss of the best constant scores."""
    (head,) = problem.heads
    mean = problem.row_weight @ head.targets
    return head.weight * float(problem.row_weight @ head.loss.value(mean.expand_as(head.targets), head.targets))


def _scale(problem: ConvexProblem) -> float:
    """Return what strengths are relative to; one where no column varies, but for rounding."""
    scale = mean_eigenvalue(problem)
    return scale * problem.heads[0].weight if scale > CONSTANT else 1.0
