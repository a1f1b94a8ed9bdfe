"""Neuron models, their layers and their roll-out."""

from .layer import HiddenLayer, LayerState
from .lif import LIFLayer
from .registry import NeuronModel, neuron_model, neuron_models, neuron_of, register_neuron, unregister_neuron
from .rollout import Stepper, roll_out
from .threshold import ThresholdLayer

__all__ = [
    "HiddenLayer",
    "LIFLayer",
    "LayerState",
    "NeuronModel",
    "Stepper",
    "ThresholdLayer",
    "neuron_model",
    "neuron_models",
    "neuron_of",
    "register_neuron",
    "roll_out",
    "unregister_neuron",
]
