"""Whether any family of the search's prior beats the paper's on spoken digits: every recording left out in turn."""

from typing import Any

import joblib
import numpy as np
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.convex.ridge_path import RidgePath
from cvxsnn.core.seeds import child_generator
from cvxsnn.neurons.rollout import count_spikes
from cvxsnn.witnesses.family import draw_family

from .defaults_tasks import speech
from .measure import console, make_table

N_NEURONS, N_FAMILIES, N_SEEDS = 1024, 384, 4
N_BEST = 5
STRENGTHS = 10.0 ** np.arange(-7, 5)
PAPER = {"decay": 0.9, "threshold": 1.0, "bias": 0.0, "gain": 1.0}


def left_out_accuracy(features: Tensor, digits: Tensor) -> float:
    """How many are right of the predictions for each row from all others, by ridge regression.

    Its strength is the one that generalised cross-validation chooses. A row's residual without it is its residual with
    it, divided by one minus its leverage.
    """
    targets = torch.nn.functional.one_hot(digits).to(torch.float64)
    row_weight = torch.full((len(targets),), 1 / len(targets), dtype=torch.float64)
    path = RidgePath(features, targets, row_weight)
    strength = min((float(s * path.eigenvalues.mean()) for s in STRENGTHS), key=path.error)
    coef, intercept = path.fit(strength)
    centred = features - features.mean(0)
    covariance = centred.T @ centred / len(targets) + strength * torch.eye(features.shape[1], dtype=torch.float64)
    leverage = ((centred @ torch.linalg.inv(covariance)) * centred).sum(1) / len(targets) + 1 / len(targets)
    residual = targets - features @ coef - intercept
    predicted = targets - residual / (1 - leverage)[:, None]
    return float((predicted.argmax(1) == digits).double().mean())


def judge(family: dict[str, Any], seed: int) -> float:
    """The accuracy of mean spike counts of a family's neurons on standardised recordings."""
    torch.set_num_threads(1)
    data = speech(lambda own: False)
    inputs = (data.X - data.X.mean((0, 1))) / data.X.std((0, 1))
    witnesses = cs.gaussian_witnesses(inputs.shape[2], seed=seed, **family)
    counts = count_spikes(witnesses.layers, inputs)
    return left_out_accuracy(counts.to(torch.float64) / inputs.shape[1], torch.from_numpy(data.y))


def main() -> None:
    """Print the paper's family, and the best of those that the prior gives."""
    generator = child_generator(0, "families")
    n_features = speech(lambda own: False).X.shape[2]
    drawn = []
    for _ in range(N_FAMILIES):
        n_layers = int(generator.integers(1, 3))
        widths = (N_NEURONS // 4, N_NEURONS)[-n_layers:]
        drawn.append({**draw_family(generator, n_features, n_layers).arguments(), "hidden": widths})
    jobs = [({**PAPER, "hidden": (N_NEURONS,)}, seed) for seed in range(N_SEEDS)] + [(family, 0) for family in drawn]
    found = joblib.Parallel(n_jobs=-1)(joblib.delayed(judge)(*job) for job in jobs)
    table = make_table(f"{N_NEURONS:,} neurons, every recording left out in turn", "family", "accuracy")
    for seed, accuracy in enumerate(found[:N_SEEDS]):
        table.add_row(f"the paper's, seed {seed}", f"{accuracy:.4f}")
    for accuracy, place in sorted(((a, k) for k, a in enumerate(found[N_SEEDS:])), reverse=True)[:N_BEST]:
        table.add_row(f"number {place} of {N_FAMILIES}", f"{accuracy:.4f}")
    console.print(table)


if __name__ == "__main__":
    main()
