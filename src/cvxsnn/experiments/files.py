"""Experiment files: those that come with the package, and users' files, which are checked before anything runs."""

import re
import sys
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from ..core.errors import DataFileError, InvalidInputError, first_line
from ..data.tasks.registry import check_task_arguments
from ..fitting import METHODS
from ..fitting.search import Tuning
from ..witnesses.families import family_kind
from . import ridge
from .experiment import CONFIG_KEYS, SETTINGS, Experiment, RunConfig, Scale, parse_experiment
from .run import make_settings, ridge_settings

_TABLES = (*CONFIG_KEYS, *(f"replace_{key}" for key in CONFIG_KEYS))
_TOP = (*SETTINGS, "cell", "defaults", "smoke")
_SHARED = ("seeds", "methods", "metric")
_CELL = ("row", "column", "paper", "reference", "note", *_SHARED, *_TABLES)
_SMOKE = ("seeds", "every", "only", *_TABLES)


def experiment_names() -> list[str]:
    """Return the names of the experiments that come with the package, in the order of the paper."""
    return [name for name in _files() if name != "demo"]


@lru_cache
def import_tasks(path: Path) -> None:
    """Run a Python file of the user, which registers tasks in ``TASKS``; once in each process.

    Parameters
    ----------
    path : Path
        The file. It runs with the rights of this process.
    """
    name = f"cvxsnn_imported_{path.stem}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DataFileError(f"expected a file that ends in .py to import, got {path}")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise DataFileError(
            f"expected {path} to be Python that can be imported, got {type(error).__name__}: {first_line(error)}"
        ) from error


def load_experiment(name: str, scale: Scale = "paper") -> Experiment:
    """Read an experiment and fill in the defaults of its cells.

    Parameters
    ----------
    name : str
        One of :func:`experiment_names`, or the path of a ``.toml`` file, which is checked key by key.
    scale : {"paper", "smoke"}
        At smoke scale, the file's ``[smoke]`` table overrides sizes, and seeds and cells are cut down.

    Returns
    -------
    Experiment
        The experiment.
    """
    if name.endswith(".toml"):
        return _load_own(Path(name), scale)
    files = _files()
    if name not in files:
        names = ", ".join(experiment_names())
        raise InvalidInputError(f"expected an experiment among {names}, or a .toml file, got {name!r}")
    return parse_experiment(name, tomllib.loads(files[name].read_text(encoding="utf-8")), scale)


def all_runs(names: Sequence[str], scale: Scale, rows: Collection[str] = ()) -> dict[str, RunConfig]:
    """Return every run of some experiments, or of the rows of that name, shared ones once."""
    experiments = [load_experiment(name, scale) for name in names]
    known = {cell.row: None for experiment in experiments for cell in experiment.cells}
    for row in rows:
        if row not in known:
            raise InvalidInputError(f"expected a row among {', '.join(map(repr, known))}, got {row!r}")
    return {name: config for experiment in experiments for name, config in experiment.runs(rows).items()}


def _files() -> dict[str, Traversable]:
    """Return the package's files by name; the number before a name gives the order."""
    files = sorted((resources.files(__package__) / "data").iterdir(), key=lambda file: file.name)
    return {re.sub(r"^\d+-|\.toml$", "", file.name): file for file in files}


