"""The optimal read-out of the recorded data, at given strengths or at those that do best on samples held out."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from torch import Tensor

from ...convex import Solution, solve
from ...convex.objective import Objective
from ...fitting.choosing import GRID, choose
from ...fitting.judges import Beside, FitsWithoutRows, Folds, HeldOut
from ...fitting.program import Program
from ...fitting.scores import Score
from .data import ProgressCallback, ReadoutData

_HALVINGS = 24
"""How often strengths are halved to get below the model's own loss: by a factor of 10⁷."""


def solve_readout(
    data: ReadoutData,
    program: Program,
    own: tuple[Tensor, Tensor],
    seed: int,
    notify: ProgressCallback,
    *,
    centre: bool = False,
) -> tuple[Solution, bool | None]:
    """Solve for the read-out at the given strengths, or at those that do best on samples left out.

    If penalty and strengths are open, the programs and the decision are those of :func:`cvxsnn.fitting.readout_stage`.

    Parameters
    ----------
    data : ReadoutData
        The data of the program.
    program : Program
        What is minimised; the loss is that of the data.
    own : tuple of Tensor
        The layer's weights of shape (n_outputs, n_inputs), and its bias.
    seed : int
        Seed of the samples left out.
    notify : callable
        Called as ``notify(stage, done, total)``.
    centre : bool
        Whether the quadratic draws to the layer's weights in any case.

    Returns
    -------
    solution : Solution
        The optimum.
    counts : bool or None
        Whether it does at least as well as the layer's own weights on samples left out; None if that was not asked.
    """
    program = replace(program, objective=Objective(data.loss), n_strengths=9, smallest_ratio=1e-4)
    programs = (replace(program, centre=own[0]),) if centre else program.around(own[0])
    if not centre and not all(bool(values.isfinite().all()) for values in own):
        programs = programs[-1:]  # weights that have diverged are no centre, and nothing to keep
    judge: FitsWithoutRows = HeldOut(10, max_rows=10_000, tol=1e-3, seed=seed)
    if len(programs) > 1:
        # With few rows, a tenth of them says too little about which read-out is better.
        judge = Folds(tol=1e-3, seed=seed) if data.dictionary.n_rows <= GRID.few else judge
        return _solve_beside(data, programs, Beside(judge, data.outputs(*own)), notify)
    (program,) = programs
    problem = data.problem(program)
    loss_before = float(problem.loss_value(data.outputs(*own)))
    if program.is_fixed:
        (norm,), (quadratic, *_) = program.norms(), program.quadratics()
        return solve(problem.with_strength(norm, quadratic), program.tol), None
    verdict = choose(problem, program, judge, notify=partial(notify, "choosing the strength"))
    notify("solving", 0, 1)
    problem = program.at(problem, verdict.point, verdict.share)
    solution = solve(problem, program.tol, start=verdict.solution)
    # The strengths were chosen for new data; the loss on these data must not rise, so those that were not given fall.
    is_given = [not isinstance(strength, str) for strength in (program.l1_strength, program.l2_strength)]
    for _ in range(_HALVINGS):
        strengths = (problem.l1_strength, problem.l2_strength)
        weaker = tuple(strength if fixed else strength / 2 for strength, fixed in zip(strengths, is_given, strict=True))
        if float(problem.loss_value(solution.scores())) < loss_before or weaker == strengths:
            break
        problem = problem.with_strength(*weaker)
        solution = solve(problem, program.tol, start=solution)
    notify("solving", 1, 1)
    return solution, None


def _solve_beside(
    data: ReadoutData, programs: Sequence[Program], judge: Beside, notify: ProgressCallback
) -> tuple[Solution, bool]:
    """Return the optimum of the program and the strengths that do best on samples left out, and whether it counts."""
    found = []
    for number, program in enumerate(programs):

        def choosing(done: int, total: int, number: int = number) -> None:
            notify("choosing the strength", 100 * number + 100 * done // total, 100 * len(programs))  # in percent

        problem = data.problem(program)
        verdict = choose(problem, program, judge, notify=choosing)
        found.append((verdict, program.at(problem, verdict.point, verdict.share)))
    verdict, problem = max(found, key=lambda one: one[0].rank)
    notify("solving", 0, 1)
    solution = solve(problem, programs[0].tol, start=verdict.solution)
    notify("solving", 1, 1)
    counts, _ = cast(tuple[bool, Score], verdict.rank)
    return solution, counts
