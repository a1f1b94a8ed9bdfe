"""A certified read-out with all that is needed to certify it again: witnesses, coefficients and the dual point."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..convex import Certificate, ConvexProblem, Solution, certify
from ..convex.objective import Objective
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..dictionary import build_dictionary
from ..witnesses import WitnessSet


@dataclass(frozen=True, eq=False)
class Proof:
    """What was proven, and how to check it against the data.

    Attributes
    ----------
    witnesses : WitnessSet, every one that the optimum is over
    support : Tensor of shape (n_active,), dtype int64, the witnesses that are read
    coef : Tensor of shape (n_active, n_outputs), float64
    intercept : Tensor of shape (n_outputs,), float64
    dual_point : Tensor of shape (n_rows, n_outputs), float64
    objective : Objective
    l1_strength : float
    penalty : "l1" or "group"
    has_intercept : bool
    certificate : Certificate
    """

    witnesses: WitnessSet
    support: Tensor
    coef: Tensor
    intercept: Tensor
    dual_point: Tensor
    objective: Objective
    l1_strength: float
    penalty: str
    has_intercept: bool
    certificate: Certificate

    @classmethod
    def of(cls, solution: Solution, objective: Objective) -> "Proof":
        """The proof of a solution over witnesses."""
        problem = solution.problem
        if problem.dictionary.witnesses is None:
            raise InvalidInputError("expected a solution over witnesses, got one over a plain array")
        return cls(
            witnesses=problem.dictionary.witnesses,
            support=problem.dictionary.witness_of_atom[solution.support],
            coef=solution.coef[solution.support],
            intercept=solution.intercept,
            dual_point=solution.dual_point,
            objective=objective,
            l1_strength=problem.l1_strength,
            penalty=problem.penalty.name,
            has_intercept=problem.intercept,
            certificate=solution.certificate,
        )

    def problem(self, data: TrainingSet) -> ConvexProblem:
        """Roll the witnesses through the data again, for the whole problem that was solved."""
        dictionary = build_dictionary(self.witnesses, data.sequences, self.objective.readout)
        return self.objective.problem(
            dictionary, data, l1_strength=self.l1_strength, penalty=self.penalty, intercept=self.has_intercept
        )

    def certify(self, data: TrainingSet, problem: ConvexProblem | None = None) -> Certificate:
        """Certify the coefficients on the whole problem, made from the data unless it is at hand."""
        problem = self.problem(data) if problem is None else problem
        dictionary = problem.dictionary
        coef = torch.zeros(dictionary.n_atoms, problem.n_outputs, dtype=torch.float64, device=dictionary.device)
        atoms = dictionary.atom_of_witness[self.support.to(dictionary.device)]
        coef.index_add_(0, atoms, self.coef.to(coef))
        duals = [self.dual_point.to(coef)] if len(self.dual_point) == dictionary.n_rows else []
        certificate, _ = certify(problem, coef, self.intercept.to(coef), duals)
        return certificate
