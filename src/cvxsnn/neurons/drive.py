"""The drive of a layer: weighted inputs plus bias, at all steps, as exact products. Arrays are time-major."""

from typing import Protocol, Self

from torch import Tensor

from .exact import DenseWeights, ScratchArrays, product_dtype
from .layer import HiddenLayer, per_sample
from .taps import TapWeights


class ExactWeights(Protocol):
    """Weights of a layer in a form whose products with inputs are exact."""

    @property
    def n_values(self) -> int:
        """Number of values per row that :meth:`lift` makes; 0 if it makes none."""
        ...

    def __getitem__(self, subnetworks: slice) -> Self:
        """Return the weights of some subnetworks."""
        ...

    def lift(self, block: Tensor) -> Tensor:
        """Return what the weights multiply at each step, for inputs (n_steps, n_samples, n_inputs), or K of those."""
        ...

    def product(self, rows: Tensor, out: Tensor, scratch: ScratchArrays) -> None:
        """Write products with rows (n_rows, n_values), or K of those, into ``out`` (n_subnetworks, n_rows, width)."""
        ...


def exact_weights(layer: HiddenLayer, levels_of_inputs: float) -> ExactWeights:
    """Return the weights in the narrowest type in which products with such inputs are exact."""
    dtype = product_dtype(layer.levels, levels_of_inputs)
    return TapWeights(layer, dtype) if layer.has_delays else DenseWeights(layer.weight.to(dtype))


def weighted_inputs(layer: HiddenLayer, weights: ExactWeights, lifted: Tensor, scratch: ScratchArrays) -> Tensor:
    """Return weighted input plus bias at all steps.

    Parameters
    ----------
    weights : the layer's
    lifted : Tensor of shape (n_steps, n_samples, n_values), shared by all subnetworks, or with a first axis for them

    Returns
    -------
    Tensor of shape (n_subnetworks, n_steps, n_samples, width), overwritten by the next drive
    """
    n_steps, n_samples, n_values = lifted.shape[-3:]
    shape = (layer.n_subnetworks, n_steps * n_samples, layer.width)
    drive = scratch.array("drive", shape, layer.weight.dtype, lifted.device)
    weights.product(lifted.reshape(*lifted.shape[:-3], n_steps * n_samples, n_values), drive, scratch)
    if bool(layer.bias.any()):
        drive += per_sample(layer.bias)
    return drive.view(layer.n_subnetworks, n_steps, n_samples, layer.width)
