"""Networks as models of NeuroBench, so that its metrics can count their operations.

NeuroBench watches linear layers and neurons through hooks. :class:`NeuroBenchNetwork` is the network in such modules:
every synaptic layer is a linear layer that reads whole sequences, every hidden layer a module of neurons that is called
once per step, and the read-out is a linear layer that reads spikes. Scores are those of the network.

What its metrics count:

* *SynapticOperations*: the additions (ACs) and multiplications (MACs) of
  :func:`cvxsnn.network.energy.count_operations`, with two differences. Inputs of -1 are ACs, and whether a layer
  multiplies is decided batch by batch. A synapse with a delay is counted when the spike arrives. "Dense" counts all
  steps of all synapses, less those at which a delayed synapse reads what was before the sequence; a mean over steps
  counts every step.
* *ConnectionSparsity*: synapses of weight zero, as a share of the synapses that exist. There are no synapses between
  subnetworks, and none from inputs that a neuron with delays does not read. NeuroBench has no notion of delays, so it
  treats such a network like one without.
* *Footprint*: the bytes of weights, of the parameters of the neurons, of sources and delays in the narrowest integers
  that hold them, and of the past inputs that delays need for one sequence. A parameter that all neurons of a layer
  share is one number. Membranes are not counted, as those of snnTorch's neurons are not.
* *ActivationSparsity*: hidden neurons only.
* *MembraneUpdates*: membranes that changed; neurons whose membranes stay as they are cost nothing.

NeuroBench keeps all spikes and membranes of a batch: use small batches for large networks. This module needs
NeuroBench, and ``cvxsnn.exchange`` does not import it: ``from cvxsnn.exchange.neurobench import NeuroBenchNetwork``.
"""

import io
import math
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from ..core.checks import check_choice, check_positive_int, check_type
from ..core.errors import CvxsnnError, InvalidInputError
from ..core.formatting import align, plural
from ..core.libraries import import_library
from ..data.sequences import as_inputs, window_of_step
from ..dictionary.base import parse_readout
from ..estimators import SpikingClassifier, SpikingRegressor
from ..estimators.pipelines import network_of
from ..network.spiking_network import SpikingNetwork
from ..neurons import HiddenLayer, LIFLayer
from ..neurons.exact import snap_inputs

__all__ = ["LeaderboardRow", "NeuroBenchForecaster", "NeuroBenchNetwork", "leaderboard_row"]

_Model: Any = import_library("neurobench.models", "neurobench").NeuroBenchModel
_Neuron: Any = import_library("snntorch", "neurobench").SpikingNeuron


class Synapses(nn.Linear):
    """Weighted sums over inputs or spikes, with or without delays, as a linear layer.

    Sums are computed in float64, and rounded once to the type of the layer.

    Parameters
    ----------
    weight : Tensor of shape (n_neurons, n_taps)
        The weights.
    bias : Tensor of shape (n_neurons,) or None
        A constant per neuron.
    n_groups : int
        The number of blocks of neurons. Each block reads its own values, all of them.
    **taps : Tensor
        With delays: ``source`` and ``delay`` of shape (n_neurons, n_taps), the value that each synapse reads and its
        delay in steps, and ``past`` of shape (max_delay, n_values), the zeros that delayed synapses read at first.
    """

    bias: nn.Parameter | None  # type: ignore[assignment]
    past: Tensor | None
    source: Tensor | None
    delay: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None, n_groups: int = 1, **taps: Tensor) -> None:
        nn.Module.__init__(self)  # that of a linear layer would draw random weights
        self.out_features, self.in_features = weight.shape
        self.n_groups = n_groups
        self.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), requires_grad=False)
        for name in ("past", "source", "delay"):
            self.register_buffer(name, taps.get(name))

    @classmethod
    def of(cls, layer: HiddenLayer, depth: int) -> "Synapses":
        """Return the synapses of a hidden layer; in the first, all subnetworks read the same inputs."""
        weight, bias = _by_neuron(layer.weight), layer.bias.flatten()
        n_groups = 1 if depth == 0 else layer.n_subnetworks
        if not layer.has_delays:
            return cls(weight, bias, n_groups)
        offset = layer.n_inputs * torch.arange(n_groups, device=weight.device)
        source = _by_neuron(layer.source.long() + offset[:, None, None])
        # Synapses of weight zero may have longer delays than those that are read.
        delay = _by_neuron(layer.delay * (layer.weight != 0))
        kind = torch.float32 if depth == 0 else torch.bool
        past = torch.zeros(layer.max_delay, n_groups * layer.n_inputs, dtype=kind, device=weight.device)
        return cls(weight, bias, n_groups, past=past, source=_narrow(source), delay=_narrow(delay))

    def forward(self, values: Tensor) -> Tensor:
        """Return sums (..., n_neurons) for values (..., n_values), which have steps before the last axis for delays."""
        values, weight = values.to(torch.float64), self.weight.to(torch.float64)
        if self.past is None or self.source is None or self.delay is None:
            groups = torch.unflatten(values, -1, (self.n_groups, -1)), torch.unflatten(weight, 0, (self.n_groups, -1))
            sums = torch.einsum("...gi,goi->...go", *groups).flatten(-2)
        else:
            past = self.past.to(torch.float64).expand(len(values), -1, -1)
            # A view: at each step, the values of that step and of those before it, the oldest first.
            lifted = torch.cat((past, values), dim=1).unfold(1, len(self.past) + 1, 1)
            position = len(self.past) - self.delay.long()
            sums = values.new_zeros(*values.shape[:2], self.out_features)
            for source, age, tap_weight in zip(self.source.long().T, position.T, weight.T, strict=True):
                sums.addcmul_(lifted[:, :, source, age], tap_weight)
        rounded = sums.to(self.weight.dtype)
        # NeuroBench adds these up, in float64 without rounding.
        return (rounded if self.bias is None else rounded + self.bias).to(torch.float64)


