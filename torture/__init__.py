"""Disturbances in throw-away folders: work that is killed, stopped, starved or unplugged, and must lose nothing."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # processes are forked, which threads would not survive

HUNTS: tuple[str, ...] = ("signals", "shortages", "neighbours", "power", "workers", "commands")
"""Modules of this package that have a HUNT."""
