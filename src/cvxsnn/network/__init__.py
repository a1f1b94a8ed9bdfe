"""Spiking networks: running, rebuilding, judging and counting them."""

from .energy import Joules, Operations, count_operations
from .evaluation import accuracy, label_accuracy
from .reconstruction import Proof, reconstruct
from .spiking_network import NetworkState, OutputHead, SpikingNetwork
from .summary import summarise

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
    "summarise",
]
