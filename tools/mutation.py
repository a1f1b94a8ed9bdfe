"""Change one thing in a file of the library, run its tests, and list the changes that no test noticed.

    python tools/mutation.py                          all files
    python tools/mutation.py core/storage neurons     some files, or folders
    python tools/mutation.py --sample 60              at most 60 changes of each file, drawn with a fixed seed
    python tools/mutation.py --again core/storage     only the changes that no test noticed last time

Hypothesis draws few examples, but as many as the tests ask for with --again.

The changes are those of mutmut, in a copy of the tree under build/mutation. Words of error messages are not changed.
docs/testing.md explains the changes that no test can notice.
"""

import argparse
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIES = ROOT / "build" / "mutation"

TESTS: dict[str, tuple[str, ...]] = {
    "theory/check_certificate": ("theory/test_check_certificate.py",),
    "core/storage": ("core/test_storage.py",),
    "convex/certificate": ("convex/test_certificate.py", "convex/test_range.py", "convex/test_elastic_net.py"),
    "neurons/exact": ("neurons/test_exact.py", "neurons/test_rollout.py"),
    "neurons/layer": ("neurons",),
    "neurons/lif": ("neurons/test_lif.py", "neurons/test_layer.py", "neurons/test_rollout.py"),
    "neurons/registry": ("neurons/test_registry.py", "neurons/test_surrogate.py"),
    "neurons/rollout": ("neurons/test_rollout.py", "neurons/test_taps.py", "neurons/test_lif.py"),
    "neurons/surrogate": ("neurons/test_surrogate.py",),
    "neurons/taps": ("neurons/test_taps.py",),
    "neurons/threshold": ("neurons/test_threshold.py",),
    "theory/column_generation": ("theory/test_column_generation.py", "theory/test_family_union.py"),
    "theory/complete_certificate": ("theory/test_complete_certificate.py",),
    "theory/cones": ("theory/test_cones.py", "theory/test_arrangement.py", "theory/test_enumeration.py"),
    "theory/enumeration": (
        "theory/test_enumeration.py",
        "theory/test_arrangement.py",
        "theory/test_lif_family.py",
    ),
    "theory/integers": ("theory/test_integers.py",),
    "theory/lif_family": (
        "theory/test_lif_family.py",
        "theory/test_lif_family_taps.py",
        "theory/test_short_weights.py",
    ),
    "theory/box_search": (
        "theory/test_box_search.py",
        "theory/test_pricing.py",
        "theory/test_line_search.py",
        "theory/test_proving.py",
    ),
    "theory/certificate_file": (
        "theory/test_certificate_file.py",
        "theory/test_check_certificate.py",
        "theory/test_proving.py",
    ),
    "theory/proving": ("theory/test_proving.py",),
    "theory/resumed_proof": ("theory/test_proving.py",),
    "theory/cone_search": ("theory/test_pricing.py",),
    "theory/family_union": ("theory/test_family_union.py",),
    "theory/line_search": ("theory/test_line_search.py", "theory/test_pricing.py"),
    "theory/tree_reduction": ("theory/test_tree_reduction.py",),
    "theory/pricing": ("theory/test_pricing.py", "theory/test_box_search.py", "theory/test_family_union.py"),
    "theory/spike_trees": ("theory/test_box_search.py", "theory/test_pricing.py", "theory/test_family_union.py"),
}
"""The tests that are asked about each file. Kernels are compiled and pictures drawn: they are left out."""

_FORKED = ("theory/check_certificate",)
"""Plain Python whose tests start no threads: all changes are tried in forks of one session."""

_WORDS = [r"raise \w+", r'^\s*f?"[^"]* [^"]* ', r"^\s*reason = ", r"remedy: str = ", r'"a folder"|"one of no kind"']
"""Lines that are about the words of error messages only."""

_SETTINGS = """
[tool.mutmut]
source_paths = ["src"]
also_copy = ["fuzz"]
only_mutate = ["src/cvxsnn/{module}.py"]
do_not_mutate_patterns = {words}
pytest_add_cli_args_test_selection = {tests}
process_isolation = "forkserver"
timeout_constant = 5.0
timeout_multiplier = 4.0
"""

_QUICKLY = """

# A failure is all that is asked: examples are not shrunk, short tests run first, and what was imported is not searched
# for garbage.
import gc
import json
from pathlib import Path

from hypothesis import Phase

settings.register_profile(
    "mutation", settings.get_profile("cvxsnn"), phases=[Phase.explicit, Phase.generate], database=None
)
settings.load_profile("mutation")
EXAMPLES = {examples}
STATISTICS = Path(__file__).parents[1] / "mutmut-stats.json"


def pytest_collection_modifyitems(items):
    gc.freeze()
    for item in items:
        own = getattr(item.function, "_hypothesis_internal_use_settings", None)
        if own is not None:
            fewer = settings(own, max_examples=min(own.max_examples, EXAMPLES))
            item.function._hypothesis_internal_use_settings = fewer
    if STATISTICS.exists():
        seconds = json.loads(STATISTICS.read_text())["duration_by_test"]
        items.sort(key=lambda item: seconds.get(item.nodeid, 0.0))
"""
"""The end of conftest.py in the copy."""

