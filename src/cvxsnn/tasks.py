"""The short name of :mod:`cvxsnn.data.tasks`."""

import sys

from .data import tasks

sys.modules[__name__] = tasks
