"""How estimators are pickled: with the contents of a model file, so that a pickle is about as small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch

from ..network.heads import OutputHead
from ..network.reconstruction import Proof
from ..network.spiking_network import SpikingNetwork
from ..neurons import NEURON_MODELS
from ..witnesses import Provenance, regenerate

Arrays = Mapping[str, npt.NDArray[Any]]


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
    arrays: Arrays
    provenance: Provenance
    device: str

    @classmethod
    def of(cls, proof: Proof) -> "PickledProof":
        """Return the compact form of a proof."""
        parts = {name: value for name, value in vars(proof).items() if name != "witnesses"}
        arrays = _as_arrays({name: value for name, value in parts.items() if isinstance(value, torch.Tensor)})
        values = {name: value for name, value in parts.items() if name not in arrays}
        return cls(values, arrays, proof.witnesses.provenance, str(proof.dual_point.device))

    def restore(self) -> Proof:
        """Return the proof, with its witnesses drawn again."""
        witnesses = regenerate(self.provenance, device=self.device)
        return Proof(witnesses=witnesses, **_as_tensors(self.arrays, self.device), **self.values)


@dataclass(frozen=True)
class PickledNetwork:
    """A network as arrays.

    Parameters
    ----------
    layers : tuple of (str, mapping, mapping)
        The neuron model of each hidden layer, its settings and its parameters.
    readout : mapping
        Weights, intercept, the neurons that are read and, where there are any, their windows.
    heads : tuple of OutputHead
        What the outputs mean.
    steps : str
        Which spikes are read.
    device : str
        Where the tensors were.
    """

    layers: tuple[tuple[str, Mapping[str, Any], Arrays], ...]
    readout: Arrays
    heads: tuple[OutputHead, ...]
    steps: Any
    device: str

    @classmethod
    def of(cls, network: SpikingNetwork) -> "PickledNetwork":
        """Return the compact form of a network."""
        layers = tuple(
            (NEURON_MODELS.of(layer).name, layer.settings(), _as_arrays(layer.tensors())) for layer in network.layers
        )
        readout = {"weight": network.weight, "intercept": network.intercept, "neurons": network.neurons}
        if network.windows_read is not None:
            readout["windows_read"] = network.windows_read
        return cls(layers, _as_arrays(readout), network.heads, network.readout, str(network.weight.device))

    def restore(self) -> SpikingNetwork:
        """Return the network."""
        layers = [
            NEURON_MODELS.find(name).layer(**_as_tensors(arrays, self.device), **settings)
            for name, settings, arrays in self.layers
        ]
        return SpikingNetwork(layers, heads=self.heads, readout=self.steps, **_as_tensors(self.readout, self.device))


def _as_arrays(tensors: Mapping[str, torch.Tensor]) -> Arrays:
    """Return tensors as arrays: a tensor adds hundreds of bytes to a pickle."""
    return {name: value.detach().cpu().numpy() for name, value in tensors.items()}


def _as_tensors(arrays: Arrays, device: str) -> dict[str, Any]:
    return {name: torch.from_numpy(value.copy()).to(device) for name, value in arrays.items()}
