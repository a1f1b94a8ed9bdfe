"""Rolling many subnetworks through many sequences: spikes in, spikes out.

Layers never feed the layers below, so the stack is rolled out layer by layer, not step by step: the drive of a layer at
all steps is one exact matrix product, and what is left is an elementwise scan over time that stays in cache. LIF layers
with delays are one kernel each, which sums over taps, scans and counts. Arrays are time-major in here, in ``drive.py``,
in ``taps.py`` and in the kernels, and nowhere else.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal, Union

import torch
from torch import Tensor

from ..core.checks import Array, check_choice, check_positive_int
from ..core.memory import share_of
from ..data.sequences import Sequences, similar_lengths, window_of_step
from .drive import ExactWeights, drive_of, exact_weight, weighted_inputs
from .exact import ByteWeights, ScratchArrays, input_levels, product_dtype, snap_inputs
from .layer import HiddenLayer, as_one_subnetwork, check_stack
from .lif import LIFLayer
from .tap_kernel import scan_taps
from .tap_kernel_gpu import can_scan_taps, scan_taps_gpu
from .taps import TapProduct, TapTable, last_window

Steps = Literal["last", "all"]
RolledWeights = Union[ExactWeights, "_FusedTaps", "_OneStep"]

CHUNK_BYTES, CHUNK_BYTES_GPU = 16 * 2**20, 2**30
"""Size of the largest array that a roll-out holds at once, unless the caller says otherwise: about one L3 cache; on a
GPU, enough work for each of its kernels."""

_MIN_CHUNK_ROWS = 64
"""Rows below which a matrix product wastes its time; rather take fewer subnetworks at once."""

_WIDE = 64
"""Neurons of a subnetwork from which its product with a few inputs is not mostly overhead."""

_CACHE_BYTES = 2**21
"""Size of the values that a kernel reads at each of many neurons: about one L2 cache."""


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
    check_choice("steps", steps, ("last", "all"))
    sequences = Sequences.of(inputs)
    layers = check_stack(layers, sequences.n_features)
    shape = (len(sequences),) if steps == "last" else (len(sequences), sequences.n_steps)
    shape = (*shape, layers[-1].n_subnetworks, layers[-1].width)
    spikes = torch.empty(shape, dtype=torch.bool, device=sequences.device)
    for rows, subnetworks, block in _iterate_blocks(layers, sequences, steps, chunk_bytes, row_multiple=1):
        spikes[rows, ..., subnetworks, :] = block
    return spikes.flatten(-2)


def count_spikes(layers: Sequence[HiddenLayer], inputs: Sequences | Array, n_windows: int = 1) -> Tensor:
    """Return how often each neuron of the last hidden layer fires in each window of time.

    Windows divide the steps of each sequence, whatever its length (:func:`cvxsnn.data.sequences.window_of_step`).

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences.
    n_windows : int
        The number of windows.

    Returns
    -------
    Tensor of shape (n_samples, n_neurons * n_windows), of an integer dtype
        The counts; window w of neuron i is column ``i * n_windows + w``.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.neurons import count_spikes
    >>> inputs = np.random.default_rng(0).normal(size=(10, 6, 2))
    >>> counts = count_spikes(cs.gaussian_witnesses(2, (8,), seed=0).layers, inputs)
    >>> int(counts.max()) <= 6
    True
    """
    sequences = Sequences.of(inputs)
    shape = (len(sequences), layers[-1].n_subnetworks * layers[-1].width * n_windows)
    counts = torch.empty(shape, dtype=count_dtype(sequences.n_steps, n_windows), device=sequences.device)
    for rows, columns, block in iterate_counts(layers, sequences, n_windows):
        counts[rows, columns] = block
    return counts


def count_dtype(n_steps: int, n_windows: int) -> torch.dtype:
    """Return the narrowest type that holds the spike counts of a window."""
    return torch.uint8 if -(-n_steps // n_windows) <= torch.iinfo(torch.uint8).max else torch.int32


def iterate_counts(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    n_windows: int = 1,
    *,
    chunk_bytes: int | None = None,
    row_multiple: int = 1,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield ``(rows, columns, counts[rows, columns])`` of :func:`count_spikes` block by block.

    ``row_multiple`` makes every block but the last of a column range start and end at a multiple of it. A block may be
    overwritten by the next.
    """
    check_positive_int("n_windows", n_windows)
    blocks = _iterate_blocks(layers, Sequences.of(inputs), n_windows, chunk_bytes, row_multiple)
    for rows, subnetworks, block in blocks:
        size = block.shape[-2] * n_windows
        yield rows, slice(subnetworks.start * size, subnetworks.stop * size), block.flatten(1)


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
    check_choice("steps", steps, ("last", "all"))
    blocks = _iterate_blocks(layers, Sequences.of(inputs), steps, chunk_bytes, row_multiple)
    for rows, subnetworks, block in blocks:
        width = block.shape[-1]
        yield rows, slice(subnetworks.start * width, subnetworks.stop * width), block.flatten(-2)


