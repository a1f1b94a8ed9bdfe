"""Spiking networks: running, rebuilding, judging and counting them."""

from .energy import Joules, Operations, count_operations
from .evaluation import accuracy, label_accuracy
from .reconstruction import Proof, reconstruct
from .spiking_network import NetworkState, OutputHead, SpikingNetwork
from .summary import summarise
from .weight_decay import rescale_hidden, weight_decay_objective

__all__ = [
    "Joules",
    "NetworkState",
    "Operations",
    "OutputHead",
    "Proof",
    "SpikingNetwork",
    "accuracy",
    "count_operations",
    "label_accuracy",
    "reconstruct",
    "rescale_hidden",
    "summarise",
    "weight_decay_objective",
]
