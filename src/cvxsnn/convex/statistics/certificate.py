"""The certificate of the squared loss, from sums over the rows."""

from math import sqrt

import torch
from torch import Tensor

from ...core.errors import InvalidInputError
from ..certificate import VANISHED, Certificate, checked_certificate
from ..rounding import SMALLEST, gamma
from .problem import StatisticsProblem


def certify_statistics(
    problem: StatisticsProblem, coef: Tensor, intercept: Tensor | None = None
) -> tuple[Certificate, Tensor, Tensor]:
    r"""Prove how good ``coef`` is, from sums over the rows alone.

    With residuals e = Dw + b − y of one output, their mean ē, and u = τ(e − ē) (ē = 0 without an intercept):

    .. math::
        \text{primal} = \frac{1}{2n} \|e\|^2 + s \|w\|_1 + \frac{r}{2} \|w\|^2, \qquad
        \|e\|^2 = y^\top y - w^\top c + w^\top g, \qquad g = Gw - c = D^\top e, \\
        \text{dual} = -\frac1n \big( \tfrac12 \|u\|^2 + u^\top y \big)
        - \frac{1}{2r} \sum_j \max(0,\ |d_j^\top u| / n - s)^2, \qquad e^\top y = w^\top c - y^\top y,

    where G and c have a row for the intercept, a column of ones. With τ = min(1, sn / ‖Dᵀ(e − ē)‖_∞) the sum over the
    atoms vanishes, as it must for r = 0. For r > 0, τ = 1 is tried as well, and the better of the two bounds counts, in
    each output. As r falls the sum is magnified, and the bound becomes that of r = 0.

    These are differences of large numbers, none of which is above ``(‖y‖ + Σ_j |w_j|‖d_j‖)²``, by Cauchy and Schwarz.
    As many units of rounding of that size as there may have been are added to the primal value and taken off the dual
    value. The products d_jᵀu are wrong by at most as many units of ``‖d_j‖ (‖y‖ + Σ_j |w_j|‖d_j‖)``. So much is added
    to their absolute values before τ is computed and before they are squared, since 1/r magnifies this error. The sum
    is one of positive numbers, so what is left is a share of it. The certificate holds for the rows, not just for what
    float64 made of them.

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
        The numbers τ: the dual point is λ = −τ (e − ē) / n, one row for each that was summed.
    dual_correlation : Tensor of shape (n_atoms, n_outputs)
        The products λᵀd for every atom d. They are at most ``l1_strength`` in absolute value, except in outputs with
        r > 0 and τ = 1.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> solution = cs.convex.solve_statistics(statistics, l1_strength=0.01)
    >>> certificate, _, _ = cs.convex.certify_statistics(solution.problem, solution.coef)
    >>> certificate.relative_gap <= 1e-6
    True
    """
    expected = (problem.n_atoms, problem.n_outputs)
    if tuple(coef.shape) != expected:
        raise InvalidInputError(f"expected coefficients of shape {expected}, got {tuple(coef.shape)}")
    if intercept is None:
        intercept = coef.new_zeros(problem.n_outputs)
    elif not problem.intercept and bool(intercept.any()):
        raise InvalidInputError("expected no intercept, or a problem that has one")
    gram, cross, squares, n_rows = problem.gram, problem.cross, problem.target_squares, problem.n_rows
    coef = coef.to(gram)
    weight = torch.cat((coef, intercept[None].to(gram)))
    active = torch.nonzero(weight.any(1)).squeeze(1)
    gradient = gram[:, active] @ weight[active] - cross
    norms = gram.diagonal().sqrt()
    size = squares.sqrt() + norms @ weight.abs()
    # Twice a product over the active columns and a few operations; four such numbers make up the longest formula.
    rounding = 4 * gamma(problem.statistics.n_roundings + 2 * len(active) + 8)
    residual = (squares - (weight * cross).sum(0) + (weight * gradient).sum(0)).clamp_min(0.0)
    alignment = (weight * cross).sum(0) - squares
    primal = residual / (2 * n_rows) + problem.l1_strength * coef.abs().sum(0)
    primal = primal + 0.5 * problem.l2_strength * coef.square().sum(0)
    if problem.intercept:
        mean = gradient[-1] / n_rows
        residual = (residual - n_rows * mean.square()).clamp_min(0.0)
        alignment = alignment - mean * cross[-1]
        gradient = gradient - gram[:, -1:] * mean
    largest = (gradient[:-1].abs() + rounding * norms[:-1, None] * size) / n_rows + n_rows * SMALLEST
    scale = (problem.l1_strength / largest.amax(0).clamp_min(torch.finfo(largest.dtype).tiny)).clamp_max(1.0)
    dual = -(0.5 * scale.square() * residual + scale * alignment) / n_rows
    if problem.l2_strength:
        outside = (largest - problem.l1_strength).clamp_min(0.0) / sqrt(problem.l2_strength)
        # A sum over the atoms and a few operations; as large as the sum itself, whatever that is.
        conjugate = 0.5 * outside.square().sum(0) * (1 + gamma(problem.n_atoms + 8))
        unshrunk = -(0.5 * residual + alignment) / n_rows - conjugate
        scale = torch.where(unshrunk > dual, 1.0, scale)
        dual = torch.maximum(unshrunk, dual)
    doubt = rounding * (size.square() / n_rows + primal)
    doubt = torch.where((squares > 0) | cross.any(0), doubt + VANISHED, doubt)
    dual = dual - 1.5 * doubt
    scale = torch.where(dual > 0, scale, 0.0)  # without residuals the bound is zero
    share = gamma(problem.n_outputs + 8)
    certificate = Certificate(
        float((primal + 0.5 * doubt).sum()) * (1 + share), float(dual.clamp_min(0.0).sum()) * (1 - share)
    )
    return checked_certificate(problem, certificate), scale, -scale * gradient[:-1] / n_rows
