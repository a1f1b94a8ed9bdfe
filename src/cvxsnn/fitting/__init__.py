"""The engine that chooses and solves, and the training methods that call it."""

from .choosing import choose, judge_for
from .engine import Budget, Fitted, fit, sample
from .gradient import GradientPlan, Split, gradient_stage
from .judges import Folds, HeldOut, Judge, LeaveOneOut, Scored, Verdict
from .methods import METHODS, Settings, Trained, convex_stage, readout_stage, ridge_stage, train, train_task
from .pools import PoolSolution, solve_pool
from .program import Program
from .scores import TaskScore
from .search import Tuned, Tuning, tune_witnesses
from .surrogate import PROJECTION, SurrogateSettings, train_surrogate

__all__ = [
    "METHODS",
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
    "readout_stage",
    "ridge_stage",
    "sample",
    "solve_pool",
    "train",
    "train_surrogate",
    "train_task",
    "tune_witnesses",
]
