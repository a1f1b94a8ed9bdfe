"""Surrogate gradients through synaptic delays: the baseline of the benchmark ``delays``, on the same data.

One hidden layer of LIF neurons starts from the same kinds of witnesses with delays. Surrogate gradients train weights,
biases, decays and thresholds, while the delays stay as they are; the read-out is the mean of the spikes with a softmax
loss. The settings are tuned on validation data with one seed, few neurons and few epochs, in three rounds: kind of
taps, initial weights and learning rate; then the steepness of the surrogate derivative; then dropout and learning rates
next to the best one. The best setting trains one larger network for each seed, which is tested once. Compared with it
(SG) are its neurons with a certified ridge read-out (SG-CVX), as many sampled neurons with that read-out (CVX), more of
these, and trained and sampled neurons together. What is measured is kept as one JSON object a line in
``results/delays_surrogate.jsonl``; a run that was interrupted goes on where it stopped, and ``--render`` measures
nothing.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import cvxsnn as cs
from cvxsnn.convex.objective import Objective
from cvxsnn.core.seeds import child_seed
from cvxsnn.data.sequences import TrainingSet
from cvxsnn.data.tasks import SequenceData, Task
from cvxsnn.network.spiking_network import SpikingNetwork
from cvxsnn.training.methods import trained_witnesses
from cvxsnn.training.surrogate import SurrogateSettings, train_surrogate
from cvxsnn.training.surrogate.settings import SurrogateRun, initial_network
from cvxsnn.witnesses import delayed_witnesses, join_witnesses, single_out

from .delays import CASES as SAMPLED_CASES
from .delays import SEEDS, Case, draw, read_out
from .measure import console, make_table

RECORDS = Path(__file__).parent / "results" / "delays_surrogate.jsonl"
BATCH_SIZE = 50
TUNING_SEED = 0
N_TUNING = 256
"""Neurons of the networks that are tuned."""

METHODS = ("SG", "SG-CVX", "CVX", "CVX, more neurons", "SG-CVX, joined by sampled neurons")

PATIENCE = 8
"""Epochs without a better validation score after which the network that is tested stops training."""

EPOCHS = (4, 6, 6)
"""Epochs of each round of tuning; the learning rate falls to zero in each."""

LEARNING_RATES = (3e-3, 1e-2, 3e-2, 1e-1)
WEIGHTS = ("gaussian", "differences")
STEEPNESS = (0.5, 1.0, 3.0)
DROPOUT = 0.25
IMAGES: dict[str, dict[str, Any]] = {
    "scattered, 25 taps": {"fan_in": 25},
    "box 8 x 8": {"geometry": "box", "fan_in": None, "box": (8, 8), "max_delay": 7},
    "box 12 x 12": {"geometry": "box", "fan_in": None, "box": (12, 12)},
    "history": {"fan_in": None},
}
GEOMETRIES: dict[str, dict[str, dict[str, Any]]] = {
    "mnist28": IMAGES,
    "mnist14": {
        "scattered, 25 taps": {"fan_in": 25},
        "box 6 x 12": {"geometry": "box", "fan_in": None, "box": (6, 12)},
        "history": {"fan_in": None},
    },
}
"""Kinds of taps that validation data choose from, for each case."""


@dataclass(frozen=True)
class Setting:
    """What is tuned."""

    geometry: str
    weights: str
    learning_rate: float
    steepness: float = 1.0
    dropout: float = 0.0


@dataclass(frozen=True, eq=False)
class ValidationScore:
    """The accuracy and minus the mean loss on validation data: the loss decides between equal accuracies."""

    data: SequenceData

    def __call__(self, network: SpikingNetwork) -> tuple[float, float]:
        """The score of a network with exact spikes."""
        labels = torch.from_numpy(self.data.heads["label"]).long()
        scores = scores_of(network, self.data)
        return float((scores.argmax(-1) == labels).double().mean()), -float(cross_entropy(scores, labels))


def scores_of(network: SpikingNetwork, data: SequenceData) -> torch.Tensor:
    """The outputs of a network, a few sequences at a time."""
    with torch.no_grad():
        return torch.cat([network(part) for part in torch.from_numpy(data.inputs).split(500)])


def fit(case: Case, task: Task, setting: Setting, n_neurons: int, epochs: int, seed: int) -> SurrogateRun:
    """Train one hidden layer through delays; the seconds are those of the processor, whose cores others may share."""
    taps = GEOMETRIES[case.name][setting.geometry]
    own_seed = child_seed(seed, "delays", "surrogate")
    witnesses = delayed_witnesses(task.train.inputs, (n_neurons,), weights=setting.weights, seed=own_seed, **taps)  # type: ignore[arg-type]
    objective = Objective("softmax", case.readout).for_classes(task.n_classes)
    data = TrainingSet.of(task.train)
    network = initial_network(witnesses.layers, objective, data, own_seed)
    settings = SurrogateSettings(
        epochs=epochs,
        batch_size=BATCH_SIZE,
        learning_rate=setting.learning_rate,
        steepness=setting.steepness,
        dropout=setting.dropout,
        patience=PATIENCE,
        seed=own_seed,
    )
    begin = time.process_time()
    run = train_surrogate(network, data, objective, settings, score=ValidationScore(task.val))
    return replace(run, seconds=time.process_time() - begin)


def describe(run: SurrogateRun) -> dict[str, Any]:
    """What a record keeps of a run: each epoch's training loss, validation accuracy and validation loss."""
    history: list[Any] = [(moment.loss, *moment.score) for moment in run.history[1:]]  # type: ignore[misc]
    return {
        "validation": run.best.score[0],  # type: ignore[index]
        "best_epoch": run.best.epoch,
        "seconds": run.seconds,
        "history": [[round(loss, 4), accuracy, round(-negated, 4)] for loss, accuracy, negated in history],
    }


