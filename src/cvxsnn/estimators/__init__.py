"""The scikit-learn estimators, transformers of sequences, forecasts, and model files."""

from .classifier import SpikingClassifier
from .early import EarlyClassifier
from .explanation import Explanation, PermutationImportance, permutation_importance
from .files import load, save
from .forecasting import forecast, make_windows
from .preprocessing import SequenceImputer, SequenceResampler, SequenceScaler
from .regressor import SpikingRegressor
from .streams import Stream

__all__ = [
    "EarlyClassifier",
    "Explanation",
    "PermutationImportance",
    "SequenceImputer",
    "SequenceResampler",
    "SequenceScaler",
    "SpikingClassifier",
    "SpikingRegressor",
    "Stream",
    "forecast",
    "load",
    "make_windows",
    "permutation_importance",
    "save",
]
