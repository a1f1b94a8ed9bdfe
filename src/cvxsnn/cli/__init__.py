"""The command line: one module per group of commands."""

from importlib import import_module
from importlib.util import find_spec

from .common import app

for _module in ("models", "complete", "explore", "export", "experiments"):  # in the order of the help
    if find_spec(f"{__name__}.{_module}") is not None:
        import_module(f"{__name__}.{_module}")

__all__ = ["app"]
