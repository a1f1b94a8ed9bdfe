"""The scikit-learn estimators, and their files."""

from .classifier import SpikingClassifier
from .files import load, save
from .regressor import SpikingRegressor

__all__ = [
    "SpikingClassifier",
    "SpikingRegressor",
    "load",
    "save",
]
