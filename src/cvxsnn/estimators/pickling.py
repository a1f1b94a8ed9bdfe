"""How estimators are pickled: with the contents of a model file, so that a pickle is about as small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

from ..network.reconstruction import Proof
from ..witnesses import Provenance, regenerate


@dataclass(frozen=True)
class PickledProof:
    """A proof with the recipe of its sampled witnesses in their place.

    Parameters
    ----------
    values : mapping
        Fields of the proof that are no tensors.
    arrays : mapping
        Those that are.
    provenance : Provenance
        The recipe of the witnesses.
    device : str
        Where the tensors were.
    """

    values: Mapping[str, Any]
    arrays: Mapping[str, npt.NDArray[Any]]
    provenance: Provenance
    device: str

    @classmethod
    def of(cls, proof: Proof) -> "PickledProof":
        """Return the compact form of a proof; arrays, because a tensor adds hundreds of bytes to a pickle."""
        parts = {name: value for name, value in vars(proof).items() if name != "witnesses"}
        arrays = {name: value.cpu().numpy() for name, value in parts.items() if isinstance(value, torch.Tensor)}
        values = {name: value for name, value in parts.items() if name not in arrays}
        return cls(values, arrays, proof.witnesses.provenance, str(proof.dual_point.device))

    def restore(self) -> Proof:
        """Return the proof, with its witnesses drawn again."""
        tensors: dict[str, Any] = {name: torch.from_numpy(value).to(self.device) for name, value in self.arrays.items()}
        witnesses = regenerate(self.provenance, device=self.device)
        return Proof(witnesses=witnesses, **tensors, **self.values)