class Neurons(_Neuron):  # type: ignore[misc]
    """The neurons of one hidden layer, called once per step.

    Parameters
    ----------
    layer : HiddenLayer
        The layer.
    """

    def __init__(self, layer: HiddenLayer) -> None:
        nn.Module.__init__(self)  # that of snnTorch's neurons would register parameters of its own
        self.init_hidden, self.output = True, False  # NeuroBench: forward returns spikes only
        tensors = layer.tensors()
        for name, value in tensors.items():
            if name not in ("weight", "bias", "source", "delay", "recurrent_weight"):  # these belong to synapses
                is_shared = bool((value == value.flatten()[0]).all())
                self.register_buffer(name, value[:1, :1].clone() if is_shared else value.clone())
        self.recurrent: Synapses | None = None
        if layer.recurrence is not None and bool(layer.recurrence.any()):
            self.recurrent = Synapses(_by_neuron(layer.recurrence), n_groups=layer.n_subnetworks)
        # Drives come from other modules, so the layer itself reads nothing.
        silent = {"weight": torch.zeros_like(layer.weight[:, :1]), "bias": torch.zeros_like(layer.bias)}
        kept = {name: value for name, value in tensors.items() if name not in ("source", "delay")}
        self._layer = type(layer).from_valid(kept | silent, layer.settings())

    def start(self, n_samples: int) -> None:
        """Begin a batch of sequences."""
        self._layer = self._layer.to(self.get_buffer("initial_spikes").device)
        self._state = self._layer.initial_state(n_samples)
        self.mem = self._state.membrane

    def forward(self, drive: Tensor) -> Tensor:
        """Return the spikes (n_samples, n_neurons) of one step, for weighted inputs of the same shape."""
        if self.recurrent is not None:
            # Only for NeuroBench to count: the layer computes these sums itself.
            self.recurrent(_flat(self._state.spikes))
        state = self._state.copy()  # hooks keep those of all steps
        drives = torch.unflatten(drive.to(state.membrane.dtype), 1, state.membrane.shape[::2])
        self._layer.step(drives.transpose(0, 1).contiguous(), state)
        self._state, self.mem = state, state.membrane
        return _flat(state.spikes != 0)


class Leaky(Neurons):
    """LIF neurons, under the name by which NeuroBench knows the operations of their updates."""

    _reset_mechanism = "subtract"


