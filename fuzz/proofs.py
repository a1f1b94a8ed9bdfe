"""Proofs over all neurons: honest ones are accepted by two checkers, changed ones only if they are true.

The second checker (`second_checker.mjs`) was written in another language from the page docs/proof-files.md alone. It
runs on the Node.js that comes with Playwright. Truth is decided by enumeration, which knows no boxes: the optimum over
all patterns of a family is solved, and no accepted lower bound may be above it.
"""

import copy
import json
import subprocess
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from math import inf, nextafter
from pathlib import Path
from typing import Any

import numpy as np
from playwright._impl._driver import compute_driver_executable

from cvxsnn import ConvexProblem, solve
from cvxsnn.core.errors import BudgetError, CvxsnnError, InvalidInputError
from cvxsnn.theory import LIFFamily, enumerate_lif, solve_complete, write_certificate
from cvxsnn.theory import check_certificate as checker

from . import forgeries
from .harness import Finding, Hunt, Skip

File = dict[str, Any]

_N_BASES = 150
"""Honest files that are changed."""

_LIMIT = 10**8
"""Operations of a check: most files take far fewer."""

_IDEAS: list[Callable[[File], File | str | None]] = [
    getattr(forgeries, name) for name in sorted(dir(forgeries)) if name.startswith("forge_")
]


def case(rng: np.random.Generator, folder: Path) -> str:
    """Check one honest or changed file."""
    if rng.random() < 0.1:
        file = draw_proof(rng, folder)
        verdict, second = judge(file), judge_again(file)
        if "beyond a limit" in (verdict, second):
            return "honest, beyond a limit"
        if verdict != "accepted" or second != "accepted":
            raise Finding(f"an honest proof is {verdict}, by the second checker {second}: {json.dumps(file)}")
        check_truth(file)
        return "honest, accepted"
    base = base_of(int(rng.integers(_N_BASES)))
    changed = change(base, rng)
    if changed == base:
        return "not changed"
    verdict, second = judge(changed), judge_again(changed)
    if verdict != second and "beyond a limit" not in (verdict, second):
        raise Finding(f"the checkers differ, {verdict} and {second}: {_text(changed)}")
    if verdict == "accepted":
        check_truth(changed)
        return "changed, still proven"
    return f"changed, {verdict}"


@cache
def base_of(number: int) -> File:
    """Return one of the honest files that are changed."""
    with tempfile.TemporaryDirectory() as folder:
        return draw_proof(np.random.default_rng([20, number]), Path(folder))


def draw_proof(rng: np.random.Generator, folder: Path) -> File:
    """Return the content of an honest file about a small problem, often with ties."""
    n_steps, n_features = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    n_samples = int(rng.integers(2, 9 if n_steps * n_features < 4 else 6))
    readout = str(rng.choice(["last", "mean", "all"]))
    family = LIFFamily(
        float(rng.choice([0.0, 0.25, 0.5, 0.75, 1.0])),
        bias=bool(rng.integers(2)),
        negative_threshold=bool(rng.integers(2)),
        resets=bool(rng.random() < 0.75),
    )
    largest = int(rng.choice([1, 3, 20]))
    inputs = rng.integers(-largest * int(rng.random() < 0.8), largest + 1, (n_samples, n_steps, n_features)) * 1.0
    if rng.random() < 0.2:
        inputs = np.repeat(inputs[:, :1], n_steps, axis=1)
    shape = (n_samples, n_steps) if readout == "all" else (n_samples,)
    shape = shape if readout == "all" or rng.random() < 0.7 else (*shape, 2)
    loss = str(rng.choice(["squared", "logistic"]))
    targets = np.where(rng.random(shape) < 0.5, -1.0, 1.0)
    targets[0] = -targets[-1]  # both classes
    if loss == "squared" and rng.random() < 0.5:
        targets = rng.normal(size=shape)
    options: dict[str, Any] = {"readout": readout, "intercept": bool(rng.integers(2)), "max_seconds": 5.0, "tol": 1e-3}
    strength = float(rng.choice([0.3, 0.1, 0.03, 0.01]))
    try:
        found = solve_complete(inputs, targets, family, loss, strength, n_start=16, **options)
        write_certificate(folder / "proof.json", found, inputs, tol=float(rng.choice([0.0, 0.01])), max_seconds=0.5)
    except (InvalidInputError, BudgetError) as error:
        raise Skip(str(error).partition(",")[0]) from error
    file: File = json.loads((folder / "proof.json").read_text())
    return file


# ---- changes --------------------------------------------------------------------------------------------------------


def change(base: File, rng: np.random.Generator) -> File | str:
    """Return a changed file, or its text: by an idea, or by wrong values in places of it."""
    if rng.random() < 0.5:
        order = rng.permutation(len(_IDEAS))
        forged = next((own for own in (_IDEAS[i](copy.deepcopy(base)) for i in order) if own is not None), None)
        if forged is not None:
            return forged
    file = copy.deepcopy(base)
    for _ in range(int(rng.choice([1, 1, 2, 3]))):
        _spoil(file, rng)
    return consistent(file) if rng.random() < 0.7 else file


def consistent(file: File) -> File:
    """Return a file that states the best that its network and its dual point would allow, if the boxes were right."""
    try:
        read = checker.read_certificate(file)
        sums = [checker.leaky_sums(sequence, read.decay, read.bias) for sequence in read.inputs]
        primal, bound = checker.primal_value(read, sums), checker.dual_value(read)
        file |= {"primal": nearest(primal, inf).hex(), "lower_bound": nearest(bound, -inf).hex()}
    except (checker.WrongError, OverflowError):
        pass
    return file


