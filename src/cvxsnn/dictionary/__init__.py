"""Spike dictionaries: the spikes of witnesses on the data, one column per distinct pattern."""

from .base import Dictionary, Readout
from .building import build_dictionary, count_dictionary
from .dense import DenseDictionary
from .pooled import PoolSpikes
from .sharded import ShardedDictionary
from .spikes import DictionaryHealth, SpikeDictionary
from .streaming import open_dictionary, stream_dictionary

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
    "stream_dictionary",
]