def _iterate_blocks(
    layers: Sequence[HiddenLayer],
    sequences: Sequences,
    steps: Steps | int,
    chunk_bytes: int | None,
    row_multiple: int,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield ``(rows, subnetworks, block)``.

    A block has the spikes, of shape (rows, [steps,] subnetworks, width), or, where ``steps`` is a number of windows,
    the spike counts, of shape (rows, subnetworks, width, windows).
    """
    inputs = sequences.inputs
    if chunk_bytes is None:
        chunk_bytes = share_of(inputs.device, CHUNK_BYTES_GPU) if inputs.is_cuda else CHUNK_BYTES
    check_positive_int("chunk_bytes", chunk_bytes)
    layers = [layer.to(inputs.device) for layer in check_stack(layers, inputs.shape[2])]
    weights = _fast_weights(layers, inputs, steps)
    scratch = ScratchArrays()
    n_samples, n_steps, _ = inputs.shape
    n_subnetworks = layers[0].n_subnetworks
    block_rows, block_subnetworks = _plan_blocks(layers, weights, n_steps, steps, chunk_bytes, row_multiple)
    for k in range(0, n_subnetworks, block_subnetworks):
        subnetworks = slice(k, min(k + block_subnetworks, n_subnetworks))
        block_layers = [layer.take(subnetworks) for layer in layers]
        block_weights = [weight[subnetworks] for weight in weights]
        for i in range(0, n_samples, block_rows):
            rows = slice(i, min(i + block_rows, n_samples))
            own = sequences.take(rows)
            yield rows, subnetworks, _roll_rows(block_layers, block_weights, own, steps, scratch)


def _roll_rows(
    layers: Sequence[HiddenLayer],
    weights: Sequence[RolledWeights],
    sequences: Sequences,
    steps: Steps | int,
    scratch: ScratchArrays,
) -> Tensor:
    """Roll a block, sequences of similar length together, so that the work is that of steps and not of padding."""
    if sequences.lengths is None:
        return _roll_block(layers, weights, sequences, steps, scratch)
    n_samples, n_steps = sequences.inputs.shape[:2]
    block = None
    for rows in similar_lengths(sequences.lengths):
        part = sequences.take(rows).trim()
        own = _roll_block(layers, weights, part, steps, scratch)
        if block is None:
            shape = (n_samples, n_steps, *own.shape[2:]) if steps == "all" else (n_samples, *own.shape[1:])
            dtype = count_dtype(n_steps, steps) if isinstance(steps, int) else own.dtype
            block = torch.zeros(shape, dtype=dtype, device=own.device)
        if steps == "all":
            block[rows, : part.n_steps] = own
        else:
            block[rows] = own.to(block.dtype)
    assert block is not None
    return block


def _roll_block(
    layers: Sequence[HiddenLayer],
    weights: Sequence[RolledWeights],
    sequences: Sequences,
    steps: Steps | int,
    scratch: ScratchArrays,
) -> Tensor:
    """Roll one block of rows through one block of subnetworks; see :func:`_iterate_blocks` for what is returned."""
    lengths, n_steps = sequences.lengths, sequences.n_steps
    block = snap_inputs(sequences.inputs).transpose(0, 1)
    for depth, (layer, weight) in enumerate(zip(layers[:-1], weights[:-1], strict=True)):
        block = _spikes(layer, weight, block, scratch, f"spikes{depth % 2}")
    layer, weight = layers[-1], weights[-1]
    if isinstance(weight, _OneStep):
        return weight.spikes(block, lengths, scratch)
    if isinstance(weight, _FusedTaps):
        counts = weight.count(layer, block, steps, lengths)
        by_sample = counts.permute(2, 1, 0).view(-1, counts.shape[1], layer.n_subnetworks, layer.width)
        if isinstance(steps, int):
            return by_sample.movedim(1, -1)
        return by_sample.view(torch.bool) if steps == "all" else by_sample[:, 0].view(torch.bool)
    if steps == "last" and lengths is None:
        return layer.scan(drive_of(layer, weight, block, scratch), layer.initial_state(len(sequences))).movedim(0, -2)
    spikes = _spikes(layer, weight, block, scratch, "spikes").permute(2, 1, 0, 3)
    if isinstance(steps, int):
        return _count_windows(spikes, _slots(steps, n_steps, lengths, block.device), steps)
    return spikes if lengths is None else _cut(spikes, lengths, steps)


def _spikes(layer: HiddenLayer, weight: RolledWeights, block: Tensor, scratch: ScratchArrays, name: str) -> Tensor:
    """Return the spikes of all steps, (n_subnetworks, n_steps, n_samples, width), for inputs as of :func:`drive_of`."""
    if isinstance(weight, _FusedTaps):
        counts = weight.count(layer, block, "all").view(torch.bool)
        return counts.view(layer.n_subnetworks, layer.width, *counts.shape[1:]).permute(0, 2, 3, 1)
    assert not isinstance(weight, _OneStep)  # which is for the last layer alone
    drive = drive_of(layer, weight, block, scratch)
    spikes = scratch.array(name, tuple(drive.shape), torch.bool, drive.device)
    layer.scan(drive, layer.initial_state(drive.shape[2]), spikes)
    return spikes


def _n_slots(steps: Steps | int, n_steps: int) -> int:
    return steps if isinstance(steps, int) else n_steps if steps == "all" else 1


def _slots(steps: Steps | int, n_steps: int, lengths: Tensor | None, device: torch.device) -> Tensor:
    """Return where each step is counted, of shape (n_steps, 1), or (n_steps, n_samples) for unequal lengths.

    That is its own number for all steps, zero for the last one, or its window; negative for steps that are not counted.
    """
    step = torch.arange(n_steps, dtype=torch.int32, device=device)[:, None]
    n = torch.tensor([n_steps], device=device) if lengths is None else lengths
    if steps == "last":
        return (step == n - 1).to(torch.int32) - 1
    slots = step if steps == "all" else window_of_step(step, _n_slots(steps, n_steps), n)
    return torch.where(step < n, slots, -1).to(torch.int32)


def _count_windows(spikes: Tensor, slots: Tensor, n_windows: int) -> Tensor:
    """Return counts (n_samples, K, width, n_windows) of spikes (n_samples, n_steps, K, width)."""
    n_samples, n_steps, *neurons = spikes.shape
    dtype = count_dtype(n_steps, n_windows)
    counts = torch.empty(n_samples, *neurons, n_windows, dtype=dtype, device=spikes.device)
    for window in range(n_windows):
        chosen = slots == window
        if slots.shape[1] == 1:
            bounds = torch.nonzero(chosen[:, 0]).squeeze(1)
            own = spikes[:, int(bounds[0]) : int(bounds[-1]) + 1] if len(bounds) else spikes[:, :0]
        else:
            own = spikes & chosen.T[:, :, None, None]
        # Read as bytes and summed in bytes: otherwise torch makes a copy in the type of the sum first.
        counts[..., window] = own.view(torch.uint8).sum(1, dtype=dtype)
    return counts


def _cut(spikes: Tensor, lengths: Tensor, steps: Steps) -> Tensor:
    """Return spikes of the last steps, or of all steps with silence after them; ``spikes`` is (n_samples, T, ...)."""
    if steps == "last":
        return spikes[torch.arange(len(lengths), device=lengths.device), lengths - 1]
    inside = torch.arange(spikes.shape[1], device=lengths.device) < lengths[:, None]
    return spikes & inside[:, :, None, None]


class _FusedTaps:
    """LIF neurons with delays, as one kernel that sums over taps, advances the membranes and counts spikes."""

    def __init__(self, layer: HiddenLayer, dtype: torch.dtype, *, inputs_are_shared: bool) -> None:
        self._layer, self._dtype, self._inputs_are_shared = layer, dtype, inputs_are_shared

    @staticmethod
    def fits(layer: HiddenLayer) -> bool:
        """Return whether there is a kernel for this layer where it is."""
        is_here = layer.weight.device.type == "cpu" or can_scan_taps(layer.weight.device)
        return layer.has_delays and type(layer) is LIFLayer and is_here

    def __getitem__(self, subnetworks: slice) -> "_FusedTaps":
        """Return some of the subnetworks."""
        return _FusedTaps(self._layer.take(subnetworks), self._dtype, inputs_are_shared=self._inputs_are_shared)

    @cached_property
    def _table(self) -> TapTable:
        return TapTable.of(self._layer, self._dtype, inputs_are_shared=self._inputs_are_shared)

    def count(self, layer: HiddenLayer, block: Tensor, steps: Steps | int, lengths: Tensor | None = None) -> Tensor:
        """Return counts (n_neurons, n_slots, n_samples) for (n_steps, n_samples, n_inputs), or K of those.

        A slot is a window or, with "all" or "last", one step; the counts of single steps are bytes, 0 or 1.
        """
        n_steps = block.shape[-3]
        slots, n_slots = _slots(steps, n_steps, lengths, block.device), _n_slots(steps, n_steps)
        values = block.permute(0, 2, 1) if block.ndim == 3 else block.permute(1, 0, 3, 2).flatten(1, 2)
        is_read_as_bytes = values.is_cuda and values.dtype == torch.bool  # spikes, which are most of what is read
        values = values.contiguous().view(torch.uint8) if is_read_as_bytes else values.to(self._dtype).contiguous()
        dtype = count_dtype(n_steps, steps) if isinstance(steps, int) else torch.uint8
        shape = (layer.n_subnetworks * layer.width, n_slots, values.shape[2])
        counts = torch.zeros(shape, dtype=dtype, device=block.device)
        scan = scan_taps_gpu if counts.is_cuda else scan_taps
        scan(layer, self._table, values, slots, counts)  # type: ignore[arg-type]
        return counts


class _OneStep:
    """Neurons without memory of which only the last step is read: one product, whatever the number of steps."""

    def __init__(self, layer: HiddenLayer, levels_of_inputs: float, *, inputs_are_shared: bool) -> None:
        self._layer, self._levels, self._inputs_are_shared = layer, levels_of_inputs, inputs_are_shared

    @staticmethod
    def fits(layer: HiddenLayer, *, inputs_are_shared: bool) -> bool:
        """Return whether this is faster than going through all steps."""
        return layer.is_memoryless and (inputs_are_shared or layer.width >= _WIDE)

    def __getitem__(self, subnetworks: slice) -> "_OneStep":
        """Return some of the subnetworks."""
        return _OneStep(self._layer.take(subnetworks), self._levels, inputs_are_shared=self._inputs_are_shared)

    @property
    def size(self) -> int:
        """Number of values that taps can read."""
        return (self._layer.max_delay + 1) * self._layer.n_inputs

    @cached_property
    def _merged(self) -> HiddenLayer:
        """The neurons of all subnetworks as one, if they read the same inputs."""
        return as_one_subnetwork(self._layer) if self._inputs_are_shared else self._layer

    @cached_property
    def _weight(self) -> Tensor | TapProduct:
        return exact_weight(self._merged, self._levels)

    def spikes(self, block: Tensor, lengths: Tensor | None, scratch: ScratchArrays) -> Tensor:
        """Return the last spikes, (n_samples, n_subnetworks, width), for inputs as of :func:`drive_of`."""
        n_samples = block.shape[-2]
        drive = weighted_inputs(self._merged, self._weight, last_window(block, self._layer.max_delay, lengths), scratch)
        spikes = self._merged.scan(drive, self._merged.initial_state(n_samples)).movedim(0, -2)
        return spikes.reshape(n_samples, self._layer.n_subnetworks, self._layer.width)


def _fast_weights(layers: Sequence[HiddenLayer], inputs: Tensor, steps: Steps | int) -> list[RolledWeights]:
    """Return these weights, in other forms where those are faster: bytes for spikes, taps for a kernel, one step."""
    levels = [input_levels(inputs), *[1.0] * (len(layers) - 1)]
    weights: list[RolledWeights] = []
    for depth, (layer, level) in enumerate(zip(layers, levels, strict=True)):
        if depth == len(layers) - 1 and steps == "last" and _OneStep.fits(layer, inputs_are_shared=depth == 0):
            weights.append(_OneStep(layer, level, inputs_are_shared=depth == 0))
        elif _FusedTaps.fits(layer):
            weights.append(_FusedTaps(layer, product_dtype(layer.levels, level), inputs_are_shared=depth == 0))
        elif depth and not layer.has_delays and ByteWeights.pays(layer.weight, layer.weight_bits):
            weights.append(ByteWeights(layer.weight, layer.weight_bits))
        else:
            weights.append(exact_weight(layer, level))
    return weights


def _plan_blocks(
    layers: Sequence[HiddenLayer],
    weights: Sequence[RolledWeights],
    n_steps: int,
    steps: Steps | int,
    chunk_bytes: int,
    row_multiple: int,
) -> tuple[int, int]:
    """Return the rows and subnetworks per block for its largest array to fit into ``chunk_bytes``."""
    n_subnetworks = layers[0].n_subnetworks
    unit, most_rows, least_rows = 1, 2**62, _MIN_CHUNK_ROWS
    for depth, (layer, weight) in enumerate(zip(layers, weights, strict=True), 1):
        if isinstance(weight, _FusedTaps):
            n_bytes = n_steps
            if depth == len(layers):
                n_bytes = (
                    steps * count_dtype(n_steps, steps).itemsize if isinstance(steps, int) else _n_slots(steps, n_steps)
                )
            unit = max(unit, layer.width * n_bytes)
            if not layer.weight.is_cuda:  # the values that a kernel reads again and again stay in cache
                most_rows = min(most_rows, max(_MIN_CHUNK_ROWS, _CACHE_BYTES // (8 * n_steps * layer.n_inputs)))
        elif isinstance(weight, _OneStep):
            unit = max(unit, max(layer.width, weight.size) * layer.weight.element_size())
        else:
            n_values = max(layer.width, weight.size if isinstance(weight, TapProduct) else 0)
            unit = max(unit, n_steps * n_values * layer.weight.element_size())
    block_subnetworks = max(1, min(n_subnetworks, chunk_bytes // (unit * least_rows)))
    rows = max(1, min(most_rows, chunk_bytes // (unit * block_subnetworks)))
    return max(row_multiple, rows // row_multiple * row_multiple), block_subnetworks
