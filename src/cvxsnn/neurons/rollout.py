"""Rolling many subnetworks through many sequences: spikes in, spikes out.

Layers never feed the layers below, so the stack is rolled out layer by layer, not step by step: the drive of a layer at
all steps is one exact matrix product; an elementwise scan over time follows, which stays in cache. LIF layers
with delays are one kernel each, which sums over taps, scans and counts. Arrays are time-major in here, in
``weights.py``, in ``taps.py`` and in the kernels, and nowhere else.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from ..core import gpu
from ..core.checks import Array, check_choice, check_positive_int
from ..core.memory import share_of
from ..data.sequences import Sequences, similar_lengths, window_of_step
from .exact import ScratchArrays, snap_inputs
from .gpu_kernels import can_scan, scan_taps_gpu
from .layer import HiddenLayer, check_stack
from .lif import LIFLayer
from .tap_kernel import TapTable, scan_taps
from .taps import last_window
from .weights import ByteWeights, ExactWeights, exact_weights

Steps = Literal["last", "all"] | int
"""The spikes of the last step or of all steps, or their counts in a number of windows."""

CHUNK_BYTES, CHUNK_BYTES_GPU = 16 * 2**20, 2**30
"""Default size of the largest array that a roll-out holds at once: about one L3 cache; on a GPU, enough work for each
of its kernels."""


def roll_out(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    steps: Literal["last", "all"] = "last",
    *,
    chunk_bytes: int | None = None,
) -> Tensor:
    """Return the spikes of the last hidden layer.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up. Computation takes place on the device of ``inputs``, in the dtype of the layers.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences. If they differ in length, the last step is each sequence's own, and no neuron fires in the
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
    return _collect(layers, inputs, check_choice("steps", steps, ("last", "all")), chunk_bytes)  # type: ignore[arg-type]


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
    return _collect(layers, inputs, check_positive_int("n_windows", n_windows)).flatten(1)


def _collect(
    layers: Sequence[HiddenLayer], inputs: Sequences | Array, steps: Steps, chunk_bytes: int | None = None
) -> Tensor:
    """Return all blocks of :func:`iterate_rollout` in one array."""
    sequences = Sequences.of(inputs)
    top = check_stack(layers, sequences.n_features)[-1]
    n_columns = top.n_subnetworks * top.width * (steps if isinstance(steps, int) else 1)
    shape = (len(sequences), *([sequences.n_steps] if steps == "all" else []), n_columns)
    collected = torch.empty(shape, dtype=_dtype(steps, sequences.n_steps), device=sequences.device)
    for rows, columns, block in iterate_rollout(layers, sequences, steps, chunk_bytes=chunk_bytes):
        collected[rows, ..., columns] = block
    return collected


