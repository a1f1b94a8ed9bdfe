"""Synapses with delays: the values that taps read, and the sums over taps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ..core.checks import Array, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import Sequences
from .layer import MAX_DELAY, HiddenLayer, Layer, check_whole, with_taps


@dataclass(frozen=True)
class Taps:
    """A geometry of taps that neurons share: which input each tap reads, and how many steps late.

    Drives are linear in the weights of the taps. Neurons with these taps are therefore neurons without delays on
    *lifted* inputs, which have one feature per tap.

    Parameters
    ----------
    source : sequence of int
        The input that each tap reads.
    delay : sequence of int
        The delay of each tap in steps, zero or more. A tap reads zero before the sequence starts.
    n_sources : int
        Number of inputs that taps can read.

    Examples
    --------
    >>> from cvxsnn.neurons import Taps
    >>> taps = Taps(source=[0, 0, 1], delay=[0, 2, 1], n_sources=2)
    >>> print(taps)
    input 0 at delays 0 and 2, input 1 at delay 1
    >>> taps.lift([[[1, 10], [2, 20], [3, 30]]]).inputs.tolist()
    [[[1, 0, 0], [2, 0, 10], [3, 1, 20]]]
    """

    source: Sequence[int]
    delay: Sequence[int]
    n_sources: int

    def __post_init__(self) -> None:
        """Refuse taps that read no input, or the same value twice."""
        n_sources = check_positive_int("n_sources", self.n_sources)
        object.__setattr__(self, "n_sources", n_sources)
        object.__setattr__(self, "source", _as_whole_numbers("source", self.source, n_sources))
        object.__setattr__(self, "delay", _as_whole_numbers("delay", self.delay, MAX_DELAY + 1))
        if len(self.source) != len(self.delay):
            raise InvalidInputError(
                f"expected a source and a delay for each tap, got {len(self.source)} and {len(self.delay)} of them"
            )
        if len(set(self._pairs)) < len(self):
            raise InvalidInputError(
                "expected taps that differ in source or delay, got two that are equal: give one of them"
            )

    @classmethod
    def of(cls, layer: HiddenLayer, n_steps: int | None = None) -> "Taps":
        """Return all taps by which any neuron of a layer reads.

        Parameters
        ----------
        layer : HiddenLayer
            The layer. One without delays reads its inputs with delay zero.
        n_steps : int, optional
            Length of the sequences. Taps with a delay of as many steps or more always read zero, and are left out.

        Returns
        -------
        Taps
            The taps whose weight is not zero in some neuron, in the order of the layer.
        """
        layer = with_taps(layer, layer.n_taps)
        # Neurons that share a geometry have it in one order, so the first axis is that of the taps.
        source, delay, weight = (value.transpose(0, 1) for value in (layer.source, layer.delay, layer.weight))
        is_read = weight != 0 if n_steps is None else (weight != 0) & (delay < n_steps)
        pairs = dict.fromkeys(zip(source[is_read].tolist(), delay[is_read].tolist(), strict=True))
        return cls(tuple(source for source, _ in pairs), tuple(delay for _, delay in pairs), layer.n_inputs)

    def __len__(self) -> int:
        """Return the number of taps."""
        return len(self.source)

    def lift(self, inputs: Sequences | Array) -> Sequences:
        """Return the values that the taps read at each step.

        Parameters
        ----------
        inputs : Sequences, or array of shape (n_samples, n_steps, n_sources)
            The sequences.

        Returns
        -------
        Sequences
            Sequences of the same lengths, with one feature per tap.
        """
        sequences = Sequences.of(inputs)
        if sequences.n_features != self.n_sources:
            raise InvalidInputError(
                f"expected sequences of {plural(self.n_sources, 'feature')}, which these taps read, got "
                f"{sequences.n_features}"
            )
        if max(self.delay) >= sequences.n_steps:
            raise InvalidInputError(
                f"expected delays shorter than the sequences of {plural(sequences.n_steps, 'step')}, got "
                f"{max(self.delay)}: leave out taps that always read zero"
            )
        values = sequences.inputs
        lifted = values.new_zeros(*values.shape[:2], len(self))
        for tap, (source, delay) in enumerate(self._pairs):
            lifted[:, delay:, tap] = values[:, : sequences.n_steps - delay, source]
        return Sequences(lifted, sequences.lengths)

    def attach(self, layer: Layer) -> Layer:
        """Return the neurons of a layer over lifted inputs as neurons with taps over the inputs themselves.

        Parameters
        ----------
        layer : HiddenLayer
            A layer without delays, with one weight per tap.

        Returns
        -------
        HiddenLayer
            A layer with delays that has the same spikes.
        """
        if layer.has_delays or layer.n_taps != len(self):
            kind = "with" if layer.has_delays else "without"
            raise InvalidInputError(
                f"expected a layer without delays that reads {len(self)} values, one per tap, got one {kind} delays "
                f"that has {plural(layer.n_taps, 'weight')} per neuron"
            )
        tensors: dict[str, Any] = {
            name: torch.tensor(values, dtype=torch.int32, device=layer.weight.device)[:, None]
            .expand(layer.weight.shape)
            .contiguous()
            for name, values in (("source", self.source), ("delay", self.delay))
        }
        return replace(layer, **tensors, n_sources=self.n_sources)

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.source, self.delay, strict=True))

    def __str__(self) -> str:
        """Return the delays at which each input is read."""
        delays: dict[int, list[int]] = {}
        for source, delay in sorted(self._pairs):
            delays.setdefault(source, []).append(delay)
        return ", ".join(f"input {source} at {_in_words(when)}" for source, when in delays.items())


def _in_words(delays: list[int]) -> str:
    *others, last = delays
    return f"delays {', '.join(map(str, others))} and {last}" if others else f"delay {last}"


def _as_whole_numbers(name: str, values: Sequence[int], limit: int) -> tuple[int, ...]:
    try:
        numbers = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):  # torch raises one of these for ragged lists and for text
        numbers = torch.empty(0, 0)
    if numbers.ndim != 1:
        raise InvalidInputError(f"expected {name} to be a list of whole numbers, one per tap, got {values!r}")
    if len(numbers) == 0:
        raise InvalidInputError(f"expected at least one tap, got an empty {name}")
    return tuple(check_whole(name, numbers, numbers.shape, limit).tolist())


def lifted_places(layer: HiddenLayer) -> Tensor:
    """Return the value of a lifted input that each tap reads; taps of weight zero read the first."""
    # Taps of weight zero may have a longer delay than max_delay, which is that of taps that are read.
    place = (layer.max_delay - layer.delay.long()) * layer.n_values + layer.source
    return place * (layer.weight != 0)


def spread(weight: Tensor, place: Tensor, size: int) -> Tensor:
    """Return weights at their places among ``size`` values; those of taps that read the same value are added."""
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
        The weights, with zeros for values that a neuron does not read. Taps of weight zero in the layer stay at zero.
    """
    return spread(weight * (layer.weight != 0), lifted_places(layer), layer.n_lifted)


