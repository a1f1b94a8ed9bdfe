"""The drive of a layer: weighted inputs plus bias, at all steps, as exact products. Arrays are time-major."""

from torch import Tensor

from .exact import ByteWeights, ScratchArrays, exact_product, product_dtype
from .layer import HiddenLayer, per_sample
from .taps import TapProduct, lift

ExactWeights = Tensor | ByteWeights | TapProduct


def drive_of(layer: HiddenLayer, weight: ExactWeights, block: Tensor, scratch: ScratchArrays) -> Tensor:
    """Return :func:`weighted_inputs` of inputs (n_steps, n_samples, n_inputs), or K of those, that are not lifted."""
    lifted = lift(block, weight.max_delay) if isinstance(weight, TapProduct) else block
    return weighted_inputs(layer, weight, lifted, scratch)


def weighted_inputs(layer: HiddenLayer, weight: ExactWeights, block: Tensor, scratch: ScratchArrays) -> Tensor:
    """Return weighted input plus bias at all steps.

    Parameters
    ----------
    weight : the layer's, in a form whose products are exact
    block : Tensor of shape (n_steps, n_samples, n_values), shared by all subnetworks, or with a first axis for them
        The inputs, lifted for a layer with delays.

    Returns
    -------
    Tensor of shape (n_subnetworks, n_steps, n_samples, width), overwritten by the next drive
    """
    n_steps, n_samples, n_values = block.shape[-3:]
    flat = block.reshape(*block.shape[:-3], n_steps * n_samples, n_values)
    shape = (layer.n_subnetworks, n_steps * n_samples, layer.width)
    drive = scratch.array("drive", shape, layer.weight.dtype, block.device)
    if isinstance(weight, ByteWeights):
        weight.product(flat, drive, scratch)
    elif isinstance(weight, TapProduct):
        weight.write(flat if flat.ndim == 3 else flat[None], drive, scratch)
    else:
        exact_product(flat.to(weight.dtype), weight, drive, scratch)
    if bool(layer.bias.any()):
        drive += per_sample(layer.bias)
    return drive.view(layer.n_subnetworks, n_steps, n_samples, layer.width)


def exact_weight(layer: HiddenLayer, levels_of_inputs: float) -> Tensor | TapProduct:
    """Return the weights in the narrowest type in which products with such inputs are exact."""
    dtype = product_dtype(layer.levels, levels_of_inputs)
    return TapProduct(layer, dtype) if layer.has_delays else layer.weight.to(dtype)
