"""The engine: choose neurons, read-out and strengths on rows left out, then solve and certify on all rows.

    fit(data, families, program, judge, budget) -> Fitted

1. *Compare.* Ridge over few neurons on few rows compares families and read-outs by their leave-one-out errors. One that
   is not the first must be better by more than the standard error of the difference.
2. *Size.* More neurons are sampled if the second half of those compared has lowered the error noticeably.
3. *Choose.* The judge chooses the strengths of the program on all rows (:mod:`cvxsnn.fitting.choosing`).
4. *Few.* If asked for, few neurons are selected (:mod:`cvxsnn.fitting.few`).
5. *Solve* and certify on all rows.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, solve
from ..convex.left_out import Validation, paired_difference, ridge_scores, validation_of
from ..convex.losses import Squared
from ..convex.objective import Objective
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator, child_seed
from ..data.sequences import TrainingSet
from ..dictionary import DenseDictionary, Readout, build_dictionary
from ..network.spiking_network import OutputHead, SpikingNetwork
from ..witnesses import WitnessSet, sample_witnesses
from ..witnesses.families import Mixture, family_kind, mixed_witnesses
from ..witnesses.tap_sampling import N_CALIBRATION, log_calibration
from .choosing import choose, judge_for
from .few import Sparsity, select_neurons
from .judges import Judge, LeaveOneOut, Verdict
from .program import Point, Program, quadratic_unit

_LOGGER = logging.getLogger("cvxsnn")

Family = Mixture | Mapping[str, Any] | WitnessSet
"""The name of a mixture, a family that :func:`cvxsnn.witnesses.sample_witnesses` samples, or witnesses."""


@dataclass(frozen=True)
class Sizes:
    """How much is compared, and when more is worth its time."""

    n_compared: int = 2048
    """Neurons that compare families: with fewer, small differences drown in the luck of the draw."""

    rows_compared: int = 1000
    """Rows that compare families. More would cost more than the difference is worth."""

    n_neurons: tuple[int, int] = (8192, 16_384)
    """Numbers of neurons: the default, and the larger one."""

    worth: float = 1 / 80
    """Fall of the loss by the second half of the neurons compared, as a share of the loss of the best constant, from
    which the larger number is sampled. The fall halves with each doubling, so that 16,384 promise another 1/640."""

    max_rows: int = 5000
    """Rows up to which the larger number is considered."""

    clearly: float = 1.0
    """Standard errors by which another family or read-out must be better than the first."""

    solve_share: float = 0.4
    """Upper bound on the time of the final solve, relative to the judgement of the same neurons and rows."""


SIZES = Sizes()


@dataclass(frozen=True)
class Budget:
    """How much may be spent: on neurons, on time, and on reading neurons.

    Parameters
    ----------
    n_neurons : int, optional
        The number of neurons of a mixture. By default 8,192, or 16,384 if that promises a noticeably lower error.
    max_seconds : float
        Time for everything. Nothing is begun that is likely to end later. The first comparison, the spikes of the
        neurons compared on all rows and the final solve are always finished; with given numbers of neurons, their
        judgement and the selection too.
    sparsity : int or "few", optional
        The most neurons to read, or the fewest whose error is within one standard error of the best. By default all
        neurons are read.

    Examples
    --------
    >>> from cvxsnn.fitting import Budget
    >>> Budget(max_seconds=10, sparsity=64).n_neurons is None
    True
    """

    n_neurons: int | None = None
    max_seconds: float = inf
    sparsity: Sparsity | None = None


@dataclass(frozen=True, eq=False)
class Trial:
    """Neurons and a read-out, judged on rows left out.

    Parameters
    ----------
    family : str, mapping or WitnessSet
        Where the neurons come from.
    readout : str
        Which spikes are read.
    n_neurons : int
        The number of neurons.
    n_rows : int
        The number of rows that were left out.
    verdict : Verdict
        The best strengths with their errors.
    seconds : float
        The time of the trial.
    """

    family: Family
    readout: Readout
    n_neurons: int
    n_rows: int
    verdict: Verdict
    seconds: float

    @property
    def validation(self) -> Validation | None:
        """Losses and hits of the rows left out; None if a score of the network judged."""
        return self.verdict.validation

    @property
    def loss(self) -> float:
        """Mean loss of the rows left out; infinite if a score of the network judged."""
        return inf if self.validation is None else float(self.validation.mean()[0])

    def is_clearly_better(self, other: "Trial") -> bool:
        """Return whether the loss on the same rows is lower by more than the standard error of the difference."""
        assert self.validation is not None
        assert other.validation is not None
        mean, error = paired_difference(other.validation.loss[0], self.validation.loss[0], self.validation.weight)
        return bool(mean > SIZES.clearly * error)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A certified read-out, and how it was chosen.

    Parameters
    ----------
    solution : Solution
        The optimum on all rows.
    program : Program
        The program, with the read-out that was chosen.
    trials : tuple of Trial
        Everything that was tried, in order.
    chosen : Trial
        The trial that decided.
    n_sampled : int
        The number of neurons sampled; the solution may read fewer.
    reason : str
        Why these neurons were chosen, on one line.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program, fit
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> program = Program.ridge(cs.convex.Objective("squared"))
    >>> fitted = fit(cs.data.TrainingSet.of(task.train), {"hidden": (32,)}, program)
    >>> fitted.n_sampled, fitted.chosen.n_rows
    (32, 40)
    """

    solution: Solution
    program: Program
    trials: tuple[Trial, ...]
    chosen: Trial
    n_sampled: int
    reason: str


