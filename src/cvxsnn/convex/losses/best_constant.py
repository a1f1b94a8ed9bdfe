"""The best constant scores of a loss, found by Newton's method."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .base import Loss

_SEARCH_STEPS = 200
"""Doublings and halvings after which a search for a constant ends."""


def best_constant(loss: "Loss", targets: Tensor, row_weight: Tensor) -> Tensor:
    """Return the best constant scores: of each output by itself, or of all by a damped Newton method."""
    if loss.is_separable:
        return _root_of_slope(loss, targets, row_weight)
    intercept = torch.zeros_like(targets[0])
    for _ in range(100):
        shifted = intercept.expand_as(targets)
        slope = row_weight @ loss.gradient(shifted, targets)
        curvature = loss.curvature(shifted, targets)
        hessian = torch.diag(row_weight @ curvature)
        coupling = loss.coupling(curvature)
        if coupling is not None:
            hessian = hessian - coupling.T @ (row_weight[:, None] * coupling)
        step = torch.linalg.lstsq(hessian + 1e-12 * torch.eye(len(slope)).to(hessian), slope).solution
        step = step.clamp(-5.0, 5.0)
        intercept = intercept - step
        if bool(step.abs().max() < 1e-14 * (1 + intercept.abs().max())):
            break
    return intercept


def _root_of_slope(loss: "Loss", targets: Tensor, row_weight: Tensor) -> Tensor:
    """Return the constants at which the slope, which rises, is zero: for the squared loss the weighted means.

    Real targets have any scale, so the search starts at their means; the squared loss ends there. Otherwise steps
    double until the slope changes its sign. Then follow Newton steps, or halvings of the interval if they lead out.
    """
    constant, scale = torch.zeros_like(targets[0]), torch.ones_like(targets[0])
    if loss.is_regression:
        constant = row_weight @ targets
        scale = row_weight @ (targets - constant).abs()
    low, high, reach = torch.full_like(constant, -torch.inf), torch.full_like(constant, torch.inf), scale
    for _ in range(_SEARCH_STEPS):
        shifted = constant.expand_as(targets)
        slope = row_weight @ loss.gradient(shifted, targets)
        curvature = row_weight @ loss.curvature(shifted, targets)
        step = slope / curvature.clamp_min(torch.finfo(slope.dtype).tiny)
        newton = constant - step
        low, high = torch.where(slope <= 0, constant, low), torch.where(slope >= 0, constant, high)
        inside = torch.where((newton > low) & (newton < high), newton, low + 0.5 * (high - low))
        ahead = torch.where(low.isinf() | high.isinf(), constant - reach * slope.sign(), inside)
        is_done = step.abs() <= 1e-14 * (scale + constant.abs())
        ahead = torch.where(is_done, newton, ahead)
        is_over = bool((is_done | (ahead == constant) | ~ahead.isfinite()).all())
        constant, reach = ahead, 2 * reach
        if is_over:
            break
    return constant
