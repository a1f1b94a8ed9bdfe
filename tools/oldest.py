"""Print the lowest versions that pyproject.toml declares, as requirements for pip; ``make oldest`` tests with them."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
OTHERS = {
    "torch": "constraints.txt names it: on PyPI, other versions of it come with gigabytes of CUDA",
    "aeon": "needs NumPy 2",
}
"""What is left out, and why."""


def lowest(requirements: list[str]) -> Iterator[str]:
    """Yield each requirement at its lowest version, and those of extras of this project."""
    for requirement in requirements:
        if extras := re.fullmatch(r"cvxsnn\[(.+)\]", requirement):
            for extra in extras[1].split(","):
                yield from lowest(PROJECT["optional-dependencies"][extra])
            continue
        name, _, versions = requirement.partition(">=")
        if name not in OTHERS:
            yield f"{name}=={versions.split(',')[0]}"


if __name__ == "__main__":
    print("\n".join(lowest([*PROJECT["dependencies"], "cvxsnn[test]"])))
