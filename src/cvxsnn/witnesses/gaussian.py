"""Gaussian witnesses, as the paper's algorithm CVX samples them."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import check_choice, check_positive_int
from ..core.errors import InvalidInputError
from ..core.seeds import check_seed, child_generator
from ..neurons import HiddenLayer, LIFLayer, ThresholdLayer
from ..neurons.exact import snap_weights
from .distributions import Constant, Distribution, as_distribution, parse_distribution
from .witness_set import Neuron, Provenance, WitnessSet

PerLayer = Distribution | float | Sequence[Distribution | float]


def gaussian_witnesses(
    n_features: int,
    hidden: Sequence[int],
    n_subnetworks: int = 1,
    *,
    decay: PerLayer = 0.9,
    threshold: PerLayer = 1.0,
    bias: PerLayer = 0.0,
    gain: PerLayer = 1.0,
    initial_membrane: PerLayer = 0.0,
    balance: PerLayer = 0.0,
    fan_in: int | Sequence[int | None] | None = None,
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
    decay, threshold, bias, gain, initial_membrane : number or Distribution, or a sequence with one for each layer
        Decay, threshold and initial membrane belong to LIF neurons only.
    balance : number or Distribution, or a sequence with one for each layer
        Share of the sum of a neuron's weights that is taken from its bias. With 0.5 a spike counts as +½ and its
        absence as -½, so that neurons fire half of the time at any depth.
    fan_in : int, optional, or a sequence with one for each layer
        How many inputs or lower neurons a neuron reads, drawn for each; all of them when not given. A single number is
        for all layers but the first. Weights have variance ``gain² / fan_in``. Few make neurons that differ more from
        each other. A balanced neuron that reads one other relays or negates it, and nothing gets lost on the way up.
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
    given: dict[str, PerLayer] = {
        "decay": decay,
        "threshold": threshold,
        "bias": bias,
        "gain": gain,
        "initial_membrane": initial_membrane,
        "balance": balance,
    }
    families = {name: _per_layer(name, value, len(hidden)) for name, value in given.items()}
    n_read = _fan_ins(fan_in, len(hidden))
    recipe: dict[str, Any] = {
        "n_features": sizes[0],
        "hidden": tuple(sizes[1:]),
        "n_subnetworks": n_subnetworks,
        "neuron": neuron,
        **({} if not any(n_read) else {"fan_in": n_read}),
        "seed": check_seed(seed),
        "dtype": str(dtype).removeprefix("torch."),
        **{name: _described(family) for name, family in families.items()},
    }
    if not any(own != Constant(0.0) for own in families["balance"]):
        del recipe["balance"]

    def draw_layer(depth: int, fan_in: int, width: int) -> HiddenLayer:
        def tensor(values: npt.NDArray[np.floating[Any]]) -> Tensor:
            return torch.from_numpy(values).to(device=device, dtype=dtype)

        def per_neuron(name: str) -> npt.NDArray[np.float64]:
            return families[name][depth - 1].sample(
                child_generator(seed, "witness", depth, name), (n_subnetworks, width)
            )

        def weights(name: str, rows: int) -> Tensor:
            generator = child_generator(seed, "witness", depth, name)
            normal = generator.standard_normal((n_subnetworks, rows, width), dtype=np.float32)
            kept = min(n_read[depth - 1] or rows, rows) if name == "weight" else rows
            if kept == 1 < rows:  # in turn, so that every one below is read where there are enough to read it
                order = child_generator(seed, "witness", depth, "fan_in").random((n_subnetworks, rows)).argsort(1)
                read = np.tile(order, -(-width // rows))[:, :width]
                normal *= np.arange(rows)[None, :, None] == read[:, None, :]
            elif kept < rows:
                keys = child_generator(seed, "witness", depth, "fan_in").random(normal.shape, dtype=np.float32)
                normal[keys > np.partition(keys, kept - 1, axis=1)[:, kept - 1 : kept]] = 0
            scaled = normal * (per_neuron("gain") / math.sqrt(kept)).astype(np.float32)[:, None, :]
            return snap_weights(torch.from_numpy(scaled).to(dtype))

        weight = weights("weight", fan_in)
        # Sums of weights on their grid are exact in float64, so that every machine balances alike.
        balance = per_neuron("balance") * weight.double().sum(1).numpy()
        weight, bias = weight.to(device), tensor(per_neuron("bias") - balance)
        if neuron == "threshold":
            return ThresholdLayer(
                weight,
                bias=bias,
                recurrent_weight=weights("recurrent_weight", width).to(device),
            )
        return LIFLayer(
            weight,
            bias=bias,
            decay=tensor(per_neuron("decay")),
            threshold=tensor(per_neuron("threshold")),
            initial_membrane=tensor(per_neuron("initial_membrane")),
        )

    layers = tuple(draw_layer(depth, *pair) for depth, pair in enumerate(pairwise(sizes), 1))
    return WitnessSet(layers, Provenance("sampled", recipe))


def _per_layer(name: str, value: PerLayer, n_layers: int) -> list[Distribution]:
    """One distribution for each layer."""
    each = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value] * n_layers
    if len(each) != n_layers:
        raise InvalidInputError(f"expected one {name} for each of {n_layers} layers, got {len(each)}")
    return [as_distribution(name, one) for one in each]


def _fan_ins(value: int | Sequence[int | None] | None, n_layers: int) -> list[int | None]:
    """One fan-in for each layer; None reads all."""
    is_single = not isinstance(value, Sequence)
    each = [None, *[value] * (n_layers - 1)] if is_single else list(value)  # type: ignore[arg-type]
    if len(each) != n_layers:
        raise InvalidInputError(f"expected one fan_in for each of {n_layers} layers, got {len(each)}")
    if is_single and value is not None:
        check_positive_int("fan_in", value)
    return [None if one is None else check_positive_int("fan_in", one) for one in each]


def _described(family: list[Distribution]) -> dict[str, Any] | list[dict[str, Any]]:
    """One description where all layers have the same."""
    described = [own.describe() for own in family]
    return described[0] if all(own == described[0] for own in described) else described


def _parsed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return parse_distribution(value)
    is_list = isinstance(value, (list, tuple)) and any(isinstance(one, Mapping) for one in value)
    return [parse_distribution(one) for one in value] if is_list else value


def describe_family(family: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of :func:`gaussian_witnesses` as plain values."""

    def plain(value: Any) -> Any:
        if isinstance(value, Distribution):
            return value.describe()
        return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

    return {name: plain(value) for name, value in family.items()}


def regenerate(provenance: Provenance, **overrides: Any) -> WitnessSet:
    """Draw sampled witnesses again from their recipe; ``overrides`` may set ``dtype`` and ``device``."""
    if provenance.kind != "sampled":
        raise InvalidInputError(f"expected sampled witnesses, got {provenance.kind} ones: only a sample has a seed")
    recipe: dict[str, Any] = {name: _parsed(value) for name, value in provenance.recipe.items()}
    recipe["dtype"] = getattr(torch, recipe["dtype"])
    subnetworks = recipe.pop("subnetworks", None)
    witnesses = gaussian_witnesses(**{**recipe, **overrides})
    return witnesses if subnetworks is None else witnesses.take(torch.as_tensor(subnetworks))
