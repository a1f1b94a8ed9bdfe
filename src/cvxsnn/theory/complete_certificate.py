"""Bounds on how far a read-out over sampled neurons is from the optimum over all neurons of their family."""

from dataclasses import dataclass
from math import inf
from typing import Any

import torch
from torch import Tensor

from ..convex import Certificate, certify_with_bound
from ..convex.certificate import checked_certificate
from ..convex.penalties import check_prices
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import TrainingSet
from ..network.reconstruction import Proof
from ..neurons import LIFLayer, Taps, ThresholdLayer, roll_out
from ..witnesses import WitnessSet
from .column_generation import price_dual
from .family_union import FamilyUnion
from .lif_family import LIFFamily, check_complete_readout
from .pricing import Price

_REMEDY = "fit with witnesses={'decay': 0.5}"


@dataclass(frozen=True, eq=False)
class CompleteCertificate:
    """What is proven about a read-out over all neurons of a family.

    Parameters
    ----------
    certificate : Certificate
        The certificate, with scope "complete".
    family : LIFFamily or FamilyUnion
        The neurons that it covers.
    prices : tuple of Price
        One price per output, for each subnetwork if there are layers below, or one for all outputs of a group.
    below : tuple of int
        Widths of the layers below, whose neurons are those of the model.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> found = theory.solve_complete(inputs, [1.0, -1.0], theory.LIFFamily(decay=0.5), "squared", 0.1)
    >>> proof = cs.network.Proof.of(found.solution, cs.convex.Objective("squared"))
    >>> data = cs.data.TrainingSet(inputs, {"label": np.array([1.0, -1.0])})
    >>> complete = theory.certify_complete(proof, data)
    >>> complete.is_finished, complete.certificate.scope
    (True, 'complete')
    """

    certificate: Certificate
    family: LIFFamily | FamilyUnion
    prices: tuple[Price, ...]
    below: tuple[int, ...] = ()

    @property
    def is_finished(self) -> bool:
        """Whether the search was completed; otherwise more time may give a tighter bound."""
        return all(found.is_finished for found in self.prices)

    def __str__(self) -> str:
        """Return the bounds and the neurons that they are about."""
        return f"{self.certificate}: {self.neurons}"

    @property
    def neurons(self) -> str:
        """The neurons that it covers, in words."""
        widths = " and ".join(map(str, self.below))
        return (
            f"{self.family}, on top of the model's own layers of {widths} neurons" if self.below else str(self.family)
        )


def certify_complete(
    proof: Proof, data: TrainingSet, *, max_boxes: int = 10**9, max_seconds: float = inf
) -> CompleteCertificate:
    """Bound the optimum over *every* LIF neuron with the same decay, by pricing a solution's dual point exactly.

    If the witnesses have several decays, up to 16, neurons with any of these are covered. If they have delays, these
    are the neurons that read by any of the witnesses' taps, and by no others. If there are layers below, they stay as
    they are: covered are all neurons of the last layer that read the spikes of one of the witnesses' subnetworks.

    Neurons with equal spikes, as far as they are read, count as one. This matters with an ``l2_strength`` only, which
    would vanish if a coefficient could be shared by copies of its neuron; then neurons that do what a witness of the
    solution does are not priced.

    Parameters
    ----------
    proof : Proof
        The proof of a read-out over LIF neurons, or threshold neurons without recurrence.
    data : TrainingSet
        The data that it was solved on.
    max_boxes : int
        Limit on the boxes examined per output. A search that stops early gives a weaker bound, but a valid one.
    max_seconds : float
        Limit on the time per output.

    Returns
    -------
    CompleteCertificate
        The certificate over all neurons, and how it was found.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> found = theory.solve_complete(inputs, [1.0, -1.0], theory.LIFFamily(decay=0.5), "squared", 0.1)
    >>> proof = cs.network.Proof.of(found.solution, cs.convex.Objective("squared"))
    >>> data = cs.data.TrainingSet(inputs, {"label": np.array([1.0, -1.0])})
    >>> complete = theory.certify_complete(proof, data)
    >>> complete.is_finished, complete.certificate.scope
    (True, 'complete')
    """
    check_complete_readout(proof.objective.readout)
    family = family_of(proof.witnesses, data.sequences.n_steps)
    check_prices(proof.l1_strength, "all neurons of a family")
    if data.sequences.lengths is not None:
        raise InvalidInputError("expected sequences of equal length to price all neurons, got unequal ones")
    problem = proof.problem(data)
    n_rows = problem.dictionary.n_rows
    primal = proof.certify(data, problem).primal
    if len(proof.dual_point) != n_rows:
        raise InvalidInputError(
            f"expected the {plural(len(proof.dual_point), 'row')} that the model was trained on, got {n_rows}"
        )
    limits: dict[str, Any] = {"max_boxes": max_boxes, "max_seconds": max_seconds}
    parts = [
        price_dual(family.on(inputs), problem, proof.dual_point, proof.l1_strength, **limits)
        for inputs in _read_by_last_layer(proof.witnesses, data)
    ]
    bounds = [max(own) for own in zip(*(part.bounds for part in parts), strict=True)]
    dual = certify_with_bound(problem, proof.dual_point, bounds)
    certificate = checked_certificate(Certificate(primal, dual, "complete"))
    prices = tuple(price for part in parts for price in part.prices)
    return CompleteCertificate(certificate, family, prices, proof.witnesses.hidden[:-1])