class HookedNetwork(nn.Module):
    """A network in modules that NeuroBench's hooks see.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    dtype : torch.dtype
        The type of the read-out.
    scale : pair of arrays, optional
        Subtract the first from the inputs, and divide them by the second.
    """

    neurons: Tensor | None
    windows: Tensor | None
    mean: Tensor | None
    scale: Tensor | None
    past_values: Tensor | None

    def __init__(self, network: SpikingNetwork, dtype: torch.dtype, scale: Any = None) -> None:
        super().__init__()
        stack: list[nn.Module] = []
        for depth, layer in enumerate(network.layers):
            stack += [Synapses.of(layer, depth), (Leaky if isinstance(layer, LIFLayer) else Neurons)(layer)]
        self.layers = nn.ModuleList(stack)
        self.readout = Synapses(network.weight.detach().T.to(dtype))
        self.intercept = nn.Parameter(network.intercept.detach().to(dtype, copy=True), requires_grad=False)
        n_neurons = network.layers[-1].n_subnetworks * network.layers[-1].width
        reads_all = torch.equal(network.neurons.cpu(), torch.arange(n_neurons))
        self.register_buffer("neurons", None if reads_all else _narrow(network.neurons))
        self.register_buffer("windows", None if network.windows_read is None else _narrow(network.windows_read))
        self.register_buffer("past_values", None)
        is_scaled = scale is not None and (scale[0].any() or (scale[1] != 1).any())
        for name, values in zip(("mean", "scale"), scale if is_scaled else (None, None), strict=True):
            self.register_buffer(name, None if values is None else torch.tensor(values, device=self.intercept.device))
        self.n_features, self._parsed = network.n_features, parse_readout(network.readout)
        self.eval()

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scores of sequences (n_samples, n_steps, n_features)."""
        values = as_inputs(inputs).to(self.intercept.device, torch.float64)
        if values.shape[-1] != self.n_features:
            raise InvalidInputError(f"expected {plural(self.n_features, 'feature')} per step, got {values.shape[-1]}")
        if self.mean is not None and self.scale is not None:
            values = (values - self.mean) / self.scale
        block = snap_inputs(values)
        for synapses, neurons in zip(self.layers[::2], self.layers[1::2], strict=True):
            neurons.start(len(block))  # type: ignore[operator]
            block = torch.stack([neurons(drive) for drive in synapses(block).unbind(1)], dim=1)
        n_steps = block.shape[1]
        read = block[:, -1] if self._parsed.kind == "last" else block
        read = read if self.neurons is None else read[..., self.neurons.long()]
        if self.windows is not None:
            now = window_of_step(torch.arange(n_steps, device=block.device), self._parsed.n_windows, n_steps)
            read = read & (now[:, None] == self.windows)
        sums: Tensor = self.readout(read)
        if self._parsed.kind == "mean":
            sums = sums.sum(1) * self._parsed.scale(n_steps)
        return sums + self.intercept


def _by_neuron(values: Tensor) -> Tensor:
    """Return values (n_subnetworks, n_taps, width) as (n_neurons, n_taps)."""
    return values.transpose(1, 2).flatten(0, 1)


def _flat(values: Tensor) -> Tensor:
    """Return values (n_subnetworks, n_samples, width) as (n_samples, n_neurons)."""
    return values.transpose(0, 1).flatten(1)


def _narrow(values: Tensor) -> Tensor:
    """Return whole numbers of zero or more in the narrowest type that holds them."""
    largest = int(values.max()) if values.numel() else 0
    kinds = (torch.uint8, torch.int16, torch.int32, torch.int64)
    return values.to(next(kind for kind in kinds if largest <= torch.iinfo(kind).max))


class NeuroBenchNetwork(_Model):  # type: ignore[misc]
    """A network or a fitted estimator as a model of NeuroBench.

    Inputs are tensors (n_samples, n_steps, n_features). A network returns scores; pass a postprocessor such as
    ``lambda scores: scores.argmax(-1)`` for classes. A classifier returns its labels, or if those are not numbers their
    positions in ``classes_``; a regressor returns what its ``predict`` returns.

    Parameters
    ----------
    model : SpikingNetwork, SpikingClassifier or SpikingRegressor
        The network, or a fitted estimator.
    dtype : torch.dtype, default=torch.float64
        The type of the read-out. In float32 it takes half of the memory, and its weights are rounded.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> from neurobench.benchmarks import Benchmark
    >>> from neurobench.metrics.static import Footprint
    >>> from neurobench.metrics.workload import ActivationSparsity
    >>> from cvxsnn import SpikingNetwork, gaussian_witnesses
    >>> from cvxsnn.exchange.neurobench import NeuroBenchNetwork
    >>> from cvxsnn.network import OutputHead
    >>> witnesses = gaussian_witnesses(n_features=3, hidden=(8,), seed=0)
    >>> network = SpikingNetwork(witnesses.layers, torch.ones(8, 1), [OutputHead("label", "logistic", 0, 1)])
    >>> data = DataLoader(TensorDataset(torch.zeros(4, 5, 3), torch.zeros(4)), batch_size=2)
    >>> metrics = [[Footprint], [ActivationSparsity]]
    >>> sorted(Benchmark(NeuroBenchNetwork(network), data, [], [], metrics).run(quiet=True))
    ['ActivationSparsity', 'Footprint']
    """

    def __init__(
        self, model: SpikingNetwork | SpikingClassifier | SpikingRegressor, *, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        if dtype not in (torch.float32, torch.float64):
            raise InvalidInputError(f"expected dtype to be torch.float32 or torch.float64, got {dtype!r}")
        self.estimator = None if isinstance(model, SpikingNetwork) else model
        self.net = HookedNetwork(network_of(model), dtype, getattr(model, "input_scale_", None))
        self.add_activation_module(Neurons)

    def __call__(self, batch: Tensor) -> Tensor:
        """Return scores, labels or predictions of a batch of sequences."""
        scores: Tensor = self.net(batch)
        if self.estimator is None:
            return scores
        predicted = self.estimator.decide(scores.cpu().numpy())
        if isinstance(self.estimator, SpikingClassifier) and self.estimator.classes_.dtype.kind in "biuf":
            predicted = self.estimator.classes_[predicted]
        return torch.from_numpy(predicted).to(scores.device)

    def __net__(self) -> nn.Module:
        """Return the modules that NeuroBench counts."""
        return self.net


class NeuroBenchForecaster(NeuroBenchNetwork):
    """A model that forecasts a series from its own predictions, as in NeuroBench's task of chaotic functions.

    A batch holds the values of successive times, (n_times, 1, n_features). Only the first is used: the model predicts
    the next value from it and the history, then goes on from its own predictions, and returns (n_times, n_features).
    Each prediction reads its window of the past from the start, and all of these operations are counted.

    Parameters
    ----------
    model : SpikingRegressor or SpikingNetwork
        A regressor that was fitted to :func:`cvxsnn.make_windows`, or a network whose outputs are the next values.
    history : array of shape (n_times,) or (n_times, n_features)
        The values before the first one of a batch.
    window : int
        The number of past values that a prediction reads.
    encode : callable, optional
        Returns the inputs (1, n_steps, n_inputs) of the model, given the last values (1, window, n_features) as a
        float64 tensor. By default the values themselves.
    standard : pair of float, default=(0.0, 1.0)
        Mean and spread of the values, by which they are standardised before and predictions are scaled back after. A
        regressor standardises its inputs itself.
    dtype : torch.dtype, default=torch.float64
        The type of the read-out.
    """

    def __init__(
        self,
        model: SpikingRegressor | SpikingNetwork,
        history: npt.ArrayLike,
        *,
        window: int,
        encode: Callable[[Tensor], Tensor] | None = None,
        standard: tuple[float, float] = (0.0, 1.0),
        dtype: torch.dtype = torch.float64,
    ) -> None:
        check_type(model, (SpikingRegressor, SpikingNetwork), "a SpikingRegressor or SpikingNetwork")
        super().__init__(model, dtype=dtype)
        window = check_positive_int("window", window)
        past = np.array(history, dtype=np.float64)
        past = past[:, None] if past.ndim == 1 else past
        if past.ndim != 2 or len(past) < window - 1:
            raise InvalidInputError(f"expected a history of at least {window - 1} steps, got shape {past.shape}")
        self._encode, (self._mean, self._spread) = encode, standard
        # The past values are memory that the forecast needs, so they count in the footprint.
        known = np.concatenate((past[len(past) - window + 1 :], np.zeros_like(past[:1])))
        self.net.past_values = torch.tensor(known, device=self.net.intercept.device)

    def __call__(self, batch: Tensor) -> Tensor:
        """Return the forecast of as many values as the batch has times."""
        assert self.net.past_values is not None
        known = self.net.past_values.clone()
        known[-1] = batch[0].reshape(-1)
        known = (known - self._mean) / self._spread
        predictions: list[Tensor] = []
        while len(predictions) < len(batch):
            inputs = known[None] if self._encode is None else self._encode(known[None])
            predicted = self.net(inputs).reshape(-1, known.shape[1])
            predictions.extend(predicted)
            known = torch.cat((known, predicted))[-len(known) :]
        return torch.stack(predictions[: len(batch)]) * self._spread + self._mean


@dataclass(frozen=True)
class LeaderboardRow:
    """One row of NeuroBench's leaderboards.

    Parameters
    ----------
    task : str
        The name of the task.
    metric : str
        The name of the metric of the task.
    score : float
        Its value.
    footprint : int
        Bytes.
    connection_sparsity, activation_sparsity : float
        Shares of zeros among synapses and among the spikes of all neurons and steps.
    dense, effective_macs, effective_acs : float
        Synaptic operations per sample: of a network in which nothing is zero, those of numbers, and those of spikes.
    """

    task: str
    metric: str
    score: float
    footprint: int
    connection_sparsity: float
    activation_sparsity: float
    dense: float
    effective_macs: float
    effective_acs: float

    @classmethod
    def mean(cls, task: str, rows: "Sequence[LeaderboardRow]") -> "LeaderboardRow":
        """Return the mean of several rows of one metric.

        Parameters
        ----------
        task : str
            The name of the task.
        rows : sequence of LeaderboardRow
            The rows, such as those of several series.

        Returns
        -------
        LeaderboardRow
            The row of their means; bytes are rounded up.
        """
        if not rows or len({row.metric for row in rows}) > 1:
            raise InvalidInputError(f"expected rows of one metric, got {[row.metric for row in rows]}")
        score, footprint, *others = np.mean([astuple(row)[2:] for row in rows], axis=0).tolist()
        return cls(task, rows[0].metric, score, math.ceil(footprint), *others)

    def __str__(self) -> str:
        """Return the names of the columns and the row."""
        header = ["task", self.metric, "footprint (bytes)", "connection sparsity", "activation sparsity", "dense"]
        shares = (f"{share:.4f}" for share in (self.connection_sparsity, self.activation_sparsity))
        counts = (f"{count:,.1f}" for count in (self.dense, self.effective_macs, self.effective_acs))
        row = [self.task, f"{self.score:.4f}", f"{self.footprint:,}", *shares, *counts]
        return align([*header, "effective MACs", "effective ACs"], [row])


def leaderboard_row(
    task: str,
    model: NeuroBenchNetwork,
    inputs: npt.ArrayLike,
    targets: npt.ArrayLike,
    *,
    metric: str = "ClassificationAccuracy",
    batch_size: int = 16,
) -> LeaderboardRow:
    """Run NeuroBench's harness on a model, and return its row for a leaderboard.

    Parameters
    ----------
    task : str
        The name of the task, as the row should show it.
    model : NeuroBenchNetwork
        The model.
    inputs : array of shape (n_samples, n_steps, n_features)
        The test data.
    targets : array of shape (n_samples,), or that of what the model returns
        Their targets.
    metric : str, default="ClassificationAccuracy"
        A metric of ``neurobench.metrics.workload``, such as "SMAPE" or "R2".
    batch_size : int, default=16
        Samples per batch. A forecast is always one batch.

    Returns
    -------
    LeaderboardRow
        The row; as a string, a table.
    """
    check_type(model, NeuroBenchNetwork, "a NeuroBenchNetwork", "wrap the model in one")
    workload = import_library("neurobench.metrics.workload", "neurobench")
    static = import_library("neurobench.metrics.static", "neurobench")
    check_choice("metric", metric, workload.__all__)
    values, truth = torch.tensor(np.asarray(inputs)), torch.tensor(np.asarray(targets))
    if len(values) != len(truth) or len(values) == 0:
        raise InvalidInputError(f"expected one target or more, one per sample, got {len(truth)} for {len(values)}")
    size = len(values) if isinstance(model, NeuroBenchForecaster) else check_positive_int("batch_size", batch_size)
    metrics = [
        [static.Footprint, static.ConnectionSparsity],
        [getattr(workload, metric), workload.ActivationSparsity, workload.SynapticOperations],
    ]
    benchmark = import_library("neurobench.benchmarks", "neurobench").Benchmark
    printed = io.StringIO()
    # The harness prints errors of metrics and goes on with zeros; a row must not have such zeros.
    with redirect_stdout(printed), redirect_stderr(io.StringIO()):
        measured = benchmark(model, DataLoader(TensorDataset(values, truth), size), [], [], metrics).run()
    for line in printed.getvalue().splitlines():
        if line.startswith("Error"):
            raise CvxsnnError(f"expected NeuroBench to measure the model, got {line!r}")
    measured |= measured["SynapticOperations"]
    names = ("ConnectionSparsity", "ActivationSparsity", "Dense", "Effective_MACs", "Effective_ACs")
    shares_and_counts = (float(measured[name]) for name in names)
    return LeaderboardRow(task, metric, float(measured[metric]), int(measured["Footprint"]), *shares_and_counts)
