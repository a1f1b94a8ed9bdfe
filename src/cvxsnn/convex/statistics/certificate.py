"""The certificate of the squared loss, from sums over the rows."""

import torch
from torch import Tensor

from ...core.errors import InvalidInputError
from ..certificate import Certificate, checked_certificate
from .problem import StatisticsProblem


def certify_statistics(
    problem: StatisticsProblem, coef: Tensor, intercept: Tensor | None = None
) -> tuple[Certificate, Tensor, Tensor]:
    r"""Prove how good ``coef`` is, from sums over the rows alone.

    With residuals r = Dw + b − y of one output, their mean r̄, and u = τ(r − r̄) (r̄ = 0 without an intercept):

    .. math::
        \text{primal} = \frac{1}{2n} \|r\|^2 + s \|w\|_1, \qquad
        \|r\|^2 = y^\top y - w^\top c + w^\top g, \qquad g = Gw - c = D^\top r, \\
        \text{dual} = -\frac1n \big( \tfrac12 \|u\|^2 + u^\top y \big), \qquad r^\top y = w^\top c - y^\top y, \qquad
        \tau = \min(1,\ s n / \|D^\top (r - \bar r)\|_\infty),

    where G and c have a row for the intercept, a column of ones. These are differences of large numbers, none of which
    is above (‖y‖ + Σ_j |w_j|‖d_j‖)², by Cauchy and Schwarz. As many units of rounding of that size as there may have
    been are added to the primal value and taken off the dual value, and τ leaves room for them: the certificate holds
    for the rows, not just for what float64 made of them.

    Parameters
    ----------
    problem : StatisticsProblem
        The program.
    coef : Tensor of shape (n_atoms, n_outputs)
        The coefficients.
    intercept : Tensor of shape (n_outputs,), optional
        The intercept; zero when not given.

    Returns
    -------
    certificate : Certificate
        The objective and the lower bound.
    dual_scale : Tensor of shape (n_outputs,)
        The numbers τ: the dual point is λ = −τ (r − r̄) / n, one row for each that was summed.
    dual_correlation : Tensor of shape (n_atoms, n_outputs)
        The products λᵀd for every atom d, at most ``l1_strength`` in absolute value.
    """
    expected = (problem.n_atoms, problem.n_outputs)
    if tuple(coef.shape) != expected:
        raise InvalidInputError(f"expected coefficients of shape {expected}, got {tuple(coef.shape)}")
    if intercept is None:
        intercept = coef.new_zeros(problem.n_outputs)
    elif not problem.intercept and bool(intercept.any()):
        raise InvalidInputError("expected no intercept, or a problem that has one")
    gram, cross, squares, n_rows = problem.gram, problem.cross, problem.target_squares, problem.n_rows
    weight = torch.cat((coef, intercept[None])).to(gram)
    active = torch.nonzero(weight.any(1)).squeeze(1)
    gradient = gram[:, active] @ weight[active] - cross
    norms = gram.diagonal().sqrt()
    size = squares.sqrt() + norms @ weight.abs()
    # Twice a product over the active columns and a few operations; four such numbers make up the longest formula.
    rounding = 4 * (problem.statistics.n_roundings + 2 * len(active) + 8) * 2.0**-53
    residual = (squares - (weight * cross).sum(0) + (weight * gradient).sum(0)).clamp_min(0.0)
    alignment = (weight * cross).sum(0) - squares
    primal = residual / (2 * n_rows) + problem.l1_strength * coef.abs().sum(0)
    if problem.intercept:
        mean = gradient[-1] / n_rows
        residual = (residual - n_rows * mean.square()).clamp_min(0.0)
        alignment = alignment - mean * cross[-1]
        gradient = gradient - gram[:, -1:] * mean
    largest = (gradient[:-1].abs() + rounding * norms[:-1, None] * size).amax(0) / n_rows
    scale = (problem.l1_strength / largest.clamp_min(torch.finfo(largest.dtype).tiny)).clamp_max(1.0)
    dual = -(0.5 * scale.square() * residual + scale * alignment) / n_rows
    doubt = rounding * (size.square() / n_rows + primal)
    certificate = Certificate(float((primal + 0.5 * doubt).sum()), float((dual - 1.5 * doubt).sum()))
    return checked_certificate(problem, certificate), scale, -scale * gradient[:-1] / n_rows
