"""Whether any family of the search's prior beats the paper's on spoken digits: every recording left out in turn."""

from typing import Any

import joblib
import numpy as np
import torch
from torch import Tensor

import cvxsnn as cs
from cvxsnn.convex.left_out import ridge_scores
from cvxsnn.core.seeds import child_generator
from cvxsnn.neurons.rollout import count_spikes
from cvxsnn.witnesses.prior import draw_family

from .defaults_tasks import speech
from .measure import console, make_table

N_NEURONS, N_FAMILIES, N_SEEDS = 1024, 384, 4
N_BEST = 5
STRENGTHS = 10.0 ** np.arange(-7, 5)
PAPER = {"decay": 0.9, "threshold": 1.0, "bias": 0.0, "gain": 1.0}


def left_out_accuracy(features: Tensor, digits: Tensor) -> float:
    """How many are right of the predictions for each row from all others, by ridge regression.

    Its strength is the one with the least leave-one-out error.
    """
    targets = torch.nn.functional.one_hot(digits).to(torch.float64)
    dictionary = cs.dictionary.DenseDictionary(features)
    problem = cs.ConvexProblem(
        dictionary, targets, "squared", 0.0, l2_strength=1.0, penalty="elastic-net", intercept=True
    )
    unit = float(features.var(0, correction=0).mean())
    scores = ridge_scores(problem, [float(strength) * unit for strength in STRENGTHS])
    best = int((scores - targets).square().sum((1, 2)).argmin())
    return float((scores[best].argmax(1) == digits).double().mean())


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
