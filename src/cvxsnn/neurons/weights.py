"""The weights of a layer in forms whose products with inputs are exact, and the drive: weighted inputs plus bias.

Arrays are time-major.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..core import gpu
from .exact import WEIGHT_BITS, ScratchArrays, exact_product, weight_unit
from .layer import HiddenLayer, per_sample
from .taps import lift, lifted_places, spread


class ExactWeights(ABC):
    """The weights of a layer in a form whose products with inputs are exact.

    Parameters
    ----------
    layer : HiddenLayer
        The layer.
    """

    def __init__(self, layer: HiddenLayer) -> None:
        self.layer = layer

    def lift(self, block: Tensor) -> Tensor:
        """Return the values that the weights multiply, for inputs (n_steps, n_samples, n_inputs), or K of those."""
        return block

    @abstractmethod
    def product(self, rows: Tensor, out: Tensor, scratch: ScratchArrays) -> None:
        """Write products with rows (n_rows, n_values), or K of those, into ``out`` (n_subnetworks, n_rows, width).

        They are summed exactly, then rounded once to the dtype of ``out``.
        """

    def drive(self, lifted: Tensor, scratch: ScratchArrays) -> Tensor:
        """Return weighted input plus bias at all steps.

        Parameters
        ----------
        lifted : Tensor of shape (n_steps, n_samples, n_values), shared by all subnetworks, or with a first axis for
            them

        Returns
        -------
        Tensor of shape (n_subnetworks, n_steps, n_samples, width), overwritten by the next drive
        """
        (n_steps, n_samples), layer = lifted.shape[-3:-1], self.layer
        shape = (layer.n_subnetworks, n_steps * n_samples, layer.width)
        drive = scratch.array("drive", shape, layer.weight.dtype, lifted.device)
        self.product(lifted.flatten(-3, -2), drive, scratch)
        if bool(layer.bias.any()):
            drive += per_sample(layer.bias)
        return drive.view(layer.n_subnetworks, n_steps, n_samples, layer.width)


def exact_weights(layer: HiddenLayer, levels_of_inputs: float) -> ExactWeights:
    """Return the weights in the narrowest type in which products with such inputs are exact."""
    return layer.kept_for_levels("weights", levels_of_inputs, TapWeights if layer.has_delays else DenseWeights)


class DenseWeights(ExactWeights):
    """A weight for each input, as floats."""

    def __init__(self, layer: HiddenLayer, dtype: torch.dtype) -> None:
        super().__init__(layer)
        self._weight = layer.weight.to(dtype)

    def product(self, rows: Tensor, out: Tensor, scratch: ScratchArrays) -> None:
        """Write ``rows @ weight`` into ``out``."""
        exact_product(rows.to(self._weight.dtype), self._weight, out, scratch)


class ByteWeights(ExactWeights):
    """A weight for each neuron below, as two planes of signed bytes: ``weight = unit · (256 · high + low)``.

    Sums of bytes are exact in 32-bit integers, so the product with spikes is the same as any other exact one.
    """

    def __init__(self, layer: HiddenLayer) -> None:
        super().__init__(layer)
        self._unit = weight_unit(layer.weight, layer.weight_bits)
        levels = (layer.weight / self._unit).round().to(torch.int32)
        # Rounded to the nearest multiple of 256, so that the low plane fits into a signed byte.
        high = (levels + 128).div(256, rounding_mode="floor")
        self._planes = torch.cat((high, levels - 256 * high), dim=2).to(torch.int8)

    @staticmethod
    def pays(layer: HiddenLayer) -> bool:
        """Return whether this processor multiplies bytes fast, and the planes can hold the weights."""
        has_byte_products = not gpu.is_gpu(layer.weight.device) and getattr(torch.cpu, "_is_vnni_supported", bool)()
        return (
            has_byte_products
            and hasattr(torch, "_int_mm")
            and layer.weight_bits <= WEIGHT_BITS
            and not layer.has_delays
            # From 64 inputs on, the product pays for the planes; from 2**16, sums could overflow 32-bit integers.
            and 64 <= layer.n_inputs < 2**16
        )

    def product(self, rows: Tensor, out: Tensor, scratch: ScratchArrays) -> None:
        """Write ``rows @ weight`` into ``out``, for bool spikes of shape (n_subnetworks, n_rows, fan_in)."""
        width = out.shape[2]
        total = scratch.array("integers", out.shape[1:], torch.int32, out.device)
        for k in range(len(out)):
            planes = torch._int_mm(rows[k].view(torch.int8), self._planes[k])
            torch.add(planes[:, width:], planes[:, :width], alpha=256, out=total)
            # A power of two: the only rounding is that of the integer to the dtype of ``out``.
            torch.mul(total, self._unit[k], out=out[k])


class TapWeights(ExactWeights):
    """A weight for each tap; taps read a *lifted* input, the values of a step and of the ``max_delay`` steps before."""

    def __init__(self, layer: HiddenLayer, dtype: torch.dtype) -> None:
        super().__init__(layer)
        self._weight, self._place = layer.weight.to(dtype), lifted_places(layer)
        # A gather is faster only if neurons read a small share of all pairs of delay and input.
        is_dense = layer.n_taps >= (0.02 if gpu.is_gpu(layer.weight.device) else 0.25) * layer.n_lifted
        self._dense = spread(self._weight, self._place, layer.n_lifted) if is_dense else None

    def lift(self, block: Tensor) -> Tensor:
        """Return lifted inputs."""
        return lift(self.layer.view(block), self.layer.max_delay)

    def product(self, rows: Tensor, out: Tensor, scratch: ScratchArrays) -> None:
        """Write the sums over the taps into ``out``."""
        lifted = rows.to(self._weight.dtype)
        if self._dense is not None:
            exact_product(lifted, self._dense, out, scratch)
            return
        lifted = lifted.expand(len(out), *lifted.shape[-2:])
        total = scratch.array("product", tuple(out.shape), self._weight.dtype, out.device)
        read = scratch.array("read", tuple(out.shape[1:]), self._weight.dtype, out.device)
        total.zero_()
        for k, sums in enumerate(total):
            for place, weight in zip(self._place[k], self._weight[k], strict=True):
                torch.index_select(lifted[k], 1, place, out=read)
                sums.addcmul_(read, weight)
        out.copy_(total)
