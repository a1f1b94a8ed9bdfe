"""Optional libraries: imported on demand, with one sentence where one is missing."""

import importlib
import warnings
from typing import Any

from .errors import MissingLibraryError, first_line


def import_library(module: str, extra: str) -> Any:
    """Import a module of an optional library, or explain in one sentence how to install it.

    Parameters
    ----------
    module : str
        Dotted name, such as "norse.torch".
    extra : str
        The extra of cvxsnn that installs the library.

    Returns
    -------
    module
        The imported module.
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
