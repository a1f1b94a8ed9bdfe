"""Sequences with their targets, read from arrays, tables, events and published data sets."""

from .events import Events, sequences_from_events
from .sequences import Sequences, TrainingSet
from .tables import TableSequences, sequences_from_table
from .task import SequenceData, Task

__all__ = [
    "Events",
    "SequenceData",
    "Sequences",
    "TableSequences",
    "Task",
    "TrainingSet",
    "sequences_from_events",
    "sequences_from_table",
]
