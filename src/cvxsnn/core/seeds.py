"""Named random streams: each depends on its name alone, so a new one changes no other."""

import hashlib

import numpy as np

from .errors import InvalidInputError


def check_seed(seed: int) -> int:
    """Return ``seed`` if it is a non-negative integer."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise InvalidInputError(f"expected seed to be a non-negative integer, got {seed!r}: pass for example seed=0")
    return int(seed)


def child_generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return the random stream of ``names`` under the main ``seed``: ``child_generator(0, "data", "train")``."""
    # With a separator, ("a", "bc") and ("ab", "c") are different streams.
    digest = hashlib.sha256("\x1f".join(map(str, names)).encode()).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.default_rng(np.random.SeedSequence([check_seed(seed), *words]))


def child_seed(seed: int, *names: str | int) -> int:
    """Return a seed for ``names`` under the main ``seed``."""
    return int(child_generator(seed, *names).integers(2**62))
