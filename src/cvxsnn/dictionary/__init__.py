"""Spike dictionaries: what the witnesses do on the data, as 0/1 columns."""

from .building import build_dictionary, count_dictionary, stack_health
from .dense import DenseDictionary
from .health import DictionaryHealth
from .packed import Readout, SpikeDictionary
from .pooled import PoolSpikes
from .sharded import ShardedDictionary, open_dictionary, stream_dictionary

Dictionary = SpikeDictionary | DenseDictionary | ShardedDictionary
"""What a convex program is over."""

__all__ = [
    "DenseDictionary",
    "Dictionary",
    "DictionaryHealth",
    "PoolSpikes",
    "Readout",
    "ShardedDictionary",
    "SpikeDictionary",
    "build_dictionary",
    "count_dictionary",
    "open_dictionary",
    "stack_health",
    "stream_dictionary",
]
