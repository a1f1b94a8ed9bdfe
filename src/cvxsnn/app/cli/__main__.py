"""``python -m cvxsnn.app.cli``: the command ``cvxsnn``."""

from . import app

app()
