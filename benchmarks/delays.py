"""Sampled witnesses with synaptic delays and a certified ridge read-out: accuracy on five kinds of real and made tasks.

No gradient is used. For each case a pool of witnesses is drawn from a few families (delays, thresholds and weights from
training inputs). Ridge over the pool ranks them, and the half with the largest coefficients is kept, until few enough
are left, which are read by a ridge of their own. Validation data choose the family and the strength: images, whole
speakers, or runs of consecutive recordings, which come from the same patients. The test data are looked at once by the
setting chosen. What is measured is kept as one JSON object a line in ``results/delays.jsonl``; a run that was
interrupted goes on where it stopped, and ``--render`` measures nothing.
"""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.core.seeds import child_generator, child_seed
from cvxsnn.data import SequenceData
from cvxsnn.data.tasks import Task, ecg_qtdb, first_last_xor, mnist_seq, spoken_digits
from cvxsnn.data.tasks.ecg_qtdb import read_qtdb
from cvxsnn.data.tasks.spoken_digits import SPEAKERS, read_recordings
from cvxsnn.neurons import count_spikes
from cvxsnn.witnesses import Uniform, WitnessSet, delayed_witnesses, join_witnesses, single_out

from .gpu import clock, measure_ceilings
from .lines import add_line, read_lines
from .measure import console, make_table
from .memory import data_directory

RECORDS = Path(__file__).parent / "results" / "delays.jsonl"
GRAM_RECORDS = RECORDS.with_name("delays_gram.jsonl")
SEEDS = (0, 1, 2)
TOLERANCE = 1e-6
STRENGTHS = tuple(10.0**exponent for exponent in np.arange(-1.0, -6.1, -0.5))
"""Strengths of the quadratic that validation data choose from."""

POOL_STRENGTH = 3e-3
"""Strength of the ridge that ranks witnesses."""

Family = tuple[float, Mapping[str, Any]]
"""A share of the witnesses, and arguments of ``delayed_witnesses``."""

HISTORY: dict[str, Any] = {"weights": "differences", "fan_in": None}
Q_HIGH = {"quantiles": (0.8, 0.99)}
SHORT_BOX: dict[str, Any] = {
    "geometry": "box",
    "box": (8, 8),
    "fan_in": None,
    "max_delay": 7,
    "weights": "centred",
}


def box(*size: int, **more: Any) -> dict[str, Any]:
    """A box of taps with weights from data."""
    return {"weights": "differences", "geometry": "box", "fan_in": None, "box": size, **more}


def waves(fan_in: int, max_delay: int, least: float, most: float, **more: Any) -> dict[str, Any]:
    """Scattered taps with a leak, for long recordings."""
    return {"fan_in": fan_in, "max_delay": max_delay, "decay": Uniform(least, most), "n_calibration": 128, **more}


@dataclass(frozen=True)
class Case:
    """A task, how its sequences are read, and the families that validation data choose from.

    A case has one or several parts, and each of them one or several folds: tasks that differ in what is held out of the
    training data for validation.
    """

    name: str
    load: Callable[[int], list[list[Task]]]
    readout: str
    families: Mapping[str, Sequence[Family]]
    goal: float
    n_columns: int = 8192
    n_pool: int = 65_536
    refits: bool = False
    strengths: Sequence[float] = STRENGTHS
    scores: Mapping[str, Callable[[npt.NDArray[np.int64], npt.NDArray[np.int64]], float]] = field(
        default_factory=lambda: {"test": accuracy}
    )


