"""The engine: choose neurons, read-out and strengths on rows left out, then solve and certify on all rows.

    fit(data, families, program, judge, budget) -> Fitted

1. *Compare.* Ridge over few neurons on few rows compares families and read-outs by their leave-one-out errors. The best
   of those is taken that are better than the first by more than the standard error of the difference.
2. *Size.* More neurons are sampled if the second half of those compared has clearly lowered the error.
3. *Choose.* The judge chooses the strengths of the program on all rows (:mod:`cvxsnn.fitting.choosing`).
4. *Few.* If asked for, few neurons are selected (:mod:`cvxsnn.fitting.few`).
5. *Solve* and certify on all rows.

If the data have groups, samples of one group are left out together in each step.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, solve
from ..convex.left_out import Validation, paired_difference, ridge_scores, validation_of
from ..convex.losses import Loss, Squared
from ..convex.objective import Objective
from ..core.checks import Registry
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.parallel import idle_cores, limit_threads, n_threads
from ..core.seeds import child_generator, child_seed
from ..data.sequences import TrainingSet, stratified_order
from ..dictionary import Readout, build_dictionary
from ..network import count_operations, reconstruct, summarise
from ..witnesses import WitnessSet, sample_witnesses
from ..witnesses.families import family_kind
from ..witnesses.kinds import ALONG_TIME, KINDS, Kinds, readout_of
from ..witnesses.mixed import Mixture, mixed_witnesses
from ..witnesses.tap_sampling import N_CALIBRATION, log_calibration
from .choosing import choose, judge_for, n_always_judged
from .clock import Clock
from .few import Selection, Sparsity, select_neurons
from .judges import HeldOut, Judge, LeaveOneOut, Verdict
from .program import Point, Program, quadratic_unit, ridge_of

_LOGGER = logging.getLogger("cvxsnn")

KIND_SETS: Mapping[str, tuple[str, ...]] = {"kinds": ALONG_TIME, "kinds and last": tuple(KINDS)}
"""Kinds of lateral neurons that are sampled together, by the name of the family."""

Named = Mixture | Literal["kinds", "kinds and last"]
Family = Named | Mapping[str, Any] | WitnessSet
"""The name of kinds or of a mixture, a family that :func:`cvxsnn.witnesses.sample_witnesses` samples, or witnesses."""

StageName = Literal["tuning", "gradient", "projection", "convex", "ridge"]


@dataclass(frozen=True)
class Method:
    """Where the hidden neurons come from, and how the read-out is trained.

    Parameters
    ----------
    hidden : "sampled" or "reservoir"
        Where the hidden neurons come from.
    stages : tuple of str
        The stages after a search, in order.
    """

    hidden: Literal["sampled", "reservoir"]
    stages: tuple[StageName, ...]


METHODS: Registry[Method] = Registry("method", Method)
"""Training methods by name; :mod:`cvxsnn.fitting.methods` registers those beside the convex one.

