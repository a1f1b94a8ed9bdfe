"""The same program handed to cvxpy: slow, general, and written by other people."""

import contextlib
import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import torch
from torch import Tensor

from cvxsnn import ConvexProblem, Status
from cvxsnn.convex import Budget, Solver, SolverResult


class Reference(Solver):
    """cvxpy with Clarabel."""

    name = "clarabel"
    max_iterations = 1

    def solve(self, problem: ConvexProblem, coef: Tensor, intercept: Tensor, budget: Budget) -> SolverResult:
        """Minimise a whole problem."""
        columns = problem.dictionary.columns().cpu().numpy()
        weight = problem.row_weight.cpu().numpy()
        coef = cp.Variable((columns.shape[1], problem.n_outputs))
        intercept = cp.Variable(problem.n_outputs)
        scores = cp.Variable((len(columns), problem.n_outputs))
        shift = np.ones((len(columns), 1)) @ cp.reshape(intercept, (1, problem.n_outputs), order="C")
        link = scores == columns @ coef + shift
        constraints = [link] if problem.intercept else [link, intercept == 0]
        centre = 0.0 if problem.centre is None else problem.centre.cpu().numpy()
        objective = problem.l1_strength * _norm(cp, problem, coef)
        objective += 0.5 * problem.l2_strength * cp.sum_squares(coef - centre)
        for head in problem.heads:
            objective += head.weight * _loss(
                cp, head.loss.name, scores[:, head.columns], head.targets.cpu().numpy(), weight
            )
        program = cp.Problem(cp.Minimize(objective), constraints)
        for tolerance in (1e-12, 1e-8, 1e-6):
            # Clarabel warns or gives up where float64 does not reach the tolerance; the certificate says how far.
            with contextlib.suppress(cp.error.SolverError), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                program.solve(solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance)
            if coef.value is not None:
                break
        to = problem.row_weight
        if coef.value is None:
            zero = to.new_zeros(coef.shape)
            return SolverResult(zero, to.new_zeros(problem.n_outputs), Status.STALLED)
        status = Status.CONVERGED if program.status == "optimal" else Status.ITERATION_LIMIT
        tensors = [
            torch.as_tensor(np.asarray(value)).to(to) for value in (coef.value, intercept.value, link.dual_value)
        ]
        return SolverResult(tensors[0], tensors[1], status, tensors[2])


def _norm(cp: Any, problem: ConvexProblem, coef: Any) -> Any:
    is_group = problem.penalty.name.startswith("group")
    return cp.sum(cp.norm(coef, 2, axis=1)) if is_group else cp.sum(cp.abs(coef))


def _loss(cp: Any, name: str, scores: Any, targets: Any, weight: Any) -> Any:
    if name == "squared":
        return 0.5 * cp.sum(weight @ cp.square(scores - targets))
    if name == "softmax":
        return weight @ (cp.log_sum_exp(scores, axis=1) - cp.sum(cp.multiply(scores, targets), axis=1))
    margin = cp.multiply(targets, scores)
    if name == "hinge":
        return cp.sum(weight @ cp.pos(1 - margin))
    if name == "squared_hinge":
        return cp.sum(weight @ cp.square(cp.pos(1 - margin)))
    if name == "logistic":
        return cp.sum(weight @ cp.logistic(-margin))
    raise NotImplementedError(f"add a formula for the loss {name!r}")
