"""Training methods: search for witnesses, convex read-outs, surrogate gradients, pools."""

from .growth import Ascent, grow_witnesses
from .methods import METHODS, Trained, train, train_task
from .pools import PoolSolution, solve_pool
from .search import Tuned, Tuning, tune_witnesses
from .settings import Settings, Split
from .surrogate import SurrogateSettings, train_surrogate

__all__ = [
    "METHODS",
    "Ascent",
    "PoolSolution",
    "Settings",
    "Split",
    "SurrogateSettings",
    "Trained",
    "Tuned",
    "Tuning",
    "grow_witnesses",
    "solve_pool",
    "train",
    "train_surrogate",
    "train_task",
    "tune_witnesses",
]
