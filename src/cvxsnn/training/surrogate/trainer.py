"""Surrogate-gradient training: backpropagation through time with a made-up derivative of the spike.

It is the baseline that certified read-outs are measured against, and a source of witnesses for them. Whatever is
scored, chosen or returned is the network with exact spikes; only the gradients are made up.

Jobs of one shape can train side by side, each on its own data: on a GPU a crowd of small networks costs little more
than one.
"""

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...convex.objective import Objective
from ...core.errors import InvalidInputError
from ...core.seeds import child_generator, child_seed
from ...core.storage import read_tensors, write_tensors
from ...data.training_set import TrainingSet
from ...network.spiking_network import SpikingNetwork
from ...neurons.exact import snap_inputs
from .crowd import TaskScore, score_crowd
from .dropout import Dropout
from .networks import Adam, TrainableNetworks
from .settings import Epoch, SurrogateRun, SurrogateSettings, target_scale

_SECONDS_BETWEEN_SAVES = 60.0
"""For many jobs at once, whose files take long to write beside the work of an epoch; a job alone saves every epoch."""

_MEMORY = 24 * 2**30
"""For what training in one batch keeps of the forward pass."""


@dataclass(frozen=True, eq=False)
class Job:
    """One network to train.

    Parameters
    ----------
    network : SpikingNetwork
        Where to start. It is not changed.
    data : TrainingSet
    objective : Objective
    settings : SurrogateSettings
    score : function
        Of a network with exact spikes, higher is better, for example accuracy on validation data. The network of the
        best epoch is returned; the start counts as epoch 0.
    checkpoint : path, optional
        Written as training goes on. If it is there, training goes on from it, with the same result as if it had never
        been interrupted.
    """

    network: SpikingNetwork
    data: TrainingSet
    objective: Objective
    settings: SurrogateSettings
    score: Callable[[SpikingNetwork], float]
    checkpoint: Path | None = None

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Equal for jobs that can train side by side."""
        network, heads = self.network, self.objective.heads(self.data)[0]
        return (
            (network.n_subnetworks, network.hidden, network.heads, network.readout, network.n_features),
            (tuple(network.neurons.tolist()), network.weight.device, network.layers[0].weight.dtype),
            (self.data.inputs.shape, self.data.sequences.lengths is None),
            tuple((type(head.loss), head.targets.shape) for head in heads),
            replace(self.settings.kind, seed=0),
            self.score.shape if isinstance(self.score, TaskScore) else None,
        )

    @property
    def bytes(self) -> int:
        """What one batch keeps of the forward pass: membranes, spikes, drives and their gradients."""
        n_steps = min(self.settings.batch_size, len(self.data)) * self.data.inputs.shape[1]
        return 6 * 4 * n_steps * sum(self.network.hidden) * self.network.n_subnetworks

    @cached_property
    def start(self) -> str:
        """A name for the network and the settings that training starts with."""
        digest = hashlib.sha256(repr(asdict(self.settings)).encode())
        for depth, layer in enumerate(self.network.layers):
            for name, value in layer.tensors().items():
                digest.update(f"{depth}.{name}{tuple(value.shape)}".encode())
                digest.update(value.cpu().numpy().tobytes())
        for value in (self.network.weight, self.network.intercept):
            digest.update(value.detach().cpu().numpy().tobytes())
        return digest.hexdigest()


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
    network, data, objective, score, checkpoint
        As in :class:`Job`.
    settings : SurrogateSettings, optional
    report : function, optional
        Called as ``report(done, epochs)`` after each epoch.
    """
    file = None if checkpoint is None else Path(checkpoint)
    job = Job(network, data, objective, settings or SurrogateSettings(), score, file)
    return train_jobs([job], report=report)[0]


