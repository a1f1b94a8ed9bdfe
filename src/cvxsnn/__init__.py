"""cvxsnn: spiking neural networks trained to a certified global optimum."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .core import __version__ as __version__
from .core.errors import ConvergenceWarning, CvxsnnError, InvalidInputError
from .core.libraries import names_on_demand
from .data import Sequences, audio

if TYPE_CHECKING:
    from . import convex, data, dictionary, exchange, explore, fitting, network, plots, tasks, theory, witnesses
    from .convex import Certificate, ConvexProblem, RegularizationPath, Solution, Status, certify, solve, solve_path
    from .dictionary import SpikeDictionary, build_dictionary
    from .estimators import (
        EarlyClassifier,
        SequenceImputer,
        SequenceResampler,
        SequenceScaler,
        SpikingClassifier,
        SpikingRegressor,
        forecast,
        load,
        make_windows,
        permutation_importance,
        save,
    )
    from .exchange import export_c, export_loihi, export_onnx, export_xylo, reconstruct_readout
    from .fitting import train
    from .network import SpikingNetwork, reconstruct
    from .neurons import LIFLayer, ThresholdLayer, roll_out
    from .witnesses import WitnessSet, delayed_witnesses, gaussian_witnesses

# Users write cvxsnn.audio; `from cvxsnn.audio import read_wav` works too.
sys.modules[f"{__name__}.audio"] = audio

# Rooms, and their names that are loaded on demand: scikit-learn, SciPy, Numba and matplotlib take a second to import.
_ON_DEMAND = {
    "convex": "Certificate ConvexProblem RegularizationPath Solution Status certify solve solve_path",
    "data": "",
    "dictionary": "SpikeDictionary build_dictionary",
    "estimators": "EarlyClassifier SequenceImputer SequenceResampler SequenceScaler SpikingClassifier "
    "SpikingRegressor forecast load make_windows permutation_importance save",
    "exchange": "export_c export_loihi export_onnx export_xylo reconstruct_readout",
    "explore": "",
    "fitting": "train",
    "network": "SpikingNetwork reconstruct",
    "neurons": "LIFLayer ThresholdLayer roll_out",
    "plots": "",
    "tasks": "",
    "theory": "",
    "witnesses": "WitnessSet delayed_witnesses gaussian_witnesses",
}
__all__ = [
    "Certificate",
    "ConvergenceWarning",
    "ConvexProblem",
    "CvxsnnError",
    "EarlyClassifier",
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
    "explore",
    "export_c",
    "export_loihi",
    "export_onnx",
    "export_xylo",
    "fitting",
    "forecast",
    "gaussian_witnesses",
    "load",
    "make_windows",
    "network",
    "permutation_importance",
    "plots",
    "reconstruct",
    "reconstruct_readout",
    "roll_out",
    "save",
    "solve",
    "solve_path",
    "tasks",
    "theory",
    "train",
    "witnesses",
]


_find = names_on_demand(__name__, globals(), _ON_DEMAND)


def __getattr__(name: str) -> Any:
    """Import a room, or a name from its room, when it is first used."""
    return import_module(f".{name}", __name__) if name in _ON_DEMAND else _find(name)


def __dir__() -> list[str]:
    """Return all names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})
