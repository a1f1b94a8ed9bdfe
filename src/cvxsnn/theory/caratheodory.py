"""Carathéodory's theorem: solutions with no more atoms than the dimension of the predictions requires."""

from dataclasses import replace

import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, certify
from ..convex.penalties import L1, GroupL2
from ..core.errors import InvalidInputError


def reduce_support(solution: Solution) -> Solution:
    """Return a solution with the same predictions, no larger norm, and at most ``n_rows · n_outputs`` atoms.

    As long as the active atoms are linearly dependent, coefficients are moved along a dependency, in the direction in
    which the norm does not grow, until one of them vanishes. The certificate is computed again.

    Parameters
    ----------
    solution : Solution
        A solution of a convex program.

    Returns
    -------
    Solution
        The reduced solution, with its own certificate.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn import theory
    >>> D = np.random.default_rng(0).integers(0, 2, (6, 40))
    >>> solution = cs.solve(cs.ConvexProblem(D, D[:, 0] - D[:, 1], "squared", 0.001))
    >>> smaller = theory.reduce_support(solution)
    >>> len(smaller.support) <= theory.support_bound(solution.problem)
    True
    """
    problem = solution.problem
    if type(problem.simplified().penalty) not in (L1, GroupL2):
        raise InvalidInputError(
            f"expected the penalty 'l1' or 'group' to reduce a support, got {type(problem.penalty).__name__}: of other "
            "penalties it is not known whether they stay as small"
        )
    columns = problem.dictionary.columns(solution.support)
    coef = solution.coef[solution.support].clone()
    coef = _reduce_groups(columns, coef) if isinstance(problem.penalty, GroupL2) else _reduce_entries(columns, coef)
    whole = torch.zeros_like(solution.coef)
    whole[solution.support] = coef
    certificate, dual_point = certify(
        problem, whole, solution.intercept if problem.intercept else None, [solution.dual_point]
    )
    return replace(solution, coef=whole, certificate=certificate, dual_point=dual_point)


def support_bound(problem: ConvexProblem) -> int:
    """Return the theorem's bound on the number of atoms: n·d_out + 1, or nT·d_out + 1 for a trajectory dictionary.

    Parameters
    ----------
    problem : ConvexProblem
        The convex program.

    Returns
    -------
    int
        The bound.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn import theory
    >>> D = np.random.default_rng(0).integers(0, 2, (6, 40))
    >>> solution = cs.solve(cs.ConvexProblem(D, D[:, 0] - D[:, 1], "squared", 0.001))
    >>> smaller = theory.reduce_support(solution)
    >>> len(smaller.support) <= theory.support_bound(solution.problem)
    True
    """
    return problem.dictionary.n_rows * problem.n_outputs + 1


def _reduce_entries(columns: Tensor, coef: Tensor) -> Tensor:
    """Reduce each output by itself, for the entrywise L1 norm."""
    for output in range(coef.shape[1]):
        used = torch.nonzero(coef[:, output]).squeeze(1)
        coef[used, output] = _reduce(columns[:, used], coef[used, output])
    return coef


def _reduce_groups(columns: Tensor, coef: Tensor) -> Tensor:
    """Reduce for the group norm: an atom with its direction in the outputs is a column, its length the coefficient."""
    length = coef.norm(dim=1)
    direction = coef / length[:, None]
    joint = torch.einsum("na,ac->nca", columns, direction).flatten(0, 1)
    reduced: Tensor = direction * _reduce(joint, length)[:, None]
    return reduced


def _reduce(columns: Tensor, coef: Tensor) -> Tensor:
    """Return coefficients over linearly independent columns, with the same sum and no larger L1 norm."""
    coef = coef.clone()
    while True:
        used = torch.nonzero(coef).squeeze(1)
        dependency = _dependency(columns[:, used])
        if dependency is None:
            return coef
        value = coef[used]
        if float((value.sign() * dependency).sum()) > 0:
            dependency = -dependency
        # The norm does not grow in this direction, so that some coefficients shrink.
        steps = torch.where(value * dependency < 0, -value / dependency, torch.inf)
        first = steps.argmin()
        coef[used] = value + steps[first] * dependency
        coef[used[first]] = 0.0


def _dependency(columns: Tensor) -> Tensor | None:
    """Return a vector in the null space, or None where the columns are independent."""
    n_columns = columns.shape[1]
    if n_columns == 0:
        return None
    _, singular, basis = torch.linalg.svd(columns, full_matrices=True)
    rank = int((singular > 1e-9 * singular.max().clamp_min(1e-300)).sum())
    return basis[-1] if rank < n_columns else None
