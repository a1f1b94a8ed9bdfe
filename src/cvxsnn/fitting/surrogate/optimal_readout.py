"""The read-out of hidden neurons that are still trained: at all times the optimum of a convex program."""

from dataclasses import dataclass, replace
from typing import Self

from ...convex import ConvexProblem, Solution, solve
from ...convex.certificate import Candidate
from ...data.sequences import TrainingSet
from ...dictionary import build_dictionary
from ...network.spiking_network import SpikingNetwork
from ...witnesses import Provenance, WitnessSet
from ..program import Program

QUADRATIC_RATIO = 0.1
"""Strength of the quadratic, relative to the mean eigenvalue at the start. With less, the read-out fits all rows by
large weights, and neurons learn from none."""

TOLERANCE = 1e-3
"""Relative gap of read-outs that the next epoch replaces."""


@dataclass(frozen=True, eq=False)
class OptimalReadout:
    r"""The optimal read-out of hidden neurons with parameters θ, by which the neurons are judged and trained.

    Of the spikes D(θ) on all training rows, the optimal value is

    .. math:: \phi(\theta) = \min_{W, b}\; F(D(\theta) W + b) + \tfrac{r}{2} \|W\|^2 .

    By the envelope theorem, its gradient is that of the loss F with the optimal W and b held fixed. This is variable
    projection: only hidden neurons are trained, and r stays as it is at the start.

    Parameters
    ----------
    program : Program
        Ridge with the loss of the read-out, at one strength.
    data : TrainingSet
        All training data.
    """

    program: Program
    data: TrainingSet

    @classmethod
    def of(cls, program: Program, network: SpikingNetwork, data: TrainingSet) -> Self:
        """Return the optimal read-out for a program, with a quadratic in place of its penalty.

        Parameters
        ----------
        program : Program
            The loss, what is read, and whether there is an intercept.
        network : SpikingNetwork
            The network at the start.
        data : TrainingSet
            All training data.

        Returns
        -------
        OptimalReadout
            The read-out for these data.
        """
        ridge = replace(program, penalty="elastic-net", l1_strength=0.0, l2_strength="auto", tol=TOLERANCE, pool=0)
        start = ridge.at(cls(ridge, data).problem(network), (0.0, QUADRATIC_RATIO))
        return cls(replace(ridge, l2_strength=start.l2_strength), data)

    def problem(self, network: SpikingNetwork) -> ConvexProblem:
        """Return the program over the exact spikes of a network.

        Parameters
        ----------
        network : SpikingNetwork
            The network, whose read-out does not matter.

        Returns
        -------
        ConvexProblem
            The program.
        """
        witnesses = WitnessSet(network.layers, Provenance("pretrained", {"method": "surrogate gradient"}))
        problem = self.program.problem(
            build_dictionary(witnesses, self.data.sequences, self.program.objective.readout), self.data
        )
        return self.program.at(problem, (0.0, self.program.quadratics()[0]))

    def solve(self, network: SpikingNetwork) -> Solution:
        """Return the optimal read-out of a network's hidden neurons, from its present read-out on.

        Parameters
        ----------
        network : SpikingNetwork
            A network that reads all its neurons.

        Returns
        -------
        Solution
            The optimum, up to the tolerance.
        """
        problem = self.problem(network)
        coef = problem.dictionary.coefficients(network.columns, network.weight)
        return solve(problem, self.program.tol, start=Candidate(problem, coef, network.intercept.detach().double()))
