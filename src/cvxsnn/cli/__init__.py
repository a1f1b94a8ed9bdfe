"""The command line: ``cvxsnn demo fit predict certify check explore export reproduce report plan``, by module."""

from . import models, complete, explore, export, experiments, plan  # noqa: F401, I001 - they register their commands, in this order
from .common import app

__all__ = ["app"]
