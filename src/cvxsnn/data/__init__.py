"""Sequences with their targets, and where they come from."""

from .encoders import encode_delta, encode_latency, encode_rate
from .sequences import Sequences, TrainingSet
from .tasks import SequenceData, Task

__all__ = [
    "SequenceData",
    "Sequences",
    "Task",
    "TrainingSet",
    "encode_delta",
    "encode_latency",
    "encode_rate",
]
