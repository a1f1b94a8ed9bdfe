"""Spiking networks: running, rebuilding, judging and counting them."""

from .energy import Joules, Operations, count_operations
from .evaluation import accuracy, label_accuracy
from .proof import Proof
from .reconstruction import reconstruct, rescale_hidden, weight_decay_objective
from .spiking_network import NetworkState, SpikingNetwork
from .summary import summarise

__all__ = [
    "Joules",
    "NetworkState",
    "Operations",
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
