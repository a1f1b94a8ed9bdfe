"""The choice of strengths: one grid, one patience, one rule for ties."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..convex import ConvexProblem
from ..convex.losses import Squared
from .judges import Folds, HeldOut, Judge, LeaveOneOut, Verdict
from .program import Point, Program


@dataclass(frozen=True)
class Grid:
    """How the grid is walked."""

    patience: int = 3
    """Worse points in a row after which weaker strengths are skipped: errors have one valley, up to noise."""

    neighbours: int = 3
    """Strengths of the quadratic that are tried with a norm: the best of ridge and the next smaller ones. A norm adds
    to the penalty, so a quadratic beside it need not be larger."""

    norms_beside: int = 8
    """The most strengths of the norm that are tried with each quadratic."""

    max_left_out: int = 5000
    """Rows up to which each is left out in turn: the closed form takes the cube of their number."""

    few: int = 300
    """Rows up to which programs without a closed form are judged in folds: a fifth of them is too few to choose by."""

    n_repeats: int = 3
    """How often these folds are drawn."""


GRID = Grid()


def choose(
    problem: ConvexProblem,
    program: Program,
    judge: Judge,
    *,
    is_late: Callable[[], bool] = lambda: False,
    notify: Callable[[int, int], None] = lambda done, total: None,
) -> Verdict:
    """Return the best point of a program's grid; of equally good ones that with the larger strengths.

    A program with one point has nothing to choose, and is not judged.

    Parameters
    ----------
    problem : ConvexProblem
        The program over a dictionary.
    program : Program
        What is minimised, and the strengths to try.
    judge : Judge
        The judge that ranks the points.
    is_late : callable
        Return True to stop at the best point so far. It is not called for the points that are always judged.
    notify : callable
        Called as ``notify(done, total)`` after each point.

    Returns
    -------
    Verdict
        The best point.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import LeaveOneOut, Program, choose
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> program = Program.ridge(cs.convex.Objective("squared"))
    >>> witnesses = cs.gaussian_witnesses(2, (32,), seed=0)
    >>> problem = program.problem(cs.build_dictionary(witnesses, data.sequences), data)
    >>> choose(problem, program, LeaveOneOut()).point[0]  # ridge has no norm
    0.0
    """
    norms, quadratics = program.norms(), program.quadratics()
    if program.is_fixed:
        return Verdict((norms[0], quadratics[0]), 0.0)
    best: list[Verdict] = []
    n_done = 0

    def walk(points: Sequence[Point], total: int) -> Verdict:
        """Judge a line of falling strengths, keep the best of all lines in ``best``, and return that of this line."""
        nonlocal n_done
        highest: Verdict | None = None
        n_worse = 0
        for number, verdict in enumerate(judge.walk(problem, program, points), 1):
            n_done += 1
            notify(n_done, total)
            if highest is None or highest.rank < verdict.rank:
                highest = verdict
            # Equal ranks are not worse: the walk goes on along plateaus, which accuracies have.
            n_worse = n_worse + 1 if verdict.rank < highest.rank else 0
            may_be_late = judge.solves_in_turn and (len(best) > 0 or number >= n_always_judged(program))
            if (judge.solves_in_turn and n_worse == GRID.patience) or (may_be_late and is_late()):
                break
        assert highest is not None
        # Strengths fall along a line, so the first of equal ranks has the largest; between lines the points decide.
        if not best or (best[0].rank, best[0].point) < (highest.rank, highest.point):
            best[:] = [highest]
        return highest

    total = len(norms) * len(quadratics)
    if _begins_with_ridge(program):
        # Ridge is fast, and its best strength says where a norm beside it may help.
        total = len(quadratics) + GRID.neighbours * GRID.norms_beside
        ridge = walk([(0.0, quadratic) for quadratic in quadratics], total)
        quadratics = [quadratic for quadratic in quadratics if quadratic <= ridge.point[1]][: GRID.neighbours]
        # Every k-th strength from the largest on, k rounded up: at most ``norms_beside`` remain.
        norms = norms[:-1][:: -(-(len(norms) - 1) // GRID.norms_beside)]
    lines = [[(norm, quadratic) for norm in norms] for quadratic in quadratics]
    if len(norms) == 1:  # the quadratics are the line
        lines = [[point for line in lines for point in line]]
    for line in lines:
        if not best or not is_late():
            walk(line, total)
    return best[0]


def n_always_judged(program: Program) -> int:
    """Return how many points of a grid are judged whatever the time.

    Parameters
    ----------
    program : Program
        What is minimised, and the strengths to try.

    Returns
    -------
    int
        The first half of the first line: its penalties are so strong that hardly anything is fitted.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program
    >>> from cvxsnn.fitting.choosing import n_always_judged
    >>> n_always_judged(Program(cs.convex.Objective("logistic"), n_strengths=12))
    7
    """
    if program.is_fixed:
        return 0
    norms, quadratics = program.norms(), program.quadratics()
    line = norms if len(norms) > 1 and not _begins_with_ridge(program) else quadratics
    return len(line) // 2 + 1


def _begins_with_ridge(program: Program) -> bool:
    """Return whether a norm may be zero, beside so many quadratics that ridge is to choose among them first."""
    norms = program.norms()
    return len(norms) > 1 and len(program.quadratics()) > GRID.neighbours and norms[-1] == 0


def judge_for(problem: ConvexProblem, program: Program, seed: int = 0) -> Judge:
    """Return the judge for a program: leave-one-out errors if they have a closed form and are cheap, else fits.

    Parameters
    ----------
    problem : ConvexProblem
        The program over a dictionary.
    program : Program
        What is minimised, and the strengths to try.
    seed : int
        The seed of a choice of samples.

    Returns
    -------
    Judge
        Leave-one-out for ridge on up to 5,000 rows; for other programs folds that are drawn three times on up to 300
        rows, else a part of the samples that is held out. For ridge, at most about 5,000 rows of the rest are fitted.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import Program, judge_for
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> program = Program.ridge(cs.convex.Objective("squared"))
    >>> witnesses = cs.gaussian_witnesses(2, (32,), seed=0)
    >>> problem = program.problem(cs.build_dictionary(witnesses, data.sequences), data)
    >>> judge_for(problem, program)
    LeaveOneOut(by='loss')
    """
    (first, *others) = problem.heads
    is_ridge = program.is_ridge and type(first.loss) is Squared and not others
    if is_ridge and problem.dictionary.n_rows <= GRID.max_left_out and problem.dictionary.readout != "all":
        return LeaveOneOut()
    if problem.dictionary.n_rows <= GRID.few:
        return Folds(n_repeats=GRID.n_repeats, seed=seed)
    return HeldOut(seed=seed, max_rows=GRID.max_left_out if is_ridge else None)
