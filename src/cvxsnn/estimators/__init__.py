"""The scikit-learn estimators, transformers of sequences, forecasts, and model files."""

from .classifier import SpikingClassifier
from .explanation import Explanation, PermutationImportance, permutation_importance
from .files import load, save
from .forecasting import forecast, make_windows
from .preprocessing import SequenceImputer, SequenceResampler, SequenceScaler
from .regressor import SpikingRegressor

__all__ = [
    "Explanation",
    "PermutationImportance",
    "SequenceImputer",
    "SequenceResampler",
    "SequenceScaler",
    "SpikingClassifier",
    "SpikingRegressor",
    "forecast",
    "load",
    "make_windows",
    "permutation_importance",
    "save",
]
