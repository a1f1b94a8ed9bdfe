"""Disturb work: `python -m torture --help`; let one process work for long: `python -m torture soak --help`."""

import sys

from fuzz.harness import main

from . import HUNTS, soak

if __name__ == "__main__":
    sys.exit(soak.main(sys.argv[2:]) if sys.argv[1:2] == ["soak"] else main("torture", HUNTS))
