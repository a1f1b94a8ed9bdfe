"""The command line: one module per group of commands."""

from . import models, complete, explore, export, experiments  # noqa: F401, I001 - they register their commands, in this order
from .common import app

__all__ = ["app"]
