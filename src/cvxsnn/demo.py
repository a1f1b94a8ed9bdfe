"""The demonstration: three tasks that need no file, trained to certified optima in well under a minute."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .convex import ConvexProblem, Solution, solve_path
from .dictionary import DictionaryHealth, Readout, build_dictionary
from .evaluation import label_accuracy, predict_autoregressive, score_tokens
from .readout import SpikingReadout
from .tasks import SequenceData, Task, addition, digits_seq, first_last_xor
from .witnesses import Normal, Uniform, gaussian_witnesses


@dataclass(frozen=True)
class Experiment:
    """One line of the demonstration: a task, a family of witnesses, and the convex program over their spikes."""

    name: str
    task: Callable[[], Task]
    family: dict[str, Any]
    readout: Readout
    loss: str | dict[str, str]


@dataclass(frozen=True, eq=False)
class Result:
    """What came out of an experiment."""

    name: str
    accuracy: dict[str, float]
    health: DictionaryHealth
    solution: Solution
    seconds: float


_ADDITION = {"hidden": (128, 256), "n_subnetworks": 2}
_LOSSES = {"sum": "softmax", "carry": "logistic"}

EXPERIMENTS = (
    Experiment(
        "base-3 addition, slow neurons",
        lambda: addition(base=3, n_digits=5, n_train=768, n_val=256, n_test=512, n_test_ood=128),
        _ADDITION | {"decay": 0.9, "threshold": 1.0},
        "all",
        _LOSSES,
    ),
    Experiment(
        "base-3 addition, fast neurons",
        lambda: addition(base=3, n_digits=5, n_train=768, n_val=256, n_test=512, n_test_ood=128),
        _ADDITION | {"decay": 0.1, "threshold": 0.1, "bias": Normal(0.0, 0.5)},
        "all",
        _LOSSES,
    ),
    Experiment(
        "first-last-XOR, 6 steps",
        lambda: first_last_xor(6, n_train=2000, n_val=500, n_test=2000),
        {"hidden": (250, 500), "n_subnetworks": 2, "decay": 0.99},
        "last",
        "hinge",
    ),
    Experiment(
        "8×8 digits, 8 steps",
        digits_seq,
        {"hidden": (512,), "n_subnetworks": 1, "decay": Uniform(0.5, 1.0), "bias": Normal(0.0, 0.5)},
        "mean",
        "softmax",
    ),
)


def run(experiment: Experiment, seed: int = 0) -> Result:
    """Sample witnesses, record their spikes, follow the path, keep the strength that validates best, test once."""
    begin = time.perf_counter()
    task = experiment.task()
    witnesses = gaussian_witnesses(task.train.n_features, seed=seed, **experiment.family)
    dictionary = build_dictionary(witnesses, task.train.inputs, experiment.readout)
    problem = ConvexProblem(dictionary, task.train.heads, experiment.loss)
    path = solve_path(problem, n_strengths=6, smallest_ratio=1e-3, tol=1e-6)
    solution = path.select(lambda candidate: _accuracy(candidate, task, task.val))
    model_on = {"test": task.test} | {f"{name} longer": data for name, data in task.ood.items()}
    accuracy = {name: _accuracy(solution, task, data) for name, data in model_on.items()}
    return Result(experiment.name, accuracy, dictionary.health(), solution, time.perf_counter() - begin)


def run_all(seed: int = 0) -> Iterator[Result]:
    """Run one experiment after the other."""
    for experiment in EXPERIMENTS:
        yield run(experiment, seed)


def _accuracy(solution: Solution, task: Task, data: SequenceData) -> float:
    """Share of right labels; for addition, of right (sum, carry) pairs when the model feeds its own carry back."""
    model = SpikingReadout(solution)
    if task.feedback is None:
        return label_accuracy(model.predict(data.inputs)["label"], data)
    return score_tokens(predict_autoregressive(model, data, task.feedback), data).joint_token
