"""One GPU: MNIST-Seq from images to certificate, what its stages are of the machine's ceilings, peers, a large pool.

``make gpu`` runs it after the tests of the GPU, and needs the files of MNIST. Without a GPU the same job is measured on
the CPU, where it takes minutes, for two steps only and without peers and pool. On a GPU the quickest of four rounds
counts, on a CPU the only one.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.convex.solvers import newton, quadratic
from cvxsnn.fitting.pools import PoolRound
from cvxsnn.network.evaluation import accuracy

from .measure import console, describe_machine, make_table, verdict

N_COLUMNS = 16_384
STRENGTH = 0.01
"""Relative to the critical one."""
TOL = 1e-6
GOALS = {"squared": 1.0, "softmax": 10.0}
POOL = 10_000_000
PEER_TIMES = 10.0
"""How many times as long as ours a peer may take."""


class Images(NamedTuple):
    """All images of MNIST as sequences, with their digits."""

    inputs: Tensor
    digits: Tensor
    test_inputs: Tensor
    test_digits: Tensor


@dataclass(frozen=True)
class EndToEnd:
    """Seconds of every stage, from images on the host to a certificate, and what came of it."""

    n_steps: int
    loss: str
    n_columns: int
    to_device: float
    dictionary: float
    solve: float
    certificate: float
    relative_gap: float
    n_coefficients: int
    test_accuracy: float

    @property
    def total(self) -> float:
        """All stages."""
        return self.to_device + self.dictionary + self.solve + self.certificate


def main() -> None:
    """Measure, print, keep the numbers in ``benchmarks/results``."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    is_gpu = device.type == "cuda"
    facts: dict[str, Any] = {"machine": torch.cuda.get_device_name() if is_gpu else describe_machine()}
    facts["ceilings"] = measure_ceilings(device)
    console.print(facts["machine"], facts["ceilings"])
    cases = [read_images(n_steps) for n_steps in ((2, 28) if is_gpu else (2,))]
    facts["end to end"] = [compare_ends(images, loss, device, 4 if is_gpu else 1) for images in cases for loss in GOALS]
    print_ends(facts["end to end"])
    if is_gpu:
        facts["stages"] = [row for images in cases for row in measure_stages(images, device, facts["ceilings"])]
        print_stages(facts["stages"])
        facts["peers"] = [compare_peer(images, loss, device) for images in cases for loss in GOALS]
        console.print(facts["peers"])
        facts["pool"] = solve_large_pool(device)
        console.print(facts["pool"])
    path = Path(os.environ.get("CVXSNN_BENCH_OUT", "benchmarks/results")) / f"gpu-{device.type}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1) + "\n")
    console.print(f"kept: {path}")


def read_images(n_steps: int) -> Images:
    """The training file and the test file, whole."""
    task = cs.tasks.mnist_seq(n_steps, n_train=59_999, n_val=1, n_test=10_000)
    both = (task.train, task.val)
    return Images(
        torch.cat([torch.from_numpy(part.inputs) for part in both]),
        torch.cat([torch.from_numpy(part.targets) for part in both]),
        torch.from_numpy(task.test.inputs),
        torch.from_numpy(task.test.targets),
    )


