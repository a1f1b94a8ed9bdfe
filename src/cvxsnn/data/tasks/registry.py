"""The tasks by name, for experiment files and the command line. A new task is one file and one line here."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import InvalidInputError
from .addition import addition
from .digits_seq import digits_seq
from .first_last_xor import first_last_xor
from .mnist_seq import mnist_seq
from .spoken_digits import spoken_digits
from .task import Task


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


TASKS: dict[str, RegisteredTask] = {
    "addition": RegisteredTask(addition),
    "first_last_xor": RegisteredTask(first_last_xor),
    "digits_seq": RegisteredTask(digits_seq),
    "mnist_seq": RegisteredTask(mnist_seq, files="MNIST"),
    "spoken_digits": RegisteredTask(spoken_digits, files="Free Spoken Digit Dataset"),
}
"""Every task by its name."""


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
    if name not in TASKS:
        raise InvalidInputError(f"expected a task among {', '.join(TASKS)}, got {name!r}")
    parameters = {key: own for key, own in inspect.signature(TASKS[str(name)].make).parameters.items() if key != "seed"}
    for key in arguments:
        if key not in parameters:
            raise InvalidInputError(f"expected arguments of {name} among {', '.join(parameters)}, got {key!r}")
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in arguments:
            raise InvalidInputError(f"expected an argument {key!r} of {name}, got none")
