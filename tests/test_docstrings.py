"""The examples in public docstrings show what they print, and every public name has one."""

import doctest
import importlib
import importlib.util
import re
from types import ModuleType

import pytest

from tools.check_docstrings import PACKAGE, ROOMS, public_values, value_docstring

ALL_ROOMS = [PACKAGE, *(f"{PACKAGE}.{room}" for room in ROOMS)]


def public_objects() -> dict[str, object]:
    """Every public class and function by name."""
    found = {}
    for room in ALL_ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if not isinstance(value, ModuleType) and str(getattr(value, "__module__", "")).startswith("cvxsnn."):
                found.setdefault(name, value)
    return found


def examples() -> list[doctest.DocTest]:
    """Return the examples of public classes, their methods, functions and values."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    for name, value in public_objects().items():
        found |= {test.name: test for test in finder.find(value, name, globs={}) if test.examples}
    for path in public_values([]):
        name = path.split(".")[-1]
        found[name] = doctest.DocTestParser().get_doctest(value_docstring(name), {}, name, None, 0)
    return list(found.values())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # Norse, when it is imported
@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_examples_print_what_they_show(test: doctest.DocTest) -> None:
    source = "".join(example.source for example in test.examples)
    for library in re.findall(r"^(?:import|from) (\w+)", source + exchange_library(test.name), re.MULTILINE):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert runner.run(test, clear_globs=True).failed == 0


def exchange_library(name: str) -> str:
    """Return the import of the library that a function of exchange is named after."""
    library = re.search(r"(?:to|from|write)_(snntorch|spikingjelly|norse|nir)$", name)
    return f"\nimport {library[1]}" if library else ""


def test_every_public_name_has_an_example() -> None:
    shown = {test.name for test in examples() if test.examples}
    values = {path.split(".")[-1] for path in public_values([])}
    assert {*public_objects(), *values} - shown == set()
