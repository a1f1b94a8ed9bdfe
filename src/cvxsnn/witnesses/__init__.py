"""Witnesses: the hidden dynamics whose spikes make the dictionary."""

from .distributions import Constant, Distribution, LogUniform, Normal, Uniform, parse_distribution
from .families import (
    Delayed,
    Family,
    Gaussian,
    Mixed,
    as_family,
    delayed_witnesses,
    describe_family,
    gaussian_witnesses,
    mixed_witnesses,
    regenerate,
    sample_witnesses,
)
from .pool import WitnessPool
from .witness_set import Provenance, WitnessSet, join_witnesses, single_out

__all__ = [
    "Constant",
    "Delayed",
    "Distribution",
    "Family",
    "Gaussian",
    "LogUniform",
    "Mixed",
    "Normal",
    "Provenance",
    "Uniform",
    "WitnessPool",
    "WitnessSet",
    "as_family",
    "delayed_witnesses",
    "describe_family",
    "gaussian_witnesses",
    "join_witnesses",
    "mixed_witnesses",
    "parse_distribution",
    "regenerate",
    "sample_witnesses",
    "single_out",
]
