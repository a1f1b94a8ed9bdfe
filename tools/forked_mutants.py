"""Try every change of a file of plain Python in one session of pytest, each in a fork of it: a hundred times as quick.

`python tools/mutation.py theory/check_certificate` runs pytest with this plugin in a tree that mutmut has made. Changed
functions are put in the place of the originals, without the wrappers through which mutmut would call them. A fork is
safe as long as the tests start no threads.
"""

import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_SECONDS = 30
"""For the tests of one change; what takes longer is noticed."""


def _owner(module: ModuleType, key: str) -> tuple[Any, str]:
    """Return where a function of mutmut's name is, and its own name there."""
    *_, owner, name = f"ǁ{key.removeprefix('x').removeprefix('_')}".split("ǁ")
    return (getattr(module, owner) if owner else module), name


def _functions(module: ModuleType) -> dict[str, dict[str, Any]]:
    """Return the changed functions of a module, by the name that mutmut gives to the original."""
    found = {name: value for name, value in vars(module).items() if name.startswith("mutants_x")}
    return {name.removeprefix("mutants_").removesuffix("__mutmut"): value for name, value in found.items()}


def _is_about_words(changed: Any, original: Any) -> bool:
    """Return whether two functions, or constants of them, differ in sentences only."""
    if isinstance(changed, CodeType) and isinstance(original, CodeType):
        pairs = zip(changed.co_consts, original.co_consts, strict=False)
        is_alike = changed.co_code == original.co_code and changed.co_names == original.co_names
        return is_alike and all(_is_about_words(one, other) for one, other in pairs)
    is_sentence = isinstance(original, str) and " " in original and isinstance(changed, str)
    return is_sentence or (type(changed) is type(original) and changed == original)


def _fails(items: list[pytest.Item]) -> bool:
    for item, following in zip(items, [*items[1:], None], strict=True):
        reports = runtestprotocol(item, log=False, nextitem=following)
        if any(report.failed for report in reports):
            return True
    return False


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests once, then for each change those that are quick first, until one fails."""
    request = json.loads(Path(os.environ["FORKED_MUTANTS"]).read_text())
    module = import_module(request["module"])
    functions = _functions(module)
    for key, versions in functions.items():
        owner, name = _owner(module, key)
        setattr(owner, name, versions["_mutmut_orig"])
    seconds = {}
    for item in session.items:
        begin = time.perf_counter()
        if _fails([item]):
            raise pytest.UsageError(f"{item.nodeid} fails without any change")
        seconds[item.nodeid] = time.perf_counter() - begin
    items = sorted(session.items, key=lambda item: seconds[item.nodeid])
    outcomes = {}
    for change in request["changes"]:
        key = change.rpartition(".")[2].rpartition("__mutmut_")[0]
        function = functions[key][change.rpartition(".")[2]]
        if _is_about_words(function.__code__, functions[key]["_mutmut_orig"].__code__):
            outcomes[change] = "skipped: words of a message"
            continue
        child = os.fork()
        if not child:
            signal.alarm(_SECONDS)
            pytest.Function.repr_failure = lambda *_: ""  # it would parse all changes of the file, for seconds
            owner, name = _owner(module, key)
            setattr(owner, name, function)
            with open(os.devnull, "w") as nothing:
                sys.stdout = sys.stderr = nothing
                os._exit(1 if _fails(items) else 0)
        _, status = os.waitpid(child, 0)
        outcomes[change] = "survived" if status == 0 else "timeout" if os.WIFSIGNALED(status) else "killed"
        Path(request["record"]).write_text(json.dumps(outcomes, indent=1))
    return True
