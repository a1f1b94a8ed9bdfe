"""``python -m cvxsnn.cli``: the command ``cvxsnn``."""

from . import app

app()
