"""Sequential tasks, each a function that returns a :class:`Task`."""

from .addition import addition
from .digits_seq import digits_seq
from .ecg_qtdb import ecg_qtdb
from .first_last_xor import first_last_xor
from .mnist_seq import mnist_seq
from .registry import TASKS, make_task
from .speech_files import read_wav
from .spoken_digits import spoken_digits
from .task import Feedback, SequenceData, Targets, Task

__all__ = [
    "TASKS",
    "Feedback",
    "SequenceData",
    "Targets",
    "Task",
    "addition",
    "digits_seq",
    "ecg_qtdb",
    "first_last_xor",
    "make_task",
    "mnist_seq",
    "read_wav",
    "spoken_digits",
]
