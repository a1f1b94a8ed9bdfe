"""Proofs that go on from changed files: refused in one sentence with the file as it was, or computed again and true."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cvxsnn.core.errors import CvxsnnError
from cvxsnn.theory import LIFFamily, prove_complete

from .harness import Finding, Hunt
from .proofs import File, base_of, change, check_truth, judge

_SECONDS = (2.0, 1e-9)
"""For a proof: most take a tenth of the first, and none has enough of the second."""

_N_BASES = 60
"""Honest files that are changed."""


_PLAIN: list[Callable[[File], File]] = [
    lambda base: {"dual": [[-x for x in row] for row in base["dual"]]},
    lambda base: {"dual": [[-x, *rest] for x, *rest in base["dual"]]},
    lambda base: {"dual": [[0 for _ in row] for row in base["dual"]]},
    lambda base: {"neurons": [], "coef": [], "generated": []},
    lambda base: {"proofs": [one | {"code": one["code"][::2], "closer": []} for one in base["proofs"]]},
]
"""Fields that another honest search might have."""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Go on with one changed file."""
    base = base_of(int(rng.integers(_N_BASES)))
    is_plain = rng.random() < 0.5
    changed = base | _PLAIN[int(rng.integers(len(_PLAIN)))](base) if is_plain else change(base, rng)
    if isinstance(changed, dict) and rng.random() < 0.3:
        changed |= {"pending": change(base, rng), "is_finished": bool(rng.integers(2))}
    path = folder / "proof.json"
    text = changed if isinstance(changed, str) else json.dumps(changed)
    path.write_text(text, errors="surrogatepass")
    written = path.read_bytes()
    try:
        found = _go_on(path, base, float(rng.choice(_SECONDS)))
    except CvxsnnError as error:
        if "\n" in str(error):
            raise Finding(f"expected one sentence, got {str(error)!r}") from error
        if path.read_bytes() != written:
            raise Finding(f"refused ({error}), and the file is another one now: {text}") from error
        return "refused"
    file = json.loads(path.read_text())
    if judge(file) != "accepted":
        raise Finding(f"the checker refuses what was written after: {text}")
    check_truth(file)
    if not found.dual <= float.fromhex(base["primal"]) * (1 + 1e-9):
        raise Finding(f"{found} is above the objective {float.fromhex(base['primal'])} of a network: {text}")
    return "computed again"


def _go_on(path: Path, base: File, seconds: float):  # type: ignore[no-untyped-def]
    base = copy.deepcopy(base)
    family = LIFFamily(
        base["decay"][0] / base["decay"][1], base["bias"], base["negative_threshold"], resets=base["resets"]
    )
    inputs = np.array(base["inputs"], dtype=float)
    targets = np.array([[float.fromhex(y) for y in row] for row in base["targets"]])
    if base["readout"] == "all":
        targets = targets.reshape(inputs.shape[:2])
    return prove_complete(
        path, inputs, targets.squeeze() if targets.shape[-1] == 1 else targets, family, base["loss"],
        float.fromhex(base["strength"]), readout=base["readout"], intercept=base["has_intercept"], max_seconds=seconds,
    ).certificate  # fmt: skip


HUNT = Hunt("resumed_proofs", "Proofs over all neurons that go on from changed files.", case, cases=3_000, short=12)
