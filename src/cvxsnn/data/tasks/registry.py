"""The tasks by name, for experiment files and the command line. A new task is one file and one line here."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.checks import Registry
from ...core.errors import InvalidInputError
from ..task import Task
from .addition import addition
from .digits_seq import digits_seq
from .ecg_qtdb import ecg_qtdb
from .event_tasks import dvs_gesture, n_mnist, shd, ssc
from .first_last_xor import first_last_xor
from .mnist import mnist_pixels, mnist_seq
from .spoken_digits import spoken_digits


@dataclass(frozen=True)
class RegisteredTask:
    """A function that makes a task, and the data files that it needs.

    Parameters
    ----------
    make : callable
        Returns the task; a parameter ``seed``, if it has one, decides all random draws.
    files : str
        The data files that it reads, in words; empty where it needs none.
    """

    make: Callable[..., Task]
    files: str = ""


TASKS: Registry[RegisteredTask] = Registry("task", RegisteredTask)
"""Tasks by name.

Examples
--------
>>> from cvxsnn.data.tasks import TASKS
>>> sorted(TASKS)[:4]
['addition', 'digits_seq', 'dvs_gesture', 'ecg_qtdb']
"""

for _task in (
    RegisteredTask(addition),
    RegisteredTask(first_last_xor),
    RegisteredTask(digits_seq),
    RegisteredTask(mnist_seq, files="MNIST"),
    RegisteredTask(mnist_pixels, files="MNIST"),
    RegisteredTask(spoken_digits, files="Free Spoken Digit Dataset"),
    RegisteredTask(ecg_qtdb, files="ECG-QTDB"),
    RegisteredTask(shd, files="Spiking Heidelberg Digits"),
    RegisteredTask(ssc, files="Spiking Speech Commands"),
    RegisteredTask(n_mnist, files="N-MNIST"),
    RegisteredTask(dvs_gesture, files="DVS128 Gesture"),
):
    TASKS.register(_task.make.__name__, _task)


def make_task(name: str, *, seed: int = 0, **arguments: Any) -> Task:
    """Return the task of a name.

    Parameters
    ----------
    name : str
        A key of ``TASKS``.
    seed : int, default=0
        The seed of random draws; a task without any ignores it.
    **arguments : object
        Arguments of the task's function.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> task = cs.tasks.make_task("first_last_xor", n_steps=4, n_train=20, n_val=10, n_test=10)
    >>> task.train.inputs.shape
    (20, 4, 2)
    """
    check_task_arguments(name, arguments)
    function = TASKS[name].make
    if "seed" in inspect.signature(function).parameters:
        arguments["seed"] = seed
    return function(**arguments)


def check_task_arguments(name: object, arguments: Mapping[str, Any]) -> None:
    """Raise :class:`~cvxsnn.InvalidInputError` if no task has this name, or its function not these parameters.

    Parameters
    ----------
    name : object
        The name of a task.
    arguments : mapping of str to object
        Arguments of the task's function, without ``seed``.
    """
    function = TASKS.find(name).make
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("seed", None)
    for key in arguments:
        if key not in parameters:
            raise InvalidInputError(f"expected arguments of {name} among {', '.join(parameters)}, got {key!r}")
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in arguments:
            raise InvalidInputError(f"expected an argument {key!r} of {name}, got none")
