"""Surrogate-gradient training: backpropagation through time with a surrogate derivative of the spike.

It is the baseline that certified read-outs are compared with, and a source of witnesses for them. Whatever is scored,
chosen or returned is the network with exact spikes; only the gradients are approximations.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...convex.objective import Head, Objective
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
from ..scores import Score, ScoreFunction
from ..surrogate_settings import SurrogateSettings
from .adam import Adam
from .dropout import Dropout
from .networks import TrainableNetwork
from .optimal_readout import OptimalReadout
from .settings import Epoch, SurrogateRun, target_scale

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
    jobs: Sequence[SurrogateJob], *, callback: Callable[[int, int], None] | None = None, max_seconds: float = inf
) -> list[SurrogateRun]:
    """Train several networks, one after the other.

    Parameters
    ----------
    jobs : sequence of SurrogateJob
        The networks, with their data and settings.
    callback : callable, optional
        Called as ``callback(done, epochs)`` after each epoch; ``epochs`` is at most that many for all jobs together.
    max_seconds : float
        The time after which no further epoch begins. Every job trains for at least one epoch.

    Returns
    -------
    list of SurrogateRun
        The outcome of each job.
    """
    begin = time.perf_counter()
    saved = [_read_checkpoint(job) for job in jobs]  # files that do not fit are refused before anything is trained
    runs = []
    total = sum(job.settings.epochs for job in jobs)
    before = 0
    for job, state in zip(jobs, saved, strict=True):
        training = _Training(job, state)
        for epoch in training.epochs():
            if callback is not None:
                callback(before + epoch, total)
            if time.perf_counter() - begin > max_seconds:
                break
        before += job.settings.epochs
        runs.append(training.finish())
    return runs


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


class _JobData:
    """The sequences of a job, ready to be drawn from."""

    def __init__(self, job: SurrogateJob, device: torch.device, dtype: torch.dtype) -> None:
        data = job.data.to(device)
        self.inputs = snap_inputs(data.inputs).to(dtype)
        self._lengths = data.sequences.lengths
        self._heads, weight = job.objective.heads(data)
        self.scale = target_scale(self._heads, weight)
        _check_resolution(self._heads, self.scale, dtype)
        n_samples = len(self.inputs)
        self._row_weight = weight.to(dtype).view(n_samples, -1)
        self._targets = [head.targets.to(dtype).view(n_samples, -1, head.targets.shape[1]) for head in self._heads]

    def loss(self, model: TrainableNetwork, samples: Tensor, dropout: Dropout) -> tuple[Tensor, Tensor]:
        """Return the objective and the firing rate of the network on some of its sequences."""
        lengths = None if self._lengths is None else self._lengths[samples]
        scores, fired = model.run(self.inputs[samples], lengths, dropout)
        scores = scores.flatten(0, -2)
        # Scaled so that the mean over batches is the objective over all rows.
        weight = self._row_weight[samples].flatten() * (len(self.inputs) / len(samples))
        total = torch.zeros((), dtype=scores.dtype, device=scores.device)
        for head, targets in zip(self._heads, self._targets, strict=True):
            values = head.loss.value(scores[:, head.columns], targets[samples].flatten(0, 1))
            total = total + head.weight * (values * weight).sum()
        return total, model.firing_rate(fired, lengths)


def _check_resolution(heads: Sequence[Head], scale: float, dtype: torch.dtype) -> None:
    """Refuse real targets whose differences would be lost in the arithmetic of training."""
    largest = max((float(head.targets.abs().max()) for head in heads if head.loss.is_regression), default=0.0)
    if largest * torch.finfo(dtype).eps > _RESOLUTION * scale:
        raise InvalidInputError(
            f"target variation is below {dtype} resolution (values up to {largest:.3g}, spread {scale:.3g}): subtract "
            "the mean before training by gradients"
        )


class _Training:
    """A job in training, with everything that training changes."""

    def __init__(self, job: SurrogateJob, saved: _Checkpoint | None) -> None:
        self._job, self._settings = job, job.settings
        settings = self._settings
        self._model = TrainableNetwork(job.network, settings.surrogate, settings.steepness, settings.dynamics)
        self._readout = None if job.program is None else OptimalReadout.of(job.program, job.data)
        if self._readout is not None:  # solved for, so that the optimiser does not move it
            self._model.weight.requires_grad_(False)
            self._model.intercept.requires_grad_(False)
        self._data = _JobData(job, self._model.weight.device, self._model.weight.dtype)
        self._optimiser = Adam(self._model, settings, self._data.scale)
        # Cloned, because a state_dict shares memory with the parameters that train on.
        self._best_state = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._progress = _Progress(settings)
        if saved is not None:
            self._restore(saved)
        else:
            self._solve_readout()
            self._judge(0, math.nan)

    def epochs(self) -> Iterator[int]:
        """Train until the end; yield the number of each epoch after it."""
        while not self._progress.has_ended:
            begin = time.perf_counter()
            epoch = len(self._progress.history)
            loss = self._train_epoch(epoch)
            self._solve_readout()
            self._judge(epoch, loss)
            self._progress.seconds += time.perf_counter() - begin
            self._save()
            yield epoch

    @torch.enable_grad()
    def _train_epoch(self, epoch: int) -> float:
        settings, n_samples = self._settings, len(self._data.inputs)
        order = child_generator(settings.seed, "surrogate", "batches", epoch).permutation(n_samples)
        batches = torch.split(torch.from_numpy(order).to(self._data.inputs.device), settings.batch_size)
        total = torch.zeros((), dtype=torch.float64, device=self._data.inputs.device)
        for number, samples in enumerate(batches):
            # A key for each epoch and batch, so that training that resumes hides the same.
            key = child_seed(settings.seed, "surrogate", "dropout", epoch, number)
            loss, rate = self._data.loss(self._model, samples, Dropout(settings.input_dropout, settings.dropout, key))
            # The squared loss grows with the square of its targets; in units of their spread, gradients do not.
            value = loss / self._data.scale**2
            if settings.spike_penalty:
                value = value + settings.spike_penalty * rate
            value.backward()  # type: ignore[no-untyped-call]
            self._optimiser.step(_schedule(settings, epoch - 1 + number / len(batches)))
            self._model.project()
            total += loss.detach() * (len(samples) / n_samples)
        return float(total)

    @torch.no_grad()
    def _solve_readout(self) -> None:
        """Replace a read-out that is to be optimal by that for the hidden neurons as they are now."""
        if self._readout is not None:
            # From the present read-out, which checkpoints contain, so that training that resumes is the same.
            solved = reconstruct(self._readout.solve(self._model.freeze()), "full")
            self._model.weight.copy_(solved.weight)
            self._model.intercept.copy_(solved.intercept)

    def _judge(self, epoch: int, loss: float) -> None:
        """Score the network, and keep its parameters if they are at their best."""
        if self._progress.add(Epoch(epoch, loss, self._job.score(self._model.freeze()))):
            self._best_state = {name: value.clone() for name, value in self._model.state_dict().items()}

    def finish(self) -> SurrogateRun:
        """Return the network of the best epoch."""
        self._model.load_state_dict(self._best_state)
        progress = self._progress
        assert progress.best is not None
        history = tuple(progress.history)
        return SurrogateRun(self._model.freeze(), history, progress.best, self._settings, progress.seconds)

    def _parts(self) -> dict[str, Tensor]:
        """Return everything that training changes, by name."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "model": self._model.state_dict(),
            "first": self._optimiser.first,
            "second": self._optimiser.second,
            "best": self._best_state,
        }
        return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}

    def _save(self) -> None:
        job, progress = self._job, self._progress
        if job.checkpoint is None or progress.best is None:
            return
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
        write_tensors(job.checkpoint, "checkpoint", self._parts(), header)

    @torch.no_grad()
    def _restore(self, saved: _Checkpoint) -> None:
        """Continue from a checkpoint, if its best epoch has the score that it had."""
        job, best = self._job, saved.progress.best
        assert best is not None
        try:
            for name, value in self._parts().items():
                if value.shape != saved.tensors[name].shape:
                    raise InvalidInputError(f"{name} has another shape")
                value.copy_(saved.tensors[name])
            score = self._score_of_best()
        except (LookupError, TypeError, ValueError) as error:
            raise _incomplete(job, error) from None
        # The origin has no fingerprint of the score, which is a function; its value shows whether it is the same.
        now, then = _numbers(score), _numbers(best.score)
        if now.shape != then.shape or not np.allclose(now, then, _SAME_SCORE, _SAME_SCORE, equal_nan=True):
            raise _refusal(job, f"a score of {best.score} for a network that has {score} now")
        self._optimiser.n_steps, self._progress = saved.n_steps, saved.progress

    def _score_of_best(self) -> Score:
        """Return the score of the network of the best epoch."""
        now = {name: value.clone() for name, value in self._model.state_dict().items()}
        self._model.load_state_dict(self._best_state)
        try:
            return self._job.score(self._model.freeze())
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
