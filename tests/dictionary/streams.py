"""Data in batches, witnesses for them, and the files that are made of both."""

import cvxsnn as cs
from cvxsnn.core.storage import read_tensors

N_SAMPLES = 300


def batches(data, size=50, stop=None):
    for start in range(0, len(data[0]) if stop is None else stop, size):
        yield tuple(part[start : start + size] for part in data)


def shards_of(folder):
    return sorted(folder.glob("shard-*"))


def read_shard(path):
    """What is in a shard; the bytes of its header come in any order."""
    tensors, header = read_tensors(path, "dictionary shard")
    return {name: value.tolist() for name, value in tensors.items()} | header


def draw_quiet_witnesses():
    """Few features and high thresholds: many of the columns are dead or equal."""
    return cs.gaussian_witnesses(
        2, (48,), threshold=cs.witnesses.Uniform(1.0, 9.0), bias=cs.witnesses.Normal(0.0, 0.5), seed=1
    )
