"""Spike dictionaries: what the witnesses do on the data, as 0/1 columns."""

from .build import build_dictionary, count_dictionary, stack_health
from .dense import DenseDictionary
from .health import DictionaryHealth
from .spike_dictionary import Readout, SpikeDictionary

Dictionary = SpikeDictionary | DenseDictionary
"""What a convex program is over."""

__all__ = [
    "DenseDictionary",
    "Dictionary",
    "DictionaryHealth",
    "Readout",
    "SpikeDictionary",
    "build_dictionary",
    "count_dictionary",
    "stack_health",
]
