"""Neuron models, their layers and their roll-out."""

from .lateral import LateralLayer
from .layer import HiddenLayer, LayerState
from .lif import LIFLayer
from .registry import NEURON_MODELS, NeuronModel, register_neuron
from .rollout import count_spikes, roll_out
from .stepper import Stepper
from .taps import Taps
from .threshold import ThresholdLayer

__all__ = [
    "NEURON_MODELS",
    "HiddenLayer",
    "LIFLayer",
    "LateralLayer",
    "LayerState",
    "NeuronModel",
    "Stepper",
    "Taps",
    "ThresholdLayer",
    "count_spikes",
    "register_neuron",
    "roll_out",
]
