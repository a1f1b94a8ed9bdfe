"""Rolling many subnetworks through many sequences: spikes in, spikes out.

Layers never feed the layers below, so the stack is rolled out layer by layer, not step by step: the drive of a layer at
all steps is one exact matrix product, and what is left is an elementwise scan over time that stays in cache. Arrays are
time-major in here, and nowhere else.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from ..core.checks import Array, check_choice, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import share_of
from ..data.sequences import Sequences, as_inputs, window_of_step
from .exact import ByteWeights, ScratchArrays, exact_product, input_levels, product_dtype, snap_inputs
from .layer import HiddenLayer, LayerState, per_sample

Steps = Literal["last", "all"]
ExactWeights = Tensor | ByteWeights

CHUNK_BYTES, CHUNK_BYTES_GPU = 16 * 2**20, 2**30
"""Size of the largest array that a roll-out holds at once, unless the caller says otherwise: about one L3 cache; on a
GPU, enough work for each of its kernels."""

_MIN_CHUNK_ROWS = 64
"""Rows below which a matrix product wastes its time; rather take fewer subnetworks at once."""


def roll_out(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    steps: Steps = "last",
    *,
    chunk_bytes: int | None = None,
) -> Tensor:
    """Return the spikes of the last hidden layer.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up. Computation takes place on the device of ``inputs``, in the dtype of the layers.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences. Where they differ in length, the last step is each sequence's own, and no neuron fires in the
        padding.
    steps : "last" or "all"
        Which steps to return.
    chunk_bytes : int, optional
        Memory for intermediate arrays. The spikes do not depend on it.

    Returns
    -------
    Tensor of shape (n_samples, n_neurons) or (n_samples, n_steps, n_neurons), dtype bool
        The spikes, where ``n_neurons = n_subnetworks * width`` and neuron i of subnetwork k is column
        ``k * width + i``.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import gaussian_witnesses, roll_out
    >>> witnesses = gaussian_witnesses(n_features=3, hidden=(16, 4), n_subnetworks=2)
    >>> roll_out(witnesses.layers, np.ones((5, 10, 3)), "all").shape
    torch.Size([5, 10, 8])
    """
    sequences = Sequences.of(inputs)
    layers = _checked_stack(layers, sequences.n_features)
    shape = (len(sequences),) if steps == "last" else (len(sequences), sequences.n_steps)
    shape = (*shape, layers[-1].n_subnetworks, layers[-1].width)
    spikes = torch.empty(shape, dtype=torch.bool, device=sequences.device)
    for rows, subnetworks, block in _iterate_blocks(layers, sequences, steps, chunk_bytes, row_multiple=1):
        spikes[rows, ..., subnetworks, :] = block
    return spikes.flatten(-2)


def count_spikes(layers: Sequence[HiddenLayer], inputs: Sequences | Array, n_windows: int = 1) -> Tensor:
    """Return how often each neuron of the last hidden layer fires in each of ``n_windows`` equal windows of time.

    The counts are integers of shape (n_samples, n_neurons * n_windows): neuron j in window w is column
    ``j * n_windows + w``. Windows divide the steps of each sequence, whatever its length
    (:func:`cvxsnn.data.sequences.window_of_step`).
    """
    sequences = Sequences.of(inputs)
    shape = (len(sequences), layers[-1].n_subnetworks * layers[-1].width * n_windows)
    counts = torch.empty(shape, dtype=_count_dtype(sequences.n_steps), device=sequences.device)
    for rows, columns, block in iterate_counts(layers, sequences, n_windows):
        counts[rows, columns] = block
    return counts


def iterate_counts(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    n_windows: int = 1,
    *,
    chunk_bytes: int | None = None,
    row_multiple: int = 1,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield ``(rows, columns, counts[rows, columns])`` of :func:`count_spikes` block by block."""
    sequences = Sequences.of(inputs)
    blocks = iterate_rollout(layers, sequences, "all", chunk_bytes=chunk_bytes, row_multiple=row_multiple)
    for rows, neurons, spikes in blocks:
        lengths = None if sequences.lengths is None else sequences.lengths[rows]
        columns = slice(neurons.start * n_windows, neurons.stop * n_windows)
        yield rows, columns, _sum_windows(spikes, n_windows, lengths)