def accuracy(predicted: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> float:
    """The share of labels that are predicted."""
    return float((predicted == labels).mean())


def first_2000(predicted: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> float:
    """The accuracy on the first 2,000 sequences, which the other tables of this project show."""
    return accuracy(predicted[:2000], labels[:2000])


def labelled(predicted: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> float:
    """The accuracy on the steps that have a label."""
    _, _, is_labelled = read_qtdb("test", data_directory())
    return accuracy(predicted[is_labelled], labels[is_labelled])


def mnist(n_steps: int, n_train: int = 6000) -> Callable[[int], list[list[Task]]]:
    """MNIST in ``n_steps`` steps, with all test images."""
    return lambda seed: [
        [mnist_seq(n_steps, n_train=n_train, n_val=2000, n_test=10_000, directory=data_directory(), seed=seed)]
    ]


@cache
def speakers(seed: int) -> list[list[Task]]:
    """Spoken digits, each speaker in turn unheard, and each of the others held out in one fold; no seed matters."""
    if seed:
        return speakers(0)
    task = spoken_digits(split="speakers", directory=data_directory())
    who = np.array([own.speaker for own in read_recordings(data_directory())])
    inputs, labels = np.empty((len(who), *task.train.inputs.shape[1:]), np.float32), np.empty(len(who), np.int64)
    is_test, is_val = (np.isin(who, task.settings[name]) for name in ("test_speakers", "val_speakers"))
    for part, rows in ((task.train, ~is_test & ~is_val), (task.val, is_val), (task.test, is_test)):
        inputs[rows], labels[rows] = part.inputs, part.heads["label"]
    data = SequenceData(inputs, labels)

    def fold(own: str, other: str) -> Task:
        held_out = np.isin(who, (own, other))
        return replace(task, train=data.take(~held_out), val=data.take(who == other), test=data.take(who == own))

    return [[fold(own, other) for other in SPEAKERS if other != own] for own in SPEAKERS]


def patients(seed: int, n_runs: int = 24, n_held_out: int = 5) -> list[list[Task]]:
    """ECG-QTDB; some runs of consecutive recordings, which come from the same patients, are held out."""
    task = ecg_qtdb(directory=data_directory())
    inputs, labels, _ = read_qtdb("train", data_directory())
    run = np.arange(len(inputs)) * n_runs // len(inputs)
    is_val = np.isin(run, child_generator(seed, "delays", "runs").permutation(n_runs)[:n_held_out])
    data = SequenceData(inputs, labels)
    return [[replace(task, train=data.take(~is_val), val=data.take(is_val))]]


MNIST_SCORES = {"first 2,000": first_2000, "all 10,000": accuracy}

CASES = {
    case.name: case
    for case in (
        Case(
            "mnist2",
            mnist(2),
            "mean",
            {
                "box 14 x 14, history": [(0.6, box(2, 14, 14, feature_shape=(14, 28))), (0.4, HISTORY)],
                "boxes": [
                    (0.5, box(2, 14, 14, feature_shape=(14, 28))),
                    (0.5, box(2, 14, 20, feature_shape=(14, 28))),
                ],
            },
            0.955,
            scores=MNIST_SCORES,
        ),
        Case(
            "mnist14",
            mnist(14),
            "mean",
            {"history, few spikes": [(0.5, HISTORY), (0.5, HISTORY | Q_HIGH)]},
            0.967,
            scores=MNIST_SCORES,
        ),
        Case(
            "mnist28",
            mnist(28),
            "mean",
            {"history, box 12 x 12": [(0.5, HISTORY), (0.5, box(12, 12))]},
            0.970,
            scores=MNIST_SCORES,
        ),
        Case(
            "mnist56",
            mnist(56),
            "mean",
            {"history, box 28 x 14": [(0.5, HISTORY), (0.5, box(28, 14))]},
            0.970,
            scores=MNIST_SCORES,
        ),
        Case(
            "mnist28-60000",
            mnist(28, 58_000),
            "mean",
            {"history, box 12 x 12": [(0.5, HISTORY), (0.5, box(12, 12))]},
            0.987,
            n_columns=32_768,
            n_pool=32_768,
            refits=True,
            scores={"all 10,000": accuracy},
        ),
        *(
            Case(
                f"xor{n_steps}",
                lambda seed, n_steps=n_steps: [  # type: ignore[misc]
                    [first_last_xor(n_steps, encoding="one-hot", n_train=2000, n_val=2000, n_test=4000, seed=seed)]
                ],
                "last",
                {"scattered, 4 taps": [(1.0, {"fan_in": 4})]},
                1.0,
                n_columns=512,
                n_pool=4096,
            )
            for n_steps in (14, 20)
        ),
        Case(
            "spoken",
            speakers,
            "mean",
            {
                "box 8 x 8, delays to 7": [(1.0, SHORT_BOX)],
                "9 taps and box 8 x 8, delays to 7": [
                    (0.5, {"fan_in": 9, "max_delay": 7, "weights": "centred"}),
                    (0.5, SHORT_BOX),
                ],
            },
            0.90,
            n_pool=8192,
            refits=True,
        ),
        Case(
            "ecg",
            patients,
            "all",
            {
                "delays to 10, 30, 100, 300 and 600": [
                    (0.125, waves(8, 10, 0.8, 0.98)),
                    (0.125, waves(8, 30, 0.7, 0.98)),
                    (0.125, waves(8, 100, 0.8, 0.98)),
                    (0.125, waves(8, 100, 0.9, 0.99)),
                    (0.125, waves(8, 300, 0.9, 0.995)),
                    (0.125, waves(8, 600, 0.9, 0.995)),
                    (0.125, waves(60, 30, 0.7, 0.98, weights="differences")),
                    (0.125, waves(60, 100, 0.8, 0.98, weights="differences")),
                ],
            },
            0.865,
            n_pool=16_384,
            refits=True,
            strengths=STRENGTHS[:7],
            scores={"as published": accuracy, "labelled steps": labelled},
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Fitted:
    """Witnesses, and for each strength the read-out and its accuracy on validation data."""

    witnesses: WitnessSet
    path: Sequence[cs.Solution]
    validation: npt.NDArray[np.float64]

    @property
    def best(self) -> cs.Solution:
        """The read-out that is best on validation data."""
        return self.path[int(self.validation.argmax())]


def draw(families: Sequence[Family], n_witnesses: int, data: SequenceData, seed: int, device: str) -> WitnessSet:
    """Witnesses of several families, one a subnetwork."""
    parts = [
        delayed_witnesses(data.inputs, (1,), round(share * n_witnesses), seed=child_seed(seed, "delays", k), **family)
        for k, (share, family) in enumerate(families)
    ]
    return join_witnesses(parts).to(device)


def problem_of(dictionary: cs.SpikeDictionary, data: SequenceData, n_classes: int, strength: float) -> cs.ConvexProblem:
    """Ridge: the squared loss of one output a class, of which one is 1."""
    targets = np.eye(n_classes)[data.heads["label"].ravel()]
    return cs.ConvexProblem(
        dictionary, targets, "squared", 0.0, l2_strength=strength, penalty="elastic-net", intercept=True
    )


def sequences_of(data: SequenceData, device: str) -> Tensor:
    """The inputs, where they are needed."""
    return torch.from_numpy(data.inputs).to(device)


def fit(case: Case, task: Task, families: Sequence[Family], seed: int, device: str) -> Fitted:
    """Draw witnesses, select some of them, and read them."""
    witnesses = select(case, task, draw(families, case.n_pool, task.train, seed, device), case.n_columns, device)
    return read_out(case, task, witnesses, device)


def select(case: Case, task: Task, witnesses: WitnessSet, n_selected: int, device: str) -> WitnessSet:
    """Keep the half with the largest coefficients of ridge, until few enough are left."""
    while witnesses.n_witnesses > n_selected:
        dictionary = cs.build_dictionary(witnesses, sequences_of(task.train, device), case.readout)  # type: ignore[arg-type]
        solution = cs.solve(problem_of(dictionary, task.train, task.n_classes["label"], POOL_STRENGTH), TOLERANCE)
        n_kept = max(n_selected, witnesses.n_witnesses // 2)
        ranked = solution.coef.norm(dim=1).argsort(descending=True)[:n_kept]
        witnesses = single_out(witnesses, dictionary.column_of_atom[ranked.to(dictionary.device)].sort().values)
    return witnesses


def read_out(case: Case, task: Task, witnesses: WitnessSet, device: str) -> Fitted:
    """Certified ridge over witnesses, for each strength."""
    n_classes = task.n_classes["label"]
    dictionary = cs.build_dictionary(witnesses, sequences_of(task.train, device), case.readout)  # type: ignore[arg-type]
    problem = problem_of(dictionary, task.train, n_classes, case.strengths[0])
    path = cs.solve_path(problem, [0.0], l2_strengths=case.strengths, tol=TOLERANCE)
    labels = torch.from_numpy(task.val.heads["label"]).to(device)
    hits = torch.zeros(len(path), dtype=torch.float64)
    layers = single_out(witnesses, dictionary.column_of_atom).layers
    for rows in torch.arange(len(labels), device=device).split(500 if case.readout != "all" else 10):
        features = features_of(layers, sequences_of(task.val, device)[rows], case.readout)
        for k, solution in enumerate(path):
            scores = features @ solution.coef.to(device) + solution.intercept.to(device)
            hits[k] += (scores.argmax(-1) == labels[rows]).sum().cpu()
    return Fitted(witnesses, list(path), hits.numpy() / labels.numel())


def features_of(layers: Sequence[Any], inputs: Tensor, readout: str) -> Tensor:
    """What is read of the neurons."""
    if readout == "mean":
        return count_spikes(layers, inputs).double() / inputs.shape[1]
    return cs.roll_out(layers, inputs, readout).double()  # type: ignore[arg-type]


def measure(case: Case, folds: Sequence[Task], seed: int, device: str) -> dict[str, Any]:
    """Choose a family and a strength on validation data, the mean over folds, and test once."""
    begin = time.perf_counter()
    fitted = {
        name: [fit(case, fold, families, seed, device) for fold in folds] for name, families in case.families.items()
    }
    validation = {name: np.mean([fold.validation for fold in own], axis=0) for name, own in fitted.items()}
    name = max(validation, key=lambda name: validation[name].max())
    task, best = folds[0], fitted[name][0]
    solution = best.path[int(validation[name].argmax())]
    if case.refits:
        train, val = task.train, task.val
        both = SequenceData(
            np.concatenate((train.inputs, val.inputs)), np.concatenate((train.heads["label"], val.heads["label"]))
        )
        dictionary = cs.build_dictionary(best.witnesses, sequences_of(both, device), case.readout)  # type: ignore[arg-type]
        strength = solution.problem.l2_strength
        solution = cs.solve(problem_of(dictionary, both, task.n_classes["label"], strength), TOLERANCE)
    network = cs.reconstruct(solution)
    predicted = [
        network(part).argmax(-1).cpu().numpy()
        for part in sequences_of(task.test, device).split(500 if case.readout != "all" else 10)
    ]
    seconds = time.perf_counter() - begin
    labels = task.test.heads["label"]
    rate = float(count_spikes(network.layers, sequences_of(task.test, device)[:200]).double().mean())
    return {
        "family": name,
        "validation": {own: float(values.max()) for own, values in validation.items()},
        "l2_strength": solution.problem.l2_strength,
        "columns": solution.problem.dictionary.n_atoms,
        "gap": solution.certificate.relative_gap,
        "spikes_per_neuron": rate,
        "seconds": seconds,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "scores": {own: score(np.concatenate(predicted), labels) for own, score in case.scores.items()},
    }


def measure_gram(n_rows: int, n_neurons: int = 8192, n_steps: int = 784, n_windows: int = 4) -> None:
    """The exact Gram matrix of counts in windows and that of as many spikes, as shares of what a GPU can do at most."""
    device = torch.device("cuda")
    ceilings = measure_ceilings(device)
    inputs = torch.randn(n_rows, n_steps, 1, generator=torch.Generator().manual_seed(0))
    witnesses = delayed_witnesses(inputs, (n_neurons,), fan_in=25, max_delay=280).to(device)
    counts = cs.build_dictionary(witnesses, inputs.to(device), "mean", windows=n_windows)
    spikes = cs.build_dictionary(torch.rand(n_rows, counts.n_atoms, device=device) < 0.3)
    for name, dictionary in (("counts", counts), ("spikes", spikes)):
        seconds = min(clock(dictionary.gram, device)[0] for _ in range(5))
        n_products = n_rows * dictionary.n_atoms**2
        least = n_products / (1e12 * ceilings["int8"]) + 8 * dictionary.n_atoms**2 / (1e9 * ceilings["memory"])
        record = {
            "dictionary": name,
            "rows": n_rows,
            "columns": dictionary.n_atoms,
            "bytes": dictionary.patterns.nbytes,
            "seconds": seconds,
            "teraops": 2 * n_products / seconds / 1e12,
            "share": least / seconds,
            "ceilings": ceilings,
            "device": torch.cuda.get_device_name(),
        }
        console.print(record)
        add_line(GRAM_RECORDS, record)


def render(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the means over seeds."""
    table = make_table(
        "Sampled witnesses with delays, certified ridge read-out",
        "task",
        "test accuracy",
        "goal",
        "seeds",
        "columns",
        "spikes a neuron",
        "largest gap",
        "seconds",
    )
    for case in CASES.values():
        own = [record for record in records if record["case"] == case.name]
        if not own:
            continue
        for score in case.scores:
            by_seed: dict[int, list[float]] = {}
            for record in own:
                by_seed.setdefault(record["seed"], []).append(record["scores"][score])
            means = [float(np.mean(values)) for values in by_seed.values()]
            table.add_row(
                f"{case.name}, {score}",
                f"{np.mean(means):.4f} ({', '.join(f'{value:.4f}' for value in means)})",
                f"{case.goal:.3f}",
                str(len(means)),
                f"{max(record['columns'] for record in own):,}",
                f"{np.mean([record['spikes_per_neuron'] for record in own]):.1f}",
                f"{max(record['gap'] for record in own):.0e}",
                f"{np.mean([record['seconds'] for record in own]):.0f}",
            )
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks delays", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES), metavar="CASE")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pool", type=int, help="witnesses to draw for a case, instead of its own number")
    parser.add_argument("--columns", type=int, help="witnesses to read, instead of a case's own number")
    parser.add_argument("--gram", nargs="+", type=int, metavar="ROWS", help="only time Gram matrices of so many rows")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    for n_rows in options.gram or ():
        measure_gram(n_rows)
    for name in () if options.render or options.gram else options.only:
        case = CASES[name]
        case = replace(case, n_pool=options.pool or case.n_pool, n_columns=options.columns or case.n_columns)
        for seed in options.seeds:
            done = {(own["case"], own["seed"], own["part"]) for own in read_lines(RECORDS)}
            for part, folds in enumerate(case.load(seed)):
                if (name, seed, part) in done:
                    continue
                record = {"case": name, "seed": seed, "part": part, **measure(case, folds, seed, options.device)}
                console.print(f"{name}, seed {seed}, part {part}: {record}")
                add_line(RECORDS, record)
    render(read_lines(RECORDS))