def _dtype(steps: Steps, n_steps: int) -> torch.dtype:
    """Return the type of spikes, or the narrowest one that holds the spike counts of a window."""
    if not isinstance(steps, int):
        return torch.bool
    return torch.uint8 if -(-n_steps // steps) <= torch.iinfo(torch.uint8).max else torch.int32


def iterate_rollout(
    layers: Sequence[HiddenLayer],
    inputs: Sequences | Array,
    steps: Steps = "last",
    *,
    chunk_bytes: int | None = None,
    row_multiple: int = 1,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield ``(rows, columns, spikes[rows, ..., columns])`` of :func:`roll_out` block by block.

    If ``steps`` is a number of windows, yield the counts of :func:`count_spikes`. Every block but the last of a column
    range starts and ends at a multiple of ``row_multiple``. A block may be overwritten by the next.
    """
    sequences = Sequences.of(inputs)
    (n_samples, n_steps, n_features), device = sequences.inputs.shape, sequences.device
    if chunk_bytes is None:
        chunk_bytes = share_of(device, CHUNK_BYTES_GPU) if gpu.is_gpu(device) else CHUNK_BYTES
    check_positive_int("chunk_bytes", chunk_bytes)
    layers = [layer.to(device) for layer in check_stack(layers, n_features)]
    inside = sequences.is_inside()
    layers[0].check_inputs(sequences.inputs if inside is None else sequences.inputs[inside])
    levels = layers[0].levels_of(sequences.inputs)
    scratch = ScratchArrays()
    n_subnetworks = layers[0].n_subnetworks
    n_columns = layers[-1].width * (steps if isinstance(steps, int) else 1)
    stack = _fastest(layers, levels, steps)
    n_bytes = max(layer.bytes_per_row(n_steps, steps if layer is stack[-1] else "all") for layer in stack)
    # Fewer than 64 rows waste a matrix product: rather take fewer subnetworks at once.
    block_subnetworks = max(1, min(n_subnetworks, chunk_bytes // (n_bytes * 64)))
    block_rows = min(chunk_bytes // (n_bytes * block_subnetworks), *(layer.most_rows(n_steps) for layer in stack))
    block_rows = max(row_multiple, max(1, block_rows) // row_multiple * row_multiple)
    for k in range(0, n_subnetworks, block_subnetworks):
        subnetworks = slice(k, min(k + block_subnetworks, n_subnetworks))
        columns = slice(k * n_columns, subnetworks.stop * n_columns)
        if block_subnetworks < n_subnetworks:
            stack = _fastest([layer.take(subnetworks) for layer in layers], levels, steps)
        for i in range(0, n_samples, block_rows):
            rows = slice(i, min(i + block_rows, n_samples))
            block = _roll_rows(stack, sequences.take(rows), steps, scratch)
            yield rows, columns, block.flatten(1 if isinstance(steps, int) else -2)


class RolledLayer(ABC):
    """A layer in a form in which the roll-out is fast.

    Parameters
    ----------
    layer : HiddenLayer
        The layer.
    levels : float
        The largest integer among the values that it reads (:func:`cvxsnn.neurons.exact.input_levels`).
    is_first : bool
        Whether it reads the inputs, which all subnetworks share, and not spikes.
    """

    def __init__(self, layer: HiddenLayer, levels: float, is_first: bool) -> None:
        self.layer = layer
        self.levels = levels
        self.is_first = is_first

    @abstractmethod
    def bytes_per_row(self, n_steps: int, steps: Steps) -> int:
        """Return the size of the largest array per sequence and subnetwork."""

    def most_rows(self, n_steps: int) -> int:
        """Return the number of sequences above which the layer would be slower."""
        return 2**62

    @abstractmethod
    def spikes(self, block: Tensor, scratch: ScratchArrays, name: str) -> Tensor:
        """Return the spikes of all steps, (n_subnetworks, n_steps, n_samples, width).

        ``block`` has the inputs (n_steps, n_samples, n_inputs), or K of those.
        """

    @abstractmethod
    def read(self, block: Tensor, steps: Steps, lengths: Tensor | None, scratch: ScratchArrays) -> Tensor:
        """Return the spikes, (n_samples, [n_steps,] K, width), or the counts, (n_samples, K, width, n_windows)."""


class _Driven(RolledLayer):
    """One exact product for the drives of all steps, then a scan over time."""

    @cached_property
    def _weights(self) -> ExactWeights:
        if not self.is_first and ByteWeights.pays(self.layer):
            return self.layer.kept("bytes", ByteWeights)
        return exact_weights(self.layer, self.levels)

    def bytes_per_row(self, n_steps: int, steps: Steps) -> int:
        n_values = self.layer.n_lifted if self.layer.has_delays else 0
        return n_steps * max(self.layer.width, n_values) * self.layer.weight.element_size()

    def _drive(self, block: Tensor, scratch: ScratchArrays) -> Tensor:
        return self._weights.drive(self._weights.lift(block), scratch)

    def spikes(self, block: Tensor, scratch: ScratchArrays, name: str) -> Tensor:
        drive = self._drive(block, scratch)
        spikes = scratch.array(name, tuple(drive.shape), torch.bool, drive.device)
        self.layer.scan(drive, self.layer.initial_state(drive.shape[2]), spikes)
        return spikes

    def read(self, block: Tensor, steps: Steps, lengths: Tensor | None, scratch: ScratchArrays) -> Tensor:
        if steps == "last" and lengths is None:  # no need to store the spikes of other steps
            state = self.layer.initial_state(block.shape[-2])
            return self.layer.scan(self._drive(block, scratch), state).movedim(0, -2)
        spikes = self.spikes(block, scratch, "spikes").permute(2, 1, 0, 3)
        if isinstance(steps, int):
            return _count_windows(spikes, _slots(steps, spikes.shape[1], lengths, block.device), steps)
        if lengths is None:
            return spikes
        if steps == "last":
            return spikes[torch.arange(len(lengths), device=lengths.device), lengths - 1]
        inside = torch.arange(spikes.shape[1], device=lengths.device) < lengths[:, None]
        return spikes & inside[:, :, None, None]


class _OneStep(_Driven):
    """Neurons without memory, read at the last step only: one product, whatever the number of steps."""

    def bytes_per_row(self, n_steps: int, steps: Steps) -> int:
        return max(self.layer.width, self.layer.n_lifted) * self.layer.weight.element_size()

    @cached_property
    def _weights(self) -> ExactWeights:
        """The weights of the neurons, side by side in one subnetwork if all subnetworks read the same inputs."""
        merged = self.layer.kept("side by side", type(self.layer).side_by_side) if self.is_first else self.layer
        return exact_weights(merged, self.levels)

    def read(self, block: Tensor, steps: Steps, lengths: Tensor | None, scratch: ScratchArrays) -> Tensor:
        drive = self._weights.drive(last_window(self.layer.view(block), self.layer.max_delay, lengths), scratch)
        merged = self._weights.layer
        spikes = merged.scan(drive, merged.initial_state(block.shape[-2])).movedim(0, -2)
        return spikes.reshape(-1, self.layer.n_subnetworks, self.layer.width)


class _FusedTaps(RolledLayer):
    """LIF neurons with delays, as one kernel that sums over taps, advances the membranes and counts spikes."""

    layer: LIFLayer

    def bytes_per_row(self, n_steps: int, steps: Steps) -> int:
        n_slots = n_steps if steps == "all" else steps if isinstance(steps, int) else 1
        return self.layer.width * n_slots * _dtype(steps, n_steps).itemsize

    def most_rows(self, n_steps: int) -> int:
        # The values that a kernel reads at each of many neurons stay in the L2 cache of about 2 MiB.
        n_rows = 2**62 if gpu.is_gpu(self.layer.weight.device) else 2**21 // (8 * n_steps * self.layer.n_inputs)
        return max(64, n_rows)

    @cached_property
    def _table(self) -> TapTable:
        make = partial(TapTable.of, inputs_are_shared=self.is_first)
        return self.layer.kept_for_levels(("taps", self.is_first), self.levels, make)

    def _count(self, block: Tensor, steps: Steps, lengths: Tensor | None = None) -> Tensor:
        """Return counts (K, width, n_slots, n_samples) for (n_steps, n_samples, n_inputs), or K of those.

        A slot is a window or, with "all" or "last", one step, whose count is its spike.
        """
        n_steps, n_samples = block.shape[-3:-1]
        values = block.permute(0, 2, 1) if block.ndim == 3 else block.permute(1, 0, 3, 2).flatten(1, 2)
        is_read_as_bytes = (
            gpu.is_gpu(values.device) and values.dtype == torch.bool
        )  # spikes: a byte is a quarter of a float32 to load
        values = values.contiguous().view(torch.uint8) if is_read_as_bytes else values.to(self._table.weight.dtype)
        n_slots = steps if isinstance(steps, int) else n_steps if steps == "all" else 1
        dtype = _dtype(steps, n_steps)
        shape = (self.layer.n_subnetworks * self.layer.width, n_slots, n_samples)
        counts = torch.zeros(shape, dtype=torch.uint8 if dtype == torch.bool else dtype, device=block.device)
        scan = scan_taps_gpu if gpu.is_gpu(counts.device) else scan_taps
        scan(self.layer, self._table, values.contiguous(), _slots(steps, n_steps, lengths, block.device), counts)
        return counts.view(dtype).view(self.layer.n_subnetworks, self.layer.width, n_slots, n_samples)

    def spikes(self, block: Tensor, scratch: ScratchArrays, name: str) -> Tensor:
        return self._count(block, "all").permute(0, 2, 3, 1)

    def read(self, block: Tensor, steps: Steps, lengths: Tensor | None, scratch: ScratchArrays) -> Tensor:
        counts = self._count(block, steps, lengths)
        if isinstance(steps, int):
            return counts.permute(3, 0, 1, 2)
        return counts.permute(3, 2, 0, 1) if steps == "all" else counts[:, :, 0].permute(2, 0, 1)


def _fastest(layers: Sequence[HiddenLayer], levels_of_inputs: float, steps: Steps) -> list[RolledLayer]:
    """Return each layer in its fastest form."""
    rolled: list[RolledLayer] = []
    for layer in layers:
        is_first = not rolled
        is_top = len(rolled) == len(layers) - 1
        device = layer.weight.device
        form: type[RolledLayer] = _Driven
        # With fewer than 64 neurons, a product per subnetwork is mostly overhead.
        if steps == "last" and is_top and layer.is_memoryless and (is_first or layer.width >= 64):
            form = _OneStep
        # The exact type: a subclass may have another equation, which the kernels do not know.
        elif layer.has_delays and type(layer) is LIFLayer and (not gpu.is_gpu(device) or can_scan(device)):
            form = _FusedTaps
        rolled.append(form(layer, levels_of_inputs if is_first else 1.0, is_first))
    return rolled


def _roll_rows(layers: Sequence[RolledLayer], sequences: Sequences, steps: Steps, scratch: ScratchArrays) -> Tensor:
    """Roll a block, sequences of similar length together, so that no time is spent on padding."""
    if sequences.lengths is None:
        return _roll_block(layers, sequences, steps, scratch)
    (n_samples, n_steps), top = sequences.inputs.shape[:2], layers[-1].layer
    shape: tuple[int, ...] = (n_samples, top.n_subnetworks, top.width)
    if steps != "last":
        shape = (n_samples, n_steps, *shape[1:]) if steps == "all" else (*shape, steps)
    block = torch.zeros(shape, dtype=_dtype(steps, n_steps), device=sequences.device)
    for rows in similar_lengths(sequences.lengths):
        part = sequences.take(rows).trim()
        rolled = _roll_block(layers, part, steps, scratch)
        if steps == "all":
            block[rows, : part.n_steps] = rolled
        else:
            block[rows] = rolled.to(block.dtype)
    return block


def _roll_block(layers: Sequence[RolledLayer], sequences: Sequences, steps: Steps, scratch: ScratchArrays) -> Tensor:
    block = snap_inputs(sequences.inputs).transpose(0, 1)
    for depth, layer in enumerate(layers[:-1]):
        # Two arrays in turn: a layer reads one while it writes the other.
        block = layer.spikes(block, scratch, f"spikes{depth % 2}")
    return layers[-1].read(block, steps, sequences.lengths, scratch)


def _slots(steps: Steps, n_steps: int, lengths: Tensor | None, device: torch.device) -> Tensor:
    """Return where each step is counted, of shape (n_steps, 1), or (n_steps, n_samples) for unequal lengths.

    That is its own number for all steps, zero for the last one, or its window; negative for steps that are not counted.
    """
    step = torch.arange(n_steps, dtype=torch.int32, device=device)[:, None]
    n = torch.tensor([n_steps], device=device) if lengths is None else lengths
    if steps == "last":
        return (step == n - 1).to(torch.int32) - 1
    slots = step if steps == "all" else window_of_step(step, steps, n)
    return torch.where(step < n, slots, -1).to(torch.int32)


def _count_windows(spikes: Tensor, slots: Tensor, n_windows: int) -> Tensor:
    """Return counts (n_samples, K, width, n_windows) of spikes (n_samples, n_steps, K, width)."""
    n_samples, n_steps, *neurons = spikes.shape
    counts = torch.empty(n_samples, *neurons, n_windows, dtype=_dtype(n_windows, n_steps), device=spikes.device)
    for window in range(n_windows):
        chosen = slots == window
        is_common = slots.shape[1] == 1
        counted = spikes[:, chosen[:, 0]] if is_common else spikes & chosen.T[:, :, None, None]
        # Read as bytes and summed in bytes: otherwise torch makes a copy in the type of the sum first.
        counts[..., window] = counted.view(torch.uint8).sum(1, dtype=counts.dtype)
    return counts
