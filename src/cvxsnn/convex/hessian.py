"""Hessians of the loss over a few coefficients."""

from itertools import pairwise

import torch
from torch import Tensor

from .losses import Softmax
from .problem import ConvexProblem

_TRIANGLE, _SMALL = 6, 128
"""Blocks a side in which symmetric products are formed, and the size below which one block is faster."""


def loss_hessian(problem: ConvexProblem, scores: Tensor, columns: Tensor, place: Tensor, outputs: Tensor) -> Tensor:
    """Hessian of the weighted loss, in float64, with respect to some entries of the coefficients.

    Parameters
    ----------
    problem : ConvexProblem
    scores : Tensor of shape (n_rows, n_outputs), where to take it
    columns : Tensor of shape (n_rows, n_columns)
        Products are formed in its dtype.
    place, outputs : Tensor of shape (n_entries,)
        Column and output of each entry, sorted by output.
    """
    hessian = torch.zeros(len(place), len(place), dtype=columns.dtype, device=columns.device)
    edges = torch.searchsorted(outputs, torch.arange(problem.n_outputs + 1, device=outputs.device)).tolist()
    for head in problem.heads:
        curvature = head.loss.curvature(scores[:, head.columns], head.targets).to(columns.dtype)
        weight = (head.weight * problem.row_weight).to(columns.dtype)
        for output in range(head.columns.start, head.columns.stop):
            entries = slice(edges[output], edges[output + 1])
            root = (weight * curvature[:, output - head.columns.start]).sqrt()
            hessian[entries, entries] = _self_product(columns[:, place[entries]] * root[:, None])
        if isinstance(head.loss, Softmax):
            entries = slice(edges[head.columns.start], edges[head.columns.stop])
            spread = columns[:, place[entries]] * curvature[:, outputs[entries] - head.columns.start]
            hessian[entries, entries] -= _self_product(spread * weight.sqrt()[:, None])
    return hessian.to(torch.float64)


def _self_product(factor: Tensor) -> Tensor:
    """``factorᵀ factor``, block by block above the diagonal and mirrored below it."""
    size = factor.shape[1]
    product = factor.new_empty(size, size)
    edges = [size * k // _TRIANGLE for k in range(_TRIANGLE + 1)] if size > _SMALL else [0, size]
    for top, bottom in pairwise(edges):
        product[top:bottom, top:] = factor[:, top:bottom].T @ factor[:, top:]
        product[bottom:, top:bottom] = product[top:bottom, bottom:].T
    return product
