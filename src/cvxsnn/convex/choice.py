"""Which solver runs, and which problem it sees. Nothing else in the library decides either.

:func:`condition` measures targets from their means and scales numbers to order one. :func:`plan` takes the problem
apart, and :func:`choose` is the table of solvers.
"""

from dataclasses import dataclass, replace
from math import frexp, isfinite

from torch import Tensor

from ..core.errors import InvalidInputError
from ..dictionary.dense import DenseDictionary
from .linear import is_gram_worthwhile, is_wide
from .losses import Hinge, Squared
from .penalties import GroupElasticNet, GroupL2
from .problem import ConvexProblem, Workspace
from .solvers.base import Solver
from .solvers.group import Group
from .solvers.hinge import InteriorPoint
from .solvers.l1 import ADMM, ActiveSet, is_dense
from .solvers.newton import Newton
from .solvers.reference import Reference
from .solvers.ridge import DirectRidge, RidgeCG, must_stream

SOLVERS = ("ridge", "l1", "group", "hinge", "reference")
"""Names of the solvers. ``solver="auto"`` chooses among the first four, or "reference" for other losses and penalties.

Examples
--------
>>> from cvxsnn.convex import SOLVERS
>>> SOLVERS
('ridge', 'l1', 'group', 'hinge', 'reference')
"""


def check_solver(solver: str | Solver) -> str | Solver:
    """Return a solver or its name if it is known."""
    if not isinstance(solver, Solver) and solver not in ("auto", *SOLVERS):
        known = ", ".join(map(repr, ("auto", *SOLVERS)))
        raise InvalidInputError(f"expected solver to be one of {known}, or a Solver, got {solver!r}")
    return solver


def choose(problem: ConvexProblem) -> Solver:
    """Return the fastest solver of a problem: one head if the penalty has the L1 norm, else all of them."""
    losses = [head.loss for head in problem.heads]
    if not problem.penalty.has_l1_norm:
        is_group = type(problem.penalty) in (GroupL2, GroupElasticNet)
        is_known = all(loss.is_smooth or type(loss) is Hinge for loss in losses)
        return Group() if is_group and is_known else Reference()
    (loss,) = losses
    if type(loss) is Hinge:
        return InteriorPoint()
    if not loss.is_smooth:
        return Reference()
    is_squared = type(loss) is Squared  # a subclass may be another function
    if not problem.l1_strength:
        is_direct = is_squared and (is_gram_worthwhile(problem) or is_wide(problem))
        return DirectRidge() if is_direct else RidgeCG(is_streamed=must_stream(problem))
    if is_squared and is_gram_worthwhile(problem):
        return ActiveSet()
    return ADMM() if is_dense(problem) else Newton()


@dataclass(frozen=True, eq=False)
class Part:
    """Outputs that one solver minimises over at once.

    Attributes
    ----------
    problem : ConvexProblem, over all rows
    columns : slice of the outputs
    solver : Solver
    """

    problem: ConvexProblem
    columns: slice
    solver: Solver


def plan(problem: ConvexProblem, solver: str | Solver) -> list[Part]:
    """Decide which solver minimises which part of a problem.

    1. Beside a quadratic, a norm whose strength is below rounding is left out. The certificate still includes it.
    2. The penalty is replaced by the simplest one that equals it at these strengths.
    3. A solver whose scope is the problem gets all of it, and so does every solver if the penalty couples outputs.
       Otherwise each head is solved by itself, and each output if solver and loss allow it.
    4. Equal rows are merged (:attr:`ConvexProblem.reduced`) by the caller if ``solver.merges_rows``.
    """
    if solver == "auto" and problem.l2_strength and 0 < problem.l1_strength <= 1e-12 * problem.critical_strength:
        problem = problem.with_strength(0.0)
    problem = problem.simplified()
    is_undivided = solver == "reference" or (isinstance(solver, Solver) and solver.scope == "problem")
    if is_undivided or not problem.penalty.is_separable:
        return [Part(problem, slice(0, problem.n_outputs), _find(problem, solver))]
    parts = []
    for head in problem.heads:
        chosen = _find(problem.part(head.columns), solver)
        is_divided = chosen.scope == "output" and head.loss.is_separable
        width = 1 if is_divided else head.targets.shape[1]
        for start in range(head.columns.start, head.columns.stop, width):
            columns = slice(start, start + width)
            parts.append(Part(problem.part(columns), columns, chosen))
    return parts


def _find(problem: ConvexProblem, solver: str | Solver) -> Solver:
    """Return the solver itself, or the one of that name if it fits the problem."""
    if isinstance(solver, Solver):
        return solver
    if solver == "reference":
        return Reference()
    chosen = choose(problem)
    if solver not in ("auto", chosen.name):
        losses = " + ".join(repr(head.loss.name) for head in problem.heads)
        raise InvalidInputError(
            f"expected solver 'auto', {chosen.name!r} or 'reference' for loss {losses} with penalty "
            f"{problem.penalty.name!r} and l1_strength {problem.l1_strength:g}, got {solver!r}"
        )
    return chosen


def condition(problem: ConvexProblem) -> tuple[ConvexProblem, Tensor, float, float]:
    """Return the program with centred targets and numbers around one.

    Squares of numbers beyond 2⁴⁰ lose too many digits in the solvers. Only targets of squared
    losses and real columns can be that large. Powers of two scale without rounding.

    Returns
    -------
    problem : ConvexProblem
    means : Tensor of shape (n_outputs,)
        The means that were subtracted from the targets.
    of_targets, of_entries : float
        Powers of two by which targets and entries were divided. The coefficients of the original program are those of
        the new one times the first over the second; intercept and dual point are multiplied by the first.
    """
    problem, means = problem.centred
    scaled, of_targets, of_entries = problem.workspace.get(_scale, problem)
    l1, l2 = problem.l1_strength / of_targets / of_entries, problem.l2_strength / of_entries / of_entries
    # A strength that vanishes or overflows when scaled would be another program.
    is_kept = (l1 > 0, l2 > 0) == (problem.l1_strength > 0, problem.l2_strength > 0) and isfinite(l1 + l2)
    if of_targets == of_entries == 1.0 or not is_kept:
        return problem, means, 1.0, 1.0
    centre = None if problem.centre is None else problem.centre * (of_entries / of_targets)
    scaled = scaled._replace(penalty=problem.penalty, l1_strength=l1, l2_strength=l2, centre=centre)
    return scaled, means, of_targets, of_entries


def _scale(problem: ConvexProblem) -> tuple[ConvexProblem, float, float]:
    of_targets = of_entries = 1.0
    heads, dictionary = problem.heads, problem.dictionary
    if all(type(head.loss) is Squared for head in heads):
        of_targets = _power_of_two(max(float(head.targets.abs().max()) for head in heads))
        heads = tuple(replace(head, targets=head.targets / of_targets) for head in heads)
    scaled = problem.with_heads(heads)
    if isinstance(dictionary, DenseDictionary):
        of_entries = _power_of_two(dictionary.largest_entry)
        if of_entries != 1.0:
            # Gram matrices and row products of the entries change with them.
            dictionary = replace(dictionary, values=dictionary.values / of_entries)
            scaled = scaled._replace(dictionary=dictionary, row_workspace=Workspace())
    return scaled, of_targets, of_entries


def _power_of_two(largest: float) -> float:
    """Return the power of two next to a number; one for a number that needs no scaling."""
    power = frexp(largest)[1]
    return 2.0**power if largest and abs(power) > 40 else 1.0
