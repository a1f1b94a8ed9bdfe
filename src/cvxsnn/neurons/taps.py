"""Synapses with delays: what a tap reads, and the sums over taps."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from .exact import ScratchArrays, exact_product
from .layer import HiddenLayer

_DENSE_SHARE = 0.25
"""Share of all pairs of delay and input, read by a neuron, from which a dense product is faster than a gather."""


@dataclass(frozen=True, eq=False)
class TapTable:
    """The taps of a layer as lists, neuron after neuron, each in the order of its delays.

    Parameters
    ----------
    starts : Tensor of shape (n_neurons + 1,), dtype int64
        The first tap of each neuron, and the end.
    row : Tensor of shape (n_taps,), dtype int64
        The row of values that a tap reads: the input, counted over the subnetworks where each has inputs of its own.
    delay : Tensor of shape (n_taps,), dtype int64
        The delay of each tap.
    weight : Tensor of shape (n_taps,)
        The weight of each tap, in a dtype in which sums are exact. No weight is zero.
    """

    starts: Tensor
    row: Tensor
    delay: Tensor
    weight: Tensor

    @classmethod
    def of(cls, layer: HiddenLayer, dtype: torch.dtype, *, inputs_are_shared: bool) -> "TapTable":
        """Return the taps of a layer that has delays.

        Parameters
        ----------
        layer : HiddenLayer
            The layer.
        dtype : torch.dtype
            A type in which sums over the taps are exact.
        inputs_are_shared : bool
            Whether all subnetworks read the same inputs.

        Returns
        -------
        TapTable
            The taps whose weight is not zero.
        """
        n_subnetworks, n_taps, width = layer.weight.shape
        offset = torch.arange(n_subnetworks, device=layer.weight.device) * (0 if inputs_are_shared else layer.n_inputs)
        row = layer.source.long() + offset[:, None, None]

        def by_neuron(value: Tensor) -> Tensor:
            return value.transpose(1, 2).reshape(n_subnetworks * width, n_taps)

        delay, order = by_neuron(layer.delay.long()).sort(dim=1, stable=True)
        weight = by_neuron(layer.weight.to(dtype)).gather(1, order)
        kept = weight != 0
        starts = torch.zeros(len(kept) + 1, dtype=torch.int64, device=kept.device)
        torch.cumsum(kept.sum(1), 0, out=starts[1:])
        return cls(starts, by_neuron(row).gather(1, order)[kept], delay[kept], weight[kept])


class TapProduct:
    """The sums over the taps of a layer, in torch.

    Taps read a *lifted* input: at each step, the values of that step and of the ``max_delay`` steps before it.

    Parameters
    ----------
    layer : HiddenLayer
        A layer with delays.
    dtype : torch.dtype
        A type in which sums over the taps are exact.
    """

    def __init__(self, layer: HiddenLayer, dtype: torch.dtype) -> None:
        self.max_delay, self.n_inputs = layer.max_delay, layer.n_inputs
        self._place = _places(layer)
        self._weight = layer.weight.to(dtype)

    def __getitem__(self, subnetworks: slice) -> "TapProduct":
        """Return the sums of some subnetworks."""
        part = object.__new__(TapProduct)
        part.max_delay, part.n_inputs = self.max_delay, self.n_inputs
        part._place, part._weight = self._place[subnetworks], self._weight[subnetworks]
        return part

    @property
    def size(self) -> int:
        """Number of values in a lifted input."""
        return (self.max_delay + 1) * self.n_inputs

    @cached_property
    def _dense(self) -> Tensor | None:
        """The weights of all values of a lifted input, where a dense product is faster."""
        return (
            _spread(self._weight, self._place, self.size) if len(self._place[0]) >= _DENSE_SHARE * self.size else None
        )

    def write(self, lifted: Tensor, out: Tensor, scratch: ScratchArrays) -> None:
        """Write the sums into ``out``: exact in the weights' dtype, then rounded once to that of ``out``.

        Parameters
        ----------
        lifted : Tensor of shape (n_subnetworks or 1, n_rows, size)
            Lifted inputs.
        out : Tensor of shape (n_subnetworks, n_rows, width)
            Where to write.
        scratch : ScratchArrays
            Memory for intermediate values.
        """
        lifted = lifted.to(self._weight.dtype)
        if self._dense is not None:
            exact_product(lifted, self._dense, out, scratch)
            return
        total = scratch.array("product", tuple(out.shape), self._weight.dtype, out.device)
        read = scratch.array("read", tuple(out.shape[1:]), self._weight.dtype, out.device)
        total.zero_()
        for k, own in enumerate(total):
            rows = lifted[k if len(lifted) > 1 else 0]
            for place, weight in zip(self._place[k], self._weight[k], strict=True):
                torch.index_select(rows, 1, place, out=read)
                own.addcmul_(read, weight)
        out.copy_(total)


def _places(layer: HiddenLayer) -> Tensor:
    """Return the value of a lifted input that each tap reads; taps of weight zero read the first."""
    place = (layer.max_delay - layer.delay.long()) * layer.n_inputs + layer.source
    return place * (layer.weight != 0)


def _spread(weight: Tensor, place: Tensor, size: int) -> Tensor:
    return weight.new_zeros(len(weight), size, weight.shape[2]).scatter_add(1, place, weight)


def lifted_weight(layer: HiddenLayer, weight: Tensor) -> Tensor:
    """Return weights of the taps of a layer as weights of all values of a lifted input, with gradients.

    Parameters
    ----------
    layer : HiddenLayer
        A layer with delays.
    weight : Tensor of shape (n_subnetworks, n_taps, width)
        The weights of its taps.

    Returns
    -------
    Tensor of shape (n_subnetworks, (max_delay + 1) * n_inputs, width)
        The weights, with zeros where a neuron does not read. Taps whose weight is zero in the layer stay without one.
    """
    return _spread(weight * (layer.weight != 0), _places(layer), (layer.max_delay + 1) * layer.n_inputs)


def lift(block: Tensor, max_delay: int) -> Tensor:
    """Return the values of each step and of the steps before it, the oldest first, with zeros before the start.

    Parameters
    ----------
    block : Tensor of shape (..., n_steps, n_samples, n_inputs)
        The inputs.
    max_delay : int
        How many steps to look back.

    Returns
    -------
    Tensor of shape (..., n_steps, n_samples, (max_delay + 1) * n_inputs)
        A view of a padded copy.
    """
    padded = pad(block, (0, 0, 0, 0, max_delay, 0))
    return padded.unfold(-3, max_delay + 1, 1).transpose(-1, -2).flatten(-2)
