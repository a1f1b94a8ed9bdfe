"""Ways to witnesses, side by side: sampled, tuned, pooled, climbing, and trained by surrogate gradients.

All end in the same convex program on the same data; validation data choose the strength. "Columns" are those of the
dictionary, or of the working set of a pool; "read" are those that the network reads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import cvxsnn as cs
from cvxsnn.data.tasks import Task
from cvxsnn.fitting import Program, TaskScore, convex_stage
from cvxsnn.network.evaluation import accuracy

from .measure import console, make_table

N_WITNESSES = 2048
POOL = 262_144
EPOCHS = 100
RATES = (1e-3, 3e-3, 1e-2, 3e-2)


@dataclass(frozen=True)
class Case:
    """A task with its objective and the paper's family for it."""

    task: Task
    objective: cs.convex.Objective
    family: dict[str, object]


CASES: dict[str, Callable[[], Case]] = {
    "first-last-XOR, T = 14": lambda: Case(
        cs.tasks.first_last_xor(14, encoding="one-hot", n_train=2000, n_val=2000, n_test=4000),
        cs.convex.Objective("logistic"),
        {"decay": 0.99, "threshold": 1.0},
    ),
    "addition, base 10": lambda: Case(
        cs.tasks.addition(base=10, n_digits=5, n_train=2304, n_val=512, n_test=1024, ood_digits=(50,), n_test_ood=256),
        cs.convex.Objective({"sum": "softmax", "carry": "logistic"}, "all", timestep_weighting="ramped"),
        {"decay": 0.9, "threshold": 1.0},
    ),
    "digits, T = 8": lambda: Case(
        cs.tasks.digits_seq(n_steps=8), cs.convex.Objective("softmax", "mean"), {"decay": 0.9, "threshold": 1.0}
    ),
}


def compare(case: Case) -> dict[str, tuple[float, int, int, float]]:
    """Test accuracy, columns, columns read and seconds of each way."""
    task, data = case.task, cs.data.TrainingSet.of(case.task.train)
    objective = case.objective.for_classes(task.n_classes)
    score = TaskScore(task, task.val)
    split = cs.fitting.Split(data, score)
    results: dict[str, tuple[float, int, int, float]] = {}

    def keep(name: str, solution: cs.Solution, begin: float) -> None:
        network = cs.reconstruct(solution)
        columns = solution.problem.dictionary.n_atoms
        seconds = time.perf_counter() - begin
        results[name] = (accuracy(network, task, task.test), columns, len(solution.support), seconds)

    program = Program(objective, "l1", n_strengths=10, smallest_ratio=0.001)
    sizes = {"hidden": (N_WITNESSES // 4, N_WITNESSES), "n_subnetworks": 1}
    begin = time.perf_counter()
    sampled = cs.gaussian_witnesses(data.inputs.shape[2], **case.family, **sizes)  # type: ignore[arg-type]
    keep("sampled, the paper's family", convex_stage(sampled, split, program), begin)

    begin = time.perf_counter()
    tuned = cs.fitting.tune_witnesses(data, objective, score, cs.fitting.Tuning(N_WITNESSES))
    program = program.with_readout(tuned.readout)
    witnesses = cs.gaussian_witnesses(data.inputs.shape[2], **tuned.family)
    solution = convex_stage(witnesses, split, program)
    keep("tuned", solution, begin)

    pooled = convex_stage(witnesses, split, replace(program, pool=POOL), family=tuned.family)
    keep(f"pooled, {POOL:,}", pooled, begin)

    begin = time.perf_counter()
    candidates = tuple(cs.fitting.SurrogateSettings(epochs=EPOCHS, learning_rate=rate, patience=30) for rate in RATES)
    family = {**case.family, "hidden": (256, 512), "n_subnetworks": 2}
    gradient = cs.fitting.Settings(program, family, surrogate=candidates)
    trained = cs.fitting.train_task("sg-cvx", task, gradient)
    assert trained.solution is not None
    keep("surrogate gradients, then convex", trained.solution, begin)
    first = trained.history[0]
    assert first.network is not None
    results["surrogate gradients alone"] = (accuracy(first.network, task, task.test), 1024, 1024, first.seconds)
    return results


def main() -> None:
    """Compare on every case, print."""
    for name, make in CASES.items():
        table = make_table(name, "witnesses", "test accuracy", "columns", "read", "seconds")
        for way, (score, n_columns, n_read, seconds) in compare(make()).items():
            table.add_row(way, f"{score:.4f}", f"{n_columns:,}", f"{n_read:,}", f"{seconds:.0f}")
        console.print(table)


if __name__ == "__main__":
    main()
