"""Experiment files of one's own, checked before anything runs: errors are one sentence with the file and the key."""

import re
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from ...core.errors import InvalidInputError
from ...data.tasks.registry import check_task_arguments
from ...training.methods import METHODS
from ...training.search import Tuning
from ...witnesses.family import family_arguments
from . import ridge
from .experiment import CONFIG_KEYS, Experiment, RunConfig
from .run import make_settings, ridge_settings

_TABLES = (*CONFIG_KEYS, *(f"replace_{key}" for key in CONFIG_KEYS))
_TOP = (
    "title",
    "kind",
    "quantity",
    "description",
    "axis",
    "digits",
    "tolerance",
    "compared_with",
    "cell",
    "defaults",
    "smoke",
)
_SHARED = ("seeds", "methods", "metric")
_CELL = ("row", "column", "paper", "note", *_SHARED, *_TABLES)
_SMOKE = ("seeds", "every", "only", *_TABLES)
_NOT_IN_FILES = ("dtype", "device")
"""Arguments of samplers that the run decides."""


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


def _check_values(value: Any, place: str) -> None:
    """Refuse dates and times, which no setting is and no record can hold."""
    if isinstance(value, Mapping):
        for key, own in value.items():
            _check_values(own, f"{place}, key {key!r}")
    elif isinstance(value, list):
        for own in value:
            _check_values(own, place)
    elif not isinstance(value, (bool, int, float, str)):
        raise InvalidInputError(f"expected numbers, text, lists and tables in {place}, got {str(value)!r}")


def check_configurations(experiment: Experiment, source: str) -> None:
    """Raise :class:`~cvxsnn.InvalidInputError` if a run of an experiment could not start.

    Parameters
    ----------
    experiment : Experiment
        The experiment, with all defaults filled in.
    source : str
        The name of the file, for errors.
    """
    seen: set[str] = set()
    for cell in experiment.cells:
        for config in (config for configs in cell.configs.values() for config in configs):
            if (run_id := replace(config, seed=0).id) not in seen:  # seeds change nothing about the keys
                seen.add(run_id)
                _check_config(config, f"{source}, cell {cell.row!r}, {cell.column!r}")


def _check_config(config: RunConfig, place: str) -> None:
    known = (*METHODS, ridge.METHOD)
    if config.method not in known:
        raise InvalidInputError(f"expected a method among {', '.join(known)} in {place}, got {config.method!r}")
    arguments = dict(config.task)
    if "name" not in arguments:
        raise InvalidInputError(f"expected a key 'name' in {place}, table task, found none")
    is_ridge = config.method == ridge.METHOD
    for family in config.family.get("join", [config.family]) if is_ridge else [config.family]:
        _check_family(family, f"{place}, table family")
    try:
        check_task_arguments(arguments.pop("name"), arguments)
        (ridge_settings if is_ridge else make_settings)(config)
    except TypeError as error:
        # Python names the key: "... unexpected keyword argument 'x'", "missing 1 required ... argument: 'x'".
        key = (re.findall(r"'(\w+)'", str(error)) or [str(error)])[-1]
        if "missing" in str(error):
            raise InvalidInputError(f"expected a key {key!r} in {place}, found none") from error
        tables = [name for name in CONFIG_KEYS if repr(key) in repr(getattr(config, name))]
        where = ", ".join([place, *(f"table {name}" for name in tables)])
        raise InvalidInputError(f"expected keys that settings have in {where}, got {key!r}") from error
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} (in {place})") from error


def _check_family(family: Mapping[str, Any], place: str) -> None:
    if "tune" in family:
        _check_table(family, place, ("tune",))
        _check_table(family["tune"], f"{place}.tune", [field.name for field in fields(Tuning)])
    else:
        known = [name for name in family_arguments(family) if name not in _NOT_IN_FILES]
        _check_table(family, place, known, required=("hidden",))


def _check_table(table: Any, place: str, known: Collection[str], required: Collection[str] = ()) -> None:
    if not isinstance(table, Mapping):
        raise InvalidInputError(f"expected a table of keys in {place}, got {table!r}")
    for key, value in table.items():
        if key not in known:
            raise InvalidInputError(f"expected keys among {', '.join(known)} in {place}, got {key!r}")
        if key in _TABLES and not isinstance(value, Mapping):
            raise InvalidInputError(f"expected {key!r} to be a table in {place}, got {value!r}")
        if key in ("seeds", "methods") and not isinstance(value, list):
            raise InvalidInputError(f"expected {key!r} to be a list in {place}, got {value!r}")
    for key in required:
        if key not in table:
            raise InvalidInputError(f"expected a key {key!r} in {place}, found none")
