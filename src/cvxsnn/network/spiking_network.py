"""The spiking network: hidden layers whose spikes are exact, read out by a linear layer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..convex.losses import LOSSES
from ..convex.objective import decide_class
from ..core.checks import Array, check_positive_int, check_type
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.parallel import limit_threads
from ..data.sequences import Sequences, window_of_step
from ..dictionary import Readout
from ..dictionary.base import parse_readout
from ..neurons import NEURON_MODELS, HiddenLayer, LayerState, Stepper, roll_out
from ..neurons.layer import check_stack, check_whole
from ..neurons.reading import read_columns, roll_statistics
from ..neurons.rollout import count_spikes
from ..neurons.statistics import Counters, Statistic, column_entries

_BLOCK, _CACHED = 2**24, 2**21
"""Entries that are computed at once, and whole numbers that become entries at once: these stay in a cache."""


@dataclass(frozen=True)
class OutputHead:
    """Some of a network's outputs, and the loss that they were trained for.

    Parameters
    ----------
    name : str
        The name of the head.
    loss : str
        A key of :data:`cvxsnn.convex.losses.LOSSES`.
    start : int
        The first output column.
    stop : int
        The column after the last.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> [head.name for head in network.heads]
    ['label']
    """

    name: str
    loss: str
    start: int
    stop: int

    @property
    def columns(self) -> slice:
        """The outputs of this head."""
        return slice(self.start, self.stop)


def _few_threads(n_samples: int) -> AbstractContextManager[None]:
    """Let torch use one thread for a few samples: others would spin for milliseconds after each operation."""
    return limit_threads(1) if n_samples < 64 else nullcontext()


def decide(heads: Sequence[OutputHead], scores: Tensor) -> dict[str, Tensor]:
    """Return the class that each head decides for, from scores of shape (..., n_outputs)."""
    decisions = {}
    for head in heads:
        kind = LOSSES.get(head.loss)
        if kind is not None and kind.is_regression:
            raise InvalidInputError(
                f"expected a loss for classes, got head {head.name!r} with {head.loss!r}: call the network for scores"
            )
        # Several binary columns are one class against the rest each.
        decisions[head.name] = decide_class(scores[..., head.columns])
    return decisions


@dataclass(frozen=True, eq=False)
class NetworkState:
    """State of a network between two steps: its neurons, and the spike counts of those that are read.

    Parameters
    ----------
    stepper : Stepper
        Advances the hidden layers.
    layers : tuple of LayerState
        The state of each hidden layer.
    counts : Tensor of shape (n_samples, n_read), or Counters
        Spikes so far of each neuron that is read, within its window, for read-outs of means; for statistics, what they
        count.
    n_steps : int
        Steps so far.
    length : int, optional
        Total number of steps, if known.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> state = network.start(1)
    >>> for step in inputs[:1].transpose(1, 0, 2):
    ...     state, scores = network.step(state, step)
    >>> state.n_steps
    6
    """

    stepper: Stepper
    layers: tuple[LayerState, ...]
    counts: Tensor | Counters
    n_steps: int
    length: int | None = None

    @classmethod
    def before(
        cls, stepper: Stepper, n_samples: int, counts: Tensor, readout: Readout, length: int | None
    ) -> "NetworkState":
        """Return the state before the first step.

        Parameters
        ----------
        stepper : Stepper
            Advances the hidden layers.
        n_samples : int
            Number of sequences.
        counts : Tensor
            Zeros.
        readout : str
            What is read.
        length : int, optional
            Total number of steps; required for windows.

        Returns
        -------
        NetworkState
            The state.
        """
        parsed = parse_readout(readout)
        if length is None and parsed.kind == "mean" and parsed.n_windows > 1:
            raise InvalidInputError(
                f"expected the number of steps in advance to read {readout!r}, got none: pass n_steps"
            )
        length = None if length is None else check_positive_int("n_steps", length)
        started = Counters.start(n_samples, counts.shape[1], counts.device) if parsed.statistics else counts
        return cls(stepper, stepper.start(n_samples), started, 0, length)

    def after(
        self, layers: tuple[LayerState, ...], read: Tensor, readout: Readout, windows_read: Tensor | None
    ) -> tuple["NetworkState", Tensor]:
        """Return the state after one more step, and the features so far.

        Parameters
        ----------
        layers : tuple of LayerState
            The state of each hidden layer after the step.
        read : Tensor of shape (..., n_read), dtype float64
            The spikes of the step.
        readout : str
            What is read.
        windows_read : Tensor of shape (n_read,) or None
            The window in which each is read.

        Returns
        -------
        state : NetworkState
            The state one step later.
        features : Tensor of shape (..., n_read)
            The spikes or their means so far.
        """
        parsed, n_steps = parse_readout(readout), self.n_steps + 1
        if isinstance(self.counts, Counters):
            counters = self.counts.after(read)
            numbers = torch.stack([counters.number(name) for name in parsed.statistics])
            which = torch.zeros(read.shape[-1], dtype=torch.int64) if windows_read is None else windows_read
            mine = numbers.gather(0, which.expand(1, *read.shape))[0]
            features = column_entries(mine.T, which, parsed.statistics, n_steps).T
            return replace(self, layers=layers, counts=counters, n_steps=n_steps), features
        if parsed.kind != "mean":
            return replace(self, layers=layers, n_steps=n_steps), read
        if windows_read is None or self.length is None:
            counts, scale = self.counts + read, parsed.scale(n_steps)
        else:
            if n_steps > self.length:
                raise InvalidInputError(
                    f"expected the {plural(self.length, 'step')} passed to start, got one more: start again"
                )
            window = window_of_step(self.n_steps, parsed.n_windows, self.length)
            counts, scale = self.counts + read * (windows_read == window), parsed.scale(self.length)
        return replace(self, layers=layers, counts=counts, n_steps=n_steps), counts * scale

    @property
    def n_samples(self) -> int:
        """Number of sequences."""
        return self.layers[0].spikes.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the state is."""
        return self.layers[0].spikes.device

    def tensors(self) -> dict[str, Tensor]:
        """Return the state as named tensors, on its own memory.

        Returns
        -------
        dict of str to Tensor
            The tensors of the layers, the counts and the number of steps.
        """
        named = {"n_steps": torch.tensor(self.n_steps)}
        for depth, layer in enumerate(self.layers):
            parts = {"membrane": layer.membrane, "spikes": layer.spikes, "history": layer.history}
            parts |= {f"others.{number}": value for number, value in enumerate(layer.others)}
            named |= {f"layers.{depth}.{name}": value for name, value in parts.items() if value is not None}
        if isinstance(self.counts, Tensor):
            return named | {"counts": self.counts}
        counted = {name: value for name, value in vars(self.counts).items() if isinstance(value, Tensor)}
        return named | {f"counts.{name}": value for name, value in counted.items()}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "NetworkState":
        """Return a state with other values for the tensors of :meth:`tensors`.

        Parameters
        ----------
        tensors : mapping from str to Tensor
            All of the tensors, of the same shapes and types.

        Returns
        -------
        NetworkState
            The state.
        """
        n_steps = int(tensors["n_steps"])
        layers = []
        for depth, layer in enumerate(self.layers):
            mine = {name: tensors[f"layers.{depth}.{name}"] for name in ("membrane", "spikes")}
            others = tuple(tensors[f"layers.{depth}.others.{number}"] for number in range(len(layer.others)))
            layers.append(LayerState(**mine, history=tensors.get(f"layers.{depth}.history"), others=others))
        counts: Tensor | Counters
        if isinstance(self.counts, Tensor):
            counts = tensors["counts"]
        else:
            counted = {name: tensors[f"counts.{name}"] for name in vars(self.counts) if name != "n_steps"}
            counts = replace(self.counts, **counted, n_steps=n_steps)
        return replace(self, layers=tuple(layers), counts=counts, n_steps=n_steps)


