"""Training methods: search for witnesses, convex read-outs, surrogate gradients, pools."""

from .growth import Ascent, grow_witnesses
from .methods import METHODS, Settings, Trained, train, train_task
from .pools import PoolSolution, solve_pool
from .scores import TaskScore
from .search import Tuned, Tuning, tune_witnesses
from .stages import (
    ConvexSettings,
    GradientPlan,
    Split,
    convex_stage,
    draw_witnesses,
    gradient_stage,
    ridge_stage,
)
from .surrogate import SurrogateSettings, train_surrogate

__all__ = [
    "METHODS",
    "Ascent",
    "ConvexSettings",
    "GradientPlan",
    "PoolSolution",
    "Settings",
    "Split",
    "SurrogateSettings",
    "TaskScore",
    "Trained",
    "Tuned",
    "Tuning",
    "convex_stage",
    "draw_witnesses",
    "gradient_stage",
    "grow_witnesses",
    "ridge_stage",
    "solve_pool",
    "train",
    "train_surrogate",
    "train_task",
    "tune_witnesses",
]
