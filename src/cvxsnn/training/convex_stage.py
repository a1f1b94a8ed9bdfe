"""The certified optimum over some witnesses, or over a pool of their like, at the strength that validates best."""

from collections.abc import Mapping
from dataclasses import replace

import torch

from ..convex import ConvexProblem, RegularizationPath, Solution, solve, solve_path
from ..core.checks import check_device
from ..dictionary import build_dictionary
from ..dictionary.pooled import PoolSpikes
from ..network.reconstruction import reconstruct
from ..witnesses import WitnessSet
from ..witnesses.pool import WitnessPool
from .pools import PoolSolution, solve_pool
from .settings import Settings, Split

_POOL_WIDTHS = (32, 128)
"""Most neurons in a lower layer and in the last layer of a pool's subnetworks: many small ones differ more."""

_POOL_STRENGTHS = 6
"""Strengths to try over a pool, each half of the one before."""


def best_readout(
    witnesses: WitnessSet, split: Split, settings: Settings, device: torch.device | str | None = None
) -> Solution:
    """The certified optimum over the spikes of these witnesses, at the strength that validates best."""
    data = split.data if device is None else split.data.to(check_device(device))
    witnesses = witnesses.to(data.inputs.device)
    dictionary = build_dictionary(witnesses, data.sequences, settings.objective.readout)
    problem = settings.objective.problem(dictionary, data, penalty=settings.penalty, intercept=settings.intercept)
    if isinstance(settings.l1_strength, (int, float)):
        best = solve(problem.with_strength(settings.l1_strength), settings.tol)
    else:
        best = _path(problem, settings).select(lambda solution: split.score(reconstruct(solution)))
    return _best_over_pool(best, witnesses, replace(split, data=data), settings) if settings.pool else best


def _best_over_pool(first: Solution, witnesses: WitnessSet, split: Split, settings: Settings) -> Solution:
    """The optimum over a pool, at the strength that validates best near that of a smaller optimum.

    More witnesses fit better at the same price, so weaker penalties may pay; they are tried as long as they do.
    """
    assert isinstance(settings.family, Mapping)
    widths = [*[min(width, _POOL_WIDTHS[0]) for width in witnesses.hidden[:-1]], min(_POOL_WIDTHS[1], settings.pool)]
    family = {**settings.family, "hidden": tuple(widths)}
    pool = WitnessPool(witnesses.n_features, family, settings.pool, settings.seed)
    spikes = PoolSpikes(pool, split.data.sequences, settings.objective.readout)
    strength = first.problem.l1_strength
    best: tuple[float, PoolSolution] | None = None
    found: PoolSolution | None = None
    is_given = isinstance(settings.l1_strength, (int, float))
    for _ in range(1 if is_given else _POOL_STRENGTHS):
        found = solve_pool(
            pool,
            split.data,
            settings.objective,
            strength,
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


def _path(problem: ConvexProblem, settings: Settings) -> RegularizationPath:
    if settings.l1_strength == "auto":
        return solve_path(
            problem, n_strengths=settings.n_strengths, smallest_ratio=settings.smallest_ratio, tol=settings.tol
        )
    return solve_path(problem, list(settings.l1_strength), tol=settings.tol)  # type: ignore[arg-type]