class _HeldLayer(nn.Module):
    """The tensors of a hidden layer as buffers, which torch moves, copies and saves."""

    _layer: HiddenLayer | None = None

    def __init__(self, layer: HiddenLayer) -> None:
        super().__init__()
        self._kind, self._settings = type(layer), layer.settings()
        for name, value in layer.tensors().items():
            # A view would keep the whole larger tensor alive, and write all of it to every file.
            is_part = value.untyped_storage().nbytes() > value.nbytes
            self.register_buffer(name, value.clone() if is_part else value)

    @property
    def layer(self) -> HiddenLayer:
        """The layer, on the memory of the buffers: the same object as long as the buffers are, for what it keeps."""
        tensors, layer = dict(self.named_buffers()), self._layer
        if layer is None or any(getattr(layer, name) is not value for name, value in tensors.items()):
            layer = self._layer = self._kind.from_valid(tensors, self._settings)
        return layer

    def hold(self, layer: HiddenLayer) -> None:
        """Replace the tensors by those of a layer of the same kind."""
        for name, value in layer.tensors().items():
            setattr(self, name, value)

    def _load_from_state_dict(self, *args: Any) -> None:
        for name, value in dict(self.named_buffers()).items():
            setattr(self, name, value.clone())  # torch writes into them, and other tensors may share their memory
        super()._load_from_state_dict(*args)
        loaded: dict[str, Any] = dict(self.named_buffers())
        self.hold(self._kind(**loaded, **self._settings))  # the constructor checks the loaded values


