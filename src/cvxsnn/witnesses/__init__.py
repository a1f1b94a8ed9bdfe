"""Witnesses: the hidden dynamics whose spikes make the dictionary."""

from .chip import Chip
from .delayed import Delayed, delayed_witnesses
from .families import as_family, regenerate, sample_witnesses
from .gaussian import Gaussian, gaussian_witnesses
from .kinds import Kinds
from .mixed import Mixed, mixed_witnesses
from .pool import WitnessPool
from .settings import Constant, Distribution, Family, LogUniform, Normal, Uniform, describe_family, parse_distribution
from .witness_set import Provenance, WitnessSet, join_witnesses, single_out

__all__ = [
    "Chip",
    "Constant",
    "Delayed",
    "Distribution",
    "Family",
    "Gaussian",
    "Kinds",
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
