"""Judges of a program on rows that it was not fitted to.

Every judge walks over points of the grid of a :class:`Program` and yields a :class:`Verdict` for each, with standard
errors if it leaves rows out. To add a judge, write a subclass of :class:`Judge` with ``walk``.

===============  =====================================================================  ===========================
judge            rows left out                                                          programs
===============  =====================================================================  ===========================
LeaveOneOut      each row or group in turn, in closed form                              ridge with the squared loss
HeldOut          a fifth of the samples, all at once                                    all
Folds            every sample once, a fold at a time                                    all
Scored           validation data, by a function of the network                          all
===============  =====================================================================  ===========================

Samples of one group are left out together.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, solve, solve_path
from ..convex.left_out import Validation, deal_rows, ridge_scores, validation_of
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.seeds import child_generator
from ..dictionary import Dictionary
from ..network.reconstruction import reconstruct
from .program import Point, Program, quadratic_unit
from .scores import Score, ScoreFunction, rank_above

Criterion = Literal["loss", "accuracy"]

HELD_OUT = "held out"
"""Method of a validation with rows that were left out all at once."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """A point of the grid, judged.

    Parameters
    ----------
    point : tuple of two float
        The strengths, as :meth:`Program.at` reads them.
    rank : Score
        The judgement; higher is better.
    validation : Validation, optional
        Losses and hits of the rows left out, with standard errors.
    scores : Tensor of shape (n_judged, n_outputs), optional
        Outputs for the rows left out.
    rows : Tensor of shape (n_judged,), dtype int64, optional
        The rows left out.
    solution : Solution, optional
        The solution that was judged: of all rows, or of those that were not left out.
    share : float
        The share of the rows that were fitted.

    Examples
    --------
    >>> from cvxsnn.fitting import Verdict
    >>> Verdict((0.0, 1.0), rank=0.9).validation is None
    True
    """

    point: Point
    rank: Score
    validation: Validation | None = None
    scores: Tensor | None = None
    rows: Tensor | None = None
    solution: Solution | None = None
    share: float = 1.0


class Judge(ABC):
    """Judges points of a grid.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import HeldOut, Program
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> program = Program.ridge(cs.convex.Objective("squared"))
    >>> witnesses = cs.gaussian_witnesses(2, (32,), seed=0)
    >>> problem = program.problem(cs.build_dictionary(witnesses, data.sequences), data)
    >>> (verdict,) = HeldOut(one_in=4).walk(problem, program, [(0.0, 1.0)])
    >>> len(verdict.rows), verdict.share
    (10, 0.75)
    """

    solves_in_turn: ClassVar[bool] = True
    """Whether every point takes a solve of its own, so that stopping early saves time."""

    @property
    def n_fits(self) -> int:
        """The most fits that the judgement of a point takes."""
        return 1

    @abstractmethod
    def walk(self, problem: ConvexProblem, program: Program, points: Sequence[Point]) -> Iterator[Verdict]:
        """Yield a verdict for each point, in order.

        Parameters
        ----------
        problem : ConvexProblem
            The program over all rows.
        program : Program
            What is minimised.
        points : sequence of Point
            Points whose strengths fall.

        Yields
        ------
        Verdict
            One per point.
        """


@dataclass(frozen=True)
class LeaveOneOut(Judge):
    """Leave every row, or every group of rows, out in turn. Ridge regression has these errors in closed form.

    Parameters
    ----------
    by : "loss" or "accuracy"
        What ranks the points.

    Examples
    --------
    >>> from cvxsnn.fitting import LeaveOneOut
    >>> LeaveOneOut("accuracy").solves_in_turn  # one decomposition serves all points
    False
    """

    by: Criterion = "loss"
    solves_in_turn: ClassVar[bool] = False

    def walk(self, problem: ConvexProblem, program: Program, points: Sequence[Point]) -> Iterator[Verdict]:
        """Yield a verdict for each point, all from one decomposition."""
        # A row more or less hardly changes the mean eigenvalue, so every row is left out at the same strength.
        unit = quadratic_unit(problem) if program.l2_strength == "auto" else 1.0
        scores = ridge_scores(problem, [unit * quadratic for _, quadratic in points])
        validation = validation_of(problem, scores)
        rows = torch.arange(problem.dictionary.n_rows)
        for number, (point, rank) in enumerate(zip(points, _ranks(validation, self.by), strict=True)):
            yield Verdict(point, rank, validation.take(number), scores[number], rows)


class Part(NamedTuple):
    """A fit without some rows."""

    problem: ConvexProblem
    """The program over the rows that are fitted."""
    held: Tensor
    """The rows left out."""
    dictionary: Dictionary
    """The columns of the program on the rows left out."""


class FitsWithoutRows(Judge):
    """Fits the program without some rows; each fit starts from the solution at the point before."""

    tol: float
    by: Criterion

    @abstractmethod
    def _parts(self, problem: ConvexProblem) -> list[list[Part]]:
        """Return the rows to fit and the rows to leave out: for each repeat, parts that leave each row out once."""

    def walk(self, problem: ConvexProblem, program: Program, points: Sequence[Point]) -> Iterator[Verdict]:
        """Yield a verdict for each point."""
        repeats, n_rows = self._parts(problem), problem.dictionary.n_rows
        parts = [(number, part) for number, folds in enumerate(repeats) for part in folds]
        rows = torch.cat([part.held for part in repeats[0]]).sort().values
        judged = problem.take_rows(rows)
        is_single = len(parts) == 1
        n_folds = len(repeats[0])
        method = HELD_OUT if is_single else plural(n_folds, "fold")
        share = repeats[0][0].problem.dictionary.n_rows / n_rows if is_single else 1 - 1 / n_folds
        # Strengths fall slowly, so the solution at one point is close to that at the next.
        starts: list[Solution | None] = [None] * len(parts)
        for point in points:
            scores = problem.row_weight.new_zeros(len(repeats), n_rows, problem.n_outputs)
            for at, (number, part) in enumerate(parts):
                starts[at] = solution = solve(program.at(part.problem, point), self.tol, start=starts[at])
                scores[number, part.held] = part.dictionary.matvec(solution.coef) + solution.intercept
            validation = validation_of(judged, scores[:, rows], method).mean_of_repeats()
            (rank,) = _ranks(validation, self.by)
            # The solutions of several folds are not one that the fit to all rows could start from.
            start = starts[0] if is_single else None
            yield Verdict(point, rank, validation, scores[0, rows], rows, start, share)


def _deal(problem: ConvexProblem, n_folds: int, rng: np.random.Generator) -> Tensor | None:
    """Return the fold of each row; None if samples are too few to divide, so that all serve as both."""
    try:
        return deal_rows(problem, n_folds, rng)
    except InvalidInputError:
        if problem.groups is not None:  # no judgement is better than one by groups that the fit knows
            raise
        return None


def parts_without(problem: ConvexProblem, fold_of_row: Tensor) -> list[Part]:
    """Return the parts that leave one fold out each; rows with a negative fold are never left out."""
    parts = []
    for fold in range(int(fold_of_row.max()) + 1):
        held, kept = (torch.nonzero(rows).squeeze(1) for rows in (fold_of_row == fold, fold_of_row != fold))
        parts.append(Part(problem.take_rows(kept), held, problem.dictionary.take_rows(held)))
    return parts


@dataclass(frozen=True)
class HeldOut(FitsWithoutRows):
    """Leave a part of the samples out, all at once and stratified by class.

    Parameters
    ----------
    one_in : int
        One in this many samples is held out.
    max_rows : int, optional
        The most rows that are fitted, and that are held out. A part of many rows is enough to find the strengths.
    tol : float
        The relative gap of the solutions, which are only compared.
    seed : int
        The seed of the choice of samples.
    by : "loss" or "accuracy"
        What ranks the points.

    Examples
    --------
    >>> from cvxsnn.fitting import HeldOut
    >>> HeldOut(one_in=4, max_rows=10_000).by
    'loss'
    """

    one_in: int = 5
    max_rows: int | None = None
    tol: float = 1e-4
    seed: int = 0
    by: Criterion = "loss"

    def _parts(self, problem: ConvexProblem) -> list[list[Part]]:
        held, kept = self._divide(problem)
        return [[Part(problem.take_rows(kept), held, problem.dictionary.take_rows(held))]]

    def _divide(self, problem: ConvexProblem) -> tuple[Tensor, Tensor]:
        """Return the rows that are held out and those that are fitted; too few to divide serve as both."""
        rng = child_generator(self.seed, "held out")
        fold = _deal(problem, self.one_in, rng)
        if fold is None:
            every = torch.arange(problem.dictionary.n_rows, device=problem.row_weight.device)
            return every, every
        held = self._thin(problem, torch.nonzero(fold == 0).squeeze(1), rng)
        return held, self._thin(problem, torch.nonzero(fold != 0).squeeze(1), rng)

    def _thin(self, problem: ConvexProblem, rows: Tensor, rng: np.random.Generator) -> Tensor:
        """Return at most about ``max_rows`` of some rows, stratified by class: data are often sorted by class."""
        if self.max_rows is None or len(rows) <= self.max_rows:
            return rows
        n_parts = -(-len(rows) // self.max_rows)
        part = deal_rows(problem.take_rows(rows).with_groups(None), n_parts, rng)
        return rows[part <= 0]  # with the only samples of their classes, which are in no part


@dataclass(frozen=True)
class Folds(FitsWithoutRows):
    """Leave every sample out once, a fold at a time and stratified by class.

    Samples that are too few to divide serve as both, as with :class:`HeldOut`.

    Parameters
    ----------
    n_folds : int
        The number of folds.
    n_repeats : int
        How often to draw folds. Losses of a row are averaged over the repeats; its scores are those of the first.
    tol : float
        The relative gap of the solutions, which are only compared.
    seed : int
        The seed of the folds.
    by : "loss" or "accuracy"
        What ranks the points.

    Examples
    --------
    >>> from cvxsnn.fitting import Folds
    >>> Folds(n_folds=4).seed
    0
    """

    n_folds: int = 5
    n_repeats: int = field(default=1, kw_only=True)
    tol: float = 1e-4
    seed: int = 0
    by: Criterion = "loss"

    @property
    def n_fits(self) -> int:
        """The most fits that the judgement of a point takes."""
        return self.n_folds * self.n_repeats

    def _parts(self, problem: ConvexProblem) -> list[list[Part]]:
        rng = child_generator(self.seed, "folds")
        repeats = []
        for _ in range(self.n_repeats):
            fold = _deal(problem, self.n_folds, rng)
            if fold is None:
                return HeldOut(self.n_folds)._parts(problem)
            repeats.append(parts_without(problem, fold))
        return repeats


@dataclass(frozen=True, eq=False)
class Scored(Judge):
    """Rank every solution by a function of its network, such as the accuracy on validation data.

    Parameters
    ----------
    score : callable
        The score of a network; higher is better.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Scored, TaskScore
    >>> task = cs.tasks.first_last_xor(3, n_train=8, n_val=8, n_test=8)
    >>> Scored(TaskScore(task, task.val)).solves_in_turn  # a path shares its passes over the data
    False
    """

    score: ScoreFunction
    solves_in_turn: ClassVar[bool] = False

    def walk(self, problem: ConvexProblem, program: Program, points: Sequence[Point]) -> Iterator[Verdict]:
        """Yield a verdict for each point, with the certified solution of all rows."""
        # A line of the grid has one norm or one quadratic, so it is one path, whose certificates share passes.
        at = [program.at(problem, point) for point in points]
        norms = list(dict.fromkeys(placed.l1_strength for placed in at))
        quadratics = list(dict.fromkeys(placed.l2_strength for placed in at))
        path = solve_path(problem, norms, l2_strengths=quadratics if program.has_quadratic else None, tol=program.tol)
        for point, solution in zip(points, path, strict=True):
            yield Verdict(point, self.score(reconstruct(solution)), solution=solution)


@dataclass(frozen=True, eq=False)
class Beside(Judge):
    """Rank points by another judge beside the trained read-out, with :func:`cvxsnn.fitting.scores.rank_above`.

    Parameters
    ----------
    judge : FitsWithoutRows
        The judge, which leaves rows out.
    outputs : Tensor of shape (n_rows, n_outputs)
        Outputs of the trained read-out for all rows.
    """

    judge: FitsWithoutRows
    outputs: Tensor

    def walk(self, problem: ConvexProblem, program: Program, points: Sequence[Point]) -> Iterator[Verdict]:
        """Yield a verdict for each point."""
        for verdict in self.judge.walk(problem, program, points):
            assert verdict.rows is not None
            assert verdict.validation is not None
            own = validation_of(problem.take_rows(verdict.rows), self.outputs[verdict.rows][None])
            yield replace(verdict, rank=rank_above(_score(verdict.validation), _score(own)))


def _score(validation: Validation) -> Score:
    """Return accuracy and minus the loss of a single solution; of real targets, minus the loss."""
    loss = -float(validation.mean())
    return loss if validation.accuracy is None else (float(validation.mean("accuracy")), loss)


def _ranks(validation: Validation, by: Criterion) -> list[float]:
    """Return the rank of each solution: its accuracy, or for real targets and by default minus its loss."""
    has_hits = by == "accuracy" and validation.accuracy is not None
    ranks: list[float] = (validation.mean("accuracy") if has_hits else -validation.mean()).tolist()
    return ranks
