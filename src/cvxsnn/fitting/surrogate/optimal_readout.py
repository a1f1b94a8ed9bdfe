"""The read-out of hidden neurons that are still trained: at all times the optimum of a convex program."""

from dataclasses import dataclass, replace
from typing import Self

import torch

from ...convex import ConvexProblem, Solution, solve
from ...convex.certificate import Candidate
from ...data.sequences import TrainingSet
from ...dictionary import build_dictionary
from ...network.spiking_network import SpikingNetwork
from ...neurons.layer import HiddenLayer
from ...witnesses import Provenance, WitnessSet
from ..program import Program

STRENGTH = 3e-5
"""Strength of the quadratic. Read spikes are between zero and one and losses of order one, so it needs no unit."""

TOLERANCE = 1e-3
"""Relative gap of read-outs that the next epoch replaces."""

OPENING = 2.0**-10
"""Weight of a tap that had none, relative to the largest weight of the neuron."""


@dataclass(frozen=True, eq=False)
class OptimalReadout:
    r"""The optimal read-out of hidden neurons with parameters θ, by which the neurons are judged and trained.

    Of the spikes D(θ) on all training rows, the optimal value is

    .. math:: \phi(\theta) = \min_{W, b}\; F(D(\theta) W + b) + \tfrac{r}{2} \|W\|^2 .

    By the envelope theorem, its gradient is that of the loss F with the optimal W and b held fixed. This is variable
    projection: only hidden neurons are trained, and r is fixed.

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
    def of(cls, program: Program, data: TrainingSet) -> Self:
        """Return the optimal read-out for a program, with a quadratic in place of its penalty.

        Parameters
        ----------
        program : Program
            The loss, what is read, and whether there is an intercept.
        data : TrainingSet
            All training data.

        Returns
        -------
        OptimalReadout
            The read-out for these data.
        """
        ridge = replace(program, penalty="elastic-net", l1_strength=0.0, l2_strength=STRENGTH, tol=TOLERANCE, pool=0)
        return cls(ridge, data)

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


def with_open_taps(layer: HiddenLayer) -> HiddenLayer:
    """Return a layer in which no tap has weight zero, so that all of them can be trained.

    Weights that are differences of sequences are zero before the start of both. A tap of weight zero does not exist.

    Parameters
    ----------
    layer : HiddenLayer
        A layer of any neurons.

    Returns
    -------
    HiddenLayer
        The layer, whose missing taps have tiny weights of alternating sign.
    """
    weight = layer.weight
    if not layer.has_delays or bool((weight != 0).all()):
        return layer
    sign = torch.ones_like(weight)
    sign[:, 1::2] = -1
    tiny = OPENING * weight.abs().amax(1, keepdim=True) * sign
    return layer.with_tensors({"weight": torch.where(weight == 0, tiny, weight)})
