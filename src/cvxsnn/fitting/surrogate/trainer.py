"""Surrogate-gradient training: backpropagation through time with a surrogate derivative of the spike.

It is the baseline that certified read-outs are compared with, and a source of witnesses for them. Whatever is scored,
chosen or returned is the network with exact spikes; only the gradients are approximations.

Jobs of one shape can train side by side, each on its own data: on a GPU many small networks cost little more than one.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...convex.objective import Head, Objective
from ...core import gpu
from ...core.checks import check_int_at_least, check_number
from ...core.errors import DataFileError, InvalidInputError, first_line
from ...core.seeds import child_generator, child_seed
from ...core.storage import read_tensors, write_tensors
from ...data.sequences import TrainingSet
from ...dictionary.fingerprint import fingerprint, fingerprint_layers
from ...network.reconstruction import reconstruct
from ...network.spiking_network import SpikingNetwork
from ...neurons.exact import snap_inputs
from ..program import Program
from ..scores import Score, ScoreFunction, TaskScore
from ..surrogate_settings import SurrogateSettings
from .dropout import Dropout
from .networks import TrainableNetworks, architecture
from .optimal_readout import OptimalReadout
from .settings import Epoch, SurrogateRun, target_scale
from .simultaneous import score_simultaneously
from .single import SingleAdam
from .stacked import StackedAdam

_SAME_SCORE = 1e-6
"""Difference of scores that may be rounding: of one network and the same data, on two devices."""

_RESOLUTION = 0.01
"""Rounding of real targets, relative to their spread, above which gradients would fit it."""


@dataclass(frozen=True, eq=False)
class SurrogateJob:
    """One network to train.

    Parameters
    ----------
    network : SpikingNetwork
        The network to start from. It is not changed.
    data : TrainingSet
        The training data.
    objective : Objective
        What to minimise.
    settings : SurrogateSettings
        How to train.
    score : callable
        The score of a network with exact spikes, for example its accuracy on validation data; higher is better. The
        network of the best epoch is returned; the start counts as epoch 0.
    checkpoint : Path, optional
        A file that is written during training. If it exists, training resumes from it, with the same result as if it
        had never been interrupted. A file of another network, other data or other settings is refused.
    program : Program, optional
        The program whose optimum the read-out is at all times, so that gradients train the hidden layers alone. By
        default gradients train the read-out too.
    """

    network: SpikingNetwork
    data: TrainingSet
    objective: Objective
    settings: SurrogateSettings
    score: ScoreFunction
    checkpoint: Path | None = None
    program: Program | None = None

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """Key that is equal for jobs that can train side by side."""
        network, heads = self.network, self.objective.heads(self.data)[0]
        return (
            architecture(network),
            (tuple(network.columns.tolist()), network.weight.device, network.layers[0].weight.dtype),
            (self.data.inputs.shape, self.data.sequences.lengths is None),
            tuple((type(head.loss), repr(vars(head.loss)), head.targets.shape) for head in heads),
            (replace(self.settings.kind, seed=0), self.program is None),
            self.score.shape if isinstance(self.score, TaskScore) else None,
        )

    @property
    def bytes(self) -> int:
        """Memory that one batch keeps of the forward pass: membranes, spikes, drives, past inputs and gradients."""
        n_steps = min(self.settings.batch_size, len(self.data)) * self.data.inputs.shape[1]
        past = [layer.n_inputs * (layer.max_delay + 1) for layer in self.network.layers if layer.has_delays]
        return 4 * n_steps * (6 * sum(self.network.hidden) + 2 * sum(past)) * self.network.n_subnetworks

    @cached_property
    def origin(self) -> dict[str, str]:
        """Fingerprints, by name, of everything that training depends on, except for the score."""
        network, sequences = self.network, self.data.sequences
        heads, row_weight = self.objective.heads(self.data)
        # Nothing is added for gradients alone and free spikes, whose files are older.
        settings = asdict(self.settings)
        if not self.settings.spike_penalty:
            del settings["spike_penalty"]
        program = [] if self.program is None else ["optimal read-out", str(self.program.intercept)]
        read: list[Tensor | str | None]
        read = [network.weight, network.intercept, network.columns, network.readout, repr(network.heads)]
        return {
            "network": fingerprint([fingerprint_layers(network.layers), *read]),
            "settings": fingerprint([repr(settings), *program]),
            "losses": fingerprint(f"{head.name} {head.loss.name} {vars(head.loss)} {head.weight}" for head in heads),
            "targets": fingerprint(head.targets for head in heads),
            "sequences": fingerprint([sequences.inputs, sequences.lengths]),
            "weights of sequences": fingerprint([row_weight]),
        }


def train_surrogate(
    network: SpikingNetwork,
    data: TrainingSet,
    objective: Objective,
    settings: SurrogateSettings | None = None,
    *,
    score: ScoreFunction,
    callback: Callable[[int, int], None] | None = None,
    checkpoint: Path | str | None = None,
) -> SurrogateRun:
    """Train all layers of a network.

    Parameters
    ----------
    network : SpikingNetwork
        The network to start from. It is not changed.
    data : TrainingSet
        The training data.
    objective : Objective
        What to minimise.
    settings : SurrogateSettings, optional
        How to train.
    score : callable
        The score of a network with exact spikes, for example its accuracy on validation data; higher is better. The
        network of the best epoch is returned; the start counts as epoch 0.
    callback : callable, optional
        Called as ``callback(done, epochs)`` after each epoch.
    checkpoint : Path or str, optional
        A file that is written during training. If it exists, training resumes from it, with the same result as if it
        had never been interrupted. A file of another network, other data or other settings is refused.

    Returns
    -------
    SurrogateRun
        The network of the best epoch, and every epoch.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import SurrogateSettings, TaskScore, train_surrogate
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (16,), seed=0), task.train.inputs)
    >>> start = cs.reconstruct(cs.solve(cs.ConvexProblem(dictionary, task.train.targets, "logistic", 0.01)))
    >>> data, score = cs.data.TrainingSet.of(task.train), TaskScore(task, task.val)
    >>> run = train_surrogate(start, data, cs.convex.Objective("logistic"), SurrogateSettings(epochs=2), score=score)
    >>> len(run.history)
    3
    """
    file = None if checkpoint is None else Path(checkpoint)
    job = SurrogateJob(network, data, objective, settings or SurrogateSettings(), score, file)
    return train_jobs([job], callback=callback)[0]


def train_jobs(
    jobs: Sequence[SurrogateJob],
    *,
    side_by_side: bool | None = True,
    callback: Callable[[int, int], None] | None = None,
    memory: int = 24 * 2**30,
    seconds_between_saves: float = 60.0,
    max_seconds: float = inf,
) -> list[SurrogateRun]:
    """Train several networks.

    Parameters
    ----------
    jobs : sequence of SurrogateJob
        The networks, with their data and settings.
    side_by_side : bool or None
        Whether jobs of one shape train in one batch or one after the other; None for one batch on a GPU only. There,
        many small networks take as long as one; on a CPU they are faster one after the other.
    callback : callable, optional
        Called as ``callback(done, epochs)`` after each epoch; ``epochs`` is at most that many for all batches together.
    memory : int
        The bytes that training in one batch may keep of the forward pass.
    seconds_between_saves : float
        The least time between two checkpoints of jobs that train side by side, whose files take long to write. A job
        alone is saved after every epoch.
    max_seconds : float
        The time after which no further epoch begins. Every job trains for at least one epoch.

    Returns
    -------
    list of SurrogateRun
        The outcome of each job.
    """
    begin = time.perf_counter()
    if side_by_side is None:
        side_by_side = any(gpu.is_gpu(job.network.weight.device) for job in jobs)
    saved = [_read_checkpoint(job) for job in jobs]
    batches: dict[tuple[object, ...], list[int]] = {}
    for number, (job, state) in enumerate(zip(jobs, saved, strict=True)):
        # Jobs of a batch share the epoch, which decides the learning rate.
        shape = (*job.shape, None if state is None else len(state.progress.history))
        room = max(1, memory // job.bytes) if side_by_side else 1
        # A longer key is another batch: this one has no memory left.
        while len(batches.setdefault(shape, [])) >= room:
            shape = (*shape, "and more")
        batches[shape].append(number)
    runs: dict[int, SurrogateRun] = {}
    total = sum(jobs[members[0]].settings.epochs for members in batches.values())
    before = 0
    for members in batches.values():
        batch = _TrainingBatch([jobs[number] for number in members], [saved[number] for number in members])
        for epoch in batch.train(seconds_between_saves):
            if callback is not None:
                callback(before + epoch, total)
            if time.perf_counter() - begin > max_seconds:
                break
        before += batch.kind.epochs
        runs |= dict(zip(members, batch.finish(), strict=True))
    return [runs[number] for number in range(len(jobs))]


@dataclass(eq=False)
class _Progress:
    """The epochs of one network so far."""

    settings: SurrogateSettings
    history: list[Epoch] = field(default_factory=list)
    best: Epoch | None = None
    seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        epoch, patience = len(self.history) - 1, self.settings.patience
        if epoch >= self.settings.epochs or patience is None or not self.history:
            return epoch >= self.settings.epochs
        # The first of equal scores: epochs that only keep a score are no progress.
        return epoch - max(self.history, key=lambda moment: moment.score).epoch >= patience

    def add(self, moment: Epoch) -> bool:
        """Add an epoch; return whether it is the best, of equal scores the later, which has trained for longer.

        Where spikes have a price, which scores leave out, it is the last one.
        """
        self.history.append(moment)
        is_best = self.best is None or self.settings.spike_penalty > 0 or not moment.score < self.best.score
        self.best = moment if is_best else self.best
        return is_best


class _Checkpoint(NamedTuple):
    """The contents of a checkpoint file."""

    tensors: dict[str, Tensor]
    n_steps: int
    progress: _Progress


def _read_checkpoint(job: SurrogateJob) -> _Checkpoint | None:
    if job.checkpoint is None or not job.checkpoint.exists():
        return None
    tensors, header = read_tensors(job.checkpoint, "checkpoint")
    stored = header.get("origin")
    stored = stored if isinstance(stored, Mapping) else {}
    others = [name for name, value in job.origin.items() if stored.get(name) != value]
    if others:
        raise _refusal(job, f"other {', '.join(others)}")
    try:
        history = [
            Epoch(int(epoch), math.nan if loss is None else float(loss), _from_json(score))
            for epoch, loss, score in header["history"]
        ]
        best = history[check_int_at_least("best", header["best"], 0)]
        progress = _Progress(job.settings, history, best, check_number("seconds", header["seconds"]))
        return _Checkpoint(tensors, check_int_at_least("n_steps", header["n_steps"], 0), progress)
    except (LookupError, TypeError, ValueError) as error:
        raise _incomplete(job, error) from None


def _refusal(job: SurrogateJob, difference: str) -> InvalidInputError:
    return InvalidInputError(
        f"expected a checkpoint of the same training, got one with {difference}: delete {job.checkpoint} or name "
        "another file"
    )


def _incomplete(job: SurrogateJob, error: Exception) -> DataFileError:
    return DataFileError(
        f"expected a complete checkpoint in {job.checkpoint}, got one that does not fit together "
        f"({first_line(error)}): delete it"
    )


class _BatchData:
    """The sequences of all jobs of a batch, ready to be drawn from."""

    def __init__(self, jobs: Sequence[SurrogateJob], device: torch.device, dtype: torch.dtype) -> None:
        sets = [job.data.to(device) for job in jobs]
        self.inputs = torch.stack([snap_inputs(data.inputs).to(dtype) for data in sets])
        lengths = [data.sequences.lengths for data in sets if data.sequences.lengths is not None]
        self._lengths = torch.stack(lengths) if lengths else None
        parts = [job.objective.heads(data) for job, data in zip(jobs, sets, strict=True)]
        self.scales = [target_scale(heads, weight) for heads, weight in parts]
        for (heads, _), scale in zip(parts, self.scales, strict=True):
            _check_resolution(heads, scale, dtype)
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

    def losses(self, model: TrainableNetworks, samples: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        """Return the objective and the firing rate of each network on some of its sequences, both (n_networks,)."""
        n_networks, n_samples = self.inputs.shape[:2]
        chosen = torch.arange(n_networks, device=samples.device)[:, None], samples
        lengths = None if self._lengths is None else self._lengths[chosen]
        scores, fired = model.run(self.inputs[chosen], lengths, dropout)
        scores = scores.flatten(1, -2)
        # Scaled so that the mean over batches is the objective over all rows.
        weight = self._row_weight[chosen].flatten(1) * (n_samples / samples.shape[1])
        total = torch.zeros(n_networks, dtype=scores.dtype, device=scores.device)
        for h, head in enumerate(self._heads):
            values = head.loss.value(scores[..., head.columns].flatten(0, 1), self._targets[h][chosen].flatten(0, 2))
            total = total + self._head_weights[:, h] * (values.view(n_networks, -1) * weight).sum(1)
        return total, model.firing_rates(fired, lengths)


def _check_resolution(heads: Sequence[Head], scale: float, dtype: torch.dtype) -> None:
    """Refuse real targets whose differences would be lost in the arithmetic of training."""
    largest = max((float(head.targets.abs().max()) for head in heads if head.loss.is_regression), default=0.0)
    if largest * torch.finfo(dtype).eps > _RESOLUTION * scale:
        raise InvalidInputError(
            f"target variation is below {dtype} resolution (values up to {largest:.3g}, spread {scale:.3g}): subtract "
            "the mean before training by gradients"
        )


class _TrainingBatch:
    """Jobs of one shape in training, with everything that training changes."""

    def __init__(self, jobs: Sequence[SurrogateJob], saved: Sequence[_Checkpoint | None]) -> None:
        self._jobs, self.kind = list(jobs), jobs[0].settings.kind
        settings = [job.settings for job in jobs]
        steepness = [member.steepness for member in settings]
        self._model = TrainableNetworks(
            [job.network for job in jobs], self.kind.surrogate, steepness, self.kind.dynamics
        )
        self._readouts = [OptimalReadout.of(job.program, job.data) for job in jobs if job.program is not None]
        if self._readouts:  # solved for, so that the optimiser does not move them
            self._model.weight.requires_grad_(False)
            self._model.intercept.requires_grad_(False)
        like = self._model.weight
        self._data = _BatchData(jobs, like.device, like.dtype)
        scales = self._data.scales
        self._scales = torch.tensor(scales, dtype=like.dtype, device=like.device)
        self._spike_penalties = like.new_tensor([member.spike_penalty for member in settings])
        self._optimiser = (
            SingleAdam(self._model, settings[0], scales[0])
            if len(jobs) == 1
            else StackedAdam(self._model, settings, scales)
        )
        # Cloned, because a state_dict shares memory with the parameters that train on.
        self._best_state = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._progress = [_Progress(member) for member in settings]
        for number, state in enumerate(saved):
            if state is not None:
                self._restore(number, state)
        if saved[0] is None:  # jobs of a batch have the same number of epochs behind them
            self._solve_readouts()
            self._judge(0, [math.nan for _ in jobs])

    @property
    def _is_over(self) -> bool:
        return all(progress.has_ended for progress in self._progress)

    def train(self, seconds_between_saves: float) -> Iterator[int]:
        """Train until every network has ended; yield the number of each epoch after it."""
        saved_at = time.perf_counter()
        while not self._is_over:
            begin = time.perf_counter()
            epoch = max(len(progress.history) for progress in self._progress)
            losses = self._train_epoch(epoch)
            self._solve_readouts()
            self._judge(epoch, losses)
            now = time.perf_counter()
            for progress in self._progress:
                progress.seconds += (now - begin) / len(self._jobs)
            if self._is_over or len(self._jobs) == 1 or now - saved_at >= seconds_between_saves:
                self._save()
                saved_at = time.perf_counter()
            yield epoch

    @torch.enable_grad()
    def _train_epoch(self, epoch: int) -> list[float]:
        n_samples = self._data.inputs.shape[1]
        orders = [
            child_generator(job.settings.seed, "surrogate", "batches", epoch).permutation(n_samples)
            for job in self._jobs
        ]
        order = torch.stack(list(map(torch.from_numpy, orders))).to(self._data.inputs.device)
        batches = torch.split(order, self.kind.batch_size, dim=1)
        total = torch.zeros(len(self._jobs), dtype=torch.float64, device=order.device)
        for number, samples in enumerate(batches):
            losses, rates = self._data.losses(self._model, samples, self._dropout(epoch, number))
            # The squared loss grows with the square of its targets; in units of their spread, gradients do not.
            value = (losses / self._scales**2).sum()
            if bool(self._spike_penalties.any()):
                value = value + (self._spike_penalties * rates).sum()
            value.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step(_schedule(self.kind, epoch - 1 + number / len(batches)))
            self._model.project()
            total += losses.detach() * (samples.shape[1] / n_samples)
        return total.tolist()

    @torch.no_grad()
    def _solve_readouts(self) -> None:
        """Replace read-outs that are to be optimal by those for the hidden neurons as they are now."""
        for number, readout in enumerate(self._readouts):
            # From the present read-out, which checkpoints contain, so that training that resumes is the same.
            solved = reconstruct(readout.solve(self._model.freeze(number)), "full")
            self._model.weight[number].copy_(solved.weight)
            self._model.intercept[number].copy_(solved.intercept)

    def _dropout(self, epoch: int, batch: int) -> Dropout:
        settings = [job.settings for job in self._jobs]
        # A key for each epoch and batch, so that training that resumes hides the same.
        keys = [child_seed(member.seed, "surrogate", "dropout", epoch, batch) for member in settings]
        return Dropout([member.input_dropout for member in settings], [member.dropout for member in settings], keys)

    def _judge(self, epoch: int, losses: Sequence[float]) -> None:
        """Score the networks that still train, and keep the parameters of those that are at their best."""
        # A network that has ended still moves along with its batch, but its best parameters stay.
        training = [number for number, progress in enumerate(self._progress) if not progress.has_ended]
        scores = self._scores(training)
        is_best = torch.zeros(len(losses), dtype=torch.bool)
        for number in training:
            is_best[number] = self._progress[number].add(Epoch(epoch, losses[number], scores[number]))
        is_best = is_best.to(self._model.weight.device)
        for name, value in self._model.state_dict().items():
            rows = is_best.repeat_interleave(len(value) // len(losses)).view(-1, *[1] * (value.ndim - 1))
            self._best_state[name] = torch.where(rows, value, self._best_state[name])

    def _scores(self, numbers: Sequence[int]) -> Mapping[int, Score]:
        """Return the scores of some networks, of all of them if they can be scored simultaneously."""
        tasks = [job.score for job in self._jobs if isinstance(job.score, TaskScore)]
        if len(self._jobs) > 1 and len(tasks) == len(self._jobs):
            return dict(enumerate(score_simultaneously(self._model.freeze_all(), tasks)))
        return {number: self._jobs[number].score(self._model.freeze(number)) for number in numbers}

    def finish(self) -> list[SurrogateRun]:
        """Return the networks of the best epochs."""
        self._model.load_state_dict(self._best_state)
        runs = []
        for number, progress in enumerate(self._progress):
            assert progress.best is not None
            history, network = tuple(progress.history), self._model.freeze(number)
            runs.append(SurrogateRun(network, history, progress.best, progress.settings, progress.seconds))
        return runs

    def _parts(self, number: int) -> dict[str, Tensor]:
        """Return one network's rows of everything that training changes, by name."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": self._model.state_dict(),
            "first": self._optimiser.first,
            "second": self._optimiser.second,
            "best": self._best_state,
        }
        return {
            f"{part}.{name}": value.chunk(len(self._jobs))[number]
            for part, values in parts.items()
            for name, value in values.items()
        }

    def _save(self) -> None:
        for number, (job, progress) in enumerate(zip(self._jobs, self._progress, strict=True)):
            if job.checkpoint is None or progress.best is None:
                continue
            header = {
                "origin": job.origin,
                "n_steps": self._optimiser.n_steps,
                # JSON has no NaN, which is the loss of the start.
                "history": [
                    [moment.epoch, None if math.isnan(moment.loss) else moment.loss, _numbers(moment.score).tolist()]
                    for moment in progress.history
                ],
                "best": progress.best.epoch,
                "seconds": progress.seconds,
            }
            write_tensors(job.checkpoint, "checkpoint", self._parts(number), header)

    @torch.no_grad()
    def _restore(self, number: int, saved: _Checkpoint) -> None:
        """Continue a network from its checkpoint, if its best epoch has the score that it had."""
        job, best = self._jobs[number], saved.progress.best
        assert best is not None
        try:
            for name, value in self._parts(number).items():
                if value.shape != saved.tensors[name].shape:
                    raise InvalidInputError(f"{name} has another shape")
                value.copy_(saved.tensors[name])
            score = self._score_of_best(number)
        except (LookupError, TypeError, ValueError) as error:
            raise _incomplete(job, error) from None
        # The origin has no fingerprint of the score, which is a function; its value shows whether it is the same.
        now, then = _numbers(score), _numbers(best.score)
        if now.shape != then.shape or not np.allclose(now, then, _SAME_SCORE, _SAME_SCORE, equal_nan=True):
            raise _refusal(job, f"a score of {best.score} for a network that has {score} now")
        self._optimiser.n_steps, self._progress[number] = saved.n_steps, saved.progress

    def _score_of_best(self, number: int) -> Score:
        """Return the score of the network of the best epoch."""
        now = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._model.load_state_dict(self._best_state)
        try:
            return self._jobs[number].score(self._model.freeze(number))
        finally:
            self._model.load_state_dict(now)


def _schedule(settings: SurrogateSettings, epochs_done: float) -> float:
    """Return the share of the learning rate that is left."""
    return 0.5 * (1 + math.cos(math.pi * epochs_done / settings.epochs)) if settings.schedule == "cosine" else 1.0


def _numbers(score: Any) -> npt.NDArray[np.float64]:
    """Return a score, a number or a tuple of them, as an array."""
    return np.asarray(score, dtype=float)


def _from_json(score: Any) -> float | tuple[float, ...]:
    return tuple(map(float, score)) if isinstance(score, list) else float(score)
