"""Hostile cases by the thousand: files, commands, data and problems that nobody would make on purpose."""

HUNTS: tuple[str, ...] = (
    "estimators",
    "npz_files",
)
"""Modules of this package that have a HUNT."""
