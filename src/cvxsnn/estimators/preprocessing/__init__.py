"""Transformers of sequences: gaps filled, values scaled, lengths changed."""

from .imputer import SequenceImputer
from .resampler import SequenceResampler
from .scaler import SequenceScaler

__all__ = ["SequenceImputer", "SequenceResampler", "SequenceScaler"]
