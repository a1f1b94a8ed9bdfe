"""The examples in public docstrings show what they print."""

import doctest
import importlib

import pytest

ROOMS = [
    "",
    *(f".{room}" for room in ["data", "neurons", "witnesses", "dictionary", "convex", "network", "training", "theory"]),
]
ROOMS += [".estimators", ".exchange"]


def examples() -> list[doctest.DocTest]:
    """Every public function or class, and its methods, that has an example."""
    finder, found = doctest.DocTestFinder(exclude_empty=True), {}
    for room in ROOMS:
        module = importlib.import_module(f"cvxsnn{room}")
        for name in module.__all__:
            value = getattr(module, name)
            if str(getattr(value, "__module__", "")).startswith("cvxsnn."):
                found |= {test.name: test for test in finder.find(value, name, globs={}) if test.examples}
    return list(found.values())


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_examples_print_what_they_show(test: doctest.DocTest) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert runner.run(test, clear_globs=True).failed == 0
