"""Spike dictionaries: what the witnesses do on the data, as 0/1 columns."""

from .build import build_dictionary, stack_health
from .health import DictionaryHealth
from .spike_dictionary import Readout, SpikeDictionary

__all__ = ["DictionaryHealth", "Readout", "SpikeDictionary", "build_dictionary", "stack_health"]