def _read_by_last_layer(witnesses: WitnessSet, data: TrainingSet) -> list[Tensor]:
    """Return what the neurons of the last layer read: the inputs, or the spikes below them in each subnetwork."""
    lower = witnesses.layers[:-1]
    if not lower:
        return [data.inputs]
    spikes = roll_out(lower, data.inputs, "all").to(torch.float64)
    return list(torch.split(spikes, lower[-1].width, dim=2))


def family_of(witnesses: WitnessSet, n_steps: int | None = None) -> LIFFamily | FamilyUnion:
    """Return the family of the neurons of the last layer on sequences of ``n_steps`` steps, if it can be priced."""
    layer = witnesses.layers[-1]
    if type(layer) not in (LIFLayer, ThresholdLayer):
        names = ", ".join(type(own).__name__ for own in witnesses.layers)
        raise InvalidInputError(
            f"expected a last layer of LIF or threshold neurons to price all of them, got {names}: {_REMEDY}"
        )
    if layer.has_delays and len(witnesses.layers) > 1:
        raise InvalidInputError(
            f"expected delays in the only layer, to price all neurons, got a deeper network with them: {_REMEDY}"
        )
    options: dict[str, Any] = {
        "bias": bool(layer.bias.any()), "taps": Taps.of(layer, n_steps) if layer.has_delays else None
    }  # fmt: skip
    if isinstance(layer, ThresholdLayer):
        recurrent = layer.recurrent_weight
        if bool(layer.initial_spikes.any()) or (recurrent is not None and bool(recurrent.any())):
            raise InvalidInputError(
                f"expected threshold neurons without recurrence, to price all of them, got some with it: {_REMEDY}"
            )
        return LIFFamily(0.0, **options, resets=False)
    assert isinstance(layer, LIFLayer)
    if bool(layer.initial_membrane.any()) or bool(layer.initial_spikes.any()) or layer.tie != "ge":
        raise InvalidInputError(
            f"expected neurons that start at rest and fire at ties, to price all of them, got others: {_REMEDY}"
        )
    options["negative_threshold"] = bool((layer.threshold < 0).any())
    decays = sorted(set(layer.decay.flatten().tolist()))
    if len(decays) > 16:  # each decay is searched by itself
        raise InvalidInputError(f"expected at most 16 decays, to price all neurons, got {len(decays)}: {_REMEDY}")
    return LIFFamily(decays[0], **options) if len(decays) == 1 else FamilyUnion.of_decays(tuple(decays), **options)
