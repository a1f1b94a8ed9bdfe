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
from .neurons import LIFLayer, ThresholdLayer, roll_out
from .readout import SpikingReadout
from .witnesses import Constant, LogUniform, Normal, Uniform, WitnessSet, gaussian_witnesses

__all__ = [
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
    "Path",
    "Solution",
    "SpikeDictionary",
    "SpikingReadout",
    "Status",
    "ThresholdLayer",
    "Uniform",
    "WitnessSet",
    "build_dictionary",
    "certify",
    "gaussian_witnesses",
    "roll_out",
    "solve",
    "solve_path",
    "tasks",
]
