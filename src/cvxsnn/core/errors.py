"""Every error that cvxsnn raises on purpose.

A message is one sentence: what was expected, what was received, what to do next.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, so that a message of ours stays one sentence."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class CvxsnnError(Exception):
    """Base of all errors raised on purpose by cvxsnn.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     cs.load("no-such-file.safetensors")
    ... except cs.CvxsnnError as error:
    ...     print(type(error).__name__)
    DataFileError
    """


class InvalidInputError(CvxsnnError, ValueError):
    """An argument or a data array is invalid.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     cs.tasks.first_last_xor(0)
    ... except cs.InvalidInputError as error:
    ...     print(error)
    expected n_steps to be an integer of at least 2, got 0
    """


class JointInputError(InvalidInputError):
    """Several things are wrong with an input; ``errors`` has an error for each."""

    def __init__(self, errors: list[InvalidInputError]) -> None:
        super().__init__("; and ".join(map(str, errors)))
        self.errors = errors


class Complaints:
    """Everything that is wrong with an input, so that it is raised at once and not one error per run."""

    def __init__(self) -> None:
        self._errors: dict[str, InvalidInputError] = {}

    def collect(
        self, check: Callable[_Arguments, _Result], *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result | None:
        """Call a function and keep its complaint, unless it is known already; the result is then None."""
        try:
            return check(*args, **kwargs)
        except InvalidInputError as error:
            for one in error.errors if isinstance(error, JointInputError) else [error]:
                self._errors.setdefault(str(one), one)
            return None

    def raise_all(self) -> None:
        """Raise what was collected, if anything was."""
        errors = list(self._errors.values())
        if errors:
            raise errors[0] if len(errors) == 1 else JointInputError(errors)


class InvalidTypeError(InvalidInputError, TypeError):
    """An argument or a data array has an invalid type."""


class DataFileError(CvxsnnError, OSError):
    """A data file is missing, corrupt, or could not be fetched."""


class BudgetError(CvxsnnError, MemoryError):
    """The work asked for needs more memory than its stated budget."""


class CertificateError(CvxsnnError, ArithmeticError):
    """The arithmetic behind a certificate has failed: a value overflowed, or the dual one is above the primal one."""


class ConvergenceError(CvxsnnError, RuntimeError):
    """A solve stopped before its certificate reached the tolerance, and ``strict=True`` asked for an error."""


class RealisationError(CvxsnnError, ArithmeticError):
    """A witness does not produce its pattern: the arithmetic behind an enumeration is wrong."""


class MissingLibraryError(CvxsnnError, ImportError):
    """An optional library is needed and not installed."""


class ConvergenceWarning(UserWarning):
    """A solve stopped before its certificate reached the tolerance.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> rng = np.random.default_rng(0)
    >>> problem = cs.ConvexProblem(rng.random((50, 30)) < 0.5, rng.normal(size=50), loss="squared", l1_strength=0.001)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     solution = cs.solve(problem, solver="reference", max_iterations=1)
    >>> [warning.category.__name__ for warning in caught]
    ['ConvergenceWarning']
    """


class OtherDataWarning(UserWarning):
    """A model was certified on data other than its training data."""


class LossyExchangeWarning(UserWarning):
    """A network was exchanged with ``lossy=True`` and is not exactly the one it was made from."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports too little memory; on a processor, torch raises a plain RuntimeError."""
    words = ("allocate memory", "bad_alloc", "out of memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )
