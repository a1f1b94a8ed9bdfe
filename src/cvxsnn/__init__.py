"""cvxsnn: spiking neural networks trained to a certified global optimum."""

from . import tasks
from .convex import (
    Certificate,
    ConvergenceError,
    ConvergenceWarning,
    ConvexProblem,
    Path,
    Solution,
    Status,
    certify,
    solve,
    solve_path,
)
from .dictionary import DictionaryHealth, SpikeDictionary, build_dictionary, stack_health
from .errors import BudgetError, CvxsnnError, DataFileError, InvalidInputError
from .estimators import SpikingClassifier, SpikingRegressor
from .files import load, save
from .methods import METHODS, Settings, Split, Trained, train, train_task
from .network import SpikingNetwork
from .neurons import LIFLayer, ThresholdLayer, roll_out
from .pools import PoolSolution, WitnessPool, solve_pool
from .reconstruction import reconstruct, rescale_hidden, weight_decay_objective
from .surrogate import SurrogateSettings
from .surrogate_training import train_surrogate
from .trained_pricing import Ascent, grow_witnesses
from .training_set import Objective, TrainingSet
from .tuning import Tuned, Tuning, tune_witnesses
from .witnesses import (
    Constant,
    LogUniform,
    Normal,
    Uniform,
    WitnessSet,
    gaussian_witnesses,
    join_witnesses,
    single_out,
)

__all__ = [
    "METHODS",
    "Ascent",
    "BudgetError",
    "Certificate",
    "Constant",
    "ConvergenceError",
    "ConvergenceWarning",
    "ConvexProblem",
    "CvxsnnError",
    "DataFileError",
    "DictionaryHealth",
    "InvalidInputError",
    "LIFLayer",
    "LogUniform",
    "Normal",
    "Objective",
    "Path",
    "PoolSolution",
    "Settings",
    "Solution",
    "SpikeDictionary",
    "SpikingClassifier",
    "SpikingNetwork",
    "SpikingRegressor",
    "Split",
    "Status",
    "SurrogateSettings",
    "ThresholdLayer",
    "Trained",
    "TrainingSet",
    "Tuned",
    "Tuning",
    "Uniform",
    "WitnessPool",
    "WitnessSet",
    "build_dictionary",
    "certify",
    "gaussian_witnesses",
    "grow_witnesses",
    "join_witnesses",
    "load",
    "reconstruct",
    "rescale_hidden",
    "roll_out",
    "save",
    "single_out",
    "solve",
    "solve_path",
    "solve_pool",
    "stack_health",
    "tasks",
    "train",
    "train_surrogate",
    "train_task",
    "tune_witnesses",
    "weight_decay_objective",
]
