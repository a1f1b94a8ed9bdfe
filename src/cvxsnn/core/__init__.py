"""Shared by the whole package: errors, checks, seeds, bits, memory, parallel work, storage, progress."""

__version__ = "0.1.0"