def train_jobs(
    jobs: Sequence[Job], *, side_by_side: bool = True, report: Callable[[int, int], None] | None = None
) -> list[SurrogateRun]:
    """Train several networks.

    Parameters
    ----------
    jobs : sequence of Job
    side_by_side : bool
        Whether those of one shape train in one batch, for a GPU, or one after the other.
    report : function, optional
        Called as ``report(done, epochs)`` after each epoch; ``epochs`` is at most that many for all batches together.
    """
    saved = [_read_checkpoint(job) for job in jobs]
    batches: dict[tuple[object, ...], list[int]] = {}
    for number, (job, state) in enumerate(zip(jobs, saved, strict=True)):
        shape = (*job.shape, None if state is None else state.epoch)
        room = max(1, _MEMORY // job.bytes) if side_by_side else 1
        while len(batches.setdefault(shape, [])) >= room:
            shape = (*shape, "and more")
        batches[shape].append(number)
    runs: dict[int, SurrogateRun] = {}
    total, before = sum(jobs[members[0]].settings.epochs for members in batches.values()), 0
    for members in batches.values():
        batch = _Batch([jobs[number] for number in members])
        for place, number in enumerate(members):
            state = saved[number]
            if state is not None:
                batch.restore(place, state)
        batch.train(lambda epoch, before=before: report and report(before + epoch, total))  # type: ignore[misc]
        before += batch.kind.epochs
        runs |= dict(zip(members, batch.finish(), strict=True))
    return [runs[number] for number in range(len(jobs))]


@dataclass(frozen=True, eq=False)
class _Saved:
    """What a checkpoint holds."""

    tensors: dict[str, Tensor]
    header: dict[str, Any]

    @property
    def epoch(self) -> int:
        return len(self.header["history"]) - 1


def _read_checkpoint(job: Job) -> _Saved | None:
    if job.checkpoint is None or not job.checkpoint.exists():
        return None
    tensors, header = read_tensors(job.checkpoint, "checkpoint")
    if header.get("start") != job.start:
        raise InvalidInputError(
            "expected a checkpoint of this network and these settings, got another one: delete "
            f"{job.checkpoint} or name another file"
        )
    return _Saved(tensors, header)


class _Data:
    """The sequences of all jobs of a batch, ready to be drawn from."""

    def __init__(self, jobs: Sequence[Job], device: torch.device, dtype: torch.dtype) -> None:
        sets = [job.data.to(device) for job in jobs]
        self.inputs = torch.stack([snap_inputs(own.inputs).to(dtype) for own in sets])
        lengths = [own.sequences.lengths for own in sets if own.sequences.lengths is not None]
        self._lengths = torch.stack(lengths) if lengths else None
        parts = [job.objective.heads(own) for job, own in zip(jobs, sets, strict=True)]
        self.scales = [target_scale(heads, weight) for heads, weight in parts]
        self._heads = parts[0][0]
        rows = self.inputs.shape[:2]
        self._row_weight = torch.stack([weight for _, weight in parts]).to(dtype).view(*rows, -1)
        self._head_weights = torch.tensor(
            [[head.weight for head in heads] for heads, _ in parts], dtype=dtype, device=device
        )
        self._targets = [
            torch.stack([heads[h].targets for heads, _ in parts]).to(dtype).view(*rows, -1, head.targets.shape[1])
            for h, head in enumerate(self._heads)
        ]

    def losses(self, model: TrainableNetworks, samples: Tensor, dropout: Dropout) -> Tensor:
        """The objective of each network on some of its sequences, (n_networks, batch)."""
        n_networks, n_samples = self.inputs.shape[:2]
        own = torch.arange(n_networks, device=samples.device)[:, None], samples
        lengths = None if self._lengths is None else self._lengths[own]
        scores = model(self.inputs[own], lengths, dropout).flatten(1, -2)
        # Scaled so that the mean over batches is the objective over all rows.
        weight = self._row_weight[own].flatten(1) * (n_samples / samples.shape[1])
        total = torch.zeros(n_networks, dtype=scores.dtype, device=scores.device)
        for h, head in enumerate(self._heads):
            values = head.loss.value(scores[..., head.columns].flatten(0, 1), self._targets[h][own].flatten(0, 2))
            total = total + self._head_weights[:, h] * (values.view(n_networks, -1) * weight).sum(1)
        return total


class _Batch:
    """Jobs of one shape in training: everything that it has come to."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs, self.kind = list(jobs), jobs[0].settings.kind
        each = [job.settings for job in jobs]
        self._model = TrainableNetworks(
            [job.network for job in jobs], self.kind.surrogate, [own.steepness for own in each], self.kind.dynamics
        )
        like = self._model.weight
        self._data = _Data(jobs, like.device, like.dtype)
        scales = self._data.scales
        self._adam = Adam(self._model, [own.weight_decay for own in each], [own.clip_norm for own in each], scales)
        self._scales = torch.tensor(scales, dtype=like.dtype, device=like.device)
        self._rates = torch.tensor([own.learning_rate for own in each], dtype=like.dtype, device=like.device)
        self._histories: list[list[Epoch]] = [[] for _ in jobs]
        self._best = [Epoch(0, math.nan, -math.inf) for _ in jobs]
        self._best_state = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._seconds, self._saved_at = [0.0 for _ in jobs], time.perf_counter()

    def train(self, report: Callable[[int], Any]) -> None:
        """Train until every network has ended."""
        everyone = range(len(self._jobs))
        if not self._histories[0]:
            self._judge(0, [math.nan for _ in everyone])
        is_over = all(self._has_ended(number) for number in everyone)
        while not is_over:
            begin = time.perf_counter()
            epoch = max(len(history) for history in self._histories)
            self._judge(epoch, self._train_epoch(epoch))
            now = time.perf_counter()
            self._seconds = [seconds + (now - begin) / len(everyone) for seconds in self._seconds]
            is_over = all(self._has_ended(number) for number in everyone)
            if is_over or len(everyone) == 1 or now - self._saved_at >= _SECONDS_BETWEEN_SAVES:
                self._save()
                self._saved_at = time.perf_counter()
            report(epoch)

    def _train_epoch(self, epoch: int) -> list[float]:
        n_samples = self._data.inputs.shape[1]
        orders = [
            child_generator(job.settings.seed, "surrogate", "batches", epoch).permutation(n_samples)
            for job in self._jobs
        ]
        order = torch.stack([torch.from_numpy(own) for own in orders]).to(self._data.inputs.device)
        batches = torch.split(order, self.kind.batch_size, dim=1)
        total = torch.zeros(len(self._jobs), dtype=torch.float64, device=order.device)
        for number, samples in enumerate(batches):
            losses = self._data.losses(self._model, samples, self._dropout(epoch, number))
            (losses / self._scales**2).sum().backward()  # type: ignore[no-untyped-call]
            self._adam.step(_schedule(self.kind, epoch - 1 + number / len(batches)) * self._rates)
            self._model.project()
            total += losses.detach() * (samples.shape[1] / n_samples)
        return total.tolist()

    def _dropout(self, epoch: int, batch: int) -> Dropout:
        each = [job.settings for job in self._jobs]
        keys = [child_seed(own.seed, "surrogate", "dropout", epoch, batch) for own in each]
        return Dropout([own.input_dropout for own in each], [own.dropout for own in each], keys)

    def _has_ended(self, number: int) -> bool:
        history, settings = self._histories[number], self._jobs[number].settings
        last = len(history) - 1
        if last >= settings.epochs or settings.patience is None:
            return last >= settings.epochs
        # The first of equal scores: epochs that only keep it up are no progress.
        reached = max(history, key=lambda moment: moment.score).epoch
        return last - reached >= settings.patience

    def _judge(self, epoch: int, losses: Sequence[float]) -> None:
        """Score the networks that still train; of equal scores the later counts, which has trained for longer."""
        training = [number for number in range(len(losses)) if not epoch or not self._has_ended(number)]
        scores = self._scores(training)
        is_best = torch.zeros(len(losses), dtype=torch.bool)
        for number in training:
            moment = Epoch(epoch, losses[number], scores[number])
            self._histories[number].append(moment)
            if moment.score >= self._best[number].score or not epoch:
                self._best[number] = moment
                is_best[number] = True
        is_best = is_best.to(self._model.weight.device)
        for name, value in self._model.state_dict().items():
            rows = is_best.repeat_interleave(len(value) // len(losses)).view(-1, *[1] * (value.ndim - 1))
            self._best_state[name] = torch.where(rows, value, self._best_state[name])

    def _scores(self, numbers: Sequence[int]) -> dict[int, float]:
        judges = [job.score for job in self._jobs]
        if len(judges) > 1 and all(isinstance(judge, TaskScore) for judge in judges):
            return dict(enumerate(score_crowd(self._model.crowd(), judges)))  # type: ignore[arg-type]
        return {number: float(judges[number](self._model.freeze(number))) for number in numbers}

    def finish(self) -> list[SurrogateRun]:
        """The networks of the best epochs."""
        self._model.load_state_dict(self._best_state)
        return [
            SurrogateRun(
                self._model.freeze(number),
                tuple(self._histories[number]),
                self._best[number],
                job.settings,
                self._seconds[number],
            )
            for number, job in enumerate(self._jobs)
        ]

    def _parts(self, number: int) -> dict[str, Tensor]:
        """One network's rows of everything that training changes, by name."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": self._model.state_dict(),
            "first": self._adam.first,
            "second": self._adam.second,
            "best": self._best_state,
        }
        return {
            f"{part}.{name}": value.chunk(len(self._jobs))[number]
            for part, values in parts.items()
            for name, value in values.items()
        }

    def _save(self) -> None:
        for number, job in enumerate(self._jobs):
            if job.checkpoint is None:
                continue
            header = {
                "start": job.start,
                "n_steps": self._adam.n_steps,
                "history": [
                    [e.epoch, None if math.isnan(e.loss) else e.loss, e.score] for e in self._histories[number]
                ],
                "best": self._best[number].epoch,
                "seconds": self._seconds[number],
            }
            write_tensors(job.checkpoint, "checkpoint", self._parts(number), header)

    @torch.no_grad()
    def restore(self, number: int, saved: _Saved) -> None:
        """Take up a network where its checkpoint left it."""
        for name, value in self._parts(number).items():
            value.copy_(saved.tensors[name])
        header = saved.header
        self._adam.n_steps = int(header["n_steps"])
        self._histories[number] = [
            Epoch(epoch, math.nan if loss is None else loss, score) for epoch, loss, score in header["history"]
        ]
        self._best[number] = self._histories[number][header["best"]]
        self._seconds[number] = float(header["seconds"])


def _schedule(settings: SurrogateSettings, epochs_done: float) -> float:
    """Share of the learning rate that is left."""
    return 0.5 * (1 + math.cos(math.pi * epochs_done / settings.epochs)) if settings.schedule == "cosine" else 1.0
