"""Surrogate gradients through synaptic delays, tuned, as the baseline of the records on MNIST.

Cases are MNIST in 2, 14, 28 and 56 steps with 6,000 training images, with one hidden layer (L = 2) or two (L = 3), and
S-MNIST, one pixel per step, with 54,000 training images and at most 1,000 neurons, also with seven distorted copies of
each training image. Taps, sizes, initial weights and options of training are drawn at random, the same number of times
for each case of MNIST in few steps. Each draw is trained for a few epochs, the best of them for all epochs, and
validation data choose one; with copies, the best setting of S-MNIST is taken. That setting is trained with three seeds
and tested once each (SG). Where there are further training images, a second training on these with a fifth of the
learning rate follows (SG-SG). The neurons of SG also get a certified ridge read-out, alone (SG-CVX) and joined by
sampled neurons. What is measured is kept as one JSON object a line in ``results/records_surrogate.jsonl``; a run that
was interrupted, or whose time is over, goes on where it stopped.
"""

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn import LIFLayer
from cvxsnn.core.seeds import child_generator, child_seed
from cvxsnn.data import SequenceData
from cvxsnn.data.tasks import Task, mnist_pixels, mnist_seq
from cvxsnn.neurons import HiddenLayer, count_spikes
from cvxsnn.witnesses import WitnessSet, delayed_witnesses, join_witnesses

from .delayed_training import DelayedNetwork, TrainingOptions, TrainingResult, train
from .delays import CASES as SAMPLED_CASES
from .delays import Family, draw, problem_of
from .delays_surrogate import GEOMETRIES
from .lines import add_line, read_lines
from .measure import console, make_table
from .memory import data_directory

RECORDS = Path(__file__).parent / "results" / "records_surrogate.jsonl"
"""Where what was measured is kept, unless the command names another file."""

SEEDS = (0, 1, 2)
TOLERANCE = 1e-6
STRENGTHS = tuple(10.0**exponent for exponent in np.arange(-2.0, -6.1, -0.5))
SCORES = ("first 2,000", "all 10,000")
METHODS = ("SG", "SG-SG", "SG-CVX", "SG-CVX, joined")


@dataclass(frozen=True)
class Setting:
    """What is tuned.

    Parameters
    ----------
    taps : str
        The kind of taps of the first layer.
    weights : "gaussian" or "differences"
        Its initial weights.
    neurons : int
        The neurons that are read.
    lower : int
        The neurons of the layer below; 0 with one hidden layer.
    n_delays : int
        Delays of the second layer: multiples of an eighth of the steps.
    learning_rate, weight_decay, steepness, dropout : float
        Those of training.
    """

    taps: str
    weights: str
    neurons: int
    lower: int
    n_delays: int
    learning_rate: float
    weight_decay: float
    steepness: float
    dropout: float


@dataclass(frozen=True)
class Effort:
    """How much is done for a case: settings that are tried, those that are trained on, and epochs of both."""

    n_settings: int
    n_kept: int
    short: int
    long: int
    batch_size: int


@dataclass(frozen=True)
class Case:
    """A task, the settings to draw from, and what sampled neurons join those of SG.

    A case that is ``tuned_as`` another tries the best settings of that one only.
    """

    name: str
    load: Callable[[], Task]
    taps: Mapping[str, Sequence[Family]]
    neurons: Sequence[int]
    effort: Effort
    sampled: Sequence[Family]
    n_sampled: int
    lower: Sequence[int] = (0,)
    n_windows: int = 1
    scored: int | None = None
    tuned_as: str | None = None


def mnist(n_steps: int) -> Callable[[], Task]:
    """MNIST in few steps, with all test images."""
    return lambda: mnist_seq(n_steps, n_train=6000, n_val=2000, n_test=10_000, directory=data_directory())


