"""Bounds on how far a read-out over sampled neurons is from the optimum over all neurons of their family."""

from dataclasses import dataclass
from math import inf

from ..convex import Certificate, certify_with_bound
from ..convex.certificate import checked_certificate
from ..convex.strengths import check_prices
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..network.reconstruction import Proof
from ..neurons import NEURON_MODELS, LIFLayer, Taps
from ..witnesses import WitnessSet
from .column_generation import price_dual
from .lif_family import LIFFamily, check_complete_readout
from .pricing import Price


@dataclass(frozen=True, eq=False)
class CompleteCertificate:
    """What is proven about a read-out over all neurons of a family.

    Parameters
    ----------
    certificate : Certificate
        The certificate, with scope "complete".
    family : LIFFamily
        The neurons that it covers.
    prices : tuple of Price
        One price per output.

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
    family: LIFFamily
    prices: tuple[Price, ...]

    @property
    def is_finished(self) -> bool:
        """Whether the search was completed; otherwise more time may give a tighter bound."""
        return all(found.is_finished for found in self.prices)

    def __str__(self) -> str:
        """Return the bounds and the neurons that they are about."""
        return f"{self.certificate}: {self.family}"


def certify_complete(
    proof: Proof, data: TrainingSet, *, max_boxes: int = 10**9, max_seconds: float = inf
) -> CompleteCertificate:
    """Bound the optimum over *every* LIF neuron with the same decay, by pricing a solution's dual point exactly.

    If the witnesses have delays, these are the neurons that read by any of the witnesses' taps, and by no others.

    Neurons with equal spikes, as far as they are read, count as one. This matters with an ``l2_strength`` only, which
    would vanish if a coefficient could be shared by copies of its neuron; then neurons that do what a witness of the
    solution does are not priced.

    Parameters
    ----------
    proof : Proof
        The proof of a read-out over one layer of LIF neurons with one common decay.
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
    dictionary = problem.dictionary
    primal = proof.certify(data, problem).primal
    events = family.on(data.inputs)
    if len(proof.dual_point) != dictionary.n_rows:
        raise InvalidInputError(
            f"expected the {len(proof.dual_point)} rows that the model was trained on, got {dictionary.n_rows}"
        )
    found = price_dual(
        events,
        problem,
        proof.dual_point,
        proof.l1_strength,
        dictionary if problem.l2_strength else None,
        max_boxes=max_boxes,
        max_seconds=max_seconds,
    )
    dual = certify_with_bound(problem, proof.dual_point, found.bounds)
    certificate = checked_certificate(problem, Certificate(primal, dual, "complete"))
    return CompleteCertificate(certificate, family, found.prices)


def family_of(witnesses: WitnessSet, n_steps: int | None = None) -> LIFFamily:
    """Return the family of neurons that witnesses belong to on sequences of ``n_steps`` steps, if it can be priced."""
    layer = witnesses.layers[0]
    can_be_priced = len(witnesses.layers) == 1 and NEURON_MODELS.of(layer).can_be_priced
    if not can_be_priced or not isinstance(layer, LIFLayer):
        names = ", ".join(type(own).__name__ for own in witnesses.layers)
        raise InvalidInputError(
            f"expected one hidden layer of LIF neurons to price all of them, got {names}: fit with hidden=(n,) and "
            "neuron='lif'"
        )
    decay = float(layer.decay.flatten()[0])
    if bool((layer.decay != decay).any()):
        raise InvalidInputError(
            "expected one decay for all neurons, to price all of them, got several: fit with decay=0.5"
        )
    if bool(layer.initial_membrane.any()) or bool(layer.initial_spikes.any()) or layer.tie != "ge":
        raise InvalidInputError("expected neurons that start at rest and fire at ties, to price all of them")
    return LIFFamily(
        decay,
        bias=bool(layer.bias.any()),
        negative_threshold=bool((layer.threshold < 0).any()),
        taps=Taps.of(layer, n_steps) if layer.has_delays else None,
    )
