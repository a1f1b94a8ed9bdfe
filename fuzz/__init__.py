"""Hostile cases by the thousand: files, commands, data and problems that nobody would make on purpose."""

HUNTS: tuple[str, ...] = ("npz_files", "command_line", "strangers", "nir_graphs")
"""Modules of this package that have a HUNT."""
