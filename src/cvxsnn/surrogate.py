"""Surrogate-gradient training: backpropagation through time with a made-up derivative of the spike.

It is the baseline that certified read-outs are measured against, and a source of witnesses for them. Whatever is
scored, chosen or returned is the network with exact spikes; only the gradients are made up.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .checks import check_choice, check_positive_int
from .convex.heads import Head, weighted_loss
from .errors import InvalidInputError
from .network import OutputHead, SpikingNetwork
from .neurons.exact import snap_inputs
from .neurons.gradient import SURROGATES, Surrogate, make_trainable
from .neurons.layer import HiddenLayer
from .seeds import check_seed, child_generator
from .storage import read_tensors, write_tensors
from .training_set import Objective, TrainingSet


@dataclass(frozen=True)
class SurrogateSettings:
    """How to train.

    Parameters
    ----------
    epochs, batch_size : int
    learning_rate : float
        Of Adam; it falls to zero along a cosine unless ``schedule="constant"``.
    weight_decay : float
        Decoupled from the gradient (AdamW), on weights only.
    surrogate : "sigmoid", "fast_sigmoid" or "arctan"
    steepness : float
        How quickly the surrogate derivative falls off around the threshold.
    clip_norm : float
        Largest norm of a gradient.
    train_decay, train_threshold, train_bias : bool
        Whether these are trained beside the weights.
    patience : int, optional
        Epochs without a better validation score after which to stop.
    schedule : "cosine" or "constant"
    seed : int, of the order of the batches
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 3e-2
    weight_decay: float = 0.0
    surrogate: Surrogate = "arctan"
    steepness: float = 1.0
    clip_norm: float = 1.0
    train_decay: bool = True
    train_threshold: bool = True
    train_bias: bool = True
    patience: int | None = None
    schedule: Literal["cosine", "constant"] = "cosine"
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse settings that mean nothing."""
        check_positive_int("epochs", self.epochs)
        check_positive_int("batch_size", self.batch_size)
        check_choice("surrogate", self.surrogate, tuple(SURROGATES))
        check_choice("schedule", self.schedule, ("cosine", "constant"))
        check_seed(self.seed)
        for name in ("learning_rate", "steepness", "clip_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInputError(f"expected {name} above zero, got {getattr(self, name)!r}")
        if not 0 <= self.weight_decay < math.inf:
            raise InvalidInputError(f"expected weight_decay to be zero or more, got {self.weight_decay!r}")
        if self.patience is not None:
            check_positive_int("patience", self.patience)

    @property
    def dynamics(self) -> frozenset[str]:
        """Names of the per-neuron parameters that are trained."""
        return frozenset(name for name in ("decay", "threshold", "bias") if getattr(self, f"train_{name}"))


@dataclass(frozen=True)
class Epoch:
    """One epoch of training: mean training loss before each step, and the score on validation data after it."""

    epoch: int
    loss: float
    score: float


@dataclass(frozen=True, eq=False)
class SurrogateRun:
    """The network of the best epoch, and every epoch."""

    network: SpikingNetwork
    history: tuple[Epoch, ...]
    best: Epoch


class TrainableNetwork(nn.Module):
    """A spiking network with surrogate gradients, in the arithmetic of the layers it starts from."""

    _neurons: Tensor

    def __init__(self, network: SpikingNetwork, settings: SurrogateSettings) -> None:
        super().__init__()
        self._heads, self._readout = network.heads, network.readout
        self.register_buffer("_neurons", network.neurons.clone(), persistent=False)
        self.layers = nn.ModuleList(
            make_trainable(layer, settings.surrogate, settings.steepness, settings.dynamics) for layer in network.layers
        )
        dtype = network.layers[0].weight.dtype
        self.weight = nn.Parameter(network.weight.detach().to(dtype, copy=True))
        self.intercept = nn.Parameter(network.intercept.detach().to(dtype, copy=True))

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Scores of shape (n_samples, n_outputs), or (n_samples, n_steps, n_outputs) when every step is read."""
        block = snap_inputs(inputs).to(self.weight.dtype).transpose(0, 1)
        for layer in self.layers:
            block = layer(block)
        spikes = block.permute(2, 1, 0, 3).flatten(-2)[..., self._neurons]
        return self._read(spikes, lengths) @ self.weight + self.intercept

    def _read(self, spikes: Tensor, lengths: Tensor | None) -> Tensor:
        n_samples, n_steps = spikes.shape[:2]
        if self._readout == "all":
            return spikes
        if self._readout == "last":
            return spikes[:, -1] if lengths is None else spikes[torch.arange(n_samples), lengths - 1]
        if lengths is None:
            return spikes.mean(1)
        inside = torch.arange(n_steps, device=spikes.device) < lengths[:, None]
        return (spikes * inside[:, :, None]).sum(1) / lengths[:, None]

    def freeze(self) -> SpikingNetwork:
        """The network as it is now, with exact spikes."""
        layers: list[HiddenLayer] = [layer.freeze() for layer in self.layers]  # type: ignore[operator]
        return SpikingNetwork(
            layers, self.weight.detach(), self._heads, self.intercept.detach(), self._neurons, self._readout
        )