def nearest(value: Fraction, towards: float) -> float:
    """Return the float nearest to a fraction on one side of it, or equal to it."""
    near = float(value)
    is_beyond = Fraction(near) >= value if towards > 0 else Fraction(near) <= value
    return near if is_beyond else nextafter(near, towards)


def _spoil(file: File, rng: np.random.Generator) -> None:
    """Change one place of a file, at any depth."""
    parent: Any = file
    names = [name for name in file if name not in checker.HINTS]
    key: Any = "proofs" if rng.random() < 0.4 and file.get("proofs") else str(rng.choice(names))
    while isinstance(parent[key], (list, dict)) and parent[key] and rng.random() < 0.8:
        parent = parent[key]
        key = int(rng.integers(len(parent))) if isinstance(parent, list) else str(rng.choice(list(parent)))
    value = parent[key]
    wrong: list[Any] = [None, True, False, 0, 1, -1, 10**30, 1.5, "x", [], {}]
    if type(value) is int:
        wrong += 3 * [value + 1, value - 1, -value, 2 * value, value // 2, float(value), str(value)]
    elif isinstance(value, bool):
        wrong += 6 * [not value, int(value)]
    elif isinstance(value, list) and value:
        one, other = (value[int(i)] for i in rng.integers(len(value), size=2))
        wrong += 4 * [value[:-1], value[1:], [*value, one], [one, *value], value[::-1], [other for _ in value]]
    elif isinstance(value, str) and value.startswith(("0x", "-0x")):
        number = float.fromhex(value)
        wrong += 3 * [(factor * number).hex() for factor in (-1.0, 0.0, 0.5, 0.99, 1.01, 2.0)]
        wrong += [number, "nan", "inf", str(number), value.upper(), f" {value}", "0x1p-1074"]
    elif isinstance(value, str) and value:
        place, letter = int(rng.integers(len(value))), str(rng.choice(list(".,!abcdz{é")))
        wrong += 8 * [
            value[:place] + letter + value[place + 1 :],
            value[:place] + value[place + 1 :],
            value[:place] + letter + value[place:],
            value[:place],
        ]
        wrong += 2 * [value.replace(",", "."), value.replace("!", "."), "." * len(value), value + value]
    parent[key] = wrong[int(rng.integers(len(wrong)))]
    if rng.random() < 0.03:
        parent.pop(key) if isinstance(parent, dict) else parent.append(value)


# ---- judges ---------------------------------------------------------------------------------------------------------


def _text(file: File | str) -> str:
    return file if isinstance(file, str) else json.dumps(file)


def judge(file: File | str) -> str:
    """Return what the checker says of a file: accepted, refused, or beyond a limit."""
    try:
        checker.check(checker.parse(_text(file)), _LIMIT)
    except checker.WrongError:
        return "refused"
    except checker.LimitError:
        return "beyond a limit"
    return "accepted"


def judge_again(file: File | str) -> str:
    """Return what the second checker says."""
    process = _second_checker()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(_text(file)) + "\n")
    process.stdin.flush()
    status: str = json.loads(process.stdout.readline())["status"]
    return {"limit": "beyond a limit"}.get(status, status)


@cache
def _second_checker() -> "subprocess.Popen[str]":
    node, _ = compute_driver_executable()
    place = Path(__file__).with_name("second_checker.mjs")
    command = [node, str(place), "--batch", "--limit", str(_LIMIT)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def check_truth(file: File | str) -> None:
    """Compare what an accepted file states with the optimum over all patterns."""
    content = json.loads(_text(file))
    if any(abs(x) >= 2**53 for sequence in content["inputs"] for step in sequence for x in step):
        return  # numbers too large for an enumeration
    decay = float(Fraction(*content["decay"]))
    try:
        family = LIFFamily(decay, content["bias"], content["negative_threshold"], resets=content.get("resets", True))
        patterns = enumerate_lif(family, np.array(content["inputs"], dtype=float), max_patterns=20_000).spikes
    except CvxsnnError:
        return  # numbers too long, or too many patterns, for an enumeration
    spikes = np.asarray(patterns, dtype=np.int64)  # (n_patterns, n_samples, n_steps)
    readout, n_steps = content["readout"], spikes.shape[2]
    sums = {"last": spikes[:, :, -1], "mean": spikes.sum(2), "all": spikes.reshape(len(spikes), -1)}[readout]
    dual = np.array(content["dual"], dtype=object)
    largest = max(abs(int(x)) for x in (sums.astype(object) @ dual).flat)
    limit = content["price_bound"] * (n_steps if readout == "mean" else 1)
    if largest > limit:
        raise Finding(f"accepted: prices up to {limit}, and a neuron has {largest}: {_text(file)}")
    targets = np.array([[float.fromhex(y) for y in row] for row in content["targets"]])
    columns = sums.T / (n_steps if readout == "mean" else 1)
    strength, lower, primal = (float.fromhex(content[name]) for name in ("strength", "lower_bound", "primal"))
    try:
        problem = ConvexProblem(columns, targets, content["loss"], strength, intercept=content["has_intercept"])
        optimum = solve(problem, 1e-9).certificate
    except CvxsnnError:
        return  # numbers at the edges of float64
    if lower > optimum.primal * (1 + 1e-9) or primal < optimum.dual * (1 - 1e-9):
        raise Finding(f"accepted: {lower} to {primal}, and the optimum is {optimum}: {_text(file)}")


HUNT = Hunt("proofs", "Proofs over all neurons, honest and forged, by two checkers and by enumeration.", case,
            cases=15_000, short=40, seconds=60.0)  # fmt: skip
