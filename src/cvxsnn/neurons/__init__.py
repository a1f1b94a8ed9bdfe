"""Neuron models, their layers and their roll-out."""

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
    "LayerState",
    "NeuronModel",
    "Stepper",
    "Taps",
    "ThresholdLayer",
    "count_spikes",
    "register_neuron",
    "roll_out",
]
