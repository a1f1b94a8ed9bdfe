"""cvxsnn: spiking neural networks trained to a certified global optimum."""

import sys
from importlib import import_module
from types import ModuleType

from . import convex, data, dictionary, exchange, network, theory, training, witnesses
from .convex import Certificate, ConvexProblem, RegularizationPath, Solution, Status, certify, solve, solve_path
from .core.errors import ConvergenceWarning, CvxsnnError, InvalidInputError
from .data import Sequences, audio, tasks
from .dictionary import SpikeDictionary, build_dictionary
from .estimators import (
    SequenceImputer,
    SequenceResampler,
    SequenceScaler,
    SpikingClassifier,
    SpikingRegressor,
    forecast,
    load,
    make_windows,
    save,
)
from .exchange import reconstruct_readout
from .network import SpikingNetwork, reconstruct
from .neurons import LIFLayer, ThresholdLayer, roll_out
from .training import train
from .witnesses import WitnessSet, delayed_witnesses, gaussian_witnesses

# Users write cvxsnn.tasks and cvxsnn.audio; `from cvxsnn.tasks import addition` finds them too.
sys.modules[f"{__name__}.tasks"] = tasks
sys.modules[f"{__name__}.audio"] = audio

__all__ = [
    "Certificate",
    "ConvergenceWarning",
    "ConvexProblem",
    "CvxsnnError",
    "InvalidInputError",
    "LIFLayer",
    "RegularizationPath",
    "SequenceImputer",
    "SequenceResampler",
    "SequenceScaler",
    "Sequences",
    "Solution",
    "SpikeDictionary",
    "SpikingClassifier",
    "SpikingNetwork",
    "SpikingRegressor",
    "Status",
    "ThresholdLayer",
    "WitnessSet",
    "audio",
    "build_dictionary",
    "certify",
    "convex",
    "data",
    "delayed_witnesses",
    "dictionary",
    "exchange",
    "forecast",
    "gaussian_witnesses",
    "load",
    "make_windows",
    "network",
    "reconstruct",
    "reconstruct_readout",
    "roll_out",
    "save",
    "solve",
    "solve_path",
    "tasks",
    "theory",
    "train",
    "training",
    "witnesses",
]


def __getattr__(name: str) -> ModuleType:
    """Import ``cvxsnn.plots`` when it is used: it needs matplotlib, which takes a while to load."""
    if name == "plots":
        return import_module(".plots", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
