"""Witnesses: the hidden dynamics whose spikes make the dictionary."""

from .delayed import delayed_witnesses
from .family import describe_family, regenerate, sample_witnesses
from .joining import join_witnesses, single_out
from .mixture import mixed_witnesses
from .pool import WitnessPool
from .sampling import (
    Constant,
    Distribution,
    LogUniform,
    Normal,
    Uniform,
    gaussian_witnesses,
    parse_distribution,
)
from .witness_set import Provenance, WitnessSet

__all__ = [
    "Constant",
    "Distribution",
    "LogUniform",
    "Normal",
    "Provenance",
    "Uniform",
    "WitnessPool",
    "WitnessSet",
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
