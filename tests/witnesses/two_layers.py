"""Witnesses of two layers, and their spikes on a small task."""

import cvxsnn as cs
from cvxsnn.data import TrainingSet

TASK = cs.tasks.first_last_xor(5, encoding="one-hot", n_train=60, n_val=20, n_test=20, seed=3)
DATA = TrainingSet.of(TASK.train)


def draw_two_layers(n=6, width=5, seed=0, **family):
    return cs.gaussian_witnesses(
        2, (7, width), n, **{"decay": 0.8, "bias": cs.witnesses.Normal(0, 0.3), **family}, seed=seed
    )


def spikes(witnesses, steps="all"):
    return cs.roll_out(witnesses.layers, DATA.inputs, steps)
