"""What a global optimum is worth: ``python -m benchmarks global_worth [names] [--repeats 2] [--records FILE]``.

Four ways to minimise one objective, the logistic loss with the L1 penalty over threshold neurons with a bias (LIF
neurons on one step): the proven optimum over all neurons, the optimum over 10^3 and over 10^6 sampled neurons, and
neurons trained by surrogate gradients, which are then read out optimally at the same strength. Each is fitted to the
training part of stratified folds and tested on the rest. Records of finished fits are kept in a file, so that a run can
be continued.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn.datasets
import torch
from sklearn.model_selection import RepeatedStratifiedKFold

import cvxsnn as cs
from cvxsnn.core.errors import ConvergenceWarning
from cvxsnn.fitting import SurrogateSettings, solve_pool
from cvxsnn.fitting.surrogate.settings import initial_network
from cvxsnn.fitting.surrogate.trainer import SurrogateJob, train_jobs
from cvxsnn.theory import LIFFamily, price, solve_complete

from .measure import console, make_table

FloatArray = npt.NDArray[np.float64]
FAMILY = LIFFamily(0.5, bias=True)
SAMPLED = {"hidden": (1000,), "decay": 0.5, "bias": cs.witnesses.Normal(0.0, 1.0)}
WIDTHS, RATES, STEEPNESSES = (64, 256), (0.01, 0.1), (1.0, 5.0)
TOL = 1e-3
METHODS = ("global optimum", "10^3 sampled", "10^6 sampled", "surrogate gradients")


def standardised(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standardise by the training part, and round to multiples of 1/256."""
    mean, spread = train.mean(0), train.std(0)
    first, second = (np.rint(256 * (values - mean) / spread)[:, None] / 256 for values in (train, test))
    return first, second