class SpikingNetwork(nn.Module):
    """``n_subnetworks`` parallel stacks of spiking layers and one linear read-out of their last spikes.

    The hidden part has no gradient and its spikes are reproducible to the bit; :mod:`cvxsnn.fitting.surrogate` trains
    it. Its tensors are buffers, so that ``to``, ``state_dict`` and ``copy.deepcopy`` include them.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up, of registered neuron models.
    weight : Tensor of shape (n_read, n_outputs)
        The read-out.
    heads : sequence of OutputHead
        How the outputs are divided among the targets.
    intercept : Tensor of shape (n_outputs,), optional
        A constant per output; zero when not given.
    neurons : Tensor of shape (n_read,), dtype int64, optional
        The last layer's neurons that are read, ``subnetwork * width + neuron``; all of them when not given, each in
        every window. A neuron that is read in several windows is listed once for each.
    readout : "last", "all", "mean", "windows-k", or statistics such as "mean+burst"
        Read the spikes of the last step, of every step, their mean over the steps, their means in k windows of time, or
        statistics of them (:mod:`cvxsnn.neurons.statistics`).
    windows_read : Tensor of shape (n_read,), dtype int64, optional
        The window in which each of ``neurons`` is read, for readout "windows-k", or the number of its statistic; None
        for others.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import SpikingNetwork, gaussian_witnesses
    >>> from cvxsnn.network import OutputHead
    >>> witnesses = gaussian_witnesses(n_features=3, hidden=(8,), seed=0)
    >>> network = SpikingNetwork(witnesses.layers, torch.ones(8, 1), [OutputHead("label", "logistic", 0, 1)])
    >>> network
    SpikingNetwork(1 × (3 → 8), 8 neurons read → 1, last)
    >>> network(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 1])
    """

    weight: Tensor
    intercept: Tensor
    neurons: Tensor
    windows_read: Tensor | None

    def __init__(
        self,
        layers: Sequence[HiddenLayer],
        weight: Tensor,
        heads: Sequence[OutputHead],
        intercept: Tensor | None = None,
        neurons: Tensor | None = None,
        readout: Readout = "last",
        windows_read: Tensor | None = None,
    ) -> None:
        super().__init__()
        parsed, layers = parse_readout(readout), check_stack(layers)
        for layer in layers:
            NEURON_MODELS.of(layer)  # refuses unregistered neuron models
        self.stack = nn.ModuleList(_HeldLayer(layer) for layer in layers)
        n_neurons, n_windows = layers[-1].n_subnetworks * layers[-1].width, parsed.n_windows
        if neurons is None:
            all_columns = torch.arange(n_neurons * n_windows)
            columns = read_columns(layers, parsed.statistics) if parsed.statistics else all_columns
            neurons, windows_read = columns // n_windows, columns % n_windows if n_windows > 1 else windows_read
        if weight.ndim != 2 or len(weight) != len(neurons):
            raise InvalidInputError(
                f"expected one row of output weights for each of {plural(len(neurons), 'neuron')} that are read, got "
                f"shape {tuple(weight.shape)}"
            )
        n_listed = None if windows_read is None else len(windows_read)
        if n_listed != (len(weight) if n_windows > 1 else None):
            raise InvalidInputError(
                f"expected windows_read with the window or statistic of each of {plural(len(neurons), 'neuron')} for "
                f"a readout of several, and None for others, got {n_listed} for {parsed}"
            )
        _check_heads(heads, weight.shape[1])
        intercept = weight.new_zeros(weight.shape[1]) if intercept is None else intercept
        if tuple(intercept.shape) != (weight.shape[1],):
            raise InvalidInputError(
                f"expected an intercept for each of {plural(weight.shape[1], 'output')}, got shape "
                f"{tuple(intercept.shape)}"
            )
        self.heads, self.readout = tuple(heads), str(parsed)
        device, order = layers[0].weight.device, torch.contiguous_format
        self.weight = nn.Parameter(weight.detach().to(device, torch.float64, copy=True, memory_format=order))
        self.intercept = nn.Parameter(intercept.detach().to(device, torch.float64, copy=True))
        for name, index, limit in (("neurons", neurons, n_neurons), ("windows_read", windows_read, n_windows)):
            checked = None if index is None else check_whole(name, index, weight.shape[:1], limit)
            self.register_buffer(name, None if checked is None else checked.to(device, torch.int64))
        if parsed.statistics and not bool(torch.isin(self.columns, read_columns(layers, parsed.statistics)).all()):
            raise InvalidInputError("expected statistics that the neurons of the last layer name, got others")

    @property
    def layers(self) -> tuple[HiddenLayer, ...]:
        """The hidden layers, from the inputs up, on the memory of the buffers."""
        return tuple(held.layer for held in self.stack if isinstance(held, _HeldLayer))

    @property
    def n_features(self) -> int:
        """Inputs per step."""
        return self.layers[0].n_inputs

    @property
    def n_outputs(self) -> int:
        """Outputs of all heads together."""
        return self.weight.shape[1]

    @property
    def n_subnetworks(self) -> int:
        """Number of subnetworks, the paper's K."""
        return self.layers[0].n_subnetworks

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the hidden layers of one subnetwork."""
        return tuple(layer.width for layer in self.layers)

    @property
    def n_windows(self) -> int:
        """Windows of time that a neuron may be read in."""
        return parse_readout(self.readout).n_windows

    @property
    def n_active(self) -> int:
        """Neurons of the last layer that are read with a weight other than zero."""
        return len(torch.unique(self.neurons[self.weight.detach().any(1)]))

    @property
    def columns(self) -> Tensor:
        """The columns that are read, ``neuron * n_windows + window``, shape (n_read,)."""
        return self.neurons if self.windows_read is None else self.neurons * self.n_windows + self.windows_read

    def features(self, inputs: Sequences | Array) -> Tensor:
        """Return the spikes of the hidden neurons that the read-out uses.

        Parameters
        ----------
        inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
            The sequences.

        Returns
        -------
        Tensor of shape (n_samples, n_read) or (n_samples, n_steps, n_read), dtype float64
            The spikes of the last step, their mean, or those of every step.
        """
        sequences, parsed = Sequences.of(inputs).to(self.weight.device), parse_readout(self.readout)
        if parsed.kind == "statistics":
            (entries,) = self._iterate_statistics(sequences, parsed.statistics, len(sequences))
            return entries
        if parsed.kind != "mean":
            return roll_out(self.layers, sequences, parsed.kind)[..., self.columns].to(torch.float64)
        counts = count_spikes(self.layers, sequences, parsed.n_windows)[:, self.columns].to(torch.float64)
        steps = sequences.n_steps if sequences.lengths is None else sequences.lengths[:, None].to(torch.float64)
        # The mean of spikes is a count times a rounded reciprocal, as in the dictionary: the same to the last bit.
        return counts.mul_(parsed.scale(steps))

    def _iterate_statistics(
        self, sequences: Sequences, statistics: tuple[Statistic, ...], n_rows: int
    ) -> Iterator[Tensor]:
        """Yield the entries of ``n_rows`` sequences after the other."""
        columns, lengths = self.columns, sequences.lengths

        def entries(start: int) -> Tensor:
            rows = slice(start, start + n_rows)
            steps = sequences.n_steps if lengths is None else lengths[rows]
            with limit_threads(1):
                return column_entries(numbers[:, rows], columns % len(statistics), statistics, steps).T

        # The kernel has threads of its own; those of torch would spin beside it.
        with limit_threads(1):
            numbers = roll_statistics(self.layers, sequences, statistics, columns)
        yield from map(entries, range(0, len(sequences), n_rows))

    def forward(self, inputs: Sequences | Array) -> Tensor:
        """Return the scores.

        Parameters
        ----------
        inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
            The sequences.

        Returns
        -------
        Tensor of shape (n_samples, n_outputs), or (n_samples, n_steps, n_outputs) when every step is read
            The scores, in float64.
        """
        sequences = Sequences.of(inputs).to(self.weight.device)
        step = max(1, _BLOCK // max(1, len(self.neurons)))
        rows = torch.split(torch.arange(len(sequences), device=sequences.device), step)
        parts = [sequences] if len(rows) == 1 else [sequences.take(some) for some in rows]
        statistics = parse_readout(self.readout).statistics
        if statistics:
            n_rows = max(1, _CACHED // max(1, len(self.neurons)))
            blocks = (block for part in parts for block in self._iterate_statistics(part, statistics, n_rows))
        else:
            blocks = (self.features(part) for part in parts)
        return torch.cat([block @ self.weight for block in blocks]) + self.intercept

    @torch.no_grad()
    def predict(self, inputs: Sequences | Array) -> dict[str, npt.NDArray[np.int64]]:
        """Return the class that each head decides for.

        Parameters
        ----------
        inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
            The sequences.

        Returns
        -------
        dict of str to array of shape (n_samples,) or (n_samples, n_steps)
            The classes of each head.
        """
        return self.decide(self(inputs))

    def decide(self, scores: Tensor) -> dict[str, npt.NDArray[np.int64]]:
        """Return the class that each head decides for, given scores.

        Parameters
        ----------
        scores : Tensor of shape (..., n_outputs)
            Output of the network, or of a step.

        Returns
        -------
        dict of str to array of shape (...)
            The classes of each head.
        """
        return {head: classes.cpu().numpy() for head, classes in decide(self.heads, scores).items()}

    def start(self, n_samples: int, n_steps: int | None = None) -> NetworkState:
        """Return the state before the first step.

        Parameters
        ----------
        n_samples : int
            Number of sequences.
        n_steps : int, optional
            Length of the sequences. Required for windows of time; other read-outs do not need it.

        Returns
        -------
        NetworkState
            A state that :meth:`step` advances.
        """
        counts = torch.zeros(n_samples, len(self.neurons), dtype=torch.float64, device=self.weight.device)
        return NetworkState.before(Stepper(self.layers), n_samples, counts, self.readout, n_steps)

    @torch.no_grad()
    def step(self, state: NetworkState, inputs: Array) -> tuple[NetworkState, Tensor]:
        """Advance by one step. The state passed in does not change and can be advanced again.

        Parameters
        ----------
        state : NetworkState
            The state that :meth:`start` or an earlier step returned.
        inputs : array of shape (n_samples, n_features)
            One step of every sequence.

        Returns
        -------
        state : NetworkState
            The state one step later.
        scores : Tensor of shape (n_samples, n_outputs)
            The scores so far: of the spikes of this step or, for readout "mean", of their mean over the steps. Windows
            still to come count as silent, so the scores of the last step are those of the complete sequences.
        """
        with _few_threads(len(inputs)):
            layers, spikes = state.stepper.step(state.layers, inputs)
            read = spikes[:, self.neurons].to(torch.float64)
            state, features = state.after(layers, read, self.readout, self.windows_read)
        return state, features @ self.weight + self.intercept

    def with_readout(self, weight: Tensor, intercept: Tensor | None = None) -> Self:
        """Return a network of the same neurons with other output weights.

        Parameters
        ----------
        weight : Tensor of shape (n_read, n_outputs)
            The read-out.
        intercept : Tensor of shape (n_outputs,), optional
            A constant per output; zero when not given.

        Returns
        -------
        SpikingNetwork
            A new network.
        """
        return type(self)(self.layers, weight, self.heads, intercept, self.neurons, self.readout, self.windows_read)

    def with_layers(self, layers: Sequence[HiddenLayer]) -> Self:
        """Return a network with other hidden neurons that are read in the same way.

        Parameters
        ----------
        layers : sequence of HiddenLayer
            As many layers of as many neurons.

        Returns
        -------
        SpikingNetwork
            A new network.
        """
        read = (self.neurons, self.readout, self.windows_read)
        return type(self)(layers, self.weight, self.heads, self.intercept, *read)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move and convert the membranes as torch asks for; scores stay in float64."""
        weight = self.layers[0].weight
        # torch passes a function and not what it does: an empty tensor shows which type and device it converts to.
        probe = fn(torch.empty(0, dtype=weight.dtype, device=weight.device))
        if probe.dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(f"expected membranes in float32 or float64, got {probe.dtype}")
        for held, layer in zip(self.stack, self.layers, strict=True):
            held.hold(layer.to(probe.device, probe.dtype))  # type: ignore[operator]
        super()._apply(lambda value: value.to(probe.device), recurse=False)  # type: ignore[no-untyped-call]
        return self

    def __repr__(self) -> str:
        """Return sizes on one line."""
        shape = " → ".join(map(str, (self.n_features, *self.hidden)))
        longest = max(layer.max_delay for layer in self.layers)
        delays = f", delays up to {longest}" if longest else ""
        read = f"{len(self.neurons)} {parse_readout(self.readout).columns_are} read"
        sizes = f"{self.n_subnetworks} × ({shape}){delays}, {read} → {self.n_outputs}, {self.readout}"
        return f"{type(self).__name__}({sizes})"


def check_network(network: object) -> None:
    """Refuse anything but a :class:`SpikingNetwork`."""
    advice = "convert networks of other libraries with cvxsnn.exchange first"
    check_type(network, SpikingNetwork, "a SpikingNetwork, such as the network_ of a fitted estimator", advice)


def _check_heads(heads: Sequence[OutputHead], n_outputs: int) -> None:
    """Refuse heads that do not divide the outputs in order, or whose names are not distinct."""
    bounds = [0, *(head.stop for head in heads)]
    are_adjacent = [*(head.start for head in heads), n_outputs] == bounds == sorted(set(bounds))
    are_plain = all(  # a file may hold anything
        isinstance(head.name, str) and isinstance(head.loss, str) and type(head.start) is type(head.stop) is int
        for head in heads
    )
    if not are_plain or not are_adjacent or len({head.name for head in heads}) < len(heads):
        raise InvalidInputError(f"expected heads that cover {plural(n_outputs, 'output')} in order, got {list(heads)}")
