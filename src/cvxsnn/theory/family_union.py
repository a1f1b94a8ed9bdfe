"""Several families of neurons as one, such as LIF neurons with any of some decays.

A neuron of the union is a row of integers: the number of its family, its parameters, and zeros.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..neurons import LIFLayer
from .integers import IntArray
from .lif_family import LIFEvents, LIFFamily


@dataclass(frozen=True)
class FamilyUnion:
    """LIF neurons of any of several families, such as one per decay.

    The largest price over the union is the largest of its members, so that each is searched by itself.

    Parameters
    ----------
    families : tuple of LIFFamily
        The families, all with the same taps.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import theory
    >>> inputs = np.array([[1.0, 0.5, 1.0], [-1.0, 1.0, 0.25]])[:, :, None]
    >>> union = theory.FamilyUnion.of_decays((0.0, 0.5, 1.0))
    >>> theory.solve_complete(inputs, [1.0, -1.0], union, "squared", 0.1).certificate.scope
    'complete'
    """

    families: tuple[LIFFamily, ...]

    def __post_init__(self) -> None:
        """Refuse families that no layer can have at once."""
        if not self.families or any(own.taps != self.families[0].taps for own in self.families):
            raise InvalidInputError("expected one or more families with the same taps, got none or others")

    @classmethod
    def of_decays(cls, decays: tuple[float, ...], **options: Any) -> "FamilyUnion":
        """Return one family per decay.

        Parameters
        ----------
        decays : tuple of float
            The decays, each a multiple of 1/256.
        **options : object
            The other parameters of :class:`LIFFamily`.

        Returns
        -------
        FamilyUnion
            Their union.
        """
        return cls(tuple(LIFFamily(float(decay), **options) for decay in decays))

    def __str__(self) -> str:
        """Return one sentence."""
        first = self.families[0]
        if all(replace(own, decay=first.decay) == first for own in self.families):
            decays = " or ".join(f"{own.decay:g}" for own in self.families)
            return str(first).replace(f"decay {first.decay:g}", f"decay {decays}", 1)
        return "; or ".join(map(str, self.families))

    def record(self) -> dict[str, Any]:
        """Return the families as plain values, for the recipe of witnesses.

        Returns
        -------
        dict of str to object
            The parameters of each.
        """
        return {"families": [own.record() for own in self.families]}

    def on(self, inputs: Array) -> "UnionEvents":
        """Return the hyperplanes that given sequences define.

        Parameters
        ----------
        inputs : array of shape (n_samples, n_steps, n_features)
            The sequences.

        Returns
        -------
        UnionEvents
            Those of each family.
        """
        return UnionEvents(self, tuple(own.on(inputs) for own in self.families))


@dataclass(frozen=True, eq=False)
class UnionEvents:
    """A union of families on given sequences.

    Parameters
    ----------
    family : FamilyUnion
        The neurons.
    members : tuple of LIFEvents
        The hyperplanes of each family.
    """

    family: FamilyUnion
    members: tuple[LIFEvents, ...]

    @property
    def n_samples(self) -> int:
        """Number of sequences."""
        return self.members[0].n_samples

    @property
    def n_steps(self) -> int:
        """Number of steps of each sequence."""
        return self.members[0].n_steps

    @property
    def dimension(self) -> int:
        """Number of integers of a neuron."""
        return 1 + max(own.dimension for own in self.members)

    def join(self, parts: list[IntArray]) -> IntArray:
        """Return neurons of each member as neurons of the union."""
        rows = [
            [number, *own, *[0] * (self.dimension - 1 - len(own))]
            for number, part in enumerate(parts)
            for own in part.tolist()
        ]
        return np.array(rows, dtype=object).reshape(-1, self.dimension)

    def split(self, parameters: IntArray) -> list[tuple[npt.NDArray[np.int64], IntArray]]:
        """Return the places of each member's neurons, and their own parameters."""
        rows = np.asarray(parameters, dtype=object).reshape(-1, self.dimension)
        places = [np.flatnonzero(rows[:, 0] == number) for number in range(len(self.members))]
        return [(own, rows[own, 1 : 1 + m.dimension]) for own, m in zip(places, self.members, strict=True)]

    def representable(self, parameters: IntArray) -> IntArray:
        """Return the neurons whose spikes a layer in float64 can produce."""
        return self.join(
            [m.representable(own) for m, (_, own) in zip(self.members, self.split(parameters), strict=True)]
        )

    def random(self, draw: Callable[[LIFEvents], IntArray]) -> IntArray:
        """Return random neurons of each member."""
        return self.join([draw(own) for own in self.members])

    def simulate(self, parameters: IntArray) -> npt.NDArray[np.bool_]:
        """Return spikes of shape (n_neurons, n_samples, n_steps), in exact arithmetic."""
        spikes = np.zeros((len(parameters), self.n_samples, self.n_steps), dtype=bool)
        for member, (places, own) in zip(self.members, self.split(parameters), strict=True):
            spikes[places] = member.simulate(own)
        return spikes

    def layer(self, parameters: IntArray) -> LIFLayer:
        """Return one subnetwork whose neurons have these parameters, in float64."""
        parts = [
            (places, member.plain_layer(own))
            for member, (places, own) in zip(self.members, self.split(parameters), strict=True)
            if len(places)
        ]
        order = np.argsort(np.concatenate([places for places, _ in parts]))

        def joined(name: str) -> torch.Tensor:
            columns = [getattr(own, name).expand(*getattr(own, name).shape[:-1], len(p)) for p, own in parts]
            return torch.cat(columns, dim=-1)[..., order].contiguous()

        first, taps = parts[0][1], self.family.families[0].taps
        layer = LIFLayer(
            joined("weight"), bias=joined("bias"), decay=joined("decay"), threshold=joined("threshold"),
            weight_bits=first.weight_bits,
        )  # fmt: skip
        return layer if taps is None else taps.attach(layer)
