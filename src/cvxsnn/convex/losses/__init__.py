"""The losses of the convex program, by name."""

from .base import LOSSES, Loss, make_loss
from .hinge import Hinge, RoundedHinge
from .logistic import Logistic
from .softmax import Softmax
from .squared import Squared
from .squared_hinge import SquaredHinge
from .targets import as_numbers

for _kind in (Squared, Hinge, SquaredHinge, Logistic, Softmax):
    LOSSES.register(_kind.name, _kind)

__all__ = [
    "LOSSES",
    "Hinge",
    "Logistic",
    "Loss",
    "RoundedHinge",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "as_numbers",
    "make_loss",
]
