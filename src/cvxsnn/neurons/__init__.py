"""Neuron models, their layers and their roll-out."""

from .lateral import LateralLayer
from .layer import HiddenLayer, LayerState
from .lif import LIFLayer
from .loihi import LoihiLayer
from .registry import NEURON_MODELS, NeuronModel, register_neuron
from .rollout import count_spikes, roll_out
from .stepper import Stepper
from .taps import Taps
from .targets import TARGETS, Target, find_target
from .threshold import ThresholdLayer
from .xylo import XyloLayer

__all__ = [
    "NEURON_MODELS",
    "TARGETS",
    "HiddenLayer",
    "LIFLayer",
    "LateralLayer",
    "LayerState",
    "LoihiLayer",
    "NeuronModel",
    "Stepper",
    "Taps",
    "Target",
    "ThresholdLayer",
    "XyloLayer",
    "count_spikes",
    "find_target",
    "register_neuron",
    "roll_out",
]
