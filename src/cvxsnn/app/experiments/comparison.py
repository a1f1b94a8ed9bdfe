"""Is a convex read-out ahead of surrogate gradients alone? One answer for each row of the tables that have both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .experiment import Experiment
from .metrics import quantity_of
from .summary import N_STANDARD_ERRORS, CellSummary, ExperimentSummary

_GRADIENT = frozenset({"sg", "sg-sg"})
"""Methods whose last stage is training with surrogate gradients."""

Outcome = Literal["ahead", "level", "behind"]


@dataclass(frozen=True)
class Comparison:
    """The best convex number of a row beside the best one of gradients alone.

    Attributes
    ----------
    experiment, row : str
    convex, gradient : CellSummary, the cells with the highest means
    outcome : Outcome, of the convex one: they are level within two standard errors of the difference
    """

    experiment: str
    row: str
    convex: CellSummary
    gradient: CellSummary
    outcome: Outcome


def compare_methods(experiments: Sequence[Experiment], summaries: Sequence[ExperimentSummary]) -> list[Comparison]:
    """Return a comparison for every row, and every accuracy in it, that has both kinds of methods.

    Parameters
    ----------
    experiments : sequence of Experiment
    summaries : sequence of ExperimentSummary, of them
    """
    found = []
    for experiment, summary in zip(experiments, summaries, strict=True):
        groups: dict[tuple[str, str], tuple[list[CellSummary], list[CellSummary]]] = {}
        for cell, own in zip(experiment.cells, summary.cells, strict=True):
            if experiment.kind == "table" and own.mean is not None and quantity_of(own.metric) == "accuracy":
                convex, gradient = groups.setdefault((own.row, own.metric), ([], []))
                (gradient if _GRADIENT.issuperset(cell.methods) else convex).append(own)
        for (row, _), cells in groups.items():
            if all(cells):
                convex_best, gradient_best = (max(own, key=_mean) for own in cells)
                outcome = _judge(convex_best, gradient_best)
                found.append(Comparison(experiment.name, row, convex_best, gradient_best, outcome))
    return found


def _mean(cell: CellSummary) -> float:
    return -math.inf if cell.mean is None else cell.mean


def _judge(convex: CellSummary, gradient: CellSummary) -> Outcome:
    variance = sum((cell.spread or 0.0) ** 2 / cell.n_seeds for cell in (convex, gradient))
    difference = _mean(convex) - _mean(gradient)
    if abs(difference) <= N_STANDARD_ERRORS * math.sqrt(variance):
        return "level"
    return "ahead" if difference > 0 else "behind"
