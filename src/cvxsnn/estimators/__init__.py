"""Spiking networks as scikit-learn estimators."""

from .classifier import SpikingClassifier
from .regressor import SpikingRegressor

__all__ = ["SpikingClassifier", "SpikingRegressor"]
