"""The optimal read-out of a recording, at a given strength or at one that validates best."""

import numpy as np
import torch

from ...convex import ConvexProblem, Solution, solve
from ...core.seeds import child_generator
from .options import ReadoutOptions
from .recording import Recording

_RATIOS = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
"""Strengths to try, relative to the critical one."""

_HELD_OUT, _N_SEEN = 0.1, 10_000
"""Share of the samples that strengths are validated on, and the most samples that they are compared with."""

_ROUGH = 1e-3
"""Relative gap to which strengths are compared."""

_PATIENCE = 2
"""Strengths in a row that may score no better before weaker ones are skipped."""

_MAX_HALVINGS = 24
"""How often a strength is halved to get below the model's own loss."""


def solve_readout(recording: Recording, has_bias: bool, loss_before: float, options: ReadoutOptions) -> Solution:
    """Solve for the read-out at the given strength, or at one that validates best and lowers the training loss."""
    problem = recording.problem(options.penalty, has_bias)
    if options.l1_strength != "auto":
        return solve(problem.with_strength(options.l1_strength), options.tol)
    strength, start = _best_strength(problem, recording, options)
    options.notify("solving", 0, 1)
    solution = solve(problem.with_strength(strength), options.tol, start=start)
    for _ in range(_MAX_HALVINGS):
        if float(problem.loss_value(solution.scores())) < loss_before:
            break
        strength *= 0.5
        solution = solve(problem.with_strength(strength), options.tol, start=solution)
    options.notify("solving", 1, 1)
    return solution


def _best_strength(
    problem: ConvexProblem, recording: Recording, options: ReadoutOptions
) -> tuple[float, Solution | None]:
    """Return the strength whose read-out does best on held-out samples, and that read-out.

    Of many samples, a part is enough to find it. The noise in a correlation falls with the square root of their
    number, and so does the strength that suppresses it.
    """
    n_rows, critical = problem.dictionary.n_rows, problem.critical_strength or 1.0
    order = torch.from_numpy(child_generator(options.seed, "readout", "held out").permutation(n_rows))
    n_held = int(_HELD_OUT * n_rows)
    held, seen = order[:n_held], order[n_held : n_held + _N_SEEN]
    if n_held == 0 or not recording.has_contrast(seen):
        return _RATIOS[len(_RATIOS) // 2] * critical, None
    part = recording.problem(problem.penalty, problem.intercept, seen)
    rest, (head,) = recording.dictionary.take_rows(held), problem.heads
    best: tuple[float, float, Solution | None] = (-np.inf, _RATIOS[0], None)
    n_idle, solution = 0, None
    for number, ratio in enumerate(_RATIOS, 1):
        solution = solve(part.with_strength(ratio * (part.critical_strength or 1.0)), _ROUGH, start=solution)
        outputs = rest.matvec(solution.coef) + solution.intercept
        score = -float(head.loss.value(outputs, head.targets[held]).mean())
        options.notify("choosing the strength", number, len(_RATIOS))
        n_idle = 0 if score > best[0] else n_idle + 1
        best = max(best, (score, ratio, solution), key=lambda found: found[0])
        if n_idle >= _PATIENCE:
            break
    _, ratio, solution = best
    return ratio * critical * float(np.sqrt(len(seen) / (n_rows - n_held))), solution