def read_taps(layer: HiddenLayer, block: Tensor) -> Tensor:
    """Return the values that each tap of each neuron reads, with gradients: fewer than a lifted input if taps are few.

    Parameters
    ----------
    layer : HiddenLayer
        A layer with delays.
    block : Tensor of shape (n_steps, n_samples, n_inputs) or (n_subnetworks, n_steps, n_samples, n_inputs)
        The inputs.

    Returns
    -------
    Tensor of shape (n_subnetworks, n_steps, n_samples, n_taps, width)
        The values, with zeros for taps whose weight is zero in the layer.
    """
    is_read, max_delay = layer.weight != 0, layer.max_delay
    padded = pad(block, (0, 0, 0, 0, max_delay, 0)).expand(layer.n_subnetworks, -1, -1, -1)
    subnetworks = torch.arange(layer.n_subnetworks, device=block.device)[:, None, None, None]
    steps = torch.arange(block.shape[-3], device=block.device)[None, :, None, None]
    when = steps + max_delay - (layer.delay.long() * is_read)[:, None]
    read = padded[subnetworks, when, :, layer.source.long()[:, None]]
    return read.movedim(-1, 2) * is_read[:, None, None]


def last_window(block: Tensor, max_delay: int, lengths: Tensor | None = None) -> Tensor:
    """Return the last row of :func:`lift` alone.

    Parameters
    ----------
    block : Tensor of shape (..., n_steps, n_samples, n_inputs)
        The inputs.
    max_delay : int
        How many steps to look back.
    lengths : Tensor of shape (n_samples,), optional
        The number of steps of each sequence, if they differ.

    Returns
    -------
    Tensor of shape (..., 1, n_samples, (max_delay + 1) * n_inputs)
        What taps can read at the last step of each sequence, the oldest first.
    """
    n_steps, n_samples, n_inputs = block.shape[-3:]
    padded = pad(block, (0, 0, 0, 0, max_delay, 0))
    if lengths is None:
        window = padded[..., n_steps - 1 :, :, :]
    else:
        when = torch.arange(max_delay + 1, device=block.device)[:, None] + (lengths - 1)
        index = when[:, :, None].expand(*block.shape[:-3], max_delay + 1, n_samples, n_inputs)
        window = padded.gather(-3, index)
    return window.transpose(-3, -2).flatten(-2).unsqueeze(-3)


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
        A copy: as large as the inputs times ``max_delay + 1``, so only for blocks of them.
    """
    padded = pad(block, (0, 0, 0, 0, max_delay, 0))
    return padded.unfold(-3, max_delay + 1, 1).transpose(-1, -2).flatten(-2)
