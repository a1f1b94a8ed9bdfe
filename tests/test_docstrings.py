"""Examples in public docstrings show what they print; messages name parameters and options that exist."""

import ast
import doctest
import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import typer

import cvxsnn
from cvxsnn import cli
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


NODES = [node for path in Path(cvxsnn.__file__).parent.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
OF_OTHERS = {"reset_delay", "reset_mechanism", "reset_method", "return_inverse", "srcdoc", "style", "v_reset"}
"""Names before an equals sign in texts that belong to other libraries, or to HTML."""


def messages() -> list[str]:
    """Return all texts in the sources but docstrings, whose examples run."""
    texts = [node for node in NODES if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    docstrings = {id(node.value) for node in NODES if isinstance(node, ast.Expr)}
    return [node.value for node in texts if id(node) not in docstrings]


def parameters() -> set[str]:
    """Return all parameters of functions, and the fields of classes."""
    fields = {node.target.id for node in NODES if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return fields | {node.arg for node in NODES if isinstance(node, ast.arg)}


def test_parameters_in_messages_exist() -> None:
    named = {name for text in messages() for name in re.findall(r"(?<![\w.{-])([a-z]\w*)=(?!=)", text)}
    assert named - parameters() - OF_OTHERS == set()
    estimators = {*cvxsnn.SpikingClassifier().get_params(), *cvxsnn.SpikingRegressor().get_params()}
    fits = [text.split("fit with", 1)[1] for text in messages() if "fit with" in text]
    recommended = {name for text in fits for name in re.findall(r"\b([a-z]\w*)=", text)}
    assert "witnesses" in recommended <= estimators


def test_options_in_messages_exist() -> None:
    app = typer.main.get_command(cli.app)
    commands = [app, *app.commands.values()]
    options = {name for command in commands for parameter in command.params for name in parameter.opts} | {"--help"}
    named = {name for text in messages() for name in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)}
    assert named - options == set()
