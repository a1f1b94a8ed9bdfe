"""The losses of the convex program, by name."""

from .base import LOSSES, Loss, as_numbers, make_loss
from .margin import Hinge, Logistic, RoundedHinge, SquaredHinge
from .softmax import Softmax
from .squared import Squared

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
