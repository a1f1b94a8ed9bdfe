"""The engine that chooses and solves; and the training methods that call it, which are imported on demand."""

from typing import TYPE_CHECKING

from ..core.libraries import names_on_demand
from .choosing import choose, judge_for
from .engine import Budget, Fitted, fit, sample
from .judges import Folds, HeldOut, Judge, LeaveOneOut, Scored, Verdict
from .program import Program
from .scores import TaskScore
from .search import Tuned, Tuning, tune_witnesses
from .surrogate_settings import PROJECTION, SurrogateSettings

if TYPE_CHECKING:
    from .engine import METHODS
    from .gradient import GradientPlan, Split, gradient_stage
    from .methods import Settings, Trained, convex_stage, readout_stage, ridge_stage, train, train_task
    from .pools import PoolSolution, solve_pool
    from .priced import PRICING, price_neurons
    from .surrogate.trainer import train_surrogate

__all__ = [
    "METHODS",
    "PRICING",
    "PROJECTION",
    "Budget",
    "Fitted",
    "Folds",
    "GradientPlan",
    "HeldOut",
    "Judge",
    "LeaveOneOut",
    "PoolSolution",
    "Program",
    "Scored",
    "Settings",
    "Split",
    "SurrogateSettings",
    "TaskScore",
    "Trained",
    "Tuned",
    "Tuning",
    "Verdict",
    "choose",
    "convex_stage",
    "fit",
    "gradient_stage",
    "judge_for",
    "price_neurons",
    "readout_stage",
    "ridge_stage",
    "sample",
    "solve_pool",
    "train",
    "train_surrogate",
    "train_task",
    "tune_witnesses",
]

__getattr__ = names_on_demand(
    __name__,
    globals(),
    {
        "gradient": "GradientPlan Split gradient_stage",
        "methods": "METHODS Settings Trained convex_stage readout_stage ridge_stage train train_task",
        "pools": "PoolSolution solve_pool",
        "priced": "PRICING price_neurons",
        "surrogate": "train_surrogate",
    },
)
