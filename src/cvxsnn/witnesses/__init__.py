"""Witnesses: the hidden dynamics whose spikes make the dictionary."""

from .distributions import Constant, Distribution, LogUniform, Normal, Uniform, parse_distribution
from .gaussian import gaussian_witnesses, regenerate
from .witness_set import Neuron, Provenance, WitnessSet

__all__ = [
    "Constant",
    "Distribution",
    "LogUniform",
    "Neuron",
    "Normal",
    "Provenance",
    "Uniform",
    "WitnessSet",
    "gaussian_witnesses",
    "parse_distribution",
    "regenerate",
]
