"""Neurons without delays whose weights are Gaussian."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.exact import snap_weights
from .delayed import Delayed
from .settings import Constant, Distribution, Family, LayerSetting, PerLayer, as_distribution, check_optional_int
from .witness_set import Provenance, WitnessSet


@dataclass(frozen=True, eq=False, kw_only=True)
class Gaussian(Family):
    """Neurons with Gaussian weights, as in the paper's algorithm CVX.

    A neuron's weights are independent Gaussians of variance ``gain² / fan_in``. Weights between neurons of one layer,
    if the model has any, have variance ``gain² / width``. The other parameters are drawn once per neuron.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses.
    hidden : sequence of int
        Widths of the hidden layers of *one* subnetwork, so that depth L is ``len(hidden) + 1``. The paper's P_rec and
        P_last are totals over all subnetworks: divide them by ``n_subnetworks``.
    n_subnetworks : int
        The paper's K.
    neuron : str
        The neuron model: "lif", "threshold", or one that was registered (:func:`cvxsnn.neurons.register_neuron`).
    decay : number or Distribution, or a sequence with one per layer
        Leak of a membrane per step, for neurons that have one.
    threshold : number or Distribution, or a sequence with one per layer
        The reset: amount subtracted after a spike, for neurons that have one.
    bias : number or Distribution, or a sequence with one per layer
        Constant drive.
    gain : number or Distribution, or a sequence with one per layer
        Scale of the weights.
    initial_membrane : number or Distribution, or a sequence with one per layer
        Membrane before the first step, for neurons that have one.
    balance : number or Distribution, or a sequence with one per layer
        Share of the sum of a neuron's weights that is subtracted from its bias. With 0.5 a spike counts as +½ and its
        absence as -½, so that neurons fire half of the time at any depth.
    fan_in : int, optional, or a sequence with one per layer
        Number of inputs, or of neurons below, that a neuron reads, drawn for each; all of them by default. A single
        number is for all layers but the first. With fewer, neurons differ more from each other. A balanced neuron that
        reads one other copies or negates it, so deep stacks preserve information.
    parameters : mapping of str to number or Distribution
        Further parameters per neuron of a registered neuron model.

    Examples
    --------
    >>> from cvxsnn.witnesses import Gaussian, Uniform
    >>> Gaussian(hidden=(16, 32), n_subnetworks=4, decay=Uniform(0.5, 1.0)).sample(3)
    WitnessSet(sampled lif, 4 × (3→16→32))
    """

    name = "gaussian"
    needs_inputs = False
    recognised_by = None
    hidden: Sequence[int]
    n_subnetworks: int = 1
    neuron: str = "lif"
    decay: PerLayer = 0.9
    threshold: PerLayer = 1.0
    bias: PerLayer = 0.0
    gain: PerLayer = 1.0
    initial_membrane: PerLayer = 0.0
    balance: PerLayer = 0.0
    fan_in: int | Sequence[int | None] | None = None
    parameters: Mapping[str, PerLayer] | None = None

    def __post_init__(self) -> None:
        """Check the settings and the names of further parameters."""
        super().__post_init__()
        sampled = NEURON_MODELS.find(self.neuron).sampled
        unknown = (self.parameters or {}).keys() - {*sampled}
        if unknown:
            raise InvalidInputError(
                f"expected parameters that {self.neuron} neurons are sampled with ({', '.join(('bias', *sampled))}), "
                f"got {', '.join(sorted(unknown))}"
            )

    @classmethod
    def arguments(cls, neuron: str = "lif") -> list[str]:
        """Return the names of the settings, and of the parameters that a registered neuron model samples."""
        model = NEURON_MODELS.get(neuron)
        names = [*super().arguments(), *(() if model is None else model.sampled)]
        return [name for name in dict.fromkeys(names) if name != "parameters"]

    @classmethod
    def _hint(cls, unknown: Sequence[str]) -> str:
        """Return advice for somebody who passed settings of neurons with delays."""
        return ": add geometry for neurons with delays" if {*unknown} <= {*Delayed.arguments()} else ""

    @cached_property
    def _distributions(self) -> dict[str, list[Distribution]]:
        """What each parameter of each layer is drawn from."""
        names = ("decay", "threshold", "bias", "gain", "initial_membrane", "balance")
        values = {**{name: getattr(self, name) for name in names}, **(self.parameters or {})}
        setting = LayerSetting(as_distribution)
        return {name: setting.each(name, value, len(self.hidden)) for name, value in values.items()}

    @cached_property
    def _fan_ins(self) -> list[int | None]:
        """The fan-in of each layer; None reads all."""
        fan_ins = LayerSetting(check_optional_int).each("fan_in", self.fan_in, len(self.hidden))
        return fan_ins if isinstance(self.fan_in, Sequence) else [None, *fan_ins[1:]]

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses, for which the number of features is enough."""
        n_features = inputs if isinstance(inputs, int) else Sequences.of(inputs).n_features
        sizes = [check_positive_int("n_features", n_features), *self.hidden]
        described = {name: [layer.describe() for layer in layers] for name, layers in self._distributions.items()}
        recipe: dict[str, Any] = {
            "n_features": sizes[0],
            "hidden": self.hidden,
            "n_subnetworks": self.n_subnetworks,
            "neuron": self.neuron,
            **({"fan_in": self._fan_ins} if any(self._fan_ins) else {}),
            "seed": check_seed(seed),
            "dtype": str(self.dtype).removeprefix("torch."),
            **{
                name: values[0] if values.count(values[0]) == len(values) else values
                for name, values in described.items()
            },
        }
        # Zero is the same as no balance, and equal witnesses have equal recipes.
        if all(balance == Constant(0.0) for balance in self._distributions["balance"]):
            del recipe["balance"]
        layers = [self._layer(*pair, seed, depth) for depth, pair in enumerate(pairwise(sizes), 1)]
        return WitnessSet(tuple(layers), Provenance("sampled", recipe)).as_drawn()

    def _layer(self, n_inputs: int, width: int, seed: int, depth: int) -> HiddenLayer:
        n_subnetworks, model = self.n_subnetworks, NEURON_MODELS.find(self.neuron)

        # A stream for each parameter: changing how one is drawn changes no other.
        def generator(name: str) -> np.random.Generator:
            return child_generator(seed, "witness", depth, name)

        def per_neuron(name: str) -> npt.NDArray[np.float64]:
            return self._distributions[name][depth - 1].sample(generator(name), (n_subnetworks, width))

        def weights(name: str, rows: int, fan_in: int) -> Tensor:
            # 16 bytes per weight while they are drawn, scaled and rounded.
            n_bytes = 16 * n_subnetworks * rows * width
            check_fits(n_bytes, "cpu", "the weights of a hidden layer", "use fewer or narrower subnetworks")
            # Weights keep 15 bits, so draws in float32 lose nothing.
            normal = generator(name).standard_normal((n_subnetworks, rows, width), dtype=np.float32)
            if fan_in == 1 < rows:  # in turn, so that each value below is read if there are enough neurons
                order = generator("fan_in").random((n_subnetworks, rows)).argsort(1)
                read = np.tile(order, -(-width // rows))[:, :width]
                normal *= np.arange(rows)[None, :, None] == read[:, None, :]
            elif fan_in < rows:
                # The smallest of random keys are a random subset without repetition.
                keys = generator("fan_in").random(normal.shape, dtype=np.float32)
                normal[keys > np.partition(keys, fan_in - 1, axis=1)[:, fan_in - 1 : fan_in]] = 0
            # Sums of fan_in unit Gaussians have deviation √fan_in; divided by it, drives keep their scale.
            scaled = normal * (per_neuron("gain") / math.sqrt(fan_in)).astype(np.float32)[:, None, :]
            return snap_weights(torch.from_numpy(scaled).to(self.dtype))

        weight = weights("weight", n_inputs, min(self._fan_ins[depth - 1] or n_inputs, n_inputs))
        # Sums of weights on their grid are exact in float64, so that every machine balances alike.
        bias = per_neuron("bias") - per_neuron("balance") * weight.double().sum(1).numpy()
        values = {"bias": bias, **{name: per_neuron(name) for name in model.sampled if name in self._distributions}}
        parameters = {name: torch.from_numpy(value).to(self.device, self.dtype) for name, value in values.items()}
        if model.is_recurrent:
            parameters["recurrent_weight"] = weights("recurrent_weight", width, width).to(self.device)
        return model.layer(weight.to(self.device), **parameters)  # type: ignore[arg-type]


def gaussian_witnesses(
    n_features: int, hidden: Sequence[int], n_subnetworks: int = 1, *, seed: int = 0, **settings: Any
) -> WitnessSet:
    """Sample witnesses with Gaussian weights.

    Parameters
    ----------
    n_features : int
        Input features per step.
    hidden : sequence of int
        Widths of the hidden layers of one subnetwork.
    n_subnetworks : int
        Number of subnetworks, the paper's K.
    seed : int
        Seed of all draws. A layer's weights depend on nothing else: not on the device, nor on the other parameters.
    **settings : object
        Further settings of :class:`Gaussian`: ``decay``, ``threshold``, ``bias``, ``gain``, ``initial_membrane``,
        ``balance``, ``fan_in``, ``neuron``, ``dtype``, ``device``, and parameters of a registered neuron model.

    Returns
    -------
    WitnessSet
        The witnesses, with a recipe that draws them again.

    Examples
    --------
    >>> from cvxsnn import gaussian_witnesses
    >>> from cvxsnn.witnesses import Uniform
    >>> gaussian_witnesses(n_features=3, hidden=(16, 32), n_subnetworks=4, decay=Uniform(0.5, 1.0), seed=0)
    WitnessSet(sampled lif, 4 × (3→16→32))
    """
    family = Gaussian.of({"hidden": hidden, "n_subnetworks": n_subnetworks, **settings})
    return family.sample(check_positive_int("n_features", n_features), seed)