Examples
--------
>>> from cvxsnn.fitting import METHODS
>>> METHODS.find("cvx").stages
('convex',)
"""

METHODS.register("cvx", Method("sampled", ("convex",)))


def find_method(name: str) -> Method:
    """Return the method of a name, which the laboratory registers unless it is the convex one."""
    if not isinstance(name, str) or name not in METHODS:
        from . import methods  # noqa: F401 - it registers the others
    return METHODS.find(name)


@dataclass(frozen=True)
class Sizes:
    """Numbers of neurons and rows, and the thresholds of the choices between them."""

    n_compared: int = 3000
    """Number of neurons used to compare families, the same for all. With fewer, chance hides small differences."""

    rows_compared: int = 1000
    """Number of rows used to compare families. More would take longer than they improve the choice."""

    rows_counted: int = 200
    """Number of samples on which the spikes of selected neurons are counted."""

    n_neurons: tuple[int, int] = (8192, 16_384)
    """Numbers of neurons of a mixture: the default, and the larger one."""

    n_of_kinds: tuple[int, int] = (n_compared, 12_000)
    """Numbers of neurons of kinds: the default, and the larger one."""

    max_rows: int = 5000
    """Rows up to which the larger number is considered."""

    threaded: int = 10**8
    """Entries of a dictionary from which the final solve uses several threads."""

    clearly: float = 1.0
    """Standard errors by which another family or read-out must be better than the first, and by which the second half
    of the neurons must have lowered the loss for the larger number to be sampled."""


SIZES = Sizes()


@dataclass(frozen=True)
class Budget:
    """Limits: on the neurons that are sampled, on time, and on the neurons that are read.

    Parameters
    ----------
    n_neurons : int, optional
        The number of neurons of kinds or of a mixture. By default 3,000 and 8,192, or 12,000 and 16,384 if that
        promises a clearly lower error.
    max_seconds : float
        Time for everything. Steps expected to overrun are skipped. The first comparison, a solve of it if the program
        is not ridge, the spikes of the neurons compared on all rows and the final solve are always finished; with given
        numbers of neurons, their judgement and the selection too.
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
        The family of the neurons.
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
    n_spikes : float, optional
        Of neurons that were selected, the spikes of an answer: the mean of some of the data.
    n_bytes : int, optional
        Of neurons that were selected, the bytes of the network.
    """

    family: Family
    readout: Readout
    n_neurons: int
    n_rows: int
    verdict: Verdict
    seconds: float
    n_spikes: float | None = None
    n_bytes: int | None = None

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
        # Paired: the same rows are hard for both trials, which cancels in the difference.
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


def own_readout(family: Family) -> Readout | None:
    """Return the read-out of a family that has one of its own."""
    return readout_of(KIND_SETS[family]) if isinstance(family, str) and family in KIND_SETS else None


def _readouts_of(family: Family, readouts: Sequence[Readout]) -> Sequence[Readout]:
    own = own_readout(family)
    return readouts if own is None else [own]


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
    shift: Callable[[Verdict], Sequence[float]] | None = None,
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
        The judge that chooses the strengths. By default that of :func:`judge_for`; a part of the samples that is held
        out once if the time does not allow several fits for each strength.
    budget : Budget, optional
        Limits on neurons and time.
    readouts : sequence of str
        Read-outs to choose from; the first is the default. If empty, the read-out of the program. Kinds have a read-out
        of their own.
    seed : int
        The seed of all draws.
    callback : callable, optional
        Called as ``callback(done, total)``, in per cent of the work.
    shift : callable, optional
        Called with the verdict on what was chosen. Returns what is added to the targets of each output, which must have
        the squared loss, or nothing. The program that is solved at last, and its certificate, have these targets.

    Returns
    -------
    Fitted
        The solution with its certificate, and all trials.

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
    readouts = tuple(readouts) or (program.objective.readout,)
    return _Engine(data, listed, program, judge, budget or Budget(), readouts, seed, notify, shift).run()


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
                f"expected witnesses that read {plural(sequences.n_features, 'feature')}, got witnesses that read "
                f"{family.n_features}: build them with n_features={sequences.n_features}"
            )
        return family.to(sequences.device)
    if family == "kinds" or family == "kinds and last":
        kinds = Kinds(n_witnesses=n_neurons or SIZES.n_of_kinds[0], kinds=KIND_SETS[family], device=sequences.device)
        return kinds.sample(sequences, child_seed(seed, "kinds"))
    if isinstance(family, str):
        n_neurons = n_neurons or SIZES.n_neurons[0]
        seed = child_seed(seed, "mixture", family)
        return mixed_witnesses(sequences, n_neurons, family, seed=seed, device=sequences.device)
    return sample_witnesses(family, sequences, seed).to(sequences.device)


class _Judged(NamedTuple):
    """A trial with its program, problem and witnesses."""

    trial: Trial
    program: Program
    problem: ConvexProblem
    witnesses: WitnessSet
    n_asked: int | None = None


@dataclass(eq=False)
class _Engine:
    """One fit. Its steps share the data and the time, and record each trial and the reason for each choice."""

    data: TrainingSet
    families: list[Family]
    program: Program
    judge: Judge | None
    budget: Budget
    readouts: tuple[Readout, ...]
    seed: int
    notify: Callable[[int, int], None]
    shift: Callable[[Verdict], Sequence[float]] | None
    progress: float = 0.0
    trials: list[Trial] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    timed: tuple[Trial, Solution] | None = None

    def __post_init__(self) -> None:
        self.is_mixed = isinstance(self.families[0], str)
        self.clock = Clock(self.budget.max_seconds, self.data.n_samples, self.budget.n_neurons or 0)
        self.ridge = Program.ridge(Objective("squared"), intercept=self.program.intercept)

    def run(self) -> Fitted:
        self._report(0)
        self._log_calibration()
        with limit_threads(idle_cores()):
            compared = self._compare()
            n_neurons = self._size(compared)
        with limit_threads(idle_cores()):  # again: others may have begun or ended
            judged = self._choose(compared, n_neurons)
            n_sampled = judged.witnesses.n_witnesses
            if self.budget.sparsity is not None:
                judged = self._few(judged, self.budget.sparsity)
            judged = self._shifted(judged)
        with limit_threads(_final_threads(judged.problem)):
            solution = self._solve(judged)
        self._report(100)
        return Fitted(solution, judged.program, tuple(self.trials), judged.trial, n_sampled, "; ".join(self.reasons))

    def _compare(self) -> _Judged | None:
        """Return the best family and read-out on a part of the rows; None if there is nothing to choose."""
        families = self.families
        readouts = self.readouts
        n_given = self.budget.n_neurons
        has_choice = len(families) + len(readouts) > 2
        if self.is_mixed and not has_choice:
            readout = own_readout(families[0]) or readouts[0]
            self.reasons.append(f"{families[0]!r} and read-out {readout!r}: no choice was left open")
        if not has_choice and (n_given is not None or not self.is_mixed):
            return None
        rows, is_late = self._rows_compared(), False
        best = first = self._try(rows, families[0], readouts[0])
        others: list[tuple[Family | None, Readout | None]]
        if own_readout(families[0]):
            others = [(family, own) for family in families[1:] for own in _readouts_of(family, readouts)]
        else:  # First the read-outs, then the families at the best of them: all pairs would take the product of times.
            others = [(None, readout) for readout in readouts[1:]]
            others += [(family, None) for family in families[1:]]
        for number, (family, reads) in enumerate(others, 2):
            is_late = not self.clock.has_time(best.trial.n_neurons, len(rows), compares=True)
            if is_late:
                break
            tried = self._try(rows, family or best.trial.family, reads or best.trial.readout)
            is_candidate = tried.trial.is_clearly_better(first.trial)
            best = tried if is_candidate and (best is first or tried.trial.loss < best.trial.loss) else best
            self._report(40 * number / (len(others) + 1))
        if has_choice:
            is_default = "the default, and nothing else that was tried was clearly better"
            why = is_default if best is first else "clearly better than the default"
            why = f"{why}, and no time was left to try more" if is_late else why
            subject = f"{best.trial.family!r} and read-out" if self.is_mixed else "read-out"
            self.reasons.append(f"{subject} {best.trial.readout!r}: {why}")
        return best

    def _size(self, compared: _Judged | None) -> int | None:
        """Return the number of neurons of kinds or of a mixture."""
        if not self.is_mixed:
            return None
        family = self.families[0] if compared is None else compared.trial.family
        n_rows = self.data.n_samples
        fewer, more = SIZES.n_of_kinds if own_readout(family) else SIZES.n_neurons
        if self.budget.n_neurons is not None or compared is None:
            n_neurons, why = self.budget.n_neurons or fewer, "as you asked"
        elif not self.clock.has_time(fewer, n_rows):
            n_neurons, why = compared.trial.n_neurons, "no time was left to try more"
        elif n_rows > SIZES.max_rows:
            n_neurons, why = fewer, f"for more than {SIZES.max_rows:,} samples"
        elif _fall_by_half(compared.problem, compared.trial) <= SIZES.clearly:
            n_neurons, why = fewer, f"{more:,} do not promise a clearly lower error"
        elif not self.clock.has_time(more, n_rows):
            n_neurons, why = fewer, "no time was left to try more"
        else:
            n_neurons, why = more, "the errors still fall with the number of neurons"
        self.reasons.append(f"{plural(n_neurons, 'neuron')}: {why}")
        return n_neurons

    def _choose(self, compared: _Judged | None, n_neurons: int | None) -> _Judged:
        """Return the program over all neurons and rows, at its best point."""
        family = self.families[0]
        readout = own_readout(family) or self.readouts[0]
        if compared is not None:
            family, readout = compared.trial.family, compared.trial.readout
        program = self.program.with_readout(readout)
        if compared is not None and self._is_final(compared, program, n_neurons):
            return compared
        witnesses = sample(family, self.data, self.seed, n_neurons)
        problem = self._problem(program, witnesses, self.data)
        self._report(50)
        # A number of neurons that the user gave is judged whatever the time.
        begin = time.perf_counter()
        is_open = compared is not None and self.budget.n_neurons is None
        if compared is None or not is_open or self.clock.has_time(witnesses.n_witnesses, self.data.n_samples):
            verdict = self._best_point(program, problem, witnesses)
            seconds = time.perf_counter() - begin
            self.trials.append(Trial(family, readout, witnesses.n_witnesses, self._n_left(verdict), verdict, seconds))
            return _Judged(self.trials[-1], program, problem, witnesses)
        trial = compared.trial
        if program.is_open_ridge:
            self.reasons.append(
                f"strength judged on {plural(trial.n_rows, 'sample')}: no time was left for all of them"
            )
            return _Judged(trial, program, problem, witnesses)
        if not program.is_fixed:
            self.reasons.append("strength from the middle of the grid: no time was left to judge others")
        is_timed = self.timed is not None and self.timed[0] is trial
        is_same = is_timed and (trial.n_neurons, trial.n_rows) == (witnesses.n_witnesses, self.data.n_samples)
        solution = self.timed[1] if self.timed is not None and is_same else None
        verdict = Verdict(_middle(program), trial.verdict.rank, solution=solution)
        return _Judged(replace(trial, verdict=verdict), program, problem, witnesses)

    def _is_final(self, compared: _Judged, program: Program, n_neurons: int | None) -> bool:
        """Return whether the comparison was of the program itself, on all rows and with all neurons."""
        # Kinds are whole groups, so a little more or fewer neurons than asked for.
        has_all = compared.trial.n_rows == self.data.n_samples and compared.n_asked == n_neurons is not None
        # Other losses are compared by the squared loss, whose program is not theirs. Strengths that the user gave were
        # not tried: the comparison walks the grid of the library.
        is_same = compared.program == program and program.is_open_ridge
        return has_all and is_same and self.judge is None

    def _few(self, judged: _Judged, sparsity: Sparsity) -> _Judged:
        """Return the program over few neurons, or over all if these are to be read."""
        begin = time.perf_counter()
        trial, program = judged.trial, judged.program
        ridge = ridge_of(judged.problem)
        dense = trial.verdict
        is_ridge = ridge is judged.problem and program.is_open_ridge
        if not is_ridge:  # the strengths of another program say nothing about ridge
            dense = choose(ridge, self.ridge, judge_for(ridge, self.ridge, self.seed))
        selection = select_neurons(ridge, sparsity, dense, seed=self.seed)
        if selection is None:
            self.reasons.append(f"all neurons are read: no more than {sparsity:,} differ")
            return judged
        found = {size: self._among(judged, selection, size) for size in selection.verdicts}
        seconds = (time.perf_counter() - begin) / len(found)
        found = {size: own._replace(trial=replace(own.trial, seconds=seconds)) for size, own in found.items()}
        self.trials += [own.trial for own in found.values()]
        if selection.n_chosen is None:
            self.reasons.append("all neurons are read: fewer have a clearly higher error")
            return judged
        n_neurons = selection.n_chosen
        why = "the fewest within one standard error of the best" if sparsity == "few" else "as you asked"
        self.reasons.append(f"{plural(n_neurons, 'neuron is', 'neurons are')} read: {why}")
        chosen = found[n_neurons]
        if is_ridge:
            return chosen
        begin = time.perf_counter()
        verdict = self._best_point(program, chosen.problem, chosen.witnesses)
        n_rows = self._n_left(verdict)
        seconds = time.perf_counter() - begin
        self.trials.append(replace(trial, n_neurons=n_neurons, n_rows=n_rows, verdict=verdict, seconds=seconds))
        return chosen._replace(trial=self.trials[-1])

    def _among(self, judged: _Judged, selection: Selection, n_neurons: int) -> _Judged:
        """Return the program over neurons that were selected, with what an answer by ridge costs."""
        verdict = selection.verdicts[n_neurons]
        witnesses = judged.witnesses.take_neurons(selection.order[:n_neurons].sort().values)
        problem = self._problem(judged.program, witnesses, self.data)
        network = reconstruct(solve(self.ridge.at(ridge_of(problem), verdict.point)))
        n_samples = self.data.n_samples
        rng = child_generator(self.seed, "fit", "counted")
        counted = rng.choice(n_samples, min(n_samples, SIZES.rows_counted), replace=False)
        operations = count_operations(network, self.data.sequences.take(torch.from_numpy(counted)))
        trial = replace(
            judged.trial,
            n_neurons=n_neurons,
            n_rows=self._n_left(verdict),
            verdict=verdict,
            n_spikes=operations.total.n_spikes / operations.n_samples,
            n_bytes=summarise(network).n_bytes,
        )
        return judged._replace(trial=trial, problem=problem, witnesses=witnesses)

    def _shifted(self, judged: _Judged) -> _Judged:
        """Return the program with shifted targets, if there is something to add to them."""
        shift = self.shift(judged.trial.verdict) if self.shift else ()
        if not shift:
            return judged
        loss = Squared(shift)
        program = replace(judged.program, objective=replace(judged.program.objective, loss=loss))
        (head,) = judged.problem.heads
        moved = replace(head, loss=loss, targets=head.targets + head.targets.new_tensor(shift))
        return judged._replace(program=program, problem=judged.problem.with_heads((moved,)))

    def _solve(self, judged: _Judged) -> Solution:
        """Return the certified optimum on all rows at the point that was chosen."""
        verdict, program = judged.trial.verdict, judged.program
        solution, loss = verdict.solution, judged.problem.heads[0].loss
        # A fit to a part of the rows, or to targets that have been shifted since, is only a start.
        is_start = verdict.share < 1 or solution is None or _shift_of(solution.problem.heads[0].loss) != _shift_of(loss)
        if solution is None or is_start or solution.certificate.relative_gap > program.tol:
            solution = solve(program.at(judged.problem, verdict.point, verdict.share), program.tol, start=solution)
        return solution

    def _try(self, rows: Tensor, family: Family, readout: Readout) -> _Judged:
        """Judge ridge over a family by its leave-one-out errors on some of the data."""
        readout = own_readout(family) or readout
        most = SIZES.n_compared
        n_neurons = min(self.budget.n_neurons or most, most) if self.is_mixed else None
        data = self.data if len(rows) == self.data.n_samples else self.data.take(rows)
        begin, program = time.perf_counter(), self.program.with_readout(readout)
        # Thresholds are taken from all rows, as in the final fit, and not from those compared.
        witnesses = sample(family, self.data, self.seed, n_neurons)
        problem = self._problem(program, witnesses, data)
        ridge = ridge_of(problem)
        rolled_out = time.perf_counter()
        n_steps = ridge.dictionary.n_rows // data.n_samples  # more than one if every step is a row
        rows = (rows[:, None] * n_steps + torch.arange(n_steps)).flatten()
        verdict = replace(choose(ridge, self.ridge, LeaveOneOut()), rows=rows)
        n_sampled, now = witnesses.n_witnesses, time.perf_counter()
        trial = Trial(family, readout, n_sampled, data.n_samples, verdict, now - begin)
        self.trials.append(trial)
        self.clock.note(n_sampled, data.n_samples, rolled_out - begin, now - rolled_out)
        is_own = ridge is problem and program.is_ridge
        if self.clock.is_limited and not is_own and self.timed is None:
            self.timed = trial, self._time_solve(program, problem, trial)
        return _Judged(trial, program if ridge is problem else self.ridge, ridge, witnesses, n_neurons)

    def _time_solve(self, program: Program, problem: ConvexProblem, trial: Trial) -> Solution:
        """Solve the program itself, which ridge stands for in a trial, and note the time for forecasts."""
        begin = time.perf_counter()
        with limit_threads(_final_threads(problem)):
            solution = solve(program.at(problem, _middle(program)), program.tol)
        seconds = time.perf_counter() - begin
        self.clock.note_solver(trial.n_neurons, trial.n_rows, seconds, n_always_judged(program))
        return solution

    def _n_left(self, verdict: Verdict) -> int:
        return self.data.n_samples if verdict.rows is None else len(verdict.rows)

    def _best_point(self, program: Program, problem: ConvexProblem, witnesses: WitnessSet) -> Verdict:
        def notify(done: int, total: int) -> None:
            self.clock.lap()
            self._report(50 + 45 * done / total)

        judge = self.judge or judge_for(problem, program, self.seed)
        if self.judge is None and not self.clock.has_time_for_fits(
            witnesses.n_witnesses, self.data.n_samples, judge.n_fits
        ):
            judge = HeldOut(seed=self.seed)
        self.clock.lap()
        return choose(problem, program, judge, is_late=self.clock.is_late, notify=notify)

    def _problem(self, program: Program, witnesses: WitnessSet, data: TrainingSet) -> ConvexProblem:
        return program.problem(build_dictionary(witnesses, data.sequences, program.objective.readout), data)

    def _rows_compared(self) -> Tensor:
        """Return the samples on which families are compared, a random part of many, with some of each group."""
        n_samples = self.data.n_samples
        n_compared = min(self.data.n_samples, SIZES.rows_compared)
        if n_compared < n_samples:
            _LOGGER.info("neurons are compared on %d of %d samples", n_compared, n_samples)
        # Random, because data are often sorted by class; in rising order, so that all rows are the data as they are.
        rng = child_generator(self.seed, "fit", "rows")
        if self.data.groups is None:
            return torch.from_numpy(np.sort(rng.choice(n_samples, n_compared, replace=False)))
        # Errors are means over groups: a part of many groups says more than all of few.
        return stratified_order(self.data.groups.numpy(), rng, n_samples)[:n_compared].sort().values

    def _log_calibration(self) -> None:
        first = self.families[0]
        if self.is_mixed:
            log_calibration(self.data.n_samples)
        elif isinstance(first, Mapping) and family_kind(first).needs_inputs:
            log_calibration(self.data.n_samples, first.get("n_calibration", N_CALIBRATION))

    def _report(self, per_cent: float) -> None:
        # Steps may be skipped or finish early, but progress must not fall.
        self.progress = max(self.progress, per_cent)
        self.notify(int(self.progress), 100)


def _shift_of(loss: Loss) -> tuple[float, ...]:
    return loss.shift if isinstance(loss, Squared) else ()


def _final_threads(problem: ConvexProblem) -> int:
    """Return the threads of a final solve, which must not depend on what else the machine does, not in its last bit."""
    return 1 if problem.dictionary.n_rows * problem.dictionary.n_atoms < SIZES.threaded else n_threads()


def _middle(program: Program) -> Point:
    """Return the middle of a grid of which nothing is known."""
    norms, quadratics = program.norms(), program.quadratics()
    return norms[len(norms) // 2], quadratics[len(quadratics) // 2]


def _fall_by_half(problem: ConvexProblem, trial: Trial) -> float:
    """Return how much the second half of the neurons has lowered the loss, in standard errors."""
    # Every second atom: the kinds of neurons follow each other, and each of them is halved.
    half = problem.take_atoms(torch.arange(0, problem.dictionary.n_atoms, 2, device=problem.dictionary.device))
    # The same relative strength: the unit is the mean eigenvalue of the half.
    by_half = validation_of(half, ridge_scores(half, [trial.verdict.point[1] * quadratic_unit(half)]))
    assert trial.validation is not None
    fall, error = paired_difference(by_half.loss[0], trial.validation.loss[0], trial.validation.weight)
    return float(fall / error) if error > 0 else 0.0