def iterate_rollout(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    steps: Steps = "last",
    *,
    chunk_bytes: int | None = None,
    row_multiple: int = 1,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield ``(rows, columns, spikes[rows, ..., columns])`` of :func:`roll_out` block by block.

    ``row_multiple`` makes every block but the last of a column range start and end at a multiple of it. A block may be
    overwritten by the next.
    """
    blocks = _iterate_blocks(layers, Sequences.of(inputs), steps, chunk_bytes, row_multiple)
    for rows, subnetworks, block in blocks:
        width = block.shape[-1]
        yield rows, slice(subnetworks.start * width, subnetworks.stop * width), block.flatten(-2)


def _iterate_blocks(
    layers: Sequence[HiddenLayer],
    sequences: Sequences,
    steps: Steps,
    chunk_bytes: int | None,
    row_multiple: int,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield ``(rows, subnetworks, spikes)``, the spikes of shape (rows, [steps,] subnetworks, width)."""
    check_choice("steps", steps, ("last", "all"))
    inputs, lengths = sequences.inputs, sequences.lengths
    if chunk_bytes is None:
        chunk_bytes = share_of(inputs.device, CHUNK_BYTES_GPU) if inputs.is_cuda else CHUNK_BYTES
    check_positive_int("chunk_bytes", chunk_bytes)
    layers = [layer.to(inputs.device) for layer in _checked_stack(layers, inputs.shape[2])]
    weights = _fast_weights(layers, inputs)
    scratch = ScratchArrays()
    n_samples, n_steps, _ = inputs.shape
    n_subnetworks = layers[0].n_subnetworks
    block_rows, block_subnetworks = _plan_blocks(layers, n_steps, chunk_bytes, row_multiple)
    for k in range(0, n_subnetworks, block_subnetworks):
        subnetworks = slice(k, min(k + block_subnetworks, n_subnetworks))
        block_layers = [layer.take(subnetworks) for layer in layers]
        block_weights = [weight[subnetworks] for weight in weights]
        for i in range(0, n_samples, block_rows):
            rows = slice(i, min(i + block_rows, n_samples))
            if lengths is None:
                yield rows, subnetworks, _roll_block(block_layers, block_weights, inputs[rows], steps, scratch)
            else:
                spikes = _roll_block(block_layers, block_weights, inputs[rows], "all", scratch)
                yield rows, subnetworks, _cut(spikes, lengths[rows], steps)


def _sum_windows(spikes: Tensor, n_windows: int, lengths: Tensor | None) -> Tensor:
    """Count spikes (n_samples, n_steps, n_neurons) in windows of time: integers (n_samples, n_neurons * n_windows)."""
    n_samples, n_steps, n_neurons = spikes.shape
    if n_windows == 1:
        return sum_steps(spikes)
    ends = torch.full((1,), n_steps, device=spikes.device) if lengths is None else lengths
    window = window_of_step(torch.arange(n_steps, device=spikes.device), n_windows, ends[:, None])
    counts = spikes.new_zeros(n_samples, n_neurons, n_windows, dtype=_count_dtype(n_steps))
    for number in range(n_windows):
        steps = torch.nonzero((window == number).any(0)).squeeze(1).tolist()
        if steps:  # all steps between the first and the last, for some of the sequences at least
            own = slice(steps[0], steps[-1] + 1)
            inside = spikes[:, own] if lengths is None else spikes[:, own] & (window[:, own, None] == number)
            counts[..., number] = sum_steps(inside)
    return counts.flatten(1)


def sum_steps(spikes: Tensor) -> Tensor:
    """Count the spikes (n_samples, n_steps, n_neurons) of each neuron over the steps, in the narrowest integer type."""
    # Read as bytes and summed in bytes: otherwise torch makes a copy in the type of the sum first.
    return spikes.view(torch.uint8).sum(1, dtype=_count_dtype(spikes.shape[1]))


def _count_dtype(n_steps: int) -> torch.dtype:
    return torch.uint8 if n_steps <= torch.iinfo(torch.uint8).max else torch.int32


class Stepper:
    """A stack of layers that advances one step at a time, for models whose next input depends on their last output.

    The spikes are those of :func:`roll_out`, bit for bit.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up.
    """

    def __init__(self, layers: Sequence[HiddenLayer]) -> None:
        self._layers = _checked_stack(layers)
        self._levels = [layer.levels for layer in self._layers]
        self._upper_weights = [
            layer.weight.to(product_dtype(levels, 1.0))
            for layer, levels in zip(self._layers[1:], self._levels[1:], strict=True)
        ]
        self._scratch = ScratchArrays()

    def start(self, n_samples: int) -> tuple[LayerState, ...]:
        """Return the state before the first step.

        Parameters
        ----------
        n_samples : int
            Number of sequences.

        Returns
        -------
        tuple of LayerState
            The state of each layer.
        """
        return tuple(layer.initial_state(n_samples) for layer in self._layers)

    def step(self, state: Sequence[LayerState], inputs: Array) -> tuple[tuple[LayerState, ...], Tensor]:
        """Advance by one step; the state given stays as it is.

        Parameters
        ----------
        state : sequence of LayerState
            The state of each layer.
        inputs : array of shape (n_samples, n_features)
            One step of every sequence, read by all subnetworks.

        Returns
        -------
        state : tuple of LayerState
            The state one step later.
        spikes : Tensor of shape (n_samples, n_neurons), dtype bool
            The spikes of the last layer.
        """
        shape = (state[0].spikes.shape[1], self._layers[0].fan_in)
        if tuple(inputs.shape) != shape:
            raise InvalidInputError(f"expected one step of inputs of shape {shape}, got shape {tuple(inputs.shape)}")
        state, spikes = self.step_each(state, as_inputs(inputs[:, None, :])[:, 0])
        return state, spikes.movedim(0, -2).flatten(-2)

    def step_each(self, state: Sequence[LayerState], inputs: Tensor) -> tuple[tuple[LayerState, ...], Tensor]:
        """Advance by one step, with inputs of its own for each subnetwork; the state given stays as it is.

        Parameters
        ----------
        state : sequence of LayerState
            The state of each layer.
        inputs : Tensor of shape (n_subnetworks, n_samples, n_features)
            One step of every sequence, per subnetwork.

        Returns
        -------
        state : tuple of LayerState
            The state one step later.
        spikes : Tensor of shape (n_subnetworks, n_samples, width), dtype bool
            The spikes of the last layer.
        """
        first = self._layers[0]
        inputs = inputs.to(first.weight.device)
        weights = [first.weight.to(product_dtype(self._levels[0], input_levels(inputs))), *self._upper_weights]
        block = snap_inputs(inputs)[..., None, :, :]
        after = tuple(LayerState(own.membrane.clone(), own.spikes.clone()) for own in state)
        for layer, own, weight in zip(self._layers, after, weights, strict=True):
            layer.step(_drive(layer, weight, block, self._scratch)[:, 0], own)
            block = own.spikes[:, None]
        return after, after[-1].spikes != 0


def _roll_block(
    layers: Sequence[HiddenLayer], weights: Sequence[ExactWeights], inputs: Tensor, steps: Steps, scratch: ScratchArrays
) -> Tensor:
    """Roll one block of rows through one block of subnetworks: spikes of shape (n_samples, [n_steps,] K, width)."""
    block = snap_inputs(inputs).transpose(0, 1)
    for depth, (layer, weight) in enumerate(zip(layers, weights, strict=True), 1):
        drive = _drive(layer, weight, block, scratch)
        state = layer.initial_state(inputs.shape[0])
        if depth == len(layers) and steps == "last":
            return layer.scan(drive, state).movedim(0, -2)
        block = scratch.array(f"spikes{depth % 2}", drive.shape, torch.bool, drive.device)
        layer.scan(drive, state, block)
    return block.permute(2, 1, 0, 3)


def _cut(spikes: Tensor, lengths: Tensor, steps: Steps) -> Tensor:
    """Return spikes of the last steps, or of all steps with silence after them; ``spikes`` is (n_samples, T, ...)."""
    if steps == "last":
        return spikes[torch.arange(len(lengths), device=lengths.device), lengths - 1]
    inside = torch.arange(spikes.shape[1], device=lengths.device) < lengths[:, None]
    return spikes & inside[:, :, None, None]


def _drive(layer: HiddenLayer, weight: ExactWeights, block: Tensor, scratch: ScratchArrays) -> Tensor:
    """Return weighted input plus bias at all steps.

    Parameters
    ----------
    weight : the layer's, in a form whose products are exact
    block : Tensor of shape (n_steps, n_samples, fan_in), shared by all subnetworks, or with a first axis for them

    Returns
    -------
    Tensor of shape (n_subnetworks, n_steps, n_samples, width), overwritten by the next drive
    """
    n_steps, n_samples, fan_in = block.shape[-3:]
    flat = block.reshape(*block.shape[:-3], n_steps * n_samples, fan_in)
    shape = (layer.n_subnetworks, n_steps * n_samples, layer.width)
    drive = scratch.array("drive", shape, layer.weight.dtype, block.device)
    if isinstance(weight, ByteWeights):
        weight.product(flat, drive, scratch)
    else:
        exact_product(flat.to(weight.dtype), weight, drive, scratch)
    if bool(layer.bias.any()):
        drive += per_sample(layer.bias)
    return drive.view(layer.n_subnetworks, n_steps, n_samples, layer.width)


def _exact_weights(layers: Sequence[HiddenLayer], inputs: Tensor) -> list[Tensor]:
    """Return the weights of each layer, in the dtype in which its products with these inputs, or spikes, are exact."""
    levels = [input_levels(inputs), *[1.0] * (len(layers) - 1)]
    return [layer.weight.to(product_dtype(layer.levels, level)) for layer, level in zip(layers, levels, strict=True)]


def _fast_weights(layers: Sequence[HiddenLayer], inputs: Tensor) -> list[ExactWeights]:
    """Return these weights, as bytes instead of floats where a layer reads spikes and bytes are faster."""
    weights: list[ExactWeights] = [*_exact_weights(layers, inputs)]
    for depth, layer in enumerate(layers[1:], 1):
        if ByteWeights.pays(layer.weight, layer.weight_bits):
            weights[depth] = ByteWeights(layer.weight, layer.weight_bits)
    return weights


def _plan_blocks(layers: Sequence[HiddenLayer], n_steps: int, chunk_bytes: int, row_multiple: int) -> tuple[int, int]:
    """Return the rows and subnetworks per block for its largest array to fit into ``chunk_bytes``."""
    widest = max(layer.width for layer in layers)
    unit = n_steps * widest * max(layer.weight.element_size() for layer in layers)
    n_subnetworks = layers[0].n_subnetworks
    block_subnetworks = max(1, min(n_subnetworks, chunk_bytes // (unit * _MIN_CHUNK_ROWS)))
    rows = max(1, chunk_bytes // (unit * block_subnetworks))
    return max(row_multiple, rows // row_multiple * row_multiple), block_subnetworks


def _checked_stack(layers: Sequence[HiddenLayer], n_features: int | None = None) -> list[HiddenLayer]:
    if not layers:
        raise InvalidInputError("expected at least one hidden layer, got none")
    for layer in layers:
        if not isinstance(layer, HiddenLayer):
            raise InvalidInputError(f"expected hidden layers such as LIFLayer, got {type(layer).__name__}")
    fan_in = layers[0].fan_in if n_features is None else n_features
    n_subnetworks, dtype = layers[0].n_subnetworks, layers[0].weight.dtype
    for depth, layer in enumerate(layers, 1):
        if layer.fan_in != fan_in:
            raise InvalidInputError(
                f"expected layer {depth} to read {fan_in} values, got weights for {layer.fan_in}: "
                + ("the inputs and the witnesses disagree on n_features" if depth == 1 else "widths must chain")
            )
        if layer.n_subnetworks != n_subnetworks or layer.weight.dtype != dtype:
            raise InvalidInputError("expected all layers to have the same number of subnetworks and the same dtype")
        fan_in = layer.width
    return list(layers)
