"""Shared by the whole package: errors, checks, seeds, bits, memory, parallel work, storage, progress."""
