"""cvxsnn: spiking neural networks trained to a certified global optimum."""

from . import tasks
from .dictionary import DictionaryHealth, SpikeDictionary, build_dictionary
from .errors import BudgetError, CvxsnnError, DataFileError, InvalidInputError
from .neurons import LIFLayer, ThresholdLayer, roll_out
from .witnesses import Constant, LogUniform, Normal, Uniform, WitnessSet, gaussian_witnesses

__all__ = [
    "BudgetError",
    "Constant",
    "CvxsnnError",
    "DataFileError",
    "DictionaryHealth",
    "InvalidInputError",
    "LIFLayer",
    "LogUniform",
    "Normal",
    "SpikeDictionary",
    "ThresholdLayer",
    "Uniform",
    "WitnessSet",
    "build_dictionary",
    "gaussian_witnesses",
    "roll_out",
    "tasks",
]
