"""Networks of few bits: rounding the hidden neurons, and solving for the read-out again with a proof.

Rounding moves spikes, and a read-out that was optimal for the old ones need not be good for the new. But the read-out
is the answer to a convex program, whatever hidden neurons gave the spikes. So it is found again, and certified, for the
rounded ones.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

import torch
from torch import Tensor

from ..convex import Certificate, Solution, certify, solve
from ..core.errors import InvalidInputError
from ..core.text_table import align
from ..data.sequences import TrainingSet
from ..estimators import SpikingClassifier, SpikingRegressor
from ..network.proof import Proof
from ..network.reconstruction import reconstruct
from ..network.spiking_network import SpikingNetwork
from ..neurons import HiddenLayer, LIFLayer
from ..training.methods import Trained
from ..witnesses import Provenance, WitnessSet

DECAY_GRID = 2.0**-12
"""A neuron has one decay, and in a slow one the little that leaks must not be rounded away."""

MEMBRANE_GRID = 2.0**-8
"""In units of a neuron's weights: what is added to its membrane beside them is finer, and so must the membrane be."""

_MAX_BITS = 16

_SHIFTS = (-2, -1, 0, 1)
"""Powers of two by which a unit may differ from the one at which the largest weight just fits: finer units cut large
weights off and hold the others better, and which is best depends on their spread."""

Estimator = TypeVar("Estimator", SpikingClassifier, SpikingRegressor)


