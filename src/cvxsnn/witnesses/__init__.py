"""Witnesses: the hidden dynamics whose spikes make the dictionary."""

from .distributions import Constant, Distribution, LogUniform, Normal, Uniform, parse_distribution
from .gaussian import describe_family, gaussian_witnesses, regenerate
from .joining import join_witnesses, single_out
from .pool import WitnessPool
from .witness_set import Neuron, Provenance, WitnessSet

__all__ = [
    "Constant",
    "Distribution",
    "LogUniform",
    "Neuron",
    "Normal",
    "Provenance",
    "Uniform",
    "WitnessPool",
    "WitnessSet",
    "describe_family",
    "gaussian_witnesses",
    "join_witnesses",
    "parse_distribution",
    "regenerate",
    "single_out",
]
