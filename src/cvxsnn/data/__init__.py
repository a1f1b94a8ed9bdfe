"""Sequences with their targets, read from arrays, tables, events and published data sets."""

from .encoders import encode_delta, encode_latency, encode_rate
from .events import Events, sequences_from_events
from .sequences import Sequences, TrainingSet
from .tables import TableSequences, sequences_from_table
from .tasks import SequenceData, Task

__all__ = [
    "Events",
    "SequenceData",
    "Sequences",
    "TableSequences",
    "Task",
    "TrainingSet",
    "encode_delta",
    "encode_latency",
    "encode_rate",
    "sequences_from_events",
    "sequences_from_table",
]
