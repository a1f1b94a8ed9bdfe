"""Optimal read-outs for networks that somebody else has trained."""

from .reconstruct import reconstruct_readout
from .result import ReadoutResult, ReadoutScore

__all__ = ["ReadoutResult", "ReadoutScore", "reconstruct_readout"]
