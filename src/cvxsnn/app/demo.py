"""The demonstration: five methods on three tasks that need no file, in under two minutes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..convex.objective import Objective
from ..data.tasks import Task, addition, digits_seq, first_last_xor
from ..network.evaluation import accuracy
from ..training.methods import Settings, Trained, train_task
from ..training.stages import ConvexSettings
from ..training.surrogate.settings import SurrogateSettings
from ..witnesses import Normal, Uniform

FIVE_METHODS = ("cvx", "sg", "sg-cvx", "sg-sg", "cvx-sg")


@dataclass(frozen=True)
class DemoTask:
    """A task with the settings that all methods share."""

    name: str
    task: Callable[[], Task]
    settings: Settings
    surrogate: SurrogateSettings


@dataclass(frozen=True, eq=False)
class DemoResult:
    """The outcome of one method on one task."""

    task_name: str
    trained: Trained
    accuracy: dict[str, float]
    task: Task


DEMO_TASKS = (
    DemoTask(
        "base-2 addition",
        lambda: addition(base=2, n_digits=5, n_train=768, n_val=256, n_test=1024, ood_digits=(50,), n_test_ood=128),
        Settings(
            Objective({"sum": "softmax", "carry": "logistic"}, "all"),
            {"hidden": (64, 128), "n_subnetworks": 2, "decay": 0.1, "threshold": 0.1, "bias": Normal(0.0, 0.5)},
            ConvexSettings(n_strengths=6),
        ),
        SurrogateSettings(epochs=20),
    ),
    DemoTask(
        "XOR, 6 steps",
        lambda: first_last_xor(6, n_train=2000, n_val=500, n_test=2000),
        Settings(
            Objective("hinge", "last"),
            {"hidden": (64, 256), "n_subnetworks": 2, "decay": 0.99},
            ConvexSettings(n_strengths=6),
        ),
        SurrogateSettings(epochs=10),
    ),
    DemoTask(
        "digits, 8 steps",
        digits_seq,
        Settings(
            Objective("softmax", "mean"),
            {"hidden": (512,), "n_subnetworks": 1, "decay": Uniform(0.5, 1.0), "bias": Normal(0.0, 0.5)},
            ConvexSettings(n_strengths=6),
        ),
        SurrogateSettings(epochs=20),
    ),
)


def run(demo_task: DemoTask, method: str, seed: int = 0) -> DemoResult:
    """Train by one method, choose on validation data, and test once."""
    task = demo_task.task()
    settings = replace(demo_task.settings, seed=seed, surrogate=replace(demo_task.surrogate, seed=seed))
    trained = train_task(method, task, settings)
    tests = {"test": task.test} | {f"{name} longer": data for name, data in task.ood.items()}
    scores = {name: accuracy(trained.network, task, data) for name, data in tests.items()}
    return DemoResult(demo_task.name, trained, scores, task)
