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
from .dictionary import DictionaryHealth, SpikeDictionary, build_dictionary
from .errors import BudgetError, CvxsnnError, DataFileError, InvalidInputError
from .estimators import SpikingClassifier, SpikingRegressor
from .files import load, save
from .methods import METHODS, Settings, Split, Trained, train, train_task
from .network import SpikingNetwork
from .neurons import LIFLayer, ThresholdLayer, roll_out
from .reconstruction import reconstruct, rescale_hidden, weight_decay_objective
from .surrogate import SurrogateSettings
from .surrogate_training import train_surrogate
from .training_set import Objective, TrainingSet
from .witnesses import Constant, LogUniform, Normal, Uniform, WitnessSet, gaussian_witnesses

__all__ = [
    "METHODS",
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
    "Uniform",
    "WitnessSet",
    "build_dictionary",
    "certify",
    "gaussian_witnesses",
    "load",
    "reconstruct",
    "rescale_hidden",
    "roll_out",
    "save",
    "solve",
    "solve_path",
    "tasks",
    "train",
    "train_surrogate",
    "train_task",
    "weight_decay_objective",
]
