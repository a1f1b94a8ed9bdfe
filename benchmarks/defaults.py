"""The classifier as it comes, against the same classifier with the paper's fixed Gaussian family, on every task."""

import time
from collections.abc import Callable

import numpy as np

import cvxsnn as cs
from cvxsnn.tasks import Task

from .measure import console, make_table

TASKS: dict[str, Callable[[], Task]] = {
    **{
        f"first-last-XOR, T = {n}": lambda n=n: cs.tasks.first_last_xor(n, n_train=2000, n_val=8, n_test=4000)  # type: ignore[misc]
        for n in (6, 8, 11, 14)
    },
    **{f"digits, T = {n}": lambda n=n: cs.tasks.digits_seq(n_steps=n) for n in (2, 8)},  # type: ignore[misc]
    **{
        f"MNIST-Seq, T = {n}": lambda n=n: cs.tasks.mnist_seq(n_steps=n, n_train=2000, n_val=8, n_test=2000)  # type: ignore[misc]
        for n in (2, 14, 28)
    },
}
FIXED = {"one layer of 512": (512,), "256 and 512": (256, 512)}


def fit(task: Task, **options: object) -> tuple[float, float]:
    """Test accuracy, and the seconds it took to get there."""
    begin = time.perf_counter()
    model = cs.SpikingClassifier(**options).fit(task.train.inputs, np.asarray(task.train.targets))
    return float(model.score(task.test.inputs, np.asarray(task.test.targets))), time.perf_counter() - begin


def main() -> None:
    """Fit everything, print."""
    columns = [f"gaussian, {name}" for name in FIXED]
    table = make_table("Test accuracy (seconds)", "task", *columns, "default")
    for name, make in TASKS.items():
        task = make()
        fixed = [fit(task, witnesses="gaussian", hidden=hidden) for hidden in FIXED.values()]
        own = fit(task)
        is_best = own[0] >= max(score for score, _ in fixed)
        cells = [f"{score:.4f} ({seconds:.0f})" for score, seconds in (*fixed, own)]
        table.add_row(name, *cells[:-1], f"[bold]{cells[-1]}[/bold]" if is_best else cells[-1])
        console.print(f"{name}: {', '.join(cells)}")
    console.print(table)


if __name__ == "__main__":
    main()
