"""Surrogate-gradient training."""

from ..surrogate_settings import SurrogateSettings
from .trainer import train_surrogate

__all__ = [
    "SurrogateSettings",
    "train_surrogate",
]
