"""The optimal read-out of a recording, at given strengths or at those that validate best."""

from math import sqrt

import numpy as np
import torch

from ...convex import ConvexProblem, Solution, solve
from ...convex.path import l2_strengths_of
from ...core.seeds import child_generator
from .options import ReadoutOptions
from .recording import Recording

Trial = tuple[float, float]
"""The strength of a penalty's norm, relative to the critical one, and that of its quadratic."""

_RATIOS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
"""Strengths of the norm to try, relative to the critical one."""

_RATIOS_BESIDE = (0.1, 0.01, 0.001, 0.0)
"""Those to try where several strengths of the quadratic are tried with each."""

_HELD_OUT, _N_SEEN = 0.1, 10_000
"""Share of the samples that strengths are validated on, and the most samples that they are compared with."""

_ROUGH = 1e-3
"""Relative gap to which strengths are compared."""

_PATIENCE = 2
"""Strengths in a row that may score no better before weaker ones are skipped."""

_MAX_HALVINGS = 24
"""How often strengths are halved to get below the model's own loss."""


def solve_readout(recording: Recording, has_bias: bool, loss_before: float, options: ReadoutOptions) -> Solution:
    """Solve for the read-out at the given strengths, or at those that validate best and lower the training loss."""
    problem = recording.problem(options.penalty, has_bias)
    if options.l1_strength != "auto" and (options.l2_strength != "auto" or not problem.penalty.has_quadratic):
        l2_strength = 0.0 if options.l2_strength == "auto" else options.l2_strength
        return solve(problem.with_strength(options.l1_strength, l2_strength), options.tol)
    problem, start = _best_strengths(problem, recording, options)
    options.notify("solving", 0, 1)
    solution = solve(problem, options.tol, start=start)
    for _ in range(_MAX_HALVINGS):
        if float(problem.loss_value(solution.scores())) < loss_before:
            break
        l1_strength = problem.l1_strength * (0.5 if options.l1_strength == "auto" else 1.0)
        l2_strength = problem.l2_strength * (0.5 if options.l2_strength == "auto" else 1.0)
        if (l1_strength, l2_strength) == (problem.l1_strength, problem.l2_strength):  # ridge at a given strength
            break
        problem = problem.with_strength(l1_strength, l2_strength)
        solution = solve(problem, options.tol, start=solution)
    options.notify("solving", 1, 1)
    return solution


def _best_strengths(
    problem: ConvexProblem, recording: Recording, options: ReadoutOptions
) -> tuple[ConvexProblem, Solution | None]:
    """Return the problem at the strengths whose read-out does best on held-out samples, and that read-out.

    Of many samples, a part is enough to find them.
    """
    n_rows = problem.dictionary.n_rows
    order = torch.from_numpy(child_generator(options.seed, "readout", "held out").permutation(n_rows))
    n_held = int(_HELD_OUT * n_rows)
    held, seen = order[:n_held], order[n_held : n_held + _N_SEEN]
    if n_held == 0 or not recording.has_contrast(seen):
        series = _trials(problem, options)
        middle = series[len(series) // 2]
        return _at(problem, middle[len(middle) // 2], options), None
    part = recording.problem(problem.penalty, problem.intercept, seen)
    rest, (head,) = recording.dictionary.take_rows(held), problem.heads
    series = _trials(part, options)
    best: tuple[float, Trial, Solution | None] = (-np.inf, series[0][0], None)
    n_done, n_trials = 0, sum(map(len, series))
    for trials in series:
        highest, n_idle, solution = -np.inf, 0, None
        for place, trial in enumerate(trials, 1):
            solution = solve(_at(part, trial, options), _ROUGH, start=solution)
            outputs = rest.matvec(solution.coef) + solution.intercept
            score = -float(head.loss.value(outputs, head.targets[held]).mean())
            options.notify("choosing the strength", n_done + place, n_trials)
            n_idle = 0 if score > highest else n_idle + 1
            highest = max(highest, score)
            best = max(best, (score, trial, solution), key=lambda found: found[0])
            if n_idle >= _PATIENCE:
                break
        n_done += len(trials)
    _, trial, solution = best
    return _at(problem, trial, options, len(seen) / (n_rows - n_held)), solution


def _trials(problem: ConvexProblem, options: ReadoutOptions) -> list[list[Trial]]:
    """Return what to try, in series of falling strengths."""
    if not problem.penalty.has_quadratic:
        return [[(ratio, 0.0) for ratio in _RATIOS]]
    if options.l2_strength != "auto":
        falling = (*_RATIOS, 0.0) if options.l2_strength else _RATIOS
        return [[(ratio, options.l2_strength) for ratio in falling]]
    ratios = _RATIOS_BESIDE if options.l1_strength == "auto" else _RATIOS_BESIDE[:1]  # a given one takes its place
    return [[(ratio, l2_strength) for l2_strength in l2_strengths_of(problem)] for ratio in ratios]


def _at(problem: ConvexProblem, trial: Trial, options: ReadoutOptions, share: float = 1.0) -> ConvexProblem:
    """Return a problem at given strengths, and in their place, where there are none, at those of a trial.

    A trial may have been on a share of the rows. The noise in a correlation falls with the square root of their number,
    and so does the strength of a norm that suppresses it; that of a quadratic falls with the variance of the noise.
    """
    l1_strength, l2_strength = options.l1_strength, options.l2_strength
    if l1_strength == "auto":
        l1_strength = trial[0] * (problem.critical_strength or 1.0) * sqrt(share)
    if l2_strength == "auto":
        l2_strength = trial[1] * share
    return problem.with_strength(l1_strength, l2_strength)