def components(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the first four principal components of the training part, standardised."""
    mean, spread = train.mean(0), train.std(0)
    train, test = (train - mean) / spread, (test - mean) / spread
    axes = np.linalg.svd(train, full_matrices=False)[2][:4]
    return standardised(train @ axes.T, test @ axes.T)


def load(name: str, classes: Sequence[int] | None = None) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Return points and labels of scikit-learn; with ``classes``, one class against the others."""
    if name == "moons":
        points, label = sklearn.datasets.make_moons(400, noise=0.2, random_state=0)
    else:
        points, label = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return points, label if classes is None else np.isin(label, classes).astype(np.int64)


PROBLEMS: dict[str, tuple[Callable[[], Any], Callable[[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]]] = {
    "two moons": (lambda: load("moons"), standardised),
    "iris": (lambda: load("iris", [1]), standardised),
    "iris, 3 classes": (lambda: load("iris"), standardised),
    "wine": (lambda: load("wine", [1]), components),
    "breast cancer": (lambda: load("breast_cancer"), components),
}


def signs(label: npt.NDArray[np.int64]) -> FloatArray:
    """Return targets of -1 and 1: one column, or one per class if there are more than two."""
    n_classes = int(label.max()) + 1
    return 2.0 * (label[:, None] == (np.arange(n_classes) if n_classes > 2 else np.array([1]))) - 1


def critical(inputs: FloatArray, targets: FloatArray) -> float:
    """Return a strength at which no neuron is read: the largest price at the best constants."""
    dual = (targets - targets.mean(0)) / 2 / len(targets)
    return max(price(FAMILY.on(inputs), column[:, None]).bound for column in dual.T)


def accuracy(network: cs.SpikingNetwork, inputs: FloatArray, label: npt.NDArray[np.int64]) -> float:
    """Return the share of correct classes."""
    scores = network(inputs).detach().numpy()
    found = scores.argmax(1) if scores.shape[1] > 1 else scores[:, 0] > 0
    return float((found == label).mean())


def trained(inputs: FloatArray, targets: FloatArray, strength: float, epochs: int, seed: int) -> cs.Solution:
    """Return the best optimal read-out of neurons that surrogate gradients trained with one of eight settings.

    The best is the one with the lowest objective, which is what all methods minimise.
    """
    data, objective = cs.data.TrainingSet(inputs, {"label": targets}), cs.convex.Objective("logistic")
    best: cs.Solution | None = None
    for width in WIDTHS:
        family = {**SAMPLED, "hidden": (width,)}
        start = initial_network(cs.gaussian_witnesses(inputs.shape[2], **family, seed=seed).layers, objective, data)
        choices = [
            SurrogateSettings(
                epochs, learning_rate=rate, steepness=steepness, train_decay=False, train_threshold=False, seed=seed
            )
            for rate in RATES
            for steepness in STEEPNESSES
        ]
        jobs = [SurrogateJob(start, data, objective, own, lambda network: -loss_of(network, data)) for own in choices]
        for run in train_jobs(jobs):
            witnesses = cs.WitnessSet(run.network.layers, cs.witnesses.Provenance("pretrained"))
            found = optimum(witnesses, inputs, targets, strength)
            if best is None or found.certificate.primal < best.certificate.primal:
                best = found
    assert best is not None
    return best


def loss_of(network: cs.SpikingNetwork, data: cs.data.TrainingSet) -> float:
    """Return the training loss, by which the best epoch is kept."""
    margins = torch.as_tensor(data.targets["label"]) * network(data.inputs).detach()
    return float(torch.nn.functional.softplus(-margins).sum(1).mean())


def optimum(witnesses: cs.WitnessSet, inputs: FloatArray, targets: FloatArray, strength: float) -> cs.Solution:
    """Return the optimal read-out of given neurons."""
    dictionary = cs.build_dictionary(witnesses, inputs)
    return cs.solve(cs.ConvexProblem(dictionary, targets, "logistic", strength, intercept=True), TOL / 10)


def fits(
    inputs: FloatArray, targets: FloatArray, strength: float, seconds: float, epochs: int, seed: int
) -> Iterator[tuple[str, cs.Solution, float, float]]:
    """Yield each method's name, its solution, a lower bound on its own optimum, and its seconds."""
    begin = time.monotonic()
    found = solve_complete(
        inputs, targets, FAMILY, "logistic", strength, intercept=True, tol=TOL, max_seconds=seconds, seed=seed
    )
    yield METHODS[0], found.solution, found.certificate.dual, time.monotonic() - begin
    data, objective = cs.data.TrainingSet(inputs, {"label": targets}), cs.convex.Objective("logistic")
    for method, n_neurons in ((METHODS[1], 10**3), (METHODS[2], 10**6)):
        begin = time.monotonic()
        pool = cs.witnesses.WitnessPool(inputs.shape[2], SAMPLED, n_witnesses=n_neurons, seed=seed)
        solution = solve_pool(pool, data, objective, strength, intercept=True, tol=TOL).solution
        yield method, solution, solution.certificate.dual, time.monotonic() - begin
    begin = time.monotonic()
    solution = trained(inputs, targets, strength, epochs, seed)
    yield METHODS[3], solution, solution.certificate.dual, time.monotonic() - begin


def measure(names: Sequence[str], share: float, repeats: int, seconds: float, epochs: int, records: Path) -> None:
    """Fit all methods to all folds that are not in the file of records yet."""
    done = {(own["problem"], own["fold"], own["share"]) for own in read(records)}
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=0)
    parts = {name: list(folds.split(*PROBLEMS[name][0]())) for name in names}
    for fold in range(5 * repeats):
        for name in names:
            if (name, fold, share) in done:
                continue
            (source, transform), (train, test) = PROBLEMS[name], parts[name][fold]
            points, label = source()
            inputs, others = transform(points[train], points[test])
            targets = signs(label[train])
            strength = critical(inputs, targets) / share
            for method, solution, bound, taken in fits(inputs, targets, strength, seconds, epochs, seed=fold):
                network = cs.reconstruct(solution)
                record = {
                    "problem": name, "fold": fold, "share": share, "method": method, "strength": strength,
                    "objective": solution.certificate.primal, "bound": bound, "neurons": len(solution.support),
                    "test": accuracy(network, others, label[test]), "train": accuracy(network, inputs, label[train]),
                    "seconds": taken,
                }  # fmt: skip
                with records.open("a") as file:
                    file.write(json.dumps(record) + "\n")


def read(records: Path) -> list[dict[str, Any]]:
    """Return the records of complete folds."""
    lines = [json.loads(line) for line in records.read_text().splitlines()] if records.exists() else []
    latest = {(own["problem"], own["fold"], own["share"], own["method"]): own for own in lines}
    complete = [key[:3] for key in latest if all((*key[:3], method) in latest for method in METHODS)]
    return [own for key, own in latest.items() if key[:3] in complete]


def report(records: Path, share: float) -> None:
    """Print means over the folds."""
    found = [own for own in read(records) if own["share"] == share]
    table = make_table(
        f"strength critical/{share:g}", "problem", "method", "folds", "objective above the optimum", "test accuracy",
        "training accuracy", "neurons", "seconds",
    )  # fmt: skip
    for name in dict.fromkeys(own["problem"] for own in found):
        of_problem = [own for own in found if own["problem"] == name]
        bounds = {own["fold"]: own["bound"] for own in of_problem if own["method"] == METHODS[0]}
        for method in METHODS:
            rows = [own for own in of_problem if own["method"] == method]
            away = [own["objective"] / bounds[own["fold"]] - 1 for own in rows]
            test = np.array([own["test"] for own in rows])
            mean = {key: np.mean([own[key] for own in rows]) for key in ("train", "neurons", "seconds")}
            table.add_row(
                name, method, str(len(rows)), f"{100 * np.mean(away):.2f} % (at most {100 * max(away):.2f} %)",
                f"{test.mean():.3f} ± {test.std():.3f}", f"{mean['train']:.3f}", f"{mean['neurons']:.1f}",
                f"{mean['seconds']:.1f}",
            )  # fmt: skip
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks global_worth", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(PROBLEMS)}; all by default")
    parser.add_argument("--share", type=float, default=30.0, help="the strength is the critical one divided by this")
    parser.add_argument("--repeats", type=int, default=2, help="how often five folds are drawn")
    parser.add_argument("--seconds", type=float, default=120.0, help="limit for one proof")
    parser.add_argument("--epochs", type=int, default=200, help="epochs of surrogate gradients")
    parser.add_argument("--records", type=Path, default=Path("out/global-worth.jsonl"), help="the file of records")
    chosen = parser.parse_args(arguments)
    chosen.records.parent.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", ConvergenceWarning)
    measure(chosen.names or list(PROBLEMS), chosen.share, chosen.repeats, chosen.seconds, chosen.epochs, chosen.records)
    report(chosen.records, chosen.share)
