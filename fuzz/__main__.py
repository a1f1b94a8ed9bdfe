"""Run hostile cases: `python -m fuzz --help`."""

import sys

from . import HUNTS
from .harness import main

if __name__ == "__main__":
    sys.exit(main("fuzz", HUNTS))
