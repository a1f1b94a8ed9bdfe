"""Writes the API reference: one page for every public name, grouped as a user looks for it."""

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.check_docstrings import is_ours, value_docstring

from .staging import write

GROUPS: dict[str, tuple[str, list[str]]] = {
    "Estimators": (
        "Classifiers and regressors for sequences, with the interface of scikit-learn; transformers; model files.",
        ["cvxsnn.estimators"],
    ),
    "Witnesses": ("Hidden neurons: how they are sampled, joined and stored.", ["cvxsnn.witnesses"]),
    "Dictionaries": ("The spikes of hidden neurons on the data, as columns.", ["cvxsnn.dictionary"]),
    "Problems and solvers": (
        "The convex program of the read-out, its solvers, paths of strengths, and certificates.",
        ["cvxsnn.convex"],
    ),
    "Networks": (
        "Spiking networks and their layers: running, rebuilding, scoring and counting them.",
        ["cvxsnn.network", "cvxsnn.neurons"],
    ),
    "Training": ("Training methods, their stages and settings.", ["cvxsnn.fitting"]),
    "Theory": ("Enumeration of all neurons, strong duality, and certificates over all neurons.", ["cvxsnn.theory"]),
    "Exchange": ("Networks of other libraries, NIR, C source, and weights of few bits.", ["cvxsnn.exchange"]),
    "Data and tasks": (
        "Sequences, tables, sound, and tasks.",
        ["cvxsnn.data", "cvxsnn.tasks", "cvxsnn.audio"],
    ),
    "Plots": ("Pictures of spikes, membranes, weights, paths and certificates.", ["cvxsnn.plots"]),
    "Errors and warnings": ("What is raised, and when.", ["cvxsnn"]),
}
"""For each group: a sentence, and the modules whose public names belong to it."""


@dataclass(frozen=True)
class PublicName:
    """A public name, where users import it from, and what it is."""

    module: str
    name: str
    value: Any

    @property
    def path(self) -> str:
        """The dotted name that users write."""
        return f"{self.module}.{self.name}"


def list_names() -> dict[str, list[PublicName]]:
    """Return the public names of each group. A name that ``cvxsnn`` itself has is imported from there."""
    package = importlib.import_module("cvxsnn")
    top = set(package.__all__)
    groups: dict[str, list[PublicName]] = {}
    seen: set[str] = set()
    for title, (_, modules) in GROUPS.items():
        groups[title] = []
        for module_name in modules:
            module = importlib.import_module(module_name)
            for name in module.__all__:
                value = getattr(module, name)
                home = "cvxsnn" if name in top and getattr(package, name) is value else module_name
                if isinstance(value, ModuleType) or name in seen:
                    continue
                seen.add(name)
                groups[title].append(PublicName(home, name, value))
        groups[title].sort(key=lambda entry: (not inspect.isclass(entry.value), entry.name.lower()))
    return groups


def is_data(value: Any) -> bool:
    """Return whether a public name is a value, such as a registry, rather than a class or a function of ours."""
    return not (callable(value) and is_ours(value))


def summary(entry: PublicName) -> str:
    """Return the first sentence of a docstring."""
    text = value_docstring(entry.name) if is_data(entry.value) else inspect.getdoc(entry.value) or ""
    return " ".join(text.split("\n\n")[0].split())


def write_api(folder: Path) -> None:
    """Write the index and one page for every name."""
    lines = ["API reference", "=============", ""]
    lines += ["Every public class, function and value, with an example that the tests run.", ""]
    groups = list_names()
    for title, entries in groups.items():
        lines += [title, "-" * len(title), "", GROUPS[title][0], "", ".. list-table::", "   :widths: 40 60", ""]
        for entry in entries:
            lines += [f"   * - :doc:`{entry.path} <{entry.path}>`", f"     - {summary(entry)}"]
        lines += ["", ".. toctree::", "   :hidden:", f"   :caption: {title}", ""]
        lines += [*(f"   {entry.name} <{entry.path}>" for entry in entries), ""]
        for entry in entries:
            write(folder / f"{entry.path}.rst", name_page(entry))
    write(folder / "index.rst", "\n".join(lines))


def name_page(entry: PublicName) -> str:
    """Return the page of a name."""
    lines = [entry.path, "=" * len(entry.path), ""]
    if is_data(entry.value):
        text = value_docstring(entry.name).replace("Examples\n--------\n", ".. rubric:: Examples\n\n")
        lines += [f".. py:data:: {entry.path}", "", *(f"   {line}" for line in text.split("\n"))]
    elif inspect.isclass(entry.value):
        lines += [f".. autoclass:: {entry.path}", ""]
        for name in class_members(entry.value):
            is_property = isinstance(inspect.getattr_static(entry.value, name), property)
            lines += [f"   .. auto{'property' if is_property else 'method'}:: {entry.path}.{name}", ""]
    else:
        lines += [f".. autofunction:: {entry.path}"]
    return "\n".join([*lines, ""])


def class_members(kind: type) -> list[str]:
    """Return the public methods and properties that have a docstring and are defined in the library."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("cvxsnn")]
    names = list(dict.fromkeys(name for base in ours for name in vars(base) if not name.startswith("_")))
    return [name for name in names if _is_described(inspect.getattr_static(kind, name))]


def _is_described(member: Any) -> bool:
    if isinstance(member, (classmethod, staticmethod)):
        member = member.__func__
    member = getattr(member, "fn", member)  # methods that scikit-learn shows on some conditions only
    return (isinstance(member, property) or inspect.isfunction(member)) and bool(member.__doc__)