def tune(case: Case, n_rounds: int) -> Setting:
    """Choose a setting on validation data, round by round; runs with records are not repeated."""
    (task,) = case.load(TUNING_SEED)
    results: dict[Setting, tuple[float, float]] = {}

    def best_of(number: int, settings: Sequence[Setting]) -> list[Setting]:
        """The settings of a round, the best first: by validation accuracy, then by validation loss."""
        for setting in dict.fromkeys(settings):
            record = find_record(case=case.name, kind="tuning", round=number, **asdict(setting))
            if record is None:
                run = fit(case, task, setting, N_TUNING, EPOCHS[number], TUNING_SEED)
                what = {"case": case.name, "kind": "tuning", "round": number, **asdict(setting)}
                record = add_record({**what, "neurons": N_TUNING, "epochs": EPOCHS[number], **describe(run)})
            results[setting] = record["validation"], -record["history"][record["best_epoch"] - 1][2]
        return sorted(dict.fromkeys(settings), key=lambda setting: results[setting], reverse=True)

    grid = [
        Setting(geometry, weights, learning_rate)
        for geometry in GEOMETRIES[case.name]
        for weights in WEIGHTS
        for learning_rate in LEARNING_RATES
    ]
    best, *_ = best_of(0, grid)
    if n_rounds > 1:
        best, *_ = best_of(1, [replace(best, steepness=steepness) for steepness in STEEPNESS])
    if n_rounds > 2:
        near = [replace(best, learning_rate=factor * best.learning_rate) for factor in (0.5, 2.0)]
        best, *_ = sorted([best, *best_of(2, [replace(best, dropout=DROPOUT), *near])], key=results.get, reverse=True)  # type: ignore[arg-type]
    return best


def test_of(case: Case, setting: Setting, seed: int, n_neurons: int, epochs: int) -> dict[str, Any]:
    """What a record of a test begins with."""
    return {
        "case": case.name,
        "kind": "test",
        "seed": seed,
        **asdict(setting),
        "trained_neurons": n_neurons,
        "epochs": epochs,
    }


