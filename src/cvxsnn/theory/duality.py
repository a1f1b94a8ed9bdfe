"""Strong duality as three numbers: the objectives of the network, of the convex program and of the dual."""

from dataclasses import dataclass

from ..convex import ConvexProblem, Solution, solve
from ..convex.penalties import L1, GroupL2
from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from ..network.weight_decay import rescale_hidden, weight_decay_objective


@dataclass(frozen=True, eq=False)
class StrongDuality:
    """The three values, and what they were computed from.

    Parameters
    ----------
    nonconvex : float
        Weight-decay objective of the rebuilt network with vanishing inner weights.
    convex : float
        The bidual: the objective of the finite convex program at the solution.
    dual : float
        The objective at a feasible dual point.
    network : SpikingNetwork
        The rebuilt network.
    solution : Solution
        The solution of the convex program.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> dictionary = theory.complete_dictionary(inputs, theory.LIFFamily(decay=0.5))
    >>> problem = cs.ConvexProblem(dictionary, [1.0, -1.0], "squared", 0.1)
    >>> theory.verify_strong_duality(problem, inputs).largest_difference < 1e-8
    True
    """

    nonconvex: float
    convex: float
    dual: float
    network: SpikingNetwork
    solution: Solution

    @property
    def largest_difference(self) -> float:
        """The largest difference between any two of the three, relative to the largest value."""
        values = (self.nonconvex, self.convex, self.dual)
        return (max(values) - min(values)) / max(abs(max(values)), 1e-300)

    def __str__(self) -> str:
        """Return the three values, one per line."""
        scope = "all" if self.solution.certificate.scope == "complete" else "these"
        return (
            f"network (non-convex) {self.nonconvex:.12f}\n"
            f"convex (bidual)      {self.convex:.12f}\n"
            f"dual                 {self.dual:.12f}\n"
            f"over {scope} witnesses; the three differ by {self.largest_difference:.0e}"
        )


def verify_strong_duality(
    problem: ConvexProblem, inputs: Array, *, width: int = 1, tol: float = 1e-10
) -> StrongDuality:
    """Solve a problem, rebuild the network, and compute primal, bidual and dual values independently.

    Parameters
    ----------
    problem : ConvexProblem
        A problem over a dictionary built from witnesses. With a complete dictionary this verifies the paper's theorem
        "Finite convex formulation for LIF-SNNs". It must have one output, or the group penalty: the L1 norm of several
        outputs is no norm of subnetworks.
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences of the dictionary.
    width : int
        Width m of the rebuilt subnetworks' last layers.
    tol : float
        Relative gap to solve to.

    Returns
    -------
    StrongDuality
        The three values.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> dictionary = theory.complete_dictionary(inputs, theory.LIFFamily(decay=0.5))
    >>> problem = cs.ConvexProblem(dictionary, [1.0, -1.0], "squared", 0.1)
    >>> theory.verify_strong_duality(problem, inputs).largest_difference < 1e-8
    True
    """
    if type(problem.simplified().penalty) is not (L1 if problem.n_outputs == 1 else GroupL2):
        raise InvalidInputError(
            "expected one output with the penalty 'l1', or the penalty 'group', got "
            f"{plural(problem.n_outputs, 'output')} with {problem.penalty.name!r}: other penalties stand for no "
            "weight decay"
        )
    if problem.intercept:
        raise InvalidInputError("expected a problem without intercept: the networks of the theorem have none")
    solution = solve(problem, tol)
    # At this scale the hidden weights are negligible, and no spike has changed.
    network = rescale_hidden(reconstruct(solution, "parallel", width), 2.0**-60)
    nonconvex = weight_decay_objective(network, problem, inputs)
    return StrongDuality(nonconvex, solution.certificate.primal, solution.certificate.dual, network, solution)
