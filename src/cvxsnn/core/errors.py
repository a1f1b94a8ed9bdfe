"""Every error that cvxsnn raises on purpose.

A message is one sentence: what was expected, what came, what to do next.
"""


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error, so that a message of ours stays one sentence."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


class CvxsnnError(Exception):
    """Base of all errors raised on purpose by cvxsnn."""


class InvalidInputError(CvxsnnError, ValueError):
    """An argument or a data array cannot mean anything here."""


class InvalidTypeError(InvalidInputError, TypeError):
    """An argument or a data array has a type that cannot mean anything here."""


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
    """A solve stopped before its certificate reached the tolerance."""


class OtherDataWarning(UserWarning):
    """A model was certified on other data than those that it was fitted to."""


class LossyExchangeWarning(UserWarning):
    """A network was exchanged with ``lossy=True`` and is not exactly the one it was made from."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory is short: of a processor's, torch says so by a plain RuntimeError."""
    words = ("allocate memory", "bad_alloc", "out of memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(own in str(error) for own in words)
    )
