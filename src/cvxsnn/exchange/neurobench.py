"""Our networks as models of NeuroBench, whose metrics count what they do.

NeuroBench watches linear layers and neurons through hooks. :class:`NeuroBenchNetwork` is the network in such modules:
every synaptic layer is a linear layer that reads whole sequences, every hidden layer a module of neurons that is called
once per step, and the read-out is a linear layer that reads spikes. Scores are those of the network.

What its metrics count:

* *SynapticOperations*: the additions (ACs) and multiplications (MACs) of
  :func:`cvxsnn.network.energy.count_operations`, with two differences. Inputs of -1 are ACs, and whether a layer
  multiplies is decided batch by batch. A synapse with a delay is counted when the spike arrives. "Dense" counts all
  steps of all synapses, less those at which a delayed synapse reads what was before the sequence; a mean over steps
  counts every step.
* *ConnectionSparsity*: synapses of weight zero, as a share of the synapses that exist. Between subnetworks there are
  none, and of the inputs that a neuron with delays does not read there are none either. NeuroBench has no notion of
  delays, so it cannot tell such a network from one without.
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

from ..core.checks import check_positive_int
from ..core.errors import CvxsnnError, InvalidInputError
from ..core.formatting import align
from ..core.libraries import import_library
from ..estimators import SpikingClassifier, SpikingRegressor
from ..estimators.pipelines import input_scale, network_of
from ..network.spiking_network import SpikingNetwork
from .neurobench_modules import HookedNetwork, Neurons

__all__ = ["LeaderboardRow", "NeuroBenchForecaster", "NeuroBenchNetwork", "leaderboard_row"]

_Model: Any = import_library("neurobench.models", "neurobench").NeuroBenchModel


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
        network = network_of(model)
        self.estimator = None if isinstance(model, SpikingNetwork) else model
        self.net = HookedNetwork(network, dtype, input_scale(model))
        self.add_activation_module(Neurons)

    def __call__(self, batch: Tensor) -> Tensor:
        """Return scores, labels or predictions of a batch of sequences."""
        return self._answer(self.net(batch))

    def __net__(self) -> nn.Module:
        """Return the modules that NeuroBench counts."""
        return self.net

    def _answer(self, scores: Tensor) -> Tensor:
        if isinstance(self.estimator, SpikingRegressor):
            return scores[:, 0] if self.estimator._is_flat else scores
        if self.estimator is None:
            return scores
        chosen, classes = self.estimator._decide(scores.cpu().numpy()), np.asarray(self.estimator.classes_)
        labels = classes[chosen] if classes.dtype.kind in "biuf" else chosen
        return torch.from_numpy(labels).to(scores.device)


class NeuroBenchForecaster(NeuroBenchNetwork):
    """A model that forecasts a series on its own, in the protocol of NeuroBench's task of chaotic functions.

    A batch holds the values of successive times, (n_times, 1, n_features). Only the first is used: the model predicts
    the next value from it and the history, then goes on from its own predictions, and returns (n_times, n_features).
    Each prediction reads a window of the past anew, and that is what its operations are counted for.

    Parameters
    ----------
    model : SpikingRegressor or SpikingNetwork
        A regressor that was fitted to :func:`cvxsnn.make_windows`, or a network whose outputs are the next values.
    history : array of shape (n_times,) or (n_times, n_features)
        What came before the first value of a batch.
    window : int
        The number of past values that a prediction is made from.
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
        if not isinstance(model, (SpikingRegressor, SpikingNetwork)):
            raise InvalidInputError(f"expected a SpikingRegressor or SpikingNetwork, got {type(model).__name__}")
        super().__init__(model, dtype=dtype)
        window, past = check_positive_int("window", window), np.array(history, dtype=np.float64)
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
    """What NeuroBench's leaderboards list of a model.

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
        sparsities = {"connection": self.connection_sparsity, "activation": self.activation_sparsity}
        operations = {"dense": self.dense, "effective MACs": self.effective_macs, "effective ACs": self.effective_acs}
        cells = {"task": self.task, self.metric: f"{self.score:.4f}", "footprint (bytes)": f"{self.footprint:,}"}
        cells |= {f"{name} sparsity": f"{share:.4f}" for name, share in sparsities.items()}
        cells |= {name: f"{count:,.1f}" for name, count in operations.items()}
        return align([*cells], [[*cells.values()]])


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
        Number of samples that are run at once. A forecast is one batch, whatever this says.

    Returns
    -------
    LeaderboardRow
        The row; as a string, a table.
    """
    if not isinstance(model, NeuroBenchNetwork):
        raise InvalidInputError(f"expected a NeuroBenchNetwork, got {type(model).__name__}: wrap the model in one")
    workload = import_library("neurobench.metrics.workload", "neurobench")
    static = import_library("neurobench.metrics.static", "neurobench")
    if metric not in workload.__all__:
        raise InvalidInputError(f"expected metric to be one of {', '.join(workload.__all__)}, got {metric!r}")
    values, truth = torch.as_tensor(np.asarray(inputs)), torch.as_tensor(np.asarray(targets))
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
    shares = (float(measured[name]) for name in ("ConnectionSparsity", "ActivationSparsity"))
    operations = (float(measured["SynapticOperations"][name]) for name in ("Dense", "Effective_MACs", "Effective_ACs"))
    return LeaderboardRow(task, metric, float(measured[metric]), int(measured["Footprint"]), *shares, *operations)
