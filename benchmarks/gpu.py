"""One GPU: MNIST-Seq from images to certificate, what each stage is of the machine's ceiling, peers, and a large pool.

``python -m benchmarks gpu`` needs the files of MNIST and a GPU; without one it runs the same stages on the CPU with
fewer columns. Times are the best of a few, after one round that warms up.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.evaluation import accuracy
from cvxsnn.tasks import Task

from .measure import console, make_table, verdict

N_COLUMNS = {"cuda": 16_384, "cpu": 2_048}
STRENGTH = 0.02
"""Relative to the critical one."""
TOL = 1e-6
GOALS = {"squared": 1.0, "softmax": 10.0}
POOL = 10_000_000


@dataclass(frozen=True)
class EndToEnd:
    """Seconds of every stage, from images on the host to a certificate."""

    n_steps: int
    loss: str
    n_rows: int
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
    """Measure, print, keep the numbers in ``benchmarks/results/gpu.json``."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    facts: dict[str, Any] = {"device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu"}
    console.print(facts["device"])
    facts["ceilings"] = measure_ceilings(device)
    console.print(facts["ceilings"])
    table = make_table(
        "MNIST-Seq, all 60,000 images, ten outputs", "case", "to device", "dictionary", "solve", "certificate", "total",
        "relative gap", "coefficients", "test accuracy",
    )  # fmt: skip
    ends = []
    for n_steps in (2, 28):
        task = cs.tasks.mnist_seq(n_steps, n_train=59_999, n_val=1, n_test=10_000)
        for loss in ("squared", "softmax"):
            found = min((run_once(task, loss, device) for _ in range(3)), key=lambda run: run.total)
            ends.append({**asdict(found), "total": found.total})
            total = verdict(f"{found.total:.2f} s", f"{GOALS[loss]:g} s", found.total <= GOALS[loss])
            parts = [f"{value:.3f}" for value in (found.to_device, found.dictionary, found.solve, found.certificate)]
            table.add_row(
                f"T = {n_steps}, {loss}",
                *parts,
                total,
                f"{found.relative_gap:.1e}",
                f"{found.n_coefficients:,}",
                f"{found.test_accuracy:.4f}",
            )
            console.print(f"T = {n_steps}, {loss}: {found}")
    console.print(table)
    facts["end to end"] = ends
    facts["peer"] = compare_peer(device)
    console.print(facts["peer"])
    facts["pool"] = solve_large_pool(device)
    console.print(facts["pool"])
    path = Path(os.environ.get("CVXSNN_BENCH_OUT", "benchmarks/results")) / f"gpu-{device.type}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts, indent=1))
    console.print(f"kept: {path}")


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
    """The rates that the stages cannot exceed: products in half and in double precision, memory."""
    size = 8192 if device.type == "cuda" else 1024
    rates = {}
    for name, dtype in (("float16", torch.float16), ("float32", torch.float32), ("float64", torch.float64)):
        if device.type == "cpu" and dtype == torch.float16:
            continue
        one = torch.rand(size, size, device=device).to(dtype)
        best = min(clock(lambda one=one: one @ one, device)[0] for _ in range(5))
        rates[f"{name} product, TFLOP/s"] = round(2 * size**3 / best / 1e12, 3)
    large = torch.empty(2**28 if device.type == "cuda" else 2**25, device=device)
    best = min(clock(large.clone, device)[0] for _ in range(5))
    rates["memory, GB/s"] = round(2 * 4 * large.numel() / best / 1e9, 1)
    return rates


def draw_witnesses(n_features: int, n_columns: int, device: torch.device) -> cs.WitnessSet:
    """Two layers whose neurons forget at all speeds, as many last ones as columns."""
    half = n_columns // 4
    return cs.gaussian_witnesses(
        n_features, (half, n_columns), decay=cs.Uniform(0.8, 1.0), bias=cs.Normal(0.0, 0.5), device=device
    )


def run_once(task: Task, loss: str, device: torch.device) -> EndToEnd:
    """From images on the host to a certificate."""
    n_columns = N_COLUMNS[device.type]
    witnesses = draw_witnesses(task.train.inputs.shape[2], n_columns, device)
    objective = cs.Objective(loss, "last" if task.train.inputs.shape[1] == 2 else "mean")
    host = torch.from_numpy(task.train.inputs)
    to_device, inputs = clock(lambda: host.to(device), device)
    making, dictionary = clock(lambda: cs.build_dictionary(witnesses, inputs, objective.readout), device)
    targets = torch.from_numpy(task.train.targets)
    if loss == "squared":
        targets = torch.nn.functional.one_hot(targets, 10).double()
    problem = cs.ConvexProblem(dictionary, targets, loss)

    def solved() -> cs.Solution:
        return cs.solve(problem.with_strength(STRENGTH * problem.critical_strength), TOL)

    solving, solution = clock(solved, device)
    proving, _ = clock(lambda: cs.certify(solution.problem, solution.coef, solution.intercept), device)
    network = cs.reconstruct(solution)
    return EndToEnd(
        n_steps=task.train.inputs.shape[1],
        loss=loss,
        n_rows=len(host),
        n_columns=dictionary.n_atoms,
        to_device=to_device,
        dictionary=making,
        # A solution comes certified: the certificate's time is in both, and counted once.
        solve=solving - proving,
        certificate=proving,
        relative_gap=solution.certificate.relative_gap,
        n_coefficients=int((solution.coef != 0).sum()),
        test_accuracy=_accuracy(network, task, loss),
    )


