"""Delete each wing in a scratch copy, and run the core without it.

    python tools/wings.py [--tests] [WING ...]

The contracts of type "wing" in pyproject.toml list the modules of each wing. The last commit is unpacked into a
temporary folder, without them; there, a model is fitted, saved, loaded, asked and certified. With ``--tests``, the
tests of the core run too. A test that needs a module of the wing belongs to it, and is counted as skipped.
"""

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import ContractCheck
from importlinter.contracts.protected import ProtectedContract

ROOT = Path(__file__).parents[1]
WITHOUT = "CVXSNN_WITHOUT"
CORE_TESTS = ("estimators", "convex", "network", "exchange/readout")

CHECK = """
import numpy as np
from cvxsnn import SpikingClassifier, load, save
X = np.random.default_rng(0).normal(size=(60, 12, 2))
y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
model = SpikingClassifier(n_neurons=64, random_state=0).fit(X, y)
save(model, "model")
again = load("model")
assert (again.predict(X) == model.predict(X)).all()
assert again.certify(X, y).relative_gap <= model.tol
"""


class WingContract(ProtectedContract):
    """Only a wing itself and the allowed importers import its modules."""

    type_name = "wing"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Check the imports; modules of a wing import each other."""
        self.allowed_importers = [*self.allowed_importers, *self.protected_modules]
        return super().check(graph, verbose)


def read_wings() -> dict[str, list[str]]:
    """Return the modules of each wing."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return {own["name"]: own["protected_modules"] for own in contracts if own["type"] == "wing"}


def check_without(modules: list[str], with_tests: bool) -> bool:
    """Return whether the core runs without the modules of a wing."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        for module in modules:
            path = Path(folder, "src", *module.split("."))
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.with_suffix(".py").unlink()
        commands = [[sys.executable, "-W", "error", "-c", CHECK]]
        if with_tests:
            tests = [f"tests/{room}" for room in CORE_TESTS]
            commands.append([sys.executable, "-m", "pytest", "-q", "-p", "tools.wings", *tests])
        environment = {**os.environ, "PYTHONPATH": "src:tests:.", WITHOUT: " ".join(modules)}
        return all(subprocess.run(command, cwd=folder, env=environment).returncode == 0 for command in commands)


def skip_what_is_gone(report: Any, error: BaseException | None) -> Any:
    """Return a report of pytest, as skipped if it failed because a module of the wing is missing."""
    gone = os.environ[WITHOUT].split()
    names = [f"cannot import name {own.rpartition('.')[2]!r} from {own.rpartition('.')[0]!r}" for own in gone]
    while error is not None:
        is_gone = f"{getattr(error, 'name', None)}.".startswith(tuple(f"{own}." for own in gone))
        if isinstance(error, ImportError) and (is_gone or str(error).startswith(tuple(names))):
            report.outcome = "skipped"
            report.longrepr = (__file__, 0, f"Skipped: {error}")
        error = error.__cause__ or error.__context__
    return report


if "pytest" in sys.modules:  # which has this file as a plugin in the scratch copy
    import pytest

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report() -> Any:
        """Skip files that import from the wing."""
        report = yield
        return skip_what_is_gone(report, report.call.excinfo and report.call.excinfo.value)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(call: Any) -> Any:
        """Skip tests that need the wing."""
        return skip_what_is_gone((yield), call.excinfo and call.excinfo.value)


def main() -> None:
    """Check the wings that are named, or all."""
    wings = read_wings()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="run the tests of the core too")
    parser.add_argument("wings", nargs="*", metavar="WING", help=f"among {', '.join(wings)}; by default all")
    arguments = parser.parse_args()
    stands = {name: check_without(wings[name], arguments.tests) for name in arguments.wings or wings}
    for name, is_fine in stands.items():
        print(f"without {name}: {'the core stands' if is_fine else 'FAILED'}")
    sys.exit(not all(stands.values()))


if __name__ == "__main__":
    main()
