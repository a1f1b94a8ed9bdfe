"""Imports on demand: of optional libraries, with one sentence where one is missing, and of names of a package."""

import importlib
import warnings
from collections.abc import Callable, Mapping
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


def names_on_demand(package: str, namespace: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` of a package: names are imported from its modules when they are first used.

    Parameters
    ----------
    package : str
        Name of the package.
    namespace : dict
        Its globals, which keep the values.
    modules : mapping of str to str
        The names that each module has, separated by spaces.
    """
    module_of = {name: module for module, names in modules.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = namespace[name] = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        return value

    return find
