"""Surrogate-gradient training."""

from .settings import SurrogateSettings
from .trainer import train_surrogate

__all__ = [
    "SurrogateSettings",
    "train_surrogate",
]