def initial_network(
    layers: tuple[HiddenLayer, ...], objective: Objective, data: TrainingSet, seed: int = 0
) -> SpikingNetwork:
    """A network with these hidden layers and a Gaussian read-out, of the targets' scale."""
    heads, row_weight = objective.heads(data)
    n_neurons = layers[-1].n_subnetworks * layers[-1].width
    normal = child_generator(seed, "surrogate", "output").standard_normal((n_neurons, heads[-1].columns.stop))
    weight = torch.from_numpy(normal / math.sqrt(n_neurons)) * target_scale(heads, row_weight)
    means = [row_weight @ h.targets if h.loss.name == "squared" else torch.zeros_like(h.targets[0]) for h in heads]
    output_heads = [OutputHead(h.name, h.loss.name, h.columns.start, h.columns.stop) for h in heads]
    return SpikingNetwork(layers, weight, output_heads, torch.cat(means), readout=objective.readout)


def target_scale(heads: Sequence[Head], row_weight: Tensor) -> float:
    """The spread of real targets, which is the scale of the read-out and of its steps; 1 for classes."""
    real = [head.targets for head in heads if head.loss.name == "squared"]
    spreads = [math.sqrt((row_weight @ (y - (row_weight @ y).mean()).square()).mean()) for y in real]
    return max(spreads, default=1.0) or 1.0


def train_surrogate(
    network: SpikingNetwork,
    data: TrainingSet,
    objective: Objective,
    settings: SurrogateSettings | None = None,
    *,
    score: Callable[[SpikingNetwork], float],
    report: Callable[[int, int], None] | None = None,
    checkpoint: Path | str | None = None,
) -> SurrogateRun:
    """Train all layers of a network.

    Parameters
    ----------
    network : SpikingNetwork
        Where to start. It is not changed.
    data : TrainingSet
    objective : Objective
    settings : SurrogateSettings, optional
    score : function
        Of a network with exact spikes, higher is better, for example accuracy on validation data. The network of the
        best epoch is returned; the start counts as epoch 0.
    report : function, optional
        Called as ``report(done, epochs)`` after each epoch.
    checkpoint : path, optional
        Written after every epoch. If it is there, training goes on from it, with the same result as if it had never
        been interrupted.
    """
    settings = settings or SurrogateSettings()
    data = data.to(network.weight.device)
    model = TrainableNetwork(network, settings)
    heads, row_weight = objective.heads(data)
    scale = target_scale(heads, row_weight)
    optimiser = _make_optimiser(model, settings, scale)
    state = _State(model, optimiser, settings, score)
    if checkpoint is not None and Path(checkpoint).exists():
        state.load(Path(checkpoint))
    elif not state.history:
        state.judge(0, math.nan)
    while not state.is_done:
        epoch = len(state.history)
        order = torch.from_numpy(child_generator(settings.seed, "surrogate", "batches", epoch).permutation(len(data)))
        batches = torch.split(order.to(data.inputs.device), settings.batch_size)
        losses = []
        for number, samples in enumerate(batches):
            _set_learning_rate(optimiser, settings, epoch - 1 + number / len(batches))
            loss = _batch_loss(model, data, heads, row_weight, samples)
            optimiser.zero_grad(set_to_none=True)
            (loss / scale**2).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
            optimiser.step()
            for layer in model.layers:
                layer.project()  # type: ignore[operator]
            losses.append(loss.detach() * (len(samples) / len(data)))
        state.judge(epoch, float(torch.stack(losses).sum()))
        if checkpoint is not None:
            state.save(Path(checkpoint))
        if report is not None:
            report(epoch, settings.epochs)
    model.load_state_dict(state.best_parameters)
    return SurrogateRun(model.freeze(), tuple(state.history), state.best)