def test(case: Case, setting: Setting, seed: int, n_neurons: int, epochs: int, n_sampled: int) -> None:
    """Train the best setting, read its neurons in other ways, and test each network once."""
    (task,) = case.load(seed)
    run = fit(case, task, setting, n_neurons, epochs, seed)
    trained = trained_witnesses(run.network)
    what = test_of(case, setting, seed, n_neurons, epochs)

    def keep(method: str, network: SpikingNetwork, neurons: int, **more: Any) -> None:
        if find_record(**what, method=method) is not None:
            return
        predicted, labels = scores_of(network, task.test).argmax(-1).numpy(), task.test.heads["label"]
        scores = {name: score(predicted, labels) for name, score in case.scores.items()}
        add_record({**what, "method": method, "neurons": neurons, **more, "scores": scores})

    keep(METHODS[0], run.network, n_neurons, **describe(run))
    families = max(SAMPLED_CASES[case.name].families.values(), key=len)
    sampled = draw(families, max(n_sampled, n_neurons), task.train, seed, "cpu")
    chosen = torch.from_numpy(np.random.default_rng(seed).permutation(sampled.n_witnesses)[:n_neurons])
    alone = single_out(trained, torch.arange(trained.n_witnesses))
    sets = (trained, single_out(sampled, chosen), sampled, join_witnesses([alone, sampled]))
    for method, witnesses in zip(METHODS[1:], sets, strict=True):
        begin = time.process_time()
        fitted = read_out(case, task, witnesses, "cpu")
        solution = fitted.solution
        keep(
            method,
            cs.reconstruct(solution),
            witnesses.n_witnesses,
            validation=fitted.validation,
            l2_strength=solution.problem.l2_strength,
            gap=solution.certificate.relative_gap,
            seconds=time.process_time() - begin + (run.seconds if method.startswith("SG") else 0.0),
        )


def read_records() -> list[dict[str, Any]]:
    """What has been measured."""
    return [json.loads(line) for line in RECORDS.read_text().splitlines()] if RECORDS.exists() else []


def find_record(**what: Any) -> dict[str, Any] | None:
    """A record with these values, if there is one."""
    return next((own for own in read_records() if what.items() <= own.items()), None)


def add_record(record: dict[str, Any]) -> dict[str, Any]:
    """Keep what was measured."""
    console.print(", ".join(f"{name} {value}" for name, value in record.items() if name != "history"))
    RECORDS.parent.mkdir(exist_ok=True)
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")
    return record


def render(records: Sequence[Mapping[str, Any]]) -> None:
    """Print the settings that were tuned, and a table of the means over seeds."""
    for name in GEOMETRIES:
        tuning = [own for own in records if own["case"] == name and own["kind"] == "tuning"]
        tests = [own for own in records if own["case"] == name and own["kind"] == "test"]
        if tuning:
            table = make_table(f"{name}: tuning", "round", "taps", "weights", "rate", "steep", "dropout", "val", "s")
            for own in sorted(tuning, key=lambda own: (own["round"], -own["validation"])):
                values = (own["learning_rate"], own["steepness"], own["dropout"])
                table.add_row(
                    str(own["round"] + 1),
                    own["geometry"],
                    own["weights"],
                    *(f"{value:g}" for value in values),
                    f"{own['validation']:.4f}",
                    f"{own['seconds']:.0f}",
                )
            console.print(table)
        if tests:
            scores = list(tests[0]["scores"])
            table = make_table(
                f"{name}: test", "method", "epochs", "neurons", *scores, "validation", "seeds", "seconds"
            )
            names = ("method", "trained_neurons", "epochs", "learning_rate", "steepness", "dropout", "geometry")
            for key in dict.fromkeys(tuple(own[name] for name in names) for own in tests):
                rows = [own for own in tests if tuple(own[name] for name in names) == key]
                table.add_row(
                    f"{key[0]}; rate {key[3]:g}",
                    str(key[2]),
                    f"{rows[0]['neurons']:,}",
                    *(_mean([own["scores"][score] for own in rows]) for score in scores),
                    _mean([own["validation"] for own in rows]),
                    str(len(rows)),
                    f"{np.mean([own['seconds'] for own in rows]):.0f}",
                )
            console.print(table)


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ({', '.join(f'{value:.4f}' for value in values)})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks delays_surrogate", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(GEOMETRIES), default=("mnist28",), metavar="CASE")
    parser.add_argument("--seeds", nargs="*", type=int, default=SEEDS, help="seeds to test with; none only tunes")
    parser.add_argument("--rounds", type=int, choices=(1, 2, 3), default=3, help="rounds of tuning")
    parser.add_argument("--neurons", type=int, default=1024, help="hidden neurons of the network that is tested")
    parser.add_argument("--epochs", type=int, default=30, help="most epochs of the network that is tested")
    parser.add_argument("--sampled", type=int, default=2048, help="sampled neurons that join the trained ones")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    for name in () if options.render else options.only:
        case = SAMPLED_CASES[name]
        setting = tune(case, options.rounds)
        for seed in options.seeds:
            what = test_of(case, setting, seed, options.neurons, options.epochs)
            if find_record(**what, method=METHODS[-1]) is None:
                test(case, setting, seed, options.neurons, options.epochs, options.sampled)
    render(read_records())