def _accuracy(network: cs.SpikingNetwork, task: Task, loss: str) -> float:
    if loss != "squared":
        return accuracy(network, task, task.test)
    with torch.no_grad():
        chosen = network(torch.from_numpy(task.test.inputs)).argmax(1).cpu()
    return float((chosen == torch.from_numpy(task.test.targets)).double().mean())


def compare_peer(device: torch.device) -> dict[str, float]:
    """Softmax at T = 2 by accelerated proximal gradients on the dense matrix, as one would write it in torch.

    Float32, step by a power iteration, restarted where it goes astray; its gap is taken by our certificate.
    """
    task = cs.tasks.mnist_seq(2, n_train=59_999, n_val=1, n_test=10)
    witnesses = draw_witnesses(task.train.inputs.shape[2], N_COLUMNS[device.type], device)
    dictionary = cs.build_dictionary(witnesses, torch.from_numpy(task.train.inputs).to(device))
    problem = cs.ConvexProblem(dictionary, task.train.targets, "softmax")
    problem = problem.with_strength(STRENGTH * problem.critical_strength)
    ours, solution = clock(lambda: cs.solve(problem, TOL), device)
    columns = dictionary.columns(dtype=torch.float32).contiguous()
    truth = torch.nn.functional.one_hot(torch.from_numpy(task.train.targets).to(device), 10).float()
    limit = 20.0 * ours if device.type == "cuda" else 120.0
    seconds, coef = clock(lambda: proximal_gradient(columns, truth, problem.l1_strength, limit), device)
    certificate, _ = cs.certify(problem, coef.double())
    return {
        "ours, seconds": ours,
        "ours, relative gap": solution.certificate.relative_gap,
        "accelerated proximal gradient, seconds": seconds,
        "accelerated proximal gradient, relative gap": certificate.relative_gap,
    }


def proximal_gradient(columns: Tensor, truth: Tensor, strength: float, limit: float) -> Tensor:
    """FISTA with restarts for softmax and L1, for at most ``limit`` seconds."""
    n_rows, n_columns = columns.shape
    vector = torch.ones(n_columns, 1, device=columns.device)
    for _ in range(20):
        vector = columns.T @ (columns @ vector)
        vector /= vector.norm()
    step = 2 * n_rows / float((columns @ vector).square().sum())
    coef = torch.zeros(n_columns, truth.shape[1], device=columns.device)
    ahead, momentum = coef, 1.0
    begin = time.perf_counter()
    while time.perf_counter() - begin < limit:
        for _ in range(20):
            residual = torch.softmax(columns @ ahead, 1) - truth
            moved = ahead - step * (columns.T @ residual) / n_rows
            new = moved.sign() * (moved.abs() - step * strength).clamp_min(0)
            if float(((ahead - new) * (new - coef)).sum()) > 0:
                momentum = 1.0
            following = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
            ahead = new + (momentum - 1) / following * (new - coef)
            coef, momentum = new, following
        synchronise(columns.device)
    return coef


def solve_large_pool(device: torch.device) -> dict[str, float]:
    """First-last-XOR, T = 14: the optimum over ten million witnesses on a GPU, a hundred thousand on a CPU."""
    task = cs.tasks.first_last_xor(14, encoding="one-hot", n_train=2000, n_val=2000, n_test=4000)
    data = cs.TrainingSet.of(task.train).to(device)
    family = {"hidden": (32, 128), "decay": 1.0, "threshold": 1.0, "fan_in": 3, "bias": cs.Normal(0.0, 0.3)}
    pool = cs.WitnessPool(2, family, POOL if device.type == "cuda" else 100_000)
    objective = cs.Objective("logistic")
    seconds, found = clock(lambda: cs.solve_pool(pool, data, objective, 0.002), device)
    network = cs.reconstruct(found.solution)
    return {
        "witnesses": pool.n_witnesses,
        "seconds": seconds,
        "relative gap": found.certificate.relative_gap,
        "test accuracy": accuracy(network, task, task.test),
    }


if __name__ == "__main__":
    main()