def _batch_loss(
    model: TrainableNetwork, data: TrainingSet, heads: tuple[Head, ...], row_weight: Tensor, samples: Tensor
) -> Tensor:
    lengths = None if data.lengths is None else data.lengths[samples]
    scores = model(data.inputs[samples], lengths)
    steps = scores.shape[1] if scores.ndim == 3 else 1
    rows = (samples[:, None] * steps + torch.arange(steps, device=samples.device)).flatten()
    own = tuple(replace(head, targets=head.targets[rows].to(scores.dtype)) for head in heads)
    # Scaled so that the mean over batches is the objective over all rows.
    weight = row_weight[rows].to(scores.dtype) * (len(data) / len(samples))
    return weighted_loss(own, weight, scores.reshape(len(rows), -1))


def _make_optimiser(model: TrainableNetwork, settings: SurrogateSettings, scale: float) -> torch.optim.AdamW:
    groups = [
        {
            "params": [parameter],
            "weight_decay": settings.weight_decay if name.endswith("weight") else 0.0,
            "steps": scale if name in ("weight", "intercept") else 1.0,
        }
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate)


def _set_learning_rate(optimiser: torch.optim.Optimizer, settings: SurrogateSettings, epochs_done: float) -> None:
    share = 0.5 * (1 + math.cos(math.pi * epochs_done / settings.epochs)) if settings.schedule == "cosine" else 1.0
    for group in optimiser.param_groups:
        group["lr"] = settings.learning_rate * share * group["steps"]


class _State:
    """Everything that training has come to, and its file."""

    def __init__(
        self,
        model: TrainableNetwork,
        optimiser: torch.optim.Optimizer,
        settings: SurrogateSettings,
        score: Callable[[SpikingNetwork], float],
    ) -> None:
        self.model, self.optimiser, self.settings, self.score = model, optimiser, settings, score
        self.start = _fingerprint(model)
        self.history: list[Epoch] = []
        self.best = Epoch(0, math.nan, -math.inf)
        self.best_parameters: dict[str, Tensor] = {}

    @property
    def is_done(self) -> bool:
        last = len(self.history) - 1
        patience = self.settings.patience
        return last >= self.settings.epochs or (patience is not None and last - self.best.epoch >= patience)

    def judge(self, epoch: int, loss: float) -> None:
        """Score the network; of equal scores the later counts, which has trained for longer."""
        self.history.append(Epoch(epoch, loss, float(self.score(self.model.freeze()))))
        if self.history[-1].score >= self.best.score:
            self.best = self.history[-1]
            self.best_parameters = {name: value.clone() for name, value in self.model.state_dict().items()}

    def save(self, path: Path) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best.{name}": value for name, value in self.best_parameters.items()}
        for number, values in self.optimiser.state_dict()["state"].items():
            tensors |= {f"adam.{number}.{name}": value for name, value in values.items()}
        header = {
            "settings": asdict(self.settings),
            "start": self.start,
            "history": [[e.epoch, None if math.isnan(e.loss) else e.loss, e.score] for e in self.history],
            "best": self.best.epoch,
        }
        write_tensors(path, "checkpoint", tensors, header)

    def load(self, path: Path) -> None:
        tensors, header = read_tensors(path, "checkpoint")
        if header["settings"] != asdict(self.settings) or header["start"] != self.start:
            raise InvalidInputError(
                f"expected a checkpoint of this network and these settings, got another one: delete {path} or name "
                "another file"
            )
        self.model.load_state_dict(_under("model", tensors))
        self.best_parameters = _under("best", tensors)
        moments: dict[int, dict[str, Any]] = {}
        for name, value in _under("adam", tensors).items():
            number, _, kind = name.partition(".")
            moments.setdefault(int(number), {})[kind] = value
        self.optimiser.load_state_dict({**self.optimiser.state_dict(), "state": moments})
        self.history = [Epoch(e, math.nan if loss is None else loss, s) for e, loss, s in header["history"]]
        self.best = self.history[header["best"]]


def _fingerprint(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}
