"""Surrogate-gradient training: backpropagation through time with a made-up derivative of the spike.

It is the baseline that certified read-outs are measured against, and a source of witnesses for them. Whatever is
scored, chosen or returned is the network with exact spikes; only the gradients are made up.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from .checks import check_choice, check_positive_int
from .convex.heads import Head, weighted_loss
from .errors import InvalidInputError
from .network import OutputHead, SpikingNetwork
from .neurons.gradient import SURROGATES, Surrogate
from .neurons.layer import HiddenLayer
from .seeds import check_seed, child_generator
from .storage import read_tensors, write_tensors
from .trainable import Adam, TrainableNetworks
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
    def kind(self) -> "SurrogateSettings":
        """What networks that train side by side must agree on; the other settings are put to one value."""
        return replace(self, learning_rate=1.0, weight_decay=0.0, steepness=1.0, clip_norm=1.0)

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
    """The network of the best epoch, every epoch, and the settings."""

    network: SpikingNetwork
    history: tuple[Epoch, ...]
    best: Epoch
    settings: SurrogateSettings


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
    chosen = [settings or SurrogateSettings()]
    return train_side_by_side([network], data, objective, chosen, score=score, report=report, checkpoint=checkpoint)[0]


def train_side_by_side(
    networks: Sequence[SpikingNetwork],
    data: TrainingSet,
    objective: Objective,
    settings: Sequence[SurrogateSettings],
    *,
    score: Callable[[SpikingNetwork], float],
    report: Callable[[int, int], None] | None = None,
    checkpoint: Path | str | None = None,
) -> list[SurrogateRun]:
    """:func:`train_surrogate` for several networks of one architecture at once, as fast as one where a GPU has room.

    Settings may differ in learning rate, weight decay, steepness and clipping.
    """
    common = _common(settings)
    data = data.to(networks[0].weight.device)
    steepness = [own.steepness for own in settings]
    model = TrainableNetworks(networks, common.surrogate, steepness, common.dynamics)
    heads, row_weight = objective.heads(data)
    scale = target_scale(heads, row_weight)
    adam = Adam(model, [own.weight_decay for own in settings], [own.clip_norm for own in settings], scale)
    state = _State(model, adam, settings, score)
    if checkpoint is not None and Path(checkpoint).exists():
        state.load(Path(checkpoint))
    else:
        state.judge(0, [math.nan] * len(networks))
    while not state.is_done:
        epoch = state.epoch + 1
        order = torch.from_numpy(child_generator(common.seed, "surrogate", "batches", epoch).permutation(len(data)))
        batches = torch.split(order.to(data.inputs.device), common.batch_size)
        total = torch.zeros(len(networks), dtype=torch.float64, device=data.inputs.device)
        for number, samples in enumerate(batches):
            losses = _batch_losses(model, data, heads, row_weight, samples)
            (losses.sum() / scale**2).backward()  # type: ignore[no-untyped-call]
            share = _schedule(common, epoch - 1 + number / len(batches))
            adam.step([share * own.learning_rate for own in settings])
            model.project()
            total += losses.detach() * (len(samples) / len(data))
        state.judge(epoch, total.tolist())
        if checkpoint is not None:
            state.save(Path(checkpoint))
        if report is not None:
            report(epoch, common.epochs)
    return state.finish()


def _common(settings: Sequence[SurrogateSettings]) -> SurrogateSettings:
    """The one kind of all settings."""
    kinds = {own.kind for own in settings}
    if len(kinds) != 1:
        raise InvalidInputError(
            "expected settings that differ in learning_rate, weight_decay, steepness and clip_norm only, to train side "
            f"by side, got {len(kinds)} kinds"
        )
    return kinds.pop()


def _batch_losses(
    model: TrainableNetworks, data: TrainingSet, heads: tuple[Head, ...], row_weight: Tensor, samples: Tensor
) -> Tensor:
    """The objective on some sequences, for each network."""
    lengths = None if data.lengths is None else data.lengths[samples]
    scores = model(data.inputs[samples], lengths)
    steps = scores.shape[2] if scores.ndim == 4 else 1
    rows = (samples[:, None] * steps + torch.arange(steps, device=samples.device)).flatten()
    scores = scores.reshape(model.n_networks, len(rows), -1)
    own = tuple(replace(head, targets=head.targets[rows].to(scores.dtype)) for head in heads)
    # Scaled so that the mean over batches is the objective over all rows.
    weight = row_weight[rows].to(scores.dtype) * (len(data) / len(samples))
    return torch.stack([weighted_loss(own, weight, one) for one in scores])


def _schedule(settings: SurrogateSettings, epochs_done: float) -> float:
    """Share of the learning rate that is left."""
    return 0.5 * (1 + math.cos(math.pi * epochs_done / settings.epochs)) if settings.schedule == "cosine" else 1.0


class _State:
    """Everything that training has come to, and its file."""

    def __init__(
        self,
        model: TrainableNetworks,
        adam: Adam,
        settings: Sequence[SurrogateSettings],
        score: Callable[[SpikingNetwork], float],
    ) -> None:
        self.model, self.adam, self.settings, self.score = model, adam, list(settings), score
        self.start = _fingerprint(model)
        self.histories: list[list[Epoch]] = [[] for _ in settings]
        self.best = [Epoch(0, math.nan, -math.inf) for _ in settings]
        self.best_networks: list[SpikingNetwork | None] = [None for _ in settings]

    @property
    def epoch(self) -> int:
        """The last epoch that some network was trained in."""
        return max(len(history) for history in self.histories) - 1

    @property
    def is_done(self) -> bool:
        return all(self._has_ended(number) for number in range(len(self.settings)))

    def _has_ended(self, number: int) -> bool:
        history, settings = self.histories[number], self.settings[number]
        last = len(history) - 1
        if last >= settings.epochs or settings.patience is None:
            return last >= settings.epochs
        # The first of equal scores: epochs that only keep it up are no progress.
        reached = max(history, key=lambda moment: moment.score).epoch
        return last - reached >= settings.patience

    def judge(self, epoch: int, losses: Sequence[float]) -> None:
        """Score the networks that still train; of equal scores the later counts, which has trained for longer."""
        for number, loss in enumerate(losses):
            if epoch and self._has_ended(number):
                continue
            network = self.model.freeze(number)
            moment = Epoch(epoch, loss, float(self.score(network)))
            self.histories[number].append(moment)
            if moment.score >= self.best[number].score or self.best_networks[number] is None:
                self.best[number], self.best_networks[number] = moment, network

    def finish(self) -> list[SurrogateRun]:
        runs = []
        for settings, history, best, network in zip(
            self.settings, self.histories, self.best, self.best_networks, strict=True
        ):
            assert network is not None
            runs.append(SurrogateRun(network, tuple(history), best, settings))
        return runs

    def save(self, path: Path) -> None:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"first.{name}": value for name, value in self.adam.first.items()}
        tensors |= {f"second.{name}": value for name, value in self.adam.second.items()}
        for number, network in enumerate(self.best_networks):
            assert network is not None
            tensors |= {f"best.{number}.{name}": value for name, value in _plain(network).items()}
        header = {
            "settings": [asdict(own) for own in self.settings],
            "start": self.start,
            "n_steps": self.adam.n_steps,
            "histories": [
                [[e.epoch, None if math.isnan(e.loss) else e.loss, e.score] for e in history]
                for history in self.histories
            ],
            "best": [best.epoch for best in self.best],
        }
        write_tensors(path, "checkpoint", tensors, header)

    def load(self, path: Path) -> None:
        tensors, header = read_tensors(path, "checkpoint")
        if header.get("settings") != [asdict(own) for own in self.settings] or header.get("start") != self.start:
            raise InvalidInputError(
                f"expected a checkpoint of this network and these settings, got another one: delete {path} or name "
                "another file"
            )
        self.model.load_state_dict(_under("model", tensors))
        for kind, moments in (("first", self.adam.first), ("second", self.adam.second)):
            for name, value in _under(kind, tensors).items():
                moments[name].copy_(value)
        self.adam.n_steps = int(header["n_steps"])
        self.histories = [
            [Epoch(e, math.nan if loss is None else loss, s) for e, loss, s in history]
            for history in header["histories"]
        ]
        self.best = [history[epoch] for history, epoch in zip(self.histories, header["best"], strict=True)]
        for number in range(len(self.settings)):
            like, own = self.model.freeze(number), _under(f"best.{number}", tensors)
            self.best_networks[number] = _from_plain(like, own)


def _plain(network: SpikingNetwork) -> dict[str, Tensor]:
    """A network's tensors by name."""
    tensors = {"weight": network.weight, "intercept": network.intercept}
    for depth, layer in enumerate(network.layers):
        tensors |= {f"{depth}.{name}": value for name, value in layer.tensors().items()}
    return tensors


def _from_plain(like: SpikingNetwork, tensors: Mapping[str, Tensor]) -> SpikingNetwork:
    """The network of those tensors, with the architecture of another."""
    device = like.weight.device
    layers = [
        layer.with_tensors({name: tensors[f"{depth}.{name}"].to(device) for name in layer.tensors()})
        for depth, layer in enumerate(like.layers)
    ]
    return SpikingNetwork(layers, tensors["weight"], like.heads, tensors["intercept"], like.neurons, like.readout)


def _fingerprint(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.cpu().numpy().tobytes())
    return digest.hexdigest()


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in tensors.items() if name.startswith(f"{prefix}.")}