def fit(
    data: TrainingSet,
    families: Family | Sequence[Family],
    program: Program,
    judge: Judge | None = None,
    budget: Budget | None = None,
    *,
    readouts: Sequence[Readout] = (),
    seed: int = 0,
    callback: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Choose neurons, read-out and strengths on rows left out, and return the certified optimum on all rows.

    Parameters
    ----------
    data : TrainingSet
        The training data.
    families : family, or sequence of them
        Families to choose from; the first is the default. The name of a mixture stands for its families.
    program : Program
        What is minimised, and the strengths to try.
    judge : Judge, optional
        What chooses the strengths. By default leave-one-out errors for ridge on up to 5,000 rows, else a part of the
        samples that is held out.
    budget : Budget, optional
        Limits on neurons and time.
    readouts : sequence of str
        Read-outs to choose from; the first is the default. If there are none, the program's own.
    seed : int
        The seed of all draws.
    callback : callable, optional
        Called as ``callback(done, total)``, in per cent of the work.

    Returns
    -------
    Fitted
        The solution with its certificate, and what was tried.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program, fit
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> program = Program(cs.convex.Objective("logistic"), n_strengths=4)
    >>> fitted = fit(cs.data.TrainingSet.of(task.train), {"hidden": (32,)}, program)
    >>> fitted.solution.certificate.relative_gap <= 1e-6
    True
    """
    listed = [families] if isinstance(families, (str, Mapping, WitnessSet)) else list(families)
    notify = callback or (lambda done, total: None)
    engine = _Engine(data, listed, program, judge, budget or Budget(), tuple(readouts), seed, notify)
    return engine.run()


def sample(family: Family, data: TrainingSet, seed: int, n_neurons: int | None = None) -> WitnessSet:
    """Return witnesses for some data: a sample of a family or a mixture, or the given witnesses.

    Parameters
    ----------
    family : str, mapping or WitnessSet
        The family. Neurons with delays take thresholds from the data.
    data : TrainingSet
        The data, which decide the number of features and the device.
    seed : int
        The seed of the sample.
    n_neurons : int, optional
        The number of neurons of a mixture.

    Returns
    -------
    WitnessSet
        The witnesses, on the device of the data.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import sample
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> sample({"hidden": (16, 32)}, cs.data.TrainingSet.of(task.train), seed=0)
    WitnessSet(sampled lif, 1 × (2→16→32))
    """
    sequences = data.sequences
    if isinstance(family, WitnessSet):
        if family.n_features != sequences.n_features:
            raise InvalidInputError(
                f"expected witnesses that read {sequences.n_features} features, got witnesses that read "
                f"{family.n_features}: build them with n_features={sequences.n_features}"
            )
        return family.to(sequences.device)
    if isinstance(family, str):
        own_seed = child_seed(seed, "mixture", family)
        return mixed_witnesses(
            sequences, n_neurons or SIZES.n_neurons[0], family, seed=own_seed, device=sequences.device
        )
    return sample_witnesses(family, sequences, seed).to(sequences.device)


def ridge_of(problem: ConvexProblem) -> ConvexProblem:
    """Return ridge regression on the encoded targets of a problem; a problem with the squared loss as it is.

    It ranks families and selects neurons for every loss, because its errors on rows left out have a closed form.
    """
    is_squared = len(problem.heads) == 1 and type(problem.heads[0].loss) is Squared and problem.penalty.has_l1_norm
    if is_squared and problem.penalty.has_quadratic:
        return problem
    return ConvexProblem(
        problem.dictionary,
        torch.cat([head.targets for head in problem.heads], dim=1),
        "squared",
        0.0,
        l2_strength=1.0,
        penalty="elastic-net",
        intercept=problem.intercept,
        row_weight=problem.row_weight,
    )


def with_heads_of(problem: ConvexProblem, network: SpikingNetwork) -> SpikingNetwork:
    """Return a network that ridge regression has read with the heads of the problem that it stands for."""
    network.heads = tuple(
        OutputHead(head.name, head.loss.name, head.columns.start, head.columns.stop) for head in problem.heads
    )
    return network


class _Cost(NamedTuple):
    """The seconds of a trial: of the spikes of its neurons, and of its judgement."""

    n_neurons: int
    n_rows: int
    spikes: float
    judgement: float

    def of(self, n_neurons: int, n_rows: int) -> "_Cost":
        """Forecast another trial, rather too high than too low.

        Spikes take time in proportion to neurons and rows; the judgement in proportion to products of rows or columns,
        of whichever there are fewer, and their eigenvalues.
        """
        work = n_neurons / self.n_neurons * n_rows / self.n_rows
        size = min(n_neurons, n_rows) / min(self.n_neurons, self.n_rows)
        return _Cost(n_neurons, n_rows, self.spikes * work, self.judgement * max(work * size, size**3))


class _Engine:
    def __init__(
        self,
        data: TrainingSet,
        families: list[Family],
        program: Program,
        judge: Judge | None,
        budget: Budget,
        readouts: tuple[Readout, ...],
        seed: int,
        notify: Callable[[int, int], None],
    ) -> None:
        self._data, self._families, self._program, self._judge = data, families, program, judge
        self._budget, self._readouts, self._seed = budget, readouts or (program.objective.readout,), seed
        self._notify, self._begin, self._progress = notify, time.perf_counter(), 0.0
        self._trials: list[Trial] = []
        self._reasons: list[str] = []
        self._cost: _Cost | None = None
        self._ridge = Program.ridge(Objective("squared"), intercept=program.intercept)

    def run(self) -> Fitted:
        """Compare, size, choose, select, solve."""
        self._report(0)
        first = self._families[0]
        if isinstance(first, str) or (isinstance(first, Mapping) and family_kind(first).needs_inputs):
            n_calibration = N_CALIBRATION if isinstance(first, str) else first.get("n_calibration", N_CALIBRATION)
            log_calibration(len(self._data), n_calibration)
        family, readout, n_neurons, compared = self._compare()
        program = self._program.with_readout(readout)
        if compared is not None and self._decides(compared, program, n_neurons):
            trial, problem = compared
        else:
            problem = self._problem(program, self._sample(family, n_neurons), self._data)
            self._report(50)
            trial = self._judge_all(program, problem, family, None if compared is None else compared[0])
        witnesses = problem.dictionary.witnesses
        assert witnesses is not None
        n_sampled = witnesses.n_witnesses
        if self._budget.sparsity is not None:
            program, problem, trial = self._select(program, problem, trial, self._budget.sparsity)
        verdict = trial.verdict
        solution = verdict.solution
        if solution is None or verdict.share < 1 or solution.certificate.relative_gap > program.tol:
            solution = solve(program.at(problem, verdict.point, verdict.share), program.tol, start=solution)
        self._report(100)
        return Fitted(solution, program, tuple(self._trials), trial, n_sampled, "; ".join(self._reasons))

    def _decides(self, compared: tuple[Trial, ConvexProblem], program: Program, n_neurons: int | None) -> bool:
        """Return whether the comparison was on all rows, with all neurons, of the program itself."""
        trial, problem = compared
        is_whole = trial.n_rows == len(self._data) and trial.n_neurons == n_neurons
        is_same = program.norms() == [0.0] and type(problem.heads[0].loss) is Squared and self._judge is None
        return is_whole and is_same and problem.intercept == program.intercept and program.l2_strength == "auto"

    def _compare(self) -> tuple[Family, Readout, int | None, tuple[Trial, ConvexProblem] | None]:
        """Return family, read-out, number of neurons and the trial that chose them."""
        families, readouts, given = self._families, self._readouts, self._budget.n_neurons
        is_mixed = isinstance(families[0], str)
        has_choice = len(families) + len(readouts) > 2
        if is_mixed and not has_choice:
            self._reasons.append(f"mixture {families[0]!r} and read-out {readouts[0]!r}: no choice was left open")
        if not has_choice and (given is not None or not is_mixed):
            if is_mixed:
                self._reasons.append(f"{given:,} neurons: as given")
            return families[0], readouts[0], given, None
        n_neurons = min(given or SIZES.n_compared, SIZES.n_compared) if is_mixed else None
        data, is_late = self._subset(), False
        best, problem = first, _ = self._try(data, families[0], readouts[0], n_neurons)
        others = [(None, readout) for readout in readouts[1:]] + [(family, None) for family in families[1:]]
        for number, (family, readout) in enumerate(others, 2):
            is_late = not self._has_time(best.n_neurons, len(data))
            if is_late:
                break
            trial, other = self._try(data, family or best.family, readout or best.readout, n_neurons)
            if trial.is_clearly_better(best):
                best, problem = trial, other
            self._report(40 * number / (len(others) + 1))
        if has_choice:
            is_default = "the default, and nothing else that was tried was clearly better"
            why = is_default if best is first else "clearly better than the default"
            why = f"{why}, and no time was left to try more" if is_late else why
            what = f"mixture {best.family!r} and read-out" if is_mixed else "read-out"
            self._reasons.append(f"{what} {best.readout!r}: {why}")
        n_neurons = self._size(best, problem) if is_mixed else None
        return best.family, best.readout, n_neurons, (best, problem)

    def _size(self, compared: Trial, problem: ConvexProblem) -> int:
        """Return the number of neurons."""
        n_rows, (fewer, more) = len(self._data), SIZES.n_neurons
        if self._budget.n_neurons is not None:
            n_neurons, why = self._budget.n_neurons, "as given"
        elif not self._has_time(fewer, n_rows):
            n_neurons, why = compared.n_neurons, "no time was left to try more"
        elif n_rows > SIZES.max_rows:
            n_neurons, why = fewer, f"for more than {SIZES.max_rows:,} samples"
        elif _fall_by_half(problem, compared) < SIZES.worth:
            n_neurons, why = fewer, f"{more:,} do not promise a noticeably lower error"
        elif not self._has_time(more, n_rows):
            n_neurons, why = fewer, "no time was left to try more"
        else:
            n_neurons, why = more, "the errors still fall with the number of neurons"
        self._reasons.append(f"{n_neurons:,} neurons: {why}")
        return n_neurons

    def _judge_all(self, program: Program, problem: ConvexProblem, family: Family, compared: Trial | None) -> Trial:
        """Return the trial on all rows; where there is no time for it, that of the comparison."""
        n_rows, begin = len(self._data), time.perf_counter()
        assert problem.dictionary.witnesses is not None
        n_neurons = problem.dictionary.witnesses.n_witnesses
        if compared is not None and self._budget.n_neurons is None and not self._has_time(n_neurons, n_rows):
            self._reasons.append(f"strength judged on {compared.n_rows:,} samples: no time was left for all of them")
            if program.norms() == [0.0]:
                return compared
            return replace(compared, verdict=Verdict(_middle(program), compared.verdict.rank))
        verdict = self._choose(program, problem)
        n_left = n_rows if verdict.rows is None else len(verdict.rows)
        trial = Trial(family, program.objective.readout, n_neurons, n_left, verdict, time.perf_counter() - begin)
        self._trials.append(trial)
        return trial

    def _choose(self, program: Program, problem: ConvexProblem) -> Verdict:
        """Return the best point of the grid."""
        judge = self._judge or judge_for(problem, program, self._seed)
        return choose(problem, program, judge, is_late=self._is_late, notify=self._while_choosing)

    def _select(
        self, program: Program, problem: ConvexProblem, trial: Trial, sparsity: Sparsity
    ) -> tuple[Program, ConvexProblem, Trial]:
        """Return program, problem and trial over few neurons, or as they are if all are to be read."""
        begin, witnesses = time.perf_counter(), problem.dictionary.witnesses
        assert witnesses is not None
        ridge, dense = ridge_of(problem), trial.verdict
        is_ridge = ridge is problem and program.norms() == [0.0] and program.l2_strength == "auto"
        if not is_ridge:  # the strengths of another program say nothing about ridge
            dense = choose(ridge, self._ridge, judge_for(ridge, self._ridge, self._seed))
        selection = select_neurons(ridge, sparsity, dense, seed=self._seed)
        if selection is None:
            why = "fewer have a clearly higher error" if sparsity == "few" else f"no more than {sparsity:,} differ"
            self._reasons.append(f"all neurons are read: {why}")
            return program, problem, trial
        n_chosen = len(selection.neurons)
        why = "the fewest within one standard error of the best" if sparsity == "few" else "as given"
        self._reasons.append(f"{n_chosen:,} neurons are read: {why}")
        chosen = witnesses.take_neurons(selection.neurons)
        problem, verdict = self._problem(program, chosen, self._data), selection.verdict
        if not is_ridge:
            verdict = self._choose(program, problem)
        n_left = len(self._data) if verdict.rows is None else len(verdict.rows)
        few = replace(trial, n_neurons=n_chosen, n_rows=n_left, verdict=verdict, seconds=time.perf_counter() - begin)
        self._trials.append(few)
        return program, problem, few

    def _try(
        self, data: TrainingSet, family: Family, readout: Readout, n_neurons: int | None
    ) -> tuple[Trial, ConvexProblem]:
        """Return the leave-one-out errors of ridge over a family, and the problem."""
        begin = time.perf_counter()
        witnesses = self._sample(family, n_neurons)
        problem = ridge_of(self._problem(self._program.with_readout(readout), witnesses, data))
        spikes = time.perf_counter() - begin
        verdict = choose(problem, self._ridge, LeaveOneOut())
        n_steps = problem.dictionary.n_rows // len(data)  # more than one if every step is a row
        rows = (self._rows(len(data))[:, None] * n_steps + torch.arange(n_steps)).flatten()
        verdict = replace(verdict, rows=rows)
        seconds = time.perf_counter() - begin
        trial = Trial(family, readout, witnesses.n_witnesses, len(data), verdict, seconds)
        self._trials.append(trial)
        self._cost = max(self._cost or _Cost(0, 0, 0, 0), _Cost(trial.n_neurons, len(data), spikes, seconds - spikes))
        return trial, problem

    def _sample(self, family: Family, n_neurons: int | None) -> WitnessSet:
        return sample(family, self._data, self._seed, n_neurons)

    def _problem(self, program: Program, witnesses: WitnessSet, data: TrainingSet) -> ConvexProblem:
        return program.problem(build_dictionary(witnesses, data.sequences, program.objective.readout), data)

    def _subset(self) -> TrainingSet:
        """Return a random part of the data, on which families are compared."""
        if len(self._data) <= SIZES.rows_compared:
            return self._data
        _LOGGER.info("neurons are compared on %d of %d samples", SIZES.rows_compared, len(self._data))
        return self._data.take(self._rows(SIZES.rows_compared))

    def _rows(self, n_chosen: int) -> Tensor:
        """Return the rows of a random part of the data."""
        chosen = child_generator(self._seed, "fit", "rows").choice(len(self._data), n_chosen, replace=False)
        return torch.from_numpy(np.sort(chosen))

    def _while_choosing(self, done: int, total: int) -> None:
        self._report(50 + 45 * done / total)

    def _report(self, per_cent: float) -> None:
        self._progress = max(self._progress, per_cent)
        self._notify(int(self._progress), 100)

    def _is_late(self) -> bool:
        return time.perf_counter() - self._begin > self._budget.max_seconds

    def _has_time(self, n_neurons: int, n_rows: int) -> bool:
        """Return whether a trial, and the fit of these neurons to all rows after it, is likely to end in time."""
        if self._budget.max_seconds == inf or self._cost is None:
            return True
        trial = self._cost.of(n_neurons, n_rows)
        last = self._cost.of(max(n_neurons, self._budget.n_neurons or 0), len(self._data))
        after = SIZES.solve_share * last.judgement + last.spikes * (n_rows < len(self._data))
        needed = trial.spikes + trial.judgement + after
        return time.perf_counter() - self._begin + needed <= self._budget.max_seconds


def _middle(program: Program) -> Point:
    """Return the middle of the grid, for a program of which nothing was judged."""
    norms, quadratics = program.norms(), program.quadratics()
    return norms[len(norms) // 2], quadratics[len(quadratics) // 2]


def _fall_by_half(problem: ConvexProblem, trial: Trial) -> float:
    """Return how much the second half of the neurons lowers the loss, as a share of that of the best constant."""
    (head,) = problem.heads
    half = ConvexProblem(
        DenseDictionary(problem.dictionary.columns(torch.arange(0, problem.dictionary.n_atoms, 2))),
        head.targets,
        "squared",
        0.0,
        l2_strength=1.0,
        penalty="elastic-net",
        intercept=problem.intercept,
        row_weight=problem.row_weight,
    )
    scores = ridge_scores(half, [trial.verdict.point[1] * quadratic_unit(half)])
    mean = problem.row_weight @ head.targets
    constant = head.weight * float(problem.row_weight @ head.loss.value(mean.expand_as(head.targets), head.targets))
    fall = head.weight * float(validation_of(half, scores).mean()[0]) - trial.loss
    return fall / constant if constant > 0 else 0.0
