"""Surrogate gradients through synaptic delays: the baseline of the benchmark ``delays``, on the same data.

One hidden layer of LIF neurons starts from the same kinds of witnesses with delays. Surrogate gradients train weights,
biases, decays and thresholds, while the delays stay as they are; the read-out is the mean of the spikes with a softmax
loss. Validation data choose the setting in two rounds: kind of taps, initial weights and learning rate, with the first
seed (or unheard speaker); then, with each seed or speaker, learning rates next to the best one, the steepness of the
surrogate derivative and dropout. Larger networks start from the setting of the next smaller one, and choose learning
rate and dropout again. The best network of each size is tested once (SG). Compared with it are its neurons with a
certified ridge read-out (SG-CVX), as many sampled neurons with that read-out, drawn at random or selected from a pool
(CVX), and trained and sampled neurons together. What is measured is kept as one JSON object a line in
``results/delays_surrogate.jsonl``; a run that was interrupted goes on where it stopped, and ``--render`` measures
nothing.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import cvxsnn as cs
from cvxsnn.convex.objective import Objective
from cvxsnn.core.seeds import child_seed
from cvxsnn.data.sequences import TrainingSet
from cvxsnn.data.tasks import Task
from cvxsnn.fitting.methods import trained_witnesses
from cvxsnn.fitting.surrogate import SurrogateSettings
from cvxsnn.fitting.surrogate.settings import SurrogateRun, initial_network
from cvxsnn.fitting.surrogate.trainer import SurrogateJob, train_jobs
from cvxsnn.network.spiking_network import SpikingNetwork
from cvxsnn.witnesses import delayed_witnesses, join_witnesses, single_out

from .delays import CASES as SAMPLED_CASES
from .delays import SEEDS, Case, draw, read_out, select
from .lines import add_line, read_lines
from .measure import console, make_table

RECORDS = Path(__file__).parent / "results" / "delays_surrogate.jsonl"
BATCH_SIZE = 50
EPOCHS = 20
"""Epochs of every network; the learning rate falls to zero in them, and validation data choose the epoch."""

MAX_POOL = 32_768
POOL_FACTOR = 32
"""How many neurons are sampled for each one that is selected, up to ``MAX_POOL`` in all."""

METHODS = ("SG", "SG-CVX", "CVX", "CVX, selected", "SG-CVX, joined by sampled neurons")
LEARNING_RATES = (3e-3, 1e-2, 3e-2, 1e-1)
WEIGHTS = ("gaussian", "differences")
STEEPNESS = (0.5, 1.0)
DROPOUT = (0.0, 0.25)
HISTORY: dict[str, Any] = {"fan_in": None}


def box(*size: int, **more: Any) -> dict[str, Any]:
    """A box of taps."""
    return {"geometry": "box", "fan_in": None, "box": size, **more}


GEOMETRIES: dict[str, dict[str, dict[str, Any]]] = {
    "mnist2": {"box 2 x 14 x 14": box(2, 14, 14, feature_shape=(14, 28)), "history": HISTORY},
    "mnist14": {"box 6 x 24": box(6, 24), "history": HISTORY},
    "mnist28": {
        "scattered, 25 taps": {"fan_in": 25},
        "box 8 x 8": box(8, 8, max_delay=7),
        "box 12 x 12": box(12, 12),
        "history": HISTORY,
    },
    "mnist56": {"box 24 x 12": box(24, 12), "history": HISTORY},
    "spoken": {
        "scattered, 9 taps, delays to 7": {"fan_in": 9, "max_delay": 7},
        "box 8 x 16": box(8, 16, max_delay=7),
    },
}
"""Kinds of taps that validation data choose from, for each case."""


@dataclass(frozen=True)
class Setting:
    """What is tuned."""

    geometry: str
    weights: str
    learning_rate: float
    steepness: float = 0.5
    dropout: float = 0.0


@dataclass(frozen=True, eq=False)
class Member:
    """One of the tasks of a case: a seed, and an unheard speaker where there are several."""

    seed: int
    part: int
    task: Task


@dataclass(frozen=True, eq=False)
class ValidationScore:
    """The accuracy and minus the mean loss on validation data: the loss decides between equal accuracies."""

    inputs: torch.Tensor
    labels: torch.Tensor

    def __call__(self, network: SpikingNetwork) -> tuple[float, float]:
        """The score of a network with exact spikes."""
        scores = scores_of(network, self.inputs)
        return float((scores.argmax(-1) == self.labels).double().mean()), -float(cross_entropy(scores, self.labels))


def scores_of(network: SpikingNetwork, inputs: torch.Tensor) -> torch.Tensor:
    """The outputs of a network, some sequences at a time."""
    with torch.no_grad():
        return torch.cat([network(part) for part in inputs.split(2000)])


def make_job(case: Case, member: Member, setting: Setting, n_neurons: int, epochs: int, device: str) -> SurrogateJob:
    """One hidden layer that trains through delays."""
    taps, task = GEOMETRIES[case.name][setting.geometry], member.task
    seed = child_seed(member.seed, "delays", "surrogate")
    witnesses = delayed_witnesses(task.train.inputs, (n_neurons,), weights=setting.weights, seed=seed, **taps)  # type: ignore[arg-type]
    objective = Objective("softmax", case.readout).for_classes(task.n_classes)
    data = TrainingSet.of(task.train)
    network = initial_network(witnesses.layers, objective, data, seed)
    settings = SurrogateSettings(
        epochs=epochs,
        batch_size=BATCH_SIZE,
        learning_rate=setting.learning_rate,
        steepness=setting.steepness,
        dropout=setting.dropout,
        seed=seed,
    )
    score = ValidationScore(*(torch.from_numpy(own).to(device) for own in (task.val.inputs, task.val.heads["label"])))
    return SurrogateJob(network.to(device), data.to(device), objective, settings, score)


def describe(run: SurrogateRun) -> dict[str, Any]:
    """What a record keeps of a run: the best epoch, and its training loss, validation accuracy and validation loss."""
    validation, negated = run.best.score  # type: ignore[misc]
    return {
        "validation": validation,
        "validation_loss": -negated,
        "training_loss": run.best.loss,
        "best_epoch": run.best.epoch,
        "seconds": run.seconds,
    }


class Trainer:
    """Trains networks of one case and size, and remembers those of this run."""

    def __init__(self, case: Case, n_neurons: int, epochs: int, device: str) -> None:
        self.case, self.n_neurons, self.epochs, self.device = case, n_neurons, epochs, device
        self.runs: dict[tuple[Member, Setting], SurrogateRun] = {}

    def train(self, wanted: Sequence[tuple[Member, Setting]]) -> None:
        """Train what has not been trained, and keep a record of each network."""
        new = [pair for pair in dict.fromkeys(wanted) if pair not in self.runs]
        jobs = [make_job(self.case, *pair, self.n_neurons, self.epochs, self.device) for pair in new]
        runs = train_jobs(jobs)
        for (member, setting), run in zip(new, runs, strict=True):
            self.runs[member, setting] = run
            what = {"case": self.case.name, "kind": "tuning", "seed": member.seed, "part": member.part}
            add_record({**what, **asdict(setting), "neurons": self.n_neurons, "epochs": self.epochs, **describe(run)})

    def best(self, member: Member) -> Setting:
        """The setting with the best validation score."""
        own = [setting for other, setting in self.runs if other is member]
        return max(own, key=lambda setting: self.runs[member, setting].best.score)  # type: ignore[arg-type,return-value]


def tune(case: Case, members: Sequence[Member], sizes: Sequence[int], epochs: int, device: str) -> None:
    """Tune the smallest network in two rounds, start each larger one from there, and test the best of each size."""
    chosen: dict[Member, Setting] = {}
    for n_neurons in sorted(sizes):
        tested = {member: find_setting(case, member, n_neurons) for member in members}
        if None not in tested.values():
            chosen = {member: own for member, own in tested.items() if own is not None}
            continue
        trainer = Trainer(case, n_neurons, epochs, device)
        if not chosen:
            grid = product(GEOMETRIES[case.name], WEIGHTS, LEARNING_RATES)
            trainer.train([(members[0], Setting(*own)) for own in grid])
            chosen = dict.fromkeys(members, trainer.best(members[0]))
            near = list(product((0.5, 1.0, 2.0), STEEPNESS, DROPOUT))
        else:
            near = [(factor, None, dropout) for factor in (0.25, 0.5, 1.0) for dropout in DROPOUT]
        trainer.train(
            [
                (
                    member,
                    replace(
                        own,
                        learning_rate=factor * own.learning_rate,
                        steepness=steepness or own.steepness,
                        dropout=dropout,
                    ),
                )
                for member, own in chosen.items()
                for factor, steepness, dropout in near
            ]
        )
        chosen = {member: trainer.best(member) for member in members}
        for member, setting in chosen.items():
            test(trainer, member, setting)


def test(trainer: Trainer, member: Member, setting: Setting) -> None:
    """Read the neurons of the best network in other ways too, and test each network once."""
    case, task, n_neurons, device = trainer.case, member.task, trainer.n_neurons, trainer.device
    run = trainer.runs[member, setting]
    total = sum(own.seconds for (other, _), own in trainer.runs.items() if other is member)
    what = {
        "case": case.name,
        "kind": "test",
        "seed": member.seed,
        "part": member.part,
        **asdict(setting),
        "trained_neurons": n_neurons,
        "epochs": trainer.epochs,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }

    def keep(method: str, network: SpikingNetwork, neurons: int, **more: Any) -> None:
        outputs = scores_of(network, torch.from_numpy(task.test.inputs).to(device))
        predicted, labels = outputs.argmax(-1).cpu().numpy(), task.test.heads["label"]
        scores = {name: score(predicted, labels) for name, score in case.scores.items()}
        add_record({**what, "method": method, "neurons": neurons, **more, "scores": scores})

    keep(METHODS[0], run.network, n_neurons, **describe(run), seconds_with_tuning=total)
    families = max(SAMPLED_CASES[case.name].families.values(), key=len)
    n_pool = min(MAX_POOL, POOL_FACTOR * n_neurons)
    alone = single_out(trained_witnesses(run.network), torch.arange(n_neurons))

    def drawn(n_sampled: int) -> cs.witnesses.WitnessSet:
        return draw(families, n_sampled, task.train, member.seed, device)

    makers = {
        METHODS[1]: lambda: alone,
        METHODS[2]: lambda: drawn(n_neurons),
        METHODS[3]: lambda: select(case, task, drawn(n_pool), n_neurons, device),
        METHODS[4]: lambda: join_witnesses([alone, single_out(own := drawn(2 * n_neurons), _all(own))]),
    }
    for method, make in makers.items():
        begin = time.perf_counter()
        witnesses = make()
        fitted = read_out(case, task, witnesses, device)
        solution = fitted.best
        keep(
            method,
            cs.reconstruct(solution),
            witnesses.n_witnesses,
            validation=float(fitted.validation.max()),
            l2_strength=solution.problem.l2_strength,
            gap=solution.certificate.relative_gap,
            seconds=time.perf_counter() - begin + (run.seconds if method.startswith("SG") else 0.0),
        )


def _all(witnesses: cs.witnesses.WitnessSet) -> torch.Tensor:
    return torch.arange(witnesses.n_witnesses)


def find_setting(case: Case, member: Member, n_neurons: int) -> Setting | None:
    """The setting with which networks of this size were tested, if all methods were."""
    what = {"case": case.name, "seed": member.seed, "part": member.part, "trained_neurons": n_neurons}
    record = next((own for own in read_lines(RECORDS) if {**what, "method": METHODS[-1]}.items() <= own.items()), None)
    return None if record is None else Setting(*(record[own.name] for own in fields(Setting)))


def add_record(record: dict[str, Any]) -> None:
    """Keep what was measured."""
    console.print(", ".join(f"{name} {value}" for name, value in record.items()))
    add_line(RECORDS, record)


def render(records: Sequence[Mapping[str, Any]]) -> None:
    """Print, for each case and size, what was chosen and a table of the means over seeds."""
    for name in GEOMETRIES:
        tests = [own for own in records if own["case"] == name and own["kind"] == "test"]
        if not tests:
            continue
        scores = list(tests[0]["scores"])
        table = make_table(f"{name}: test", "method", "trained", "neurons", *scores, "validation", "runs", "seconds")
        for size, method in product(sorted({own["trained_neurons"] for own in tests}), METHODS):
            rows = [own for own in tests if (own["trained_neurons"], own["method"]) == (size, method)]
            if not rows:
                continue
            table.add_row(
                method,
                f"{size:,}",
                f"{rows[0]['neurons']:,}",
                *(_mean([own["scores"][score] for own in rows]) for score in scores),
                _mean([own["validation"] for own in rows]),
                str(len(rows)),
                f"{np.mean([own['seconds'] for own in rows]):.0f}",
            )
        console.print(table)
        for own in tests:
            if own["method"] == METHODS[0]:
                names = ("trained_neurons", "seed", "part", *(own.name for own in fields(Setting)), "best_epoch")
                console.print(", ".join(f"{name} {own[name]}" for name in names))


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no tests of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks delays_surrogate", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(GEOMETRIES), default=tuple(GEOMETRIES), metavar="CASE")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--neurons", nargs="+", type=int, default=(512,), help="hidden neurons of each network")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    for name in () if options.render else options.only:
        case = SAMPLED_CASES[name]
        members = [
            Member(seed, part, task) for seed in options.seeds for part, (task, *_) in enumerate(case.load(seed))
        ]
        tune(case, members, options.neurons, options.epochs, options.device)
    render(read_lines(RECORDS))
