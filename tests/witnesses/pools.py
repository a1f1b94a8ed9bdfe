"""Small pools of witnesses, and all their witnesses as one set."""

import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.witnesses import Normal, Uniform
from cvxsnn.witnesses.pool import WitnessPool

FAMILY = {"hidden": (8,), "decay": Uniform(0, 1), "bias": Normal(0, 0.5)}
DEEP = {"hidden": (6, 4), "decay": [Uniform(0, 1), 0.5], "bias": Normal(0, 0.5), "balance": [0.0, 0.5]}
DELAYED = {"hidden": (8,), "geometry": "scattered", "fan_in": 3, "weights": "differences", "decay": Uniform(0, 1)}
DEEP_DELAYED = {"hidden": (6, 4), "geometry": ("dilated", "scattered"), "fan_in": 3, "n_calibration": 10}
FAMILIES = {"plain": FAMILY, "deep": DEEP, "delayed": DELAYED, "deep-delayed": DEEP_DELAYED}
RNG = np.random.default_rng(0)
INPUTS = torch.from_numpy(RNG.normal(size=(24, 4, 2)))


def draw_pool(n_witnesses=256, family=FAMILY, seed=0):
    return WitnessPool(2, family, n_witnesses, seed, block_size=32, inputs=INPUTS)


def all_witnesses(pool, n_witnesses=None):
    """The first witnesses of a pool, block after block, as one set."""
    blocks = [pool.block(n) for n in range(pool.n_blocks) if n_witnesses is None or pool.starts[n] < n_witnesses]
    joined = []
    for layers in zip(*(block.layers for block in blocks), strict=True):
        tensors = [layer.tensors() for layer in layers]
        joined.append(layers[0].with_tensors({name: torch.cat([own[name] for own in tensors]) for name in tensors[0]}))
    return cs.WitnessSet(tuple(joined), blocks[0].provenance)
