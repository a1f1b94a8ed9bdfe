"""Times one contender on one problem in a process of its own: ``python -m benchmarks.solver_process``."""

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import torch
from torch import Tensor

from cvxsnn import ConvexProblem, SpikeDictionary, build_dictionary, certify
from cvxsnn.dictionary.building import count_dictionary

from .peers import CONTENDERS, EVERY_LOSS, OUR_PATH, OURS, Case, Contender, Fit

COLUMNS = "columns.npz"

N_REPEATS, REPEATED_BELOW_S = 3, 5.0
"""A fit that reaches the goal is timed this often if it is short, and the shortest time counts."""


def judge(problem: ConvexProblem, fit: Fit) -> float:
    """The certified relative gap."""

    def tensor(values: npt.NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float64)).reshape(-1, problem.n_outputs)

    duals = () if fit.dual is None else (tensor(fit.dual),)
    return certify(problem, tensor(fit.coef), dual_candidates=duals)[0].relative_gap


def time_settings(contender: Contender, case: Case, goal: float, log: Callable[[dict[str, Any]], None]) -> None:
    """Fit from loose to tight until the goal is reached; log when each fit begins, and what came of it.

    An error at one setting is logged like a result, and the next is tried.
    """
    problem = case.problem
    if contender.name not in (OURS, OUR_PATH):
        case.columns  # noqa: B018 - unpacked before the clock starts
    for setting in contender.settings:
        for _ in range(N_REPEATS):
            log({"setting": setting, "begun": time.time()})
            try:
                begin = time.perf_counter()
                fit = contender.fit(case, setting)
                seconds = time.perf_counter() - begin
                gap = judge(problem, fit)
            except Exception as error:
                log({"setting": setting, "error": f"{type(error).__name__}: {error}"})
                break
            log({"setting": setting, "seconds": seconds, "relative_gap": gap, "history": fit.history})
            if gap <= goal and seconds >= REPEATED_BELOW_S:
                return
            if gap > goal:
                break
        else:
            return


def save_dictionary(folder: Path, dictionary: SpikeDictionary) -> None:
    """Write the columns of a dictionary as bytes: spikes, or spike counts."""
    if dictionary.is_binary:
        np.savez(folder / COLUMNS, columns=dictionary.columns(dtype=torch.uint8).numpy())
    else:
        counts = dictionary.columns(dtype=torch.float32).mul_(dictionary.row_counts()[:, None]).round_()
        np.savez(folder / COLUMNS, counts=counts.to(torch.uint8).numpy(), n_steps=dictionary.n_steps)


def load_dictionary(folder: Path) -> SpikeDictionary:
    """The dictionary that was written to a folder."""
    with np.load(folder / COLUMNS) as file:
        if "counts" in file:
            return count_dictionary(torch.from_numpy(file["counts"]), int(file["n_steps"]))
        return build_dictionary(file["columns"])


def warm_up(contender: Contender, like: Case) -> None:
    """Solve a toy like it once, so that imports and just-in-time compilation are not timed, for anybody."""
    generator = np.random.default_rng(0)
    dictionary = build_dictionary(generator.integers(2, size=(60, 8)) == 1)
    classes = np.arange(60) % 3
    if like.targets.ndim == 2:
        targets = np.eye(3)[classes]
    else:
        targets = classes if like.loss == "softmax" else 2.0 * (np.arange(60) % 2) - 1
    critical = ConvexProblem(dictionary, targets, loss=like.loss).critical_strength
    toy = replace(
        like,
        dictionary=dictionary,
        targets=targets,
        strength=critical / 5 if like.strength else 0.0,
        critical_strength=critical,
        l2_strength=critical / 5 if like.l2_strength else 0.0,
    )
    contender.fit(toy, contender.settings[0])


def limit_memory() -> None:
    """Leave a tenth of the free memory: a contender that wants more fails alone."""
    if sys.platform == "linux":
        allowed = int(0.9 * psutil.virtual_memory().available)
        resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))


def main() -> None:
    """Time one contender on one problem, in a process of its own."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with columns.npz and targets-LOSS.npy")
    parser.add_argument("--log", type=Path, required=True, help="JSON lines, one before and one after each fit")
    parser.add_argument("--contender", choices=CONTENDERS, required=True)
    parser.add_argument("--loss", choices=EVERY_LOSS, required=True)
    for name in ("--strength", "--l2-strength", "--critical-strength", "--goal"):
        parser.add_argument(name, type=float, required=True)
    options = parser.parse_args()

    def log(entry: dict[str, Any]) -> None:
        with options.log.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    warnings.simplefilter("ignore")  # that a tolerance was not met shows in the certificate
    limit_memory()
    contender = CONTENDERS[options.contender]
    case = Case(
        dictionary=load_dictionary(options.data),
        targets=np.load(options.data / f"targets-{options.loss}.npy"),
        loss=options.loss,
        strength=options.strength,
        critical_strength=options.critical_strength,
        l2_strength=options.l2_strength,
    )
    warm_up(contender, case)
    time_settings(contender, case, options.goal, log)


if __name__ == "__main__":
    main()
