"""Optimal read-outs for trained networks of any library."""

from .reconstruct import reconstruct_readout
from .result import ReadoutResult, ReadoutScore

__all__ = ["ReadoutResult", "ReadoutScore", "reconstruct_readout"]
