"""Programs with the same optimum that suit solvers better: centred, scaled, with equal rows merged, in parts."""

from dataclasses import dataclass, replace
from math import frexp
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..dictionary.dense import DenseDictionary
from .losses import Squared
from .workspace import Workspace

if TYPE_CHECKING:
    from .problem import ConvexProblem

_ORDINARY = 40
"""Powers of two up to which numbers are left as they are."""


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """A smaller problem with the same optimum.

    Attributes
    ----------
    problem : ConvexProblem
    row_of : Tensor of shape (n_rows of the full problem,)
        The reduced row that stands for each full row.
    """

    problem: "ConvexProblem"
    row_of: Tensor


def centre_targets(problem: "ConvexProblem") -> tuple["ConvexProblem", Tensor]:
    """Return the program with targets of squared losses measured from their means, and the means."""
    means = problem.null_intercept.clone()
    heads = []
    for head in problem.heads:
        if type(head.loss) is not Squared:  # a subclass may not be a function of the difference
            means[head.columns] = 0.0
        heads.append(replace(head, targets=head.targets - means[head.columns]))
    return problem.with_heads(tuple(heads)), means


def scale(problem: "ConvexProblem") -> tuple["ConvexProblem", float, float]:
    """Return the program with numbers around one, and the factors of its targets and of its entries."""
    of_targets = of_entries = 1.0
    heads, dictionary = problem.heads, problem.dictionary
    if all(type(head.loss) is Squared for head in heads):
        of_targets = _factor(max(float(head.targets.abs().max()) for head in heads))
        heads = tuple(replace(head, targets=head.targets / of_targets) for head in heads)
    if isinstance(dictionary, DenseDictionary):
        of_entries = _factor(dictionary.largest_entry)
        dictionary = replace(dictionary, values=dictionary.values / of_entries) if of_entries != 1.0 else dictionary
    scaled = problem._replace(
        heads=heads, dictionary=dictionary, workspace=Workspace(), row_workspace=problem.row_workspace
    )
    return (scaled if of_entries == 1.0 else scaled._replace(row_workspace=Workspace())), of_targets, of_entries


def _factor(largest: float) -> float:
    """Return the power of two next to a number; one for a number that needs no factor."""
    power = frexp(largest)[1]
    return 2.0**power if largest and abs(power) > _ORDINARY else 1.0


def take_outputs(problem: "ConvexProblem", start: int, stop: int) -> "ConvexProblem":
    """Return the program of some outputs of one head alone."""
    head = next(head for head in problem.heads if start < head.columns.stop)
    inside = slice(start - head.columns.start, stop - head.columns.start)
    part = replace(head, columns=slice(0, stop - start), targets=head.targets[:, inside])
    return problem.with_heads((part,))


def merge_rows(problem: "ConvexProblem") -> ReducedProblem:
    """Return the program with equal rows merged and weightless ones dropped."""
    labels = torch.cat([h.targets for h in problem.heads], dim=1)
    weightless = (problem.row_weight == 0).to(labels)[:, None]
    groups = problem.dictionary.group_rows(torch.cat((labels, weightless), dim=1))
    weight = torch.zeros_like(problem.row_weight[: len(groups.first)])
    weight = weight.index_add_(0, groups.inverse, problem.row_weight)
    kept = torch.nonzero(weight > 0).squeeze(1)
    place = torch.zeros_like(groups.inverse[: len(weight)])
    place[kept] = torch.arange(len(kept), device=kept.device)
    reduced = problem.take_rows(groups.first[kept])._replace(row_weight=weight[kept])
    return ReducedProblem(reduced, place[groups.inverse])
