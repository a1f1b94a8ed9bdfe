"""Hostile cases by the thousand: files, commands, data and problems that nobody would make on purpose."""

HUNTS: tuple[str, ...] = ("npz_files", "command_line")
"""Modules of this package that have a HUNT."""
