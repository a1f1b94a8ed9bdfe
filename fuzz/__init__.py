"""Hostile cases by the thousand: files, commands, data and problems that nobody would make on purpose."""

HUNTS: tuple[str, ...] = (
    "adversary",
    "answers",
    "command_line",
    "data_files",
    "estimators",
    "extremes",
    "lives",
    "metamorphic",
    "model_files",
    "nir_graphs",
    "npz_files",
    "outputs",
    "problems",
    "proofs",
    "readouts",
    "refits",
    "resumed_proofs",
    "scopes",
    "strangers",
)
"""Modules of this package that have a HUNT."""
