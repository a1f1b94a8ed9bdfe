"""Gaussian witnesses, as the paper's algorithm CVX samples them."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..checks import check_choice, check_positive_int
from ..errors import InvalidInputError
from ..neurons import HiddenLayer, LIFLayer, ThresholdLayer
from ..seeds import check_seed, child_generator
from .distributions import Distribution, as_distribution, parse_distribution
from .witness_set import Neuron, Provenance, WitnessSet


def gaussian_witnesses(
    n_features: int,
    hidden: Sequence[int],
    n_subnetworks: int = 1,
    *,
    decay: Distribution | float = 0.9,
    threshold: Distribution | float = 1.0,
    bias: Distribution | float = 0.0,
    gain: Distribution | float = 1.0,
    initial_membrane: Distribution | float = 0.0,
    fan_in: int | None = None,
    neuron: Neuron = "lif",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> WitnessSet:
    r"""Sample the hidden layers of ``n_subnetworks`` subnetworks.

    A neuron's weights are independent Gaussians of variance ``gain² / fan_in``; for threshold neurons the recurrent
    weights have variance ``gain² / width``. Decay, threshold, bias and gain are drawn once for each neuron.

    Parameters
    ----------
    n_features : int
        Input features a step.
    hidden : sequence of int
        Widths of the hidden layers of *one* subnetwork, so that depth L is ``len(hidden) + 1``. The paper's P_rec and
        P_last are totals over all subnetworks: divide them by ``n_subnetworks``.
    n_subnetworks : int
        The paper's K.
    decay, threshold, bias, gain, initial_membrane : number or Distribution
        Decay, threshold and initial membrane belong to LIF neurons only.
    fan_in : int, optional
        Lower neurons that a neuron above the first layer reads, drawn for each; all of them when not given. Weights
        then have variance ``gain² / fan_in``. Few make neurons that differ more from each other.
    neuron : "lif" or "threshold"
    seed : int
        The draw depends on nothing else: not on the device, and a layer's weights not on the other parameters.
    dtype, device
        Of the membranes. Sampling happens on the host, so every device gets the same witnesses.
    """
    check_choice("neuron", neuron, ("lif", "threshold"))
    if not isinstance(hidden, Sequence) or not hidden:
        raise InvalidInputError(f"expected hidden to list the layers' widths, got {hidden!r}: pass for example (256,)")
    sizes = [check_positive_int("n_features", n_features), *(check_positive_int("hidden", width) for width in hidden)]
    n_subnetworks = check_positive_int("n_subnetworks", n_subnetworks)
    given = {"decay": decay, "threshold": threshold, "bias": bias, "gain": gain, "initial_membrane": initial_membrane}
    families = {name: as_distribution(name, value) for name, value in given.items()}
    n_read = None if fan_in is None else check_positive_int("fan_in", fan_in)
    recipe = {
        "n_features": sizes[0],
        "hidden": tuple(sizes[1:]),
        "n_subnetworks": n_subnetworks,
        "neuron": neuron,
        **({} if n_read is None else {"fan_in": n_read}),
        "seed": check_seed(seed),
        "dtype": str(dtype).removeprefix("torch."),
        **{name: family.describe() for name, family in families.items()},
    }

    def draw_layer(depth: int, fan_in: int, width: int) -> HiddenLayer:
        def tensor(values: npt.NDArray[np.floating[Any]]) -> Tensor:
            return torch.from_numpy(values).to(device=device, dtype=dtype)

        def per_neuron(name: str) -> npt.NDArray[np.float64]:
            return families[name].sample(child_generator(seed, "witness", depth, name), (n_subnetworks, width))

        def weights(name: str, rows: int) -> Tensor:
            generator = child_generator(seed, "witness", depth, name)
            normal = generator.standard_normal((n_subnetworks, rows, width), dtype=np.float32)
            is_sparse = name == "weight" and depth > 1 and n_read is not None and n_read < rows
            kept = n_read if is_sparse and n_read is not None else rows
            if is_sparse:
                keys = child_generator(seed, "witness", depth, "fan_in").random(normal.shape, dtype=np.float32)
                normal[keys > np.partition(keys, kept - 1, axis=1)[:, kept - 1 : kept]] = 0
            return tensor(normal * (per_neuron("gain") / math.sqrt(kept)).astype(np.float32)[:, None, :])

        if neuron == "threshold":
            return ThresholdLayer(
                weights("weight", fan_in),
                bias=tensor(per_neuron("bias")),
                recurrent_weight=weights("recurrent_weight", width),
            )
        return LIFLayer(
            weights("weight", fan_in),
            bias=tensor(per_neuron("bias")),
            decay=tensor(per_neuron("decay")),
            threshold=tensor(per_neuron("threshold")),
            initial_membrane=tensor(per_neuron("initial_membrane")),
        )

    layers = tuple(draw_layer(depth, *pair) for depth, pair in enumerate(pairwise(sizes), 1))
    return WitnessSet(layers, Provenance("sampled", recipe))


def regenerate(provenance: Provenance, **overrides: Any) -> WitnessSet:
    """Draw sampled witnesses again from their recipe; ``overrides`` may set ``dtype`` and ``device``."""
    if provenance.kind != "sampled":
        raise InvalidInputError(f"expected sampled witnesses, got {provenance.kind} ones: only a sample has a seed")
    recipe: dict[str, Any] = {
        name: parse_distribution(value) if isinstance(value, Mapping) else value
        for name, value in provenance.recipe.items()
    }
    recipe["dtype"] = getattr(torch, recipe["dtype"])
    subnetworks = recipe.pop("subnetworks", None)
    witnesses = gaussian_witnesses(**{**recipe, **overrides})
    return witnesses if subnetworks is None else witnesses.take(torch.as_tensor(subnetworks))
