"""Hostile cases by the thousand: files, commands, data and problems that nobody would make on purpose."""

HUNTS: tuple[str, ...] = ("data_files", "model_files", "npz_files", "problems")
"""Modules of this package that have a HUNT."""