def clock(work: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Seconds until the device is done, and the result."""
    synchronise(device)
    begin = time.perf_counter()
    result = work()
    synchronise(device)
    return time.perf_counter() - begin, result


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_ceilings(device: torch.device) -> dict[str, float]:
    """What no stage can exceed: 10^12 operations a second of products, 10^9 bytes a second of a copy."""
    size = 8192 if device.type == "cuda" else 1024
    rates = {}
    for dtype in (torch.int8, torch.float32, torch.float64):
        one = torch.ones(size, size, device=device).to(dtype)
        product = torch._int_mm if dtype == torch.int8 else torch.mm
        best = min(clock(lambda one=one, product=product: product(one, one.T), device)[0] for _ in range(5))
        rates[str(dtype).removeprefix("torch.")] = 2 * size**3 / best / 1e12
    large = torch.ones(2**28 if device.type == "cuda" else 2**25, device=device)
    copy = torch.empty_like(large)
    best = min(clock(lambda: copy.copy_(large), device)[0] for _ in range(5))
    return rates | {"memory": 2 * 4 * large.numel() / best / 1e9}


def make_problem(images: Images, loss: str, device: torch.device) -> tuple[float, float, cs.ConvexProblem]:
    """Seconds for the inputs to get to the device, seconds for their dictionary, and the convex program."""
    n_steps, n_features = images.inputs.shape[1:]
    witnesses = cs.gaussian_witnesses(n_features, (N_COLUMNS,), decay=cs.witnesses.Uniform(0.8, 1.0), device=device)
    moving, inputs = clock(lambda: images.inputs.to(device), device)
    readout = "last" if n_steps == 2 else "mean"
    making, dictionary = clock(lambda: cs.build_dictionary(witnesses, inputs, readout), device)
    targets = torch.nn.functional.one_hot(images.digits, 10).double() if loss == "squared" else images.digits
    return moving, making, cs.ConvexProblem(dictionary, targets, loss)


def solve_problem(problem: cs.ConvexProblem) -> cs.Solution:
    """At the strength of the benchmark, with a certificate."""
    return cs.solve(problem.with_strength(STRENGTH * problem.critical_strength), TOL)


def run_once(images: Images, loss: str, device: torch.device) -> EndToEnd:
    """From images on the host to a certificate."""
    moving, making, problem = make_problem(images, loss, device)
    solving, solution = clock(lambda: solve_problem(problem), device)
    proving, _ = clock(lambda: cs.certify(solution.problem, solution.coef, solution.intercept), device)
    network = cs.reconstruct(solution).to(device)
    with torch.no_grad():
        chosen = network(images.test_inputs.to(device)).argmax(1).cpu()
    return EndToEnd(
        n_steps=images.inputs.shape[1],
        loss=loss,
        n_columns=problem.dictionary.n_atoms,
        to_device=moving,
        dictionary=making,
        # A solution comes certified: the certificate's time is in both, and counted once.
        solve=solving - proving,
        certificate=proving,
        relative_gap=solution.certificate.relative_gap,
        n_coefficients=int((solution.coef != 0).sum()),
        test_accuracy=float((chosen == images.test_digits).double().mean()),
    )


def compare_ends(images: Images, loss: str, device: torch.device, n_rounds: int) -> dict[str, Any]:
    """The quickest of a few rounds."""
    best = min((run_once(images, loss, device) for _ in range(n_rounds)), key=lambda run: run.total)
    console.print(f"T = {best.n_steps}, {loss}: {best.total:.3f} s")
    return {**asdict(best), "total": best.total}


def print_ends(ends: list[dict[str, Any]]) -> None:
    """One row for each case."""
    columns = ("to device", "dictionary", "solve", "certificate", "total", "relative gap", "coefficients", "accuracy")
    table = make_table("MNIST-Seq, 60,000 images, ten outputs: seconds", "case", *columns)
    for end in ends:
        goal = GOALS[end["loss"]]
        table.add_row(
            f"T = {end['n_steps']}, {end['loss']}, {end['n_columns']:,} columns",
            *(f"{end[stage]:.3f}" for stage in ("to_device", "dictionary", "solve", "certificate")),
            verdict(f"{end['total']:.2f}", f"{goal:g}", end["total"] <= goal),
            f"{end['relative_gap']:.1e}",
            f"{end['n_coefficients']:,}",
            f"{end['test_accuracy']:.4f}",
        )
    console.print(table)


def measure_stages(images: Images, device: torch.device, ceilings: dict[str, float]) -> list[dict[str, Any]]:
    """Each stage's seconds beside the least that its operations and bytes take at the ceilings."""
    n_rows, n_steps, n_features = images.inputs.shape
    _, making, problem = make_problem(images, "squared", device)
    dictionary = problem.dictionary
    n_atoms = dictionary.n_atoms
    neuron_steps = n_rows * n_steps * N_COLUMNS
    rows = [
        # Drives are products in float64, written and read once.
        ("dictionary", making, 2 * neuron_steps * n_features, "float64", 8 * neuron_steps),
        ("Gram matrix", clock(dictionary.gram, device)[0], n_rows * n_atoms**2, "int8", 8 * n_atoms**2),
    ]
    coef = torch.ones(n_atoms, 10, dtype=torch.float64, device=device)
    scores = torch.ones(n_rows, 10, dtype=torch.float64, device=device)
    n_bytes = dictionary.patterns.nbytes
    for name, work in (("D·W", lambda: dictionary.matvec(coef)), ("Dᵀ·R", lambda: dictionary.rmatvec(scores))):
        rows.append((name, min(clock(work, device)[0] for _ in range(3)), 20 * n_rows * n_atoms, "float64", n_bytes))
    with counted_work() as work:
        solving, _ = clock(lambda: solve_problem(problem), device)
    rows.append(("squared: solve", solving, work["float64"] + n_rows * n_atoms**2 / 16, "float64", 8 * n_atoms**2))
    _, _, problem = make_problem(images, "softmax", device)
    with counted_work() as work:
        solving, _ = clock(lambda: solve_problem(problem), device)
    rows.append(("softmax: solve", solving, work["float64"] + work["float32"], "float64", 0))
    found = []
    for name, seconds, operations, kind, moved in rows:
        least = operations / (1e12 * ceilings[kind]) + moved / (1e9 * ceilings["memory"])
        found.append({"n_steps": n_steps, "stage": name, "seconds": seconds, "least": least, "share": least / seconds})
    return found


@contextmanager
def counted_work() -> Iterator[dict[str, float]]:
    """Count the operations of Cholesky factors and Hessians, by precision."""
    work = {"float32": 0.0, "float64": 0.0}
    factorise, form = quadratic.solve_semidefinite, newton.loss_hessian

    def counted_factor(matrix: Tensor, *arguments: Any) -> Tensor:
        work["float64"] += matrix.shape[0] * matrix.shape[1] ** 3 / 3
        return factorise(matrix, *arguments)

    def counted_hessian(problem: Any, curvature: Tensor, atoms: Tensor, place: Tensor, *rest: Any) -> Tensor:
        work[str(rest[-1]).removeprefix("torch.")] += len(curvature) * len(place) ** 2 * (1 + 1 / curvature.shape[1])
        return form(problem, curvature, atoms, place, *rest)

    with (
        mock.patch.object(quadratic, "solve_semidefinite", counted_factor),
        mock.patch.object(newton, "loss_hessian", counted_hessian),
    ):
        yield work


def print_stages(stages: list[dict[str, Any]]) -> None:
    """One row for each stage."""
    table = make_table("Stages against the ceilings", "stage", "seconds", "at the ceilings", "share")
    for row in stages:
        name = f"T = {row['n_steps']}, {row['stage']}"
        table.add_row(name, f"{row['seconds']:.4f}", f"{row['least']:.4f}", f"{row['share']:.0%}")
    console.print(table)


def compare_peer(images: Images, loss: str, device: torch.device) -> dict[str, Any]:
    """What a GPU user would write in torch: accelerated proximal gradients, all outputs at once.

    For the squared loss on our exact Gram matrix, in float64; for softmax on the dense matrix, in float32. The step
    comes from a power iteration, momentum restarts where it leads astray, and our certificate judges the outcome.
    """
    _, _, problem = make_problem(images, loss, device)
    problem = problem.with_strength(STRENGTH * problem.critical_strength)
    dictionary = problem.dictionary
    ours, solution = clock(lambda: cs.solve(problem, TOL), device)
    (head,) = problem.heads
    n_rows = dictionary.n_rows
    if loss == "squared":
        matrix = dictionary.gram() / n_rows
        linear = dictionary.rmatvec(head.targets) / n_rows

        def gradient(coef: Tensor) -> Tensor:
            return matrix @ coef - linear

        bend = 1.0
    else:
        columns, truth = dictionary.columns(dtype=torch.float32).contiguous(), head.targets.float()
        matrix = (dictionary.gram() / n_rows).float()

        def gradient(coef: Tensor) -> Tensor:
            return columns.T @ (torch.softmax(columns @ coef, 1) - truth) / n_rows

        bend = 0.5
    start = torch.zeros(dictionary.n_atoms, 10, dtype=matrix.dtype, device=device)
    steps = proximal_gradient(gradient, start, 1 / (bend * largest_eigenvalue(matrix)), problem.l1_strength)
    seconds, checked = 0.0, 0.0
    while True:
        took, coef = clock(lambda: next(steps), device)
        seconds += took
        if seconds > 1.1 * checked or seconds > PEER_TIMES * ours:  # judged now and then, and off the clock
            checked = seconds
            certificate, _ = cs.certify(problem, coef.double())
            if certificate.relative_gap <= TOL or seconds > PEER_TIMES * ours:
                break
    return {
        "n_steps": images.inputs.shape[1],
        "loss": loss,
        "ours": {"seconds": ours, "relative gap": solution.certificate.relative_gap},
        "accelerated proximal gradient": {"seconds": seconds, "relative gap": certificate.relative_gap},
    }


def largest_eigenvalue(matrix: Tensor) -> float:
    """By power iteration, with a little to spare."""
    vector = torch.ones(len(matrix), dtype=matrix.dtype, device=matrix.device)
    for _ in range(30):
        vector = matrix @ (vector / vector.norm())
    return 1.01 * float(vector.norm())


def proximal_gradient(
    gradient: Callable[[Tensor], Tensor], start: Tensor, step: float, strength: float
) -> Iterator[Tensor]:
    """FISTA with restarts: the coefficients after every 20 iterations, for ever."""
    coef = ahead = start
    momentum = torch.ones((), dtype=start.dtype, device=start.device)
    while True:
        for _ in range(20):
            moved = ahead - step * gradient(ahead)
            new = moved.sign() * (moved.abs() - step * strength).clamp_min(0)
            astray = ((ahead - new) * (new - coef)).sum() > 0
            momentum = torch.where(astray, 1.0, momentum)
            following = 0.5 * (1 + (1 + 4 * momentum**2).sqrt())
            ahead = new + (momentum - 1) / following * (new - coef)
            coef, momentum = new, following
        yield coef


def solve_large_pool(device: torch.device) -> dict[str, Any]:
    """First-last-XOR, T = 14: the optimum over ten million witnesses, all bits of them kept on the device."""
    task = cs.tasks.first_last_xor(14, encoding="one-hot", n_train=2000, n_val=2000, n_test=4000)
    data = cs.data.TrainingSet.of(task.train).to(device)
    family = {"hidden": (32, 128), "decay": 1.0, "threshold": 1.0, "fan_in": 3, "bias": cs.witnesses.Normal(0.0, 0.3)}
    pool = cs.witnesses.WitnessPool(2, family, POOL)
    seconds, found = clock(
        lambda: cs.fitting.solve_pool(
            pool, data, cs.convex.Objective("logistic"), 0.002, memory_budget=2**33, callback=tell_round
        ),
        device,
    )
    return {
        "witnesses": pool.n_witnesses,
        "seconds": seconds,
        "columns": found.solution.problem.dictionary.n_atoms,
        "relative gap": found.certificate.relative_gap,
        "test accuracy": accuracy(cs.reconstruct(found.solution).to(device), task, task.test),
        "rounds": [asdict(round_) for round_ in found.rounds],
    }


def tell_round(done: PoolRound) -> None:
    """One line."""
    console.print(f"{done.n_witnesses:>12,} witnesses, {done.n_violators:>9,} violate, {done.seconds:8.1f} s")


if __name__ == "__main__":
    main()
