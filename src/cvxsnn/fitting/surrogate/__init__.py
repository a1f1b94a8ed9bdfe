"""Surrogate-gradient training."""

from ..surrogate_settings import PROJECTION, SurrogateSettings
from .trainer import train_surrogate

__all__ = [
    "PROJECTION",
    "SurrogateSettings",
    "train_surrogate",
]