_FEW, _MANY = 5, 10**6
"""Most examples of a property that are tried with each change."""

_MEMORY = 12 << 30
"""The most bytes that the tests of a change may allocate."""

_NOTICED = ("skipped: words of a message", "killed", "timeout", "segfault", "suspicious", "caught by type check")
"""A process that ends in another way than by an exit code, or never, is noticed, too."""


def main() -> int:
    """Return 1 if a change was noticed by no test, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="files or folders of src/cvxsnn; all by default")
    parser.add_argument("--sample", type=int, metavar="N", help="try at most N changes of each file")
    parser.add_argument("--again", action="store_true", help="try the changes that no test noticed last time")
    options = parser.parse_args()
    names = options.names
    chosen = [module for module in TESTS if not names or any(f"{module}/".startswith(f"{name}/") for name in names)]
    if not chosen:
        parser.error(f"expected files or folders among {', '.join(TESTS)}, got {', '.join(names)}")
    n_survivors = 0
    for module in chosen:
        n_changes, outcomes, survivors = mutate(module, options.sample, options.again)
        n_survivors += len(survivors)
        counts = ", ".join(f"{list(outcomes.values()).count(one)} {one}" for one in sorted(set(outcomes.values())))
        print(f"{module}: {len(outcomes)} of {n_changes} changes tried: {counts}", *survivors, sep="\n", flush=True)
    return int(n_survivors > 0)


def mutate(module: str, sample: int | None, again: bool) -> tuple[int, dict[str, str], list[str]]:
    """Return the number of changes, what became of those tried, and the differences that no test noticed."""
    copy = COPIES / module.replace("/", "-")
    record = copy.with_suffix(".json")
    shutil.rmtree(copy, ignore_errors=True)
    for name in ("src", "tests", "fuzz"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    tests = json.dumps([f"tests/{test}" for test in TESTS[module]])
    settings = _SETTINGS.format(module=module, tests=tests, words=json.dumps(_WORDS))
    (copy / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)
    with (copy / "tests" / "conftest.py").open("a") as file:
        file.write(_QUICKLY.replace("{examples}", str(_MANY if again else _FEW)))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)  # the copy is tested, not the original

    def mutmut(*arguments: str, check: bool = True) -> str:
        command = [sys.executable, "-m", "mutmut", *arguments]
        with (copy / "output").open("w+") as output:  # no pipe: a process that a test leaves behind would keep it open
            process = subprocess.Popen(
                command,
                cwd=copy,
                env=environment,
                stdout=output,
                stderr=output,
                preexec_fn=_limit_memory,
                start_new_session=True,
            )
            status = process.wait()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output.seek(0)
            text = output.read()
        if check and status:
            raise RuntimeError(f"mutmut {arguments[0]} ended with {status}: {text[-4000:]}")
        return text

    mutmut("run", "no such change", check=False)  # writes the changes and times the tests, and tries nothing
    changes = list(
        json.loads((copy / "mutants" / "src" / "cvxsnn" / f"{module}.py.meta").read_text())["exit_code_by_key"]
    )
    tried = changes
    if again:
        tried = [change for change, outcome in json.loads(record.read_text()).items() if outcome not in _NOTICED]
    if sample is not None and sample < len(tried):
        tried = sorted(random.Random(0).sample(tried, sample), key=tried.index)
    if not tried:
        return len(changes), {}, []
    if module in _FORKED:
        request = copy / "request.json"
        names = {"module": f"cvxsnn.{module.replace('/', '.')}", "changes": tried, "record": str(record)}
        request.write_text(json.dumps(names))
        run = [sys.executable, "-m", "pytest", "-p", "forked_mutants", *(f"tests/{test}" for test in TESTS[module])]
        place = {"PYTHONPATH": f"{copy / 'mutants' / 'src'}:{ROOT / 'tools'}", "FORKED_MUTANTS": str(request)}
        subprocess.run(run, cwd=copy / "mutants", env=environment | place, check=True)
        outcomes = json.loads(record.read_text())
    else:
        mutmut("run", "--max-children", os.environ.get("MUTATION_JOBS", "1"), *tried)
        lines = [line.strip().partition(": ") for line in mutmut("results", "--all", "true").splitlines()]
        outcomes = {change: outcome for change, _, outcome in lines if change in set(tried)}
        record.write_text(json.dumps(outcomes, indent=1))
    survivors = []
    for change, outcome in outcomes.items():
        if outcome not in _NOTICED:
            shown = [text for text in mutmut("show", change).splitlines() if text.startswith(("-", "+", "@"))]
            survivors.append("\n".join([f"  {change} ({outcome})", *(f"    {text}" for text in shown[2:])]))
    return len(changes), outcomes, survivors


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


if __name__ == "__main__":
    sys.exit(main())
