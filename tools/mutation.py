"""Change one thing in a file of the library, run its tests, and list the changes that no test noticed.

    python tools/mutation.py                          all files
    python tools/mutation.py core/storage neurons     some files, or folders

The changes are those of mutmut, in a copy of the tree under build/mutation. Words of error messages are not changed.
docs/testing.md explains the changes that no test can notice.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIES = ROOT / "build" / "mutation"

TESTS: dict[str, tuple[str, ...]] = {
    "core/storage": ("core/test_storage.py",),
    "convex/certificate": ("convex/test_certificate.py", "convex/test_range.py", "convex/test_elastic_net.py"),
    "neurons/exact": ("neurons/test_exact.py", "neurons/test_rollout.py"),
    "neurons/layer": ("neurons",),
    "neurons/lif": ("neurons/test_lif.py", "neurons/test_layer.py", "neurons/test_rollout.py"),
    "neurons/registry": ("neurons/test_registry.py",),
    "neurons/rollout": ("neurons/test_rollout.py", "neurons/test_taps.py", "neurons/test_lif.py"),
    "neurons/surrogate": ("neurons/test_surrogate.py",),
    "neurons/taps": ("neurons/test_taps.py",),
    "neurons/threshold": ("neurons/test_threshold.py",),
    "theory/arrangement": ("theory/test_arrangement.py",),
    "theory/caratheodory": ("theory/test_caratheodory.py",),
    "theory/column_generation": ("theory/test_column_generation.py",),
    "theory/complete_certificate": ("theory/test_complete_certificate.py",),
    "theory/cones": ("theory/test_cones.py", "theory/test_arrangement.py", "theory/test_enumeration.py"),
    "theory/duality": ("theory/test_duality.py",),
    "theory/enumeration": ("theory/test_enumeration.py", "theory/test_lif_family.py"),
    "theory/integers": ("theory/test_integers.py",),
    "theory/lif_family": ("theory/test_lif_family.py", "theory/test_lif_family_taps.py"),
    "theory/box_search": ("theory/test_box_search.py", "theory/test_pricing.py"),
    "theory/certificate_file": ("test_check_certificate.py",),
    "theory/cone_search": ("theory/test_pricing.py",),
    "theory/pricing": ("theory/test_pricing.py",),
    "theory/spike_trees": ("theory/test_box_search.py", "theory/test_pricing.py"),
}
"""The tests that are asked about each file. Kernels are compiled and pictures drawn: they are left out."""

_WORDS = [r"raise \w+", r'^\s*f?"[^"]* [^"]* ', r"^\s*reason = ", r"remedy: str = ", r'"a folder"|"one of no kind"']
"""Lines that are about the words of error messages only."""

_SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = ["src/cvxsnn/{module}.py"]
do_not_mutate_patterns = {words}
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
timeout_constant = 20.0
"""


def main() -> int:
    """Return the number of files with changes that no test noticed, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="files or folders of src/cvxsnn; all by default")
    names = parser.parse_args().names
    chosen = [module for module in TESTS if not names or any(f"{module}/".startswith(f"{name}/") for name in names)]
    if not chosen:
        parser.error(f"expected files or folders among {', '.join(TESTS)}, got {', '.join(names)}")
    n_survivors = 0
    for module in chosen:
        counts, survivors = mutate(module)
        n_survivors += len(survivors)
        print(f"{module}: {', '.join(f'{count} {status}' for status, count in sorted(counts.items()))}")
        for survivor in survivors:
            print(survivor)
    return int(n_survivors > 0)


def mutate(module: str) -> tuple[dict[str, int], list[str]]:
    """Return the numbers of changes by what became of them, and those that no test noticed as differences of text."""
    copy = COPIES / module.replace("/", "-")
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    tests = json.dumps([f"tests/{test}" for test in TESTS[module]])
    settings = _SETTINGS.format(module=module, tests=tests, words=json.dumps(_WORDS))
    (copy / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HYPOTHESIS_DERANDOMIZE": "1"}
    environment.pop("PYTHONPATH", None)  # the copy is tested, not the original

    def mutmut(*arguments: str) -> str:
        command = [sys.executable, "-m", "mutmut", *arguments]
        return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=True).stdout

    mutmut("run", "--max-children", os.environ.get("MUTATION_JOBS", "1"))
    counts: dict[str, int] = {}
    survivors = []
    for line in mutmut("results", "--all", "true").splitlines():
        name, _, status = line.strip().partition(": ")
        counts[status] = counts.get(status, 0) + 1
        if status not in ("killed", "timeout", "caught by type check"):
            shown = [text for text in mutmut("show", name).splitlines() if text.startswith(("-", "+", "@"))]
            survivors.append("\n".join([f"  {name} ({status})", *(f"    {text}" for text in shown[2:])]))
    return counts, survivors


if __name__ == "__main__":
    sys.exit(main())
