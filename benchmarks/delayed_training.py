"""Surrogate gradients through synaptic delays, for neurons whose taps are all their memory.

Without leak and reset nothing is carried from one step to the next. The membranes of all steps are then one matrix
product of what the taps read and the weights, which a GPU does in bfloat16 many times as fast as step after step. The
neurons are LIF layers with a decay and a threshold of zero before and after training, with exact spikes.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, pad

from cvxsnn import LIFLayer
from cvxsnn.neurons import HiddenLayer
from cvxsnn.witnesses import Provenance, WitnessSet, join_witnesses, single_out

_N_CALIBRATION, _N_MEMBRANES = 256, 4096
"""Training sequences, and membranes of these, that thresholds are taken from."""

_EVALUATION_ELEMENTS = 2**28
"""Membranes that are held at once when a network is scored."""


class _Spike(torch.autograd.Function):
    """1{u ≥ 0}, with the derivative of a fast sigmoid."""

    @staticmethod
    def forward(ctx: Any, membrane: Tensor, steepness: float) -> Tensor:
        ctx.save_for_backward(membrane)
        ctx.steepness = steepness
        return (membrane >= 0).to(membrane.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (membrane,) = ctx.saved_tensors
        return grad / (1 + ctx.steepness * membrane.abs()).square(), None


class TrainedLayer(nn.Module):
    """The weights and biases of a layer of neurons without leak, with gradients.

    Parameters
    ----------
    layer : HiddenLayer
        Where training starts: one subnetwork with taps.
    """

    source: Tensor
    delay: Tensor
    place: Tensor
    mask: Tensor | None

    def __init__(self, layer: HiddenLayer) -> None:
        super().__init__()
        if layer.n_subnetworks != 1 or not layer.has_delays or bool(layer.decay.any()) or bool(layer.threshold.any()):  # type: ignore[attr-defined]
            raise ValueError("expected one subnetwork of neurons with taps and without leak and reset")
        self.layer = layer
        flat = layer.delay[0].long() * layer.n_inputs + layer.source[0].long()
        taps, place = torch.unique(flat, return_inverse=True)
        weight = torch.zeros(len(taps), layer.width, device=taps.device)
        weight.scatter_add_(0, place, layer.weight[0].float())
        is_read = torch.zeros(weight.shape, dtype=torch.bool, device=taps.device).scatter_(0, place, True)
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(layer.bias[0].float().clone())
        self.register_buffer("source", taps % layer.n_inputs)
        self.register_buffer("delay", taps // layer.n_inputs)
        self.register_buffer("place", place)
        self.register_buffer("mask", None if bool(is_read.all()) else is_read.float())
        self._delays: list[int] = torch.unique(self.delay).tolist()
        self._where: Tensor | None = None

    def read(self, values: Tensor) -> Tensor:
        """What the taps read, (n_samples, n_steps, n_taps), of values (n_samples, n_steps, n_inputs); no gradients."""
        places = self._places(values)
        return self._lift(values).index_select(1, places.flatten()).view(len(values), *places.shape)

    def _lift(self, values: Tensor) -> Tensor:
        """Values with zeros before them, one row for each sequence."""
        return pad(values, (0, 0, self._delays[-1], 0)).flatten(1)

    def _places(self, values: Tensor) -> Tensor:
        """Where in such a row each tap reads at each step, (n_steps, n_taps)."""
        n_steps, n_inputs = values.shape[1:]
        if self._where is None:
            step = torch.arange(n_steps, device=values.device)[:, None] + self._delays[-1] - self.delay
            self._where = step * n_inputs + self.source
        return self._where

    def shift(self, spikes: Tensor) -> Tensor:
        """The same of spikes, with gradients, if every delay reads all neurons."""
        n_steps = spikes.shape[1]
        return torch.cat([pad(spikes, (0, 0, own, 0))[:, :n_steps] for own in self._delays], dim=-1)

    def forward(self, taps: Tensor) -> Tensor:
        """The membranes, for what the taps read."""
        weight = self.weight if self.mask is None else self.weight * self.mask
        return linear(taps, weight.T, self.bias)

    @torch.no_grad()
    def take_differences(self, inputs: Tensor, generator: torch.Generator) -> None:
        """Set weights to what the taps read in one training sequence less that in another, at one step."""
        n_neurons = self.bias.numel()
        one, other = torch.randint(len(inputs), (2, n_neurons), generator=generator).to(inputs.device)
        step = torch.randint(inputs.shape[1], (n_neurons,), generator=generator).to(inputs.device)
        lifted, where = self._lift(inputs), self._places(inputs)[step]
        difference = (lifted[one[:, None], where] - lifted[other[:, None], where]).T
        self.weight.copy_(difference if self.mask is None else difference * self.mask)

    @torch.no_grad()
    def calibrate(self, taps: Tensor, generator: torch.Generator) -> None:
        """Set thresholds to random quantiles of the membranes, and scale these to unit spread."""
        rows = torch.randint(taps.shape[0] * taps.shape[1], (_N_MEMBRANES,), generator=generator).to(taps.device)
        membranes = self(taps.flatten(0, 1)[rows])
        rank = (_N_MEMBRANES * (0.05 + 0.9 * torch.rand(self.bias.numel(), generator=generator))).long()
        level = membranes.sort(0).values.gather(0, rank.to(taps.device)[None])[0]
        spread = membranes.std(0).clamp(min=1e-6)
        self.bias.copy_((self.bias - level) / spread)
        self.weight /= spread

    def freeze(self) -> LIFLayer:
        """The layer as it is now, with exact spikes."""
        weight = self.weight.detach().gather(0, self.place)[None].cpu()
        return replace(self.layer.to("cpu"), weight=weight, bias=self.bias.detach()[None].cpu())  # type: ignore[return-value]


@dataclass(frozen=True)
class TrainingOptions:
    """How a network is trained.

    Parameters
    ----------
    epochs, batch_size : int
        The learning rate falls to zero in the epochs, as a cosine.
    learning_rate, weight_decay : float
        Of AdamW.
    steepness : float
        That of the surrogate derivative, for membranes of unit spread.
    dropout : float
        The share of neurons that are not read in a batch, other ones for each sequence.
    seed : int
        Of batches and dropout.
    """

    epochs: int = 20
    batch_size: int = 100
    learning_rate: float = 5e-3
    weight_decay: float = 0.0
    steepness: float = 2.0
    dropout: float = 0.0
    seed: int = 0


class DelayedNetwork(nn.Module):
    """One or two hidden layers, whose mean spikes in windows of time are read.

    Parameters
    ----------
    groups : sequence of HiddenLayer
        The first hidden layer, as groups of neurons with different taps.
    inputs : Tensor of shape (n_samples, n_steps, n_inputs)
        Some training sequences.
    n_classes : int
        The number of outputs.
    n_windows : int
        The number of windows.
    second : HiddenLayer, optional
        The second hidden layer.
    weights : "gaussian" or "differences"
        Whether the first layer keeps its weights, or takes differences of training sequences instead. The thresholds
        of both layers are set to random quantiles of the membranes.
    seed : int
        Of the read-out, the quantiles and the differences.
    """

    def __init__(
        self,
        groups: Sequence[HiddenLayer],
        inputs: Tensor,
        n_classes: int,
        n_windows: int = 1,
        second: HiddenLayer | None = None,
        weights: str = "gaussian",
        seed: int = 0,
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.groups = nn.ModuleList(TrainedLayer(layer.to(inputs.device)) for layer in groups)
        for group in self.groups:
            if weights == "differences":
                group.take_differences(inputs, generator)  # type: ignore[operator]
            group.calibrate(group.read(inputs[:_N_CALIBRATION]), generator)  # type: ignore[operator]
        self.second = None if second is None else TrainedLayer(second.to(inputs.device))
        self.n_windows, self.steepness, self.dropout = n_windows, 1.0, 0.0
        n_neurons = sum(layer.width for layer in groups)
        if self.second is not None and second is not None:
            with torch.no_grad():
                self.second.calibrate(self.second.shift(self.first(inputs[:_N_CALIBRATION])), generator)
            n_neurons = second.width
        # Rates differ little between sequences, so they are standardised before they are read.
        self.norm = nn.BatchNorm1d(n_windows * n_neurons, affine=False, device=inputs.device)
        weight = torch.randn(n_windows * n_neurons, n_classes, generator=generator) / math.sqrt(n_neurons * n_windows)
        self.weight = nn.Parameter(weight.to(inputs.device))
        self.intercept = nn.Parameter(torch.zeros(n_classes, device=inputs.device))

    def layers(self) -> list[TrainedLayer]:
        """The groups of the first layer, and the second layer if there is one."""
        return [*self.groups, *([] if self.second is None else [self.second])]  # type: ignore[list-item]

    def first(self, inputs: Tensor) -> Tensor:
        """The spikes of the first layer, (n_samples, n_steps, n_neurons)."""
        membranes = torch.cat([group(group.read(inputs)) for group in self.groups], dim=-1)  # type: ignore[operator]
        return _Spike.apply(membranes, self.steepness)  # type: ignore[no-untyped-call, no-any-return]

    def forward(self, inputs: Tensor) -> Tensor:
        """The scores."""
        spikes = self.first(inputs)
        if self.second is not None:
            spikes = _Spike.apply(self.second(self.second.shift(spikes)), self.steepness)  # type: ignore[no-untyped-call]
        n_samples, n_steps, n_neurons = spikes.shape
        # Windows of equal length: the numbers of steps and windows are such.
        counts = spikes.view(n_samples, self.n_windows, n_steps // self.n_windows, n_neurons).sum(
            2, dtype=torch.float32
        )
        features = self.norm(counts.flatten(1) * (self.n_windows / n_steps))
        if self.training and self.dropout > 0:
            kept = torch.rand(n_samples, 1, n_neurons, device=features.device) >= self.dropout
            features = features * (kept / (1 - self.dropout)).expand(-1, self.n_windows, -1).flatten(1)
        with torch.autocast(features.device.type, enabled=False):
            return features.float() @ self.weight + self.intercept

    @torch.no_grad()
    def score(self, inputs: Tensor, labels: Tensor) -> tuple[float, float]:
        """Accuracy and minus the mean loss."""
        self.eval()
        widths = [layer.bias.numel() + layer.delay.numel() for layer in self.layers()]
        size = max(1, _EVALUATION_ELEMENTS // (inputs.shape[1] * max(widths)))
        scores = torch.cat([self(part) for part in inputs.split(size)])
        self.train()
        return float((scores.argmax(-1) == labels).float().mean()), -float(cross_entropy(scores, labels))

    def witnesses(self) -> WitnessSet:
        """The hidden layers as witnesses; those of one layer each in a subnetwork of its own."""
        layers = [group.freeze() for group in self.groups]  # type: ignore[operator]
        if self.second is not None:
            (first,) = layers
            return WitnessSet((first, self.second.freeze()), Provenance("pretrained"))
        sets = [WitnessSet((layer,), Provenance("pretrained")) for layer in layers]
        return join_witnesses([single_out(own, torch.arange(own.n_witnesses)) for own in sets])

    def readout(self) -> tuple[Tensor, Tensor]:
        """Weights of the mean spikes, (n_neurons * n_windows, n_classes), and intercepts.

        Window w of neuron i is row ``i * n_windows + w``, as in the read-outs of the library.
        """
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        weight = self.weight.detach().double() / (variance.double() + self.norm.eps).sqrt()[:, None]
        intercept = self.intercept.detach().double() - mean.double() @ weight
        return weight.view(self.n_windows, -1, weight.shape[1]).transpose(0, 1).flatten(0, 1), intercept


@dataclass(frozen=True)
class TrainingResult:
    """The best epoch by validation, which the network is left in, and the time that training took."""

    validation: float
    validation_loss: float
    best_epoch: int
    seconds: float


def train(
    network: DelayedNetwork,
    inputs: Tensor,
    labels: Tensor,
    validation: tuple[Tensor, Tensor],
    options: TrainingOptions,
) -> TrainingResult:
    """Train a network, and leave it as it was after the epoch with the best score on validation data."""
    begin, is_gpu = time.perf_counter(), inputs.is_cuda
    dtype = torch.bfloat16 if is_gpu else inputs.dtype
    network.steepness, network.dropout = options.steepness, options.dropout
    network.train()
    torch.manual_seed(options.seed)
    optimiser = torch.optim.AdamW(
        network.parameters(), options.learning_rate, weight_decay=options.weight_decay, fused=is_gpu
    )
    size = min(options.batch_size, len(inputs))
    n_batches = len(inputs) // size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, options.epochs * n_batches)
    best, best_epoch = network.score(*validation), 0
    state = {name: value.detach().clone() for name, value in network.state_dict().items()}
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(inputs), device=inputs.device)
        for rows in order[: n_batches * size].split(size):
            with torch.autocast("cuda", torch.bfloat16, enabled=is_gpu):
                scores = network(inputs[rows].to(dtype))
            loss = cross_entropy(scores.float(), labels[rows])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            schedule.step()
        found = network.score(*validation)
        if found > best:
            best, best_epoch = found, epoch
            state = {name: value.detach().clone() for name, value in network.state_dict().items()}
    network.load_state_dict(state)
    return TrainingResult(best[0], -best[1], best_epoch, time.perf_counter() - begin)
