"""Neuron layers and their roll-out."""

from .layer import HiddenLayer, LayerState
from .lif import LIFLayer
from .rollout import Stepper, roll_out
from .threshold import ThresholdLayer

__all__ = [
    "HiddenLayer",
    "LIFLayer",
    "LayerState",
    "Stepper",
    "ThresholdLayer",
    "roll_out",
]
