"""Check the docstrings of the public surface: numpydoc sections with a type and a sentence for every entry.

The public surface is what ``__all__`` lists in ``cvxsnn`` and in its rooms, with the public methods of the classes in
it. Every public class, function and value must have an example. Run it on all rooms, or on those named:

    python tools/check_docstrings.py
    python tools/check_docstrings.py cvxsnn.network cvxsnn.convex
"""

import ast
import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "cvxsnn"
ROOMS = ["data", "neurons", "witnesses", "dictionary", "convex", "network", "fitting", "theory"]
ROOMS += ["estimators", "exchange", "data.tasks", "data.audio", "plots"]

CHECKS = {
    "GL08": "no docstring",
    "SS02": "the summary does not start with a capital letter",
    "SS03": "the summary does not end with a period",
    "PR01": "a parameter is not documented",
    "PR02": "a documented parameter does not exist",
    "PR04": "a parameter has no type",
    "PR07": "a parameter has no sentence",
    "PR08": "a parameter's sentence does not start with a capital letter",
    "PR09": "a parameter's sentence does not end with a period",
    "RT01": "no Returns section",
    "RT03": "a returned value has no sentence",
    "RT04": "a returned value's sentence does not start with a capital letter",
    "RT05": "a returned value's sentence does not end with a period",
    "YD01": "no Yields section",
}
EXAMPLE = "EX01"
TORCH = {"forward", "extra_repr", "get_extra_state", "set_extra_state"}
"""Methods that torch calls; users do not."""


def main(names: list[str]) -> int:
    """Print what is missing; return the number of defects."""
    from numpydoc.validate import validate  # other tools read this file without it

    n_defects = 0
    for name, wanted in public_names(names):
        found = validate(name)
        for code, message in found["errors"]:
            if code in wanted and not (code == "PR01" and is_documented_above(name, message)):
                n_defects += 1
                print(f"{name}: {code} {message}")
    for name in public_values(names):
        if ">>>" not in value_docstring(name.rsplit(".")[-1]):
            n_defects += 1
            print(f"{name}: {EXAMPLE} no examples in the string below it")
    print(f"{n_defects} defects in public docstrings")
    return n_defects


def public_names(rooms: list[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield dotted names of public functions, classes and methods, and the checks that each must pass."""
    seen: set[int] = set()
    for module in import_rooms(rooms):
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if isinstance(value, ModuleType) or not callable(value) or not is_ours(value):
                continue
            if id(value) in seen:
                continue
            seen.add(id(value))
            is_enum = inspect.isclass(value) and issubclass(value, Enum)  # its parameters are Python's own
            yield f"{module.__name__}.{name}", {*CHECKS, EXAMPLE} - ({"PR01"} if is_enum else set())
            if inspect.isclass(value) and not is_exception(value) and not is_enum:
                for method in public_methods(value):
                    yield f"{module.__name__}.{name}.{method}", set(CHECKS)


def is_documented_above(name: str, message: str) -> bool:
    """Return whether all parameters in a message are fields of a contract that the class inherits."""
    room, _, kind = name.rpartition(".")
    bases = getattr(getattr(sys.modules.get(room), kind, None), "__mro__", ())[1:]
    inherited = {field.name for base in bases if is_ours(base) and is_dataclass(base) for field in fields(base)}
    return set(re.findall(r"'(\w+)'", message)) <= inherited


def import_rooms(rooms: list[str]) -> list[ModuleType]:
    """Return the rooms that are named, or all of them."""
    return [importlib.import_module(room) for room in rooms or [PACKAGE, *(f"{PACKAGE}.{room}" for room in ROOMS)]]


def public_values(rooms: list[str]) -> Iterator[str]:
    """Yield dotted names of public values, such as registries and aliases of types."""
    for module in import_rooms(rooms):
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if not isinstance(value, ModuleType) and not (callable(value) and is_ours(value)):
                yield f"{module.__name__}.{name}"


def value_docstring(name: str) -> str:
    """Return the string below the assignment that defines a public value in the library."""
    for file in sorted(Path(importlib.import_module(PACKAGE).__path__[0]).rglob("*.py")):
        text = file.read_text()
        if f"\n{name}" not in text:
            continue
        body = ast.parse(text).body
        for statement, following in pairwise(body):
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            is_string = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if is_string and [getattr(target, "id", None) for target in targets] == [name]:
                return inspect.cleandoc(str(following.value.value))
    return ""


def public_methods(kind: type) -> list[str]:
    """Return public methods and properties that the class, or a base class of ours, defines."""
    defined = Counter(name for base in kind.__mro__ if is_ours(base) for name in vars(base) if not name.startswith("_"))
    # A method that overrides one of ours has its contract there.
    own = {name for name, n_definitions in defined.items() if n_definitions == 1}
    inherited = {name for base in kind.__mro__[1:] if is_ours(base) and inspect.isabstract(base) for name in vars(base)}
    return sorted(name for name in own - TORCH - inherited if is_described(inspect.getattr_static(kind, name)))


def is_described(value: Any) -> bool:
    """Return whether a member of a class is a method or a property, rather than data."""
    return isinstance(value, (property, classmethod, staticmethod)) or inspect.isfunction(value)


def is_ours(value: Any) -> bool:
    """Return whether something is defined in this package."""
    return str(getattr(value, "__module__", "")).startswith(PACKAGE)


def is_exception(value: Any) -> bool:
    """Return whether something is an error or a warning."""
    return inspect.isclass(value) and issubclass(value, BaseException)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