def _load_own(path: Path, scale: Scale) -> Experiment:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataFileError(f"expected an experiment at {path}, found no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataFileError(f"expected {path} to be a TOML file that can be read, got: {first_line(error)}") from None
    check_keys(data, str(path))
    compared_with = data.get("compared_with", "the reference")
    experiment = replace(parse_experiment(path.stem, data, scale), source=str(path), compared_with=compared_with)
    check_configurations(experiment, str(path))
    return experiment


def check_keys(data: Mapping[str, Any], source: str) -> None:
    """Raise :class:`~cvxsnn.InvalidInputError` if a key of an experiment's file is missing, unknown or no table.

    Parameters
    ----------
    data : mapping
        The contents of the file.
    source : str
        The name of the file, for errors.
    """
    _check_table(data, source, _TOP, required=("title", "cell"))
    _check_values(data, source)
    if data.get("kind", "table") not in ("table", "figure"):
        raise InvalidInputError(f"expected kind 'table' or 'figure' in {source}, got {data['kind']!r}")
    if not isinstance(data["cell"], list) or not data["cell"]:
        raise InvalidInputError(f"expected 'cell' to be a list of at least one table in {source}, got {data['cell']!r}")
    _check_table(data.get("defaults", {}), f"{source}, [defaults]", (*_SHARED, *_TABLES))
    _check_table(data.get("smoke", {}), f"{source}, [smoke]", _SMOKE)
    for method, table in data.get("smoke", {}).get("only", {}).items():
        _check_table(table, f"{source}, [smoke.only.{method}]", _TABLES)
    for number, cell in enumerate(data["cell"], 1):
        _check_table(cell, f"{source}, cell {number}", _CELL, required=("row", "column"))


def _check_values(value: Any, location: str) -> None:
    """Refuse dates and times, which no setting is and no record can contain."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            _check_values(entry, f"{location}, key {key!r}")
    elif isinstance(value, list):
        for entry in value:
            _check_values(entry, location)
    elif not isinstance(value, (bool, int, float, str)):
        raise InvalidInputError(f"expected numbers, text, lists and tables in {location}, got {str(value)!r}")


def check_configurations(experiment: Experiment, source: str) -> None:
    """Raise :class:`~cvxsnn.InvalidInputError` if a run of an experiment could not start.

    Parameters
    ----------
    experiment : Experiment
        The experiment, with all defaults filled in.
    source : str
        The name of the file, for errors.
    """
    for cell in experiment.cells:
        for config in next(iter(cell.configs.values()), ()):  # other seeds have the same keys
            _check_config(config, f"{source}, cell {cell.row!r}, {cell.column!r}")


def _check_config(config: RunConfig, location: str) -> None:
    known = (*METHODS, ridge.METHOD)
    if config.method not in known:
        raise InvalidInputError(f"expected a method among {', '.join(known)} in {location}, got {config.method!r}")
    is_ridge = config.method == ridge.METHOD
    _check_table(config.task, f"{location}, table task", config.task, required=("name",))
    for family in config.family.get("join", [config.family]) if is_ridge else [config.family]:
        _check_family(family, f"{location}, table family")
    try:
        check_task_arguments(config.task["name"], {key: value for key, value in config.task.items() if key != "name"})
        (ridge_settings if is_ridge else make_settings)(config)
    except TypeError as error:
        # Python names the key: "... unexpected keyword argument 'x'", "missing 1 required ... argument: 'x'".
        key = (re.findall(r"'(\w+)'", str(error)) or [str(error)])[-1]
        if "missing" in str(error):
            raise InvalidInputError(f"expected a key {key!r} in {location}, found none") from error
        tables = [name for name in CONFIG_KEYS if repr(key) in repr(getattr(config, name))]
        where = ", ".join([location, *(f"table {name}" for name in tables)])
        raise InvalidInputError(f"expected keys that settings have in {where}, got {key!r}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} (in {location})") from error


def _check_family(family: Mapping[str, Any], location: str) -> None:
    if "tune" in family:
        _check_table(family, location, ("tune",))
        _check_table(family["tune"], f"{location}.tune", [field.name for field in fields(Tuning)])
    else:
        names = family_kind(family).arguments(family.get("neuron", "lif"))
        known = [name for name in names if name not in ("dtype", "device")]  # the run decides these
        _check_table(family, location, known, required=("hidden",))


def _check_table(table: Any, location: str, known: Collection[str], required: Collection[str] = ()) -> None:
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"expected a table of keys in {location}, got {table!r}")
    for key, value in table.items():
        if key not in known:
            raise InvalidInputError(f"expected keys among {', '.join(known)} in {location}, got {key!r}")
        if key in _TABLES and not isinstance(value, Mapping):
            raise InvalidInputError(f"expected {key!r} to be a table in {location}, got {value!r}")
        if key in ("seeds", "methods") and not isinstance(value, list):
            raise InvalidInputError(f"expected {key!r} to be a list in {location}, got {value!r}")
    for key in required:
        if key not in table:
            raise InvalidInputError(f"expected a key {key!r} in {location}, found none")