def round_weights(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Round the weights of each neuron to signed integers times a power of two, with the least squared error.

    The integers go from ``-(2**(bits - 1) - 1)`` to ``2**(bits - 1) - 1``; 2 bits are ternary weights. A power of two
    keeps sums exact (:mod:`cvxsnn.neurons.exact`), and one for each neuron costs a chip nothing: spikes do not change
    when all that is added to a membrane is scaled alike, so that each neuron may count in its own unit.

    Parameters
    ----------
    weight : Tensor of shape (..., fan_in, width)
    bits : int, from 2 to 16

    Returns
    -------
    rounded : Tensor like ``weight``; rounding it again changes nothing
    unit : Tensor of shape (..., 1, width), the powers of two
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 2 <= bits <= _MAX_BITS:
        raise InvalidInputError(f"expected bits to be an integer from 2 to {_MAX_BITS}, got {bits!r}")
    largest = 2 ** (bits - 1) - 1
    exact = weight.detach().double()
    exponent = torch.frexp(exact.abs().amax(-2, keepdim=True)).exponent
    start = torch.ldexp(torch.ones_like(exact[..., :1, :]), exponent - (bits - 1))
    best, unit, least = torch.zeros_like(exact), start, torch.full_like(start, torch.inf)
    for shift in _SHIFTS:
        finer = start * 2.0**shift
        rounded = (exact / finer).round().clamp(-largest, largest) * finer
        error = (rounded - exact).square().sum(-2, keepdim=True)
        is_better = error < least
        best, unit = torch.where(is_better, rounded, best), torch.where(is_better, finer, unit)
        least = torch.minimum(error, least)
    return best.to(weight.dtype), unit.to(weight.dtype)


@overload
def quantise(neurons: SpikingNetwork, bits: int = 8) -> SpikingNetwork: ...
@overload
def quantise(neurons: WitnessSet, bits: int = 8) -> WitnessSet: ...
def quantise(neurons: SpikingNetwork | WitnessSet, bits: int = 8) -> SpikingNetwork | WitnessSet:
    """The same hidden neurons with weights of few bits; a network's read-out stays as it is.

    Weights that lead to one neuron, recurrent ones included, become ``bits``-bit integers times a power of two of its
    own (:func:`round_weights`). Its bias, threshold and initial membrane become multiples of ``MEMBRANE_GRID`` times
    that power, its decay a multiple of ``DECAY_GRID``.

    Parameters
    ----------
    neurons : SpikingNetwork or WitnessSet
    bits : int, from 2 to 16
    """
    layers = tuple(_quantise_layer(layer, bits) for layer in neurons.layers)
    if isinstance(neurons, WitnessSet):
        return WitnessSet(layers, Provenance("pretrained", {"weight_bits": bits}))
    return SpikingNetwork(layers, neurons.weight, neurons.heads, neurons.intercept, neurons.neurons, neurons.readout)


def quantise_readout(network: SpikingNetwork, bits: int = 8) -> SpikingNetwork:
    """The same network with output weights of few bits: integers times a power of two for each output.

    Intercepts become multiples of ``MEMBRANE_GRID`` times that power.
    """
    return network.with_readout(*_round_readout(network.weight, network.intercept, bits))


@dataclass(frozen=True, eq=False)
class Quantised:
    """A network of few bits with its proof.

    Attributes
    ----------
    network : SpikingNetwork
    solution : Solution
        The optimal read-out of the rounded hidden neurons, before it is rounded itself.
    proof : Proof
        Of the read-out that the network has.
    """

    network: SpikingNetwork
    solution: Solution
    proof: Proof

    @property
    def certificate(self) -> Certificate:
        """How far the network's read-out, rounded or not, is at most from the optimum over its rounded neurons."""
        return self.proof.certificate

    def with_readout_bits(self, bits: int) -> "Quantised":
        """The optimal read-out rounded to few bits, and certified as it is then; neurons it has no use for go."""
        problem = self.solution.problem
        coef, intercept = _round_readout(self.solution.coef, self.solution.intercept, bits)
        certificate, dual_point = certify(problem, coef, intercept, [self.solution.dual_point])
        rounded = replace(self.solution, coef=coef, intercept=intercept, certificate=certificate, dual_point=dual_point)
        return Quantised(reconstruct(rounded), self.solution, Proof.of(rounded, self.proof.objective))


def quantise_and_solve(
    trained: Trained | Proof,
    data: TrainingSet,
    bits: int = 8,
    *,
    readout_bits: int | None = None,
    tol: float = 1e-6,
) -> Quantised:
    """Round all hidden neurons that a model was trained over, and find their optimal read-out, at the same strength.

    Parameters
    ----------
    trained : Trained or Proof
        With a read-out that was found by convex optimisation.
    data : TrainingSet
        What it was found on.
    bits : int
        Of the hidden weights.
    readout_bits : int, optional
        Of the output weights; in float64 when not given. What rounding them costs is part of the certificate.
    tol : float
        Relative gap to certify, before the read-out is rounded.
    """
    before = _proof_of(trained)
    solution = solve(replace(before, witnesses=quantise(before.witnesses, bits)).problem(data), tol)
    found = Quantised(reconstruct(solution), solution, Proof.of(solution, before.objective))
    return found if readout_bits is None else found.with_readout_bits(readout_bits)


def quantise_estimator(
    model: Estimator,
    X: Any,  # noqa: N803  # scikit-learn calls the data X
    y: Any,
    bits: int = 8,
    *,
    sample_weight: Any = None,
    readout_bits: int | None = None,
) -> Estimator:
    """A fitted estimator's copy with few bits, its read-out found again on the data that it was fitted to.

    ``network_`` and ``certificate_`` are those of :func:`quantise_and_solve`; the copy can be saved, loaded and
    certified as the original can.
    """
    data = model._training_set(X, y, sample_weight)
    found = quantise_and_solve(model._checked_proof(), data, bits, readout_bits=readout_bits, tol=model.tol)
    twin = copy.copy(model)
    twin.network_, twin.certificate_, twin._proof = found.network, found.certificate, found.proof
    return twin


@dataclass(frozen=True)
class BitsRow:
    """One number of bits in a comparison.

    Attributes
    ----------
    bits : int, of the hidden weights
    as_is, solved, rounded : float
        Scores with the old read-out; with the optimal one; and with that rounded to ``readout_bits``.
    as_is_objective : float, the training objective of the old read-out
    certificate : Certificate, of the optimal read-out
    rounded_certificate : Certificate, of it when rounded
    """

    bits: int
    as_is: float
    solved: float
    rounded: float
    as_is_objective: float
    certificate: Certificate
    rounded_certificate: Certificate


@dataclass(frozen=True)
class BitsComparison:
    """Scores and objectives of one model at several numbers of bits.

    Attributes
    ----------
    score, objective : float, before rounding
    readout_bits : int
    rows : tuple of BitsRow
    """

    score: float
    objective: float
    readout_bits: int
    rows: tuple[BitsRow, ...]

    def __str__(self) -> str:
        """A table; objectives are of the training data."""
        rounded = f"{self.readout_bits}-bit read-out"
        header = ("hidden bits", "score: as is", "solved", rounded, "objective: as is", "solved", rounded, "gap")
        rows: list[tuple[str, ...]] = [
            ("not rounded", f"{self.score:.4f}", "", "", f"{self.objective:.5f}", "", "", "")
        ]
        for row in self.rows:
            objectives = (row.as_is_objective, row.certificate.primal, row.rounded_certificate.primal)
            rows.append(
                (
                    str(row.bits),
                    *(f"{score:.4f}" for score in (row.as_is, row.solved, row.rounded)),
                    *(f"{objective:.5f}" for objective in objectives),
                    f"{row.certificate.relative_gap:.0e}",
                )
            )
        return align(header, rows)


def compare_bits(
    trained: Trained,
    data: TrainingSet,
    score: Callable[[SpikingNetwork], float],
    bits: Sequence[int] = (8, 4, 2),
    *,
    readout_bits: int = 8,
    tol: float = 1e-6,
) -> BitsComparison:
    """How a trained network does with fewer and fewer bits, as is and with its read-out found again.

    Parameters
    ----------
    trained : Trained
        With a read-out that was found by convex optimisation.
    data : TrainingSet
        What it was found on.
    score : function of a network
        For example accuracy on test data.
    bits : sequence of int
        Of the hidden weights.
    readout_bits : int
        Of the output weights, where they are rounded too.
    tol : float
        Relative gap to certify.
    """
    proof = _proof_of(trained)
    rows = []
    for number in bits:
        solved = quantise_and_solve(proof, data, number, tol=tol)
        rounded = solved.with_readout_bits(readout_bits)
        rows.append(
            BitsRow(
                number,
                score(quantise(trained.network, number)),
                score(solved.network),
                score(rounded.network),
                # The old coefficients on the new spikes; their gap is what solving again can gain.
                proof.certify(data, solved.solution.problem).primal,
                solved.certificate,
                rounded.certificate,
            )
        )
    return BitsComparison(score(trained.network), proof.certificate.primal, readout_bits, tuple(rows))


def _quantise_layer(layer: HiddenLayer, bits: int) -> HiddenLayer:
    weights = {name: value for name, value in layer.tensors().items() if value.ndim == 3}
    rounded, unit = round_weights(torch.cat([*weights.values()], dim=1), bits)
    parts = torch.split(rounded, [value.shape[1] for value in weights.values()], dim=1)
    changes: dict[str, Any] = dict(zip(weights, parts, strict=True))
    grid = MEMBRANE_GRID * unit[:, 0]
    changes["bias"] = _round_to(layer.bias, grid)
    if isinstance(layer, LIFLayer):
        changes["threshold"] = _round_to(layer.threshold, grid)
        changes["initial_membrane"] = _round_to(layer.initial_membrane, grid)
        changes["decay"] = _round_to(layer.decay, DECAY_GRID)
    return replace(layer, weight_bits=bits, **changes)


def _round_readout(weight: Tensor, intercept: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    rounded, unit = round_weights(weight, bits)
    return rounded, _round_to(intercept.detach(), MEMBRANE_GRID * unit[0])


def _round_to(value: Tensor, grid: Tensor | float) -> Tensor:
    return (value / grid).round() * grid


def _proof_of(trained: Trained | Proof) -> Proof:
    if isinstance(trained, Proof):
        return trained
    if trained.solution is None:
        raise InvalidInputError(
            f"expected a model whose last stage is convex, got method {trained.method!r}: its read-out is the optimum "
            "of no program that could be solved again; train it by 'cvx' or 'sg-cvx'"
        )
    return Proof.of(trained.solution, trained.settings.objective)