def patch(rows: int, columns: int) -> dict[str, Any]:
    """Taps on a part of the image, of pixels read one after the other."""
    return {"geometry": "box", "box": (rows, columns, 1), "period": 28, "fan_in": None, "max_delay": 28 * rows - 1}


SCATTERED: dict[str, Any] = {"fan_in": 50, "max_delay": 279}
PIXEL_TAPS = {
    "patches 10 x 10": [(1.0, patch(10, 10))],
    "patches 14 x 14": [(1.0, patch(14, 14))],
    "50 scattered": [(1.0, SCATTERED)],
    "patches and scattered": [(0.25, patch(7, 7)), (0.25, patch(10, 10)), (0.25, patch(14, 14)), (0.25, SCATTERED)],
}
FEW_STEPS = Effort(n_settings=20, n_kept=5, short=5, long=20, batch_size=100)
PIXELS = Effort(n_settings=10, n_kept=2, short=1, long=8, batch_size=250)
COPIES = Effort(n_settings=0, n_kept=1, short=0, long=2, batch_size=250)

CASES = {
    case.name: case
    for case in (
        *(
            Case(
                f"mnist{n_steps}, L={2 + is_deep}",
                mnist(n_steps),
                {name: [(1.0, taps)] for name, taps in GEOMETRIES[f"mnist{n_steps}"].items()},
                (1024, 2048) if is_deep else (512, 1024, 2048, 4096),
                FEW_STEPS,
                max(SAMPLED_CASES[f"mnist{n_steps}"].families.values(), key=len),
                0 if is_deep else 8192,
                lower=(512, 1024) if is_deep else (0,),
                scored=2000,
            )
            for is_deep in (False, True)
            for n_steps in (28, 2, 14, 56)
        ),
        Case(
            "smnist, L=2",
            lambda: mnist_pixels(n_val=6000, directory=data_directory()),
            PIXEL_TAPS,
            (1000,),
            PIXELS,
            [(1.0, SCATTERED | {"weights": "differences", "n_calibration": 256})],
            2048,
            n_windows=4,
        ),
        Case(
            "smnist, distorted copies, L=2",
            lambda: mnist_pixels(n_val=6000, n_copies=7, directory=data_directory()),
            PIXEL_TAPS,
            (1000,),
            COPIES,
            [(1.0, SCATTERED | {"weights": "differences", "n_calibration": 256})],
            2048,
            n_windows=4,
            tuned_as="smnist, L=2",
        ),
    )
}


def draw_settings(case: Case) -> list[Setting]:
    """Settings to try, the same ones whenever they are asked for."""
    rng = child_generator(0, "records", "surrogate", case.name)

    def one_of(values: Sequence[Any]) -> Any:
        return values[int(rng.integers(len(values)))]

    return [
        Setting(
            taps=one_of(list(case.taps)),
            weights=one_of(("gaussian", "differences")),
            neurons=one_of(case.neurons),
            lower=one_of(case.lower),
            n_delays=one_of((1, 2, 4)) if case.lower[0] else 0,
            learning_rate=float(10 ** rng.uniform(-3.0, -1.7)),
            weight_decay=one_of((0.0, 0.01, 0.1)),
            steepness=one_of((1.0, 2.0, 5.0)),
            dropout=one_of((0.0, 0.25, 0.5)),
        )
        for _ in range(case.effort.n_settings)
    ]


