"""Sequential tasks, each a function that returns a :class:`Task`."""

from ..audio import read_wav
from ..task import Feedback, SequenceData, Targets, Task
from .addition import addition
from .digits_seq import digits_seq
from .ecg_qtdb import ecg_qtdb
from .event_tasks import dvs_gesture, n_mnist, shd, ssc
from .first_last_xor import first_last_xor
from .mackey_glass import ForecastTask, mackey_glass, smape
from .mnist import mnist_pixels, mnist_seq
from .registry import TASKS, make_task
from .spoken_digits import spoken_digits

__all__ = [
    "TASKS",
    "Feedback",
    "ForecastTask",
    "SequenceData",
    "Targets",
    "Task",
    "addition",
    "digits_seq",
    "dvs_gesture",
    "ecg_qtdb",
    "first_last_xor",
    "mackey_glass",
    "make_task",
    "mnist_pixels",
    "mnist_seq",
    "n_mnist",
    "read_wav",
    "shd",
    "smape",
    "spoken_digits",
    "ssc",
]
