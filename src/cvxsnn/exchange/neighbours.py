"""Other libraries: imported when they are asked for and not before, and what is said when they cannot do as we do."""

import importlib
import warnings
from typing import Any

from ..core.errors import LossyExchangeWarning, MissingLibraryError, first_line


def import_neighbour(module: str, extra: str) -> Any:
    """Import a module of an optional library, or say in one sentence how to install it.

    Parameters
    ----------
    module : str
        Dotted, such as "norse.torch".
    extra : str
        The extra of cvxsnn that brings the library along.
    """
    try:
        with warnings.catch_warnings():
            # Norse compiles functions with torch.jit while it is imported, which torch advises against.
            warnings.simplefilter("ignore", DeprecationWarning)
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingLibraryError(
            f"expected {module.partition('.')[0]} to be installed, got {first_line(error)!r}: "
            f'pip install "cvxsnn[{extra}]"'
        ) from None


def warn_lossy(what: str) -> None:
    """Say what an exchange lost."""
    warnings.warn(f"lossy: {what}", LossyExchangeWarning, stacklevel=3)