@dataclass(frozen=True, eq=False)
class Data:
    """A split of a task, on a device."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def of(cls, split: SequenceData, device: str) -> "Data":
        """The inputs and labels of a split."""
        return cls(torch.from_numpy(split.inputs).to(device), torch.from_numpy(split.heads["label"]).to(device))


def build(case: Case, task: Task, setting: Setting, seed: int, device: str) -> DelayedNetwork:
    """A network that is not trained yet."""
    own_seed = child_seed(seed, "records", "surrogate")
    width = setting.lower or setting.neurons
    groups = [
        group_of(round(share * width), task.train.inputs, taps, child_seed(own_seed, number))
        for number, (share, taps) in enumerate(case.taps[setting.taps])
    ]
    inputs = torch.from_numpy(task.train.inputs[:2000]).to(device)
    second = second_layer(setting, inputs.shape[1], own_seed, device) if setting.lower else None
    n_classes, seed = task.n_classes["label"], own_seed % 2**31
    return DelayedNetwork(groups, inputs, n_classes, case.n_windows, second, setting.weights, seed)


def group_of(n_neurons: int, inputs: Any, taps: Mapping[str, Any], seed: int) -> HiddenLayer:
    """Neurons of one kind, with random weights."""
    (layer,) = delayed_witnesses(inputs[:1], (n_neurons,), **taps, quantiles=None, seed=seed).layers
    if "period" not in taps:
        return layer
    # Patches at different places are the same patch at different times.
    return replace(layer, delay=layer.delay - layer.delay.amin(1, keepdim=True))


def second_layer(setting: Setting, n_steps: int, seed: int, device: str) -> LIFLayer:
    """Neurons that read all those below, at several delays."""
    delays = torch.arange(min(setting.n_delays, n_steps), device=device) * max(1, n_steps // 8)
    shape = (1, len(delays) * setting.lower, setting.neurons)
    normal = child_generator(seed, "second").standard_normal(shape, dtype=np.float32) / math.sqrt(shape[1])
    source = torch.arange(setting.lower, device=device).repeat(len(delays))[None, :, None].expand(shape)
    delay = delays.repeat_interleave(setting.lower)[None, :, None].expand(shape)
    taps = {"source": source.int().contiguous(), "delay": delay.int().contiguous(), "n_sources": setting.lower}
    return LIFLayer(torch.from_numpy(normal).float().to(device), bias=0.0, decay=0.0, threshold=0.0, **taps)


class Bench:
    """Trains and tests the networks of one case.

    Parameters
    ----------
    case : Case
        The case.
    device : str
        Where to compute.
    path : Path
        Where what is measured is kept.
    deadline : float
        The time, by ``time.perf_counter``, after which nothing new is begun.
    """

    def __init__(self, case: Case, device: str, path: Path, deadline: float = math.inf) -> None:
        self.case, self.device, self.path, self.deadline = case, device, path, deadline
        self.task = case.load()
        self.train, self.val = Data.of(self.task.train, device), Data.of(self.task.val, device)

    def run(self, seeds: Sequence[int]) -> None:
        """Tune, and test with each seed."""
        effort = self.case.effort
        if self.case.tuned_as is None:
            tried = self.try_all(draw_settings(self.case), effort.short)
        else:
            tried = self.scores_of(self.case.tuned_as)
        kept = sorted(tried, key=lambda own: tried[own], reverse=True)[: effort.n_kept]
        again = self.try_all(kept, effort.long)
        if not again:
            return
        best = max(again, key=lambda own: again[own])
        for seed in seeds:
            done = {own["method"] for own in self.records("test") if own["seed"] == seed}
            if not done >= set(self.methods()) and not self.is_over():
                self.test(best, seed, done)

    def try_all(self, settings: Sequence[Setting], epochs: int) -> dict[Setting, tuple[float, float]]:
        """The validation scores of settings, with the first seed; empty if time ran out."""
        known = {_setting_of(own): own for own in self.records("tuning") if own["epochs"] == epochs}
        for setting in settings:
            if setting not in known:
                if self.is_over():
                    return {}
                _, result = self.fit(setting, epochs, SEEDS[0])
                known[setting] = {"epochs": epochs, **asdict(result)}
                self.keep("tuning", setting, epochs=epochs, **asdict(result))
        return {own: _score(known[own]) for own in settings}

    def scores_of(self, name: str) -> dict[Setting, tuple[float, float]]:
        """The validation scores of the settings of another case that were trained for all its epochs."""
        found = [own for own in read_lines(self.path) if (own["case"], own["kind"]) == (name, "tuning")]
        return {_setting_of(own): _score(own) for own in found if own["epochs"] == CASES[name].effort.long}

    def fit(self, setting: Setting, epochs: int, seed: int) -> tuple[DelayedNetwork, TrainingResult]:
        """A trained network."""
        network = build(self.case, self.task, setting, seed, self.device)
        validation = self.val.inputs, self.val.labels
        options = self.options(setting, epochs, child_seed(seed, "records", "batches"))
        return network, train(network, self.train.inputs, self.train.labels, validation, options)

    def options(self, setting: Setting, epochs: int, seed: int) -> TrainingOptions:
        """How a network with a setting is trained."""
        names = ("learning_rate", "weight_decay", "steepness", "dropout")
        chosen = {name: getattr(setting, name) for name in names}
        return TrainingOptions(epochs, self.case.effort.batch_size, **chosen, seed=seed % 2**31)

    def methods(self) -> tuple[str, ...]:
        """The methods of this case."""
        has_second_draw = self.task.finetune is not None
        return tuple(
            own
            for own in METHODS
            if (own != "SG-SG" or has_second_draw) and (own != "SG-CVX, joined" or self.case.n_sampled > 0)
        )

    def test(self, setting: Setting, seed: int, done: set[str]) -> None:
        """Train the chosen setting, and test its network and what is made of it, once each."""
        epochs, test = self.case.effort.long, Data.of(self.task.test, self.device)
        network, result = self.fit(setting, epochs, seed)
        witnesses = network.witnesses().to(self.device)

        def keep(method: str, witnesses: WitnessSet, weight: Tensor, intercept: Tensor, **more: Any) -> None:
            scores = self.features(witnesses, test.inputs) @ weight.to(self.device) + intercept.to(self.device)
            hits = (scores.argmax(-1) == test.labels).double()
            found = {"all 10,000": float(hits.mean())}
            if self.case.scored is not None:
                found["first 2,000"] = float(hits[: self.case.scored].mean())
            n_neurons = sum(own.n_subnetworks * own.width for own in witnesses.layers)
            what = {"seed": seed, "method": method, "epochs": epochs, "all_neurons": n_neurons}
            self.keep("test", setting, **what, **more, scores=found)

        if "SG" not in done:
            keep("SG", witnesses, *network.readout(), **asdict(result))
        for method in self.methods():
            if method.startswith("SG-CVX") and method not in done:
                begin, own = time.perf_counter(), witnesses
                if method != "SG-CVX":
                    sampled = draw(self.case.sampled, self.case.n_sampled, self.task.train, seed, self.device)
                    own = join_witnesses([witnesses, sampled])
                solution, validation = self.read_out(own)
                columns = solution.problem.dictionary.column_of_atom  # type: ignore[union-attr]
                weight = torch.zeros(own.n_witnesses * self.case.n_windows, solution.coef.shape[1], dtype=torch.float64)
                weight[columns.cpu()] = solution.coef.cpu().double()
                keep(
                    method,
                    own,
                    weight,
                    solution.intercept,
                    validation=validation,
                    l2_strength=solution.problem.l2_strength,
                    gap=solution.certificate.relative_gap,
                    columns=len(columns),
                    seconds=time.perf_counter() - begin + result.seconds,
                )
        if "SG-SG" in self.methods() and "SG-SG" not in done:
            data, val = (Data.of(own, self.device) for own in (self.task.finetune, self.task.finetune_val))
            options = self.options(setting, epochs, child_seed(seed, "records", "second batches"))
            slower = replace(options, learning_rate=options.learning_rate / 5)
            again = train(network, data.inputs, data.labels, (val.inputs, val.labels), slower)
            keep("SG-SG", network.witnesses().to(self.device), *network.readout(), **asdict(again))

    def features(self, witnesses: WitnessSet, inputs: Tensor) -> Tensor:
        """Mean spikes in windows, (n_samples, n_neurons * n_windows)."""
        n_windows, parts = self.case.n_windows, inputs.split(500)
        counts = torch.cat([count_spikes(witnesses.layers, part, n_windows) for part in parts])
        return counts.double() * (n_windows / inputs.shape[1])

    def read_out(self, witnesses: WitnessSet) -> tuple[cs.Solution, float]:
        """The certified ridge that is best on validation data, and its accuracy there."""
        readout = "mean" if self.case.n_windows == 1 else f"windows-{self.case.n_windows}"
        dictionary = cs.build_dictionary(witnesses, self.train.inputs, readout)
        problem = problem_of(dictionary, self.task.train, self.task.n_classes["label"], STRENGTHS[0])
        path = cs.solve_path(problem, [0.0], l2_strengths=STRENGTHS, tol=TOLERANCE)
        features = self.features(witnesses, self.val.inputs)[:, dictionary.column_of_atom.to(self.device)]
        hits = []
        for solution in path:
            scores = features @ solution.coef.to(self.device) + solution.intercept.to(self.device)
            hits.append(float((scores.argmax(-1) == self.val.labels).double().mean()))
        best = int(np.argmax(hits))
        return path[best], hits[best]

    def records(self, kind: str) -> list[dict[str, Any]]:
        """What has been measured of this case."""
        return [own for own in read_lines(self.path) if (own["case"], own["kind"]) == (self.case.name, kind)]

    def keep(self, kind: str, setting: Setting, **found: Any) -> None:
        """Add a record."""
        device = torch.cuda.get_device_name() if self.device == "cuda" else self.device
        record = {"case": self.case.name, "kind": kind, **asdict(setting), **found, "device": device}
        console.print(", ".join(f"{name} {value}" for name, value in record.items()))
        add_line(self.path, record)

    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.perf_counter() > self.deadline


def _score(record: Mapping[str, Any]) -> tuple[float, float]:
    return record["validation"], -record["validation_loss"]


def _setting_of(record: Mapping[str, Any]) -> Setting:
    return Setting(**{own.name: record[own.name] for own in fields(Setting)})


def render(path: Path) -> None:
    """Print a table of the means over seeds, and what was chosen."""
    records = read_lines(path)
    table = make_table(
        "Surrogate gradients through delays", "case", "method", "first 2,000", "all 10,000", "neurons", "gap", "seconds"
    )
    for name in CASES:
        tests = [own for own in records if (own["case"], own["kind"]) == (name, "test")]
        for method in METHODS:
            rows = [own for own in tests if own["method"] == method]
            if rows:
                gaps = [own["gap"] for own in rows if "gap" in own]
                table.add_row(
                    name,
                    method,
                    *(_mean([own["scores"][score] for own in rows if score in own["scores"]]) for score in SCORES),
                    f"{rows[0]['all_neurons']:,}",
                    f"{max(gaps):.0e}" if gaps else "",
                    f"{np.mean([own['seconds'] for own in rows]):.0f}",
                )
    console.print(table)
    for own in records:
        if own["kind"] == "test" and (own["seed"], own["method"]) == (0, "SG"):
            console.print(f"{own['case']}: {_setting_of(own)}")


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):.4f} ({min(values):.4f} to {max(values):.4f}, {len(values)})" if values else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what there are no records of, and print all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks records_surrogate", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=tuple(CASES), default=tuple(CASES), metavar="CASE")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing new after this time")
    parser.add_argument("--records", type=Path, default=RECORDS, help="add records to a copy of this name")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    options = parser.parse_args([] if arguments is None else arguments)
    deadline = time.perf_counter() + 60 * options.minutes
    if not options.records.exists() and RECORDS.exists():
        options.records.write_bytes(RECORDS.read_bytes())
    for name in () if options.render else options.only:
        Bench(CASES[name], options.device, options.records, deadline).run(options.seeds)
    render(options.records)
