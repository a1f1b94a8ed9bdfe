"""Experiments as data: a file names cells, each with the paper's number and the runs that it is made of.

A cell is one number of a table or one point of a figure. Its runs are every method × seed, and its value is the mean
over seeds of the test score of the method that does best on validation data. Cells that need the same run share it: the
id of a run depends on its configuration alone.
"""

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Scale = Literal["smoke", "paper"]

CONFIG_KEYS = ("task", "family", "objective", "surrogate", "convex")
"""Parts of a run's configuration, each a table that a cell may override key by key."""


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides the outcome of one run.

    Attributes
    ----------
    method : str
    seed : int
    task : mapping, ``name`` of a task and its arguments
    family : mapping, arguments of ``gaussian_witnesses``, or with a key ``geometry`` of ``delayed_witnesses``
    objective : mapping, arguments of ``Objective``
    surrogate : mapping, of ``SurrogateSettings``; lists are grids that validation data choose from; and ``n_networks``
    convex : mapping, arguments of ``Program``
    """

    method: str
    seed: int
    task: Mapping[str, Any]
    family: Mapping[str, Any]
    objective: Mapping[str, Any]
    surrogate: Mapping[str, Any]
    convex: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @property
    def id(self) -> str:
        """A short name that depends on the configuration alone."""
        return _digest(self.as_dict())

    @property
    def start_id(self) -> str:
        """A short name that runs share if their first gradient stage is the same."""
        return _digest({key: value for key, value in self.as_dict().items() if key not in ("method", "convex")})

    @property
    def label(self) -> str:
        """A few words for a person."""
        arguments = [
            f"{name}={value}"
            for name, value in self.task.items()
            if name != "name" and not isinstance(value, (list, dict))
        ]
        return f"{self.task['name']}({', '.join(arguments)}) {self.method} seed {self.seed}"


def _digest(values: Mapping[str, Any]) -> str:
    # Sorted: the order of keys in a file must not make another run.
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One number.

    Attributes
    ----------
    row, column : str, its row and column in the table; for a figure, the curve and the position on the axis
    metric : str, a key of a record's scores, such as "test" or "10x"
    paper : float or None, the number in the paper, or the reference of a user's file
    methods : tuple of str
    configs : mapping of seed to its runs, one per method
    note : str
    """

    row: str
    column: str
    metric: str
    paper: float | None
    methods: tuple[str, ...]
    configs: Mapping[int, tuple[RunConfig, ...]]
    note: str = ""


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes
    ----------
    name, title, kind, description : str
    cells : tuple of Cell
    quantity : str, what the numbers measure
    axis : str, the label of a figure's horizontal axis
    source : str, the path of a user's file; empty for experiments that come with the package
    digits : int, decimals of accuracies
    tolerance : float, the difference up to which accuracies match
    compared_with : str, the source of the numbers beside ours
    """

    name: str
    title: str
    kind: Literal["table", "figure"] = "table"
    description: str = ""
    quantity: str = "test accuracy"
    cells: tuple[Cell, ...] = ()
    axis: str = ""
    source: str = ""
    digits: int = 3
    tolerance: float = 0.02
    compared_with: str = "the paper's number"

    @property
    def paragraphs(self) -> list[str]:
        """Paragraphs of the description, each on one line."""
        return [" ".join(part.split()) for part in re.split(r"\n\s*\n", self.description.strip()) if part.strip()]

    @property
    def reference(self) -> str:
        """What ``cvxsnn reproduce`` calls it: the path of its file, or its name."""
        return self.source or self.name

    @property
    def compared_source(self) -> str:
        """What the numbers beside ours come from."""
        return "the reference" if self.source else "the paper"

    def runs(self, rows: Collection[str] = ()) -> dict[str, RunConfig]:
        """Return every run by its id, or those of some rows."""
        cells = [cell for cell in self.cells if not rows or cell.row in rows]
        return {config.id: config for cell in cells for configs in cell.configs.values() for config in configs}


SETTINGS = ("title", "kind", "quantity", "description", "axis", "compared_with", "digits", "tolerance")
"""Keys of an experiment's file that describe all of it."""


def parse_experiment(name: str, data: Mapping[str, Any], scale: Scale) -> Experiment:
    """Return an experiment from the contents of its file."""
    smoke = data.get("smoke", {}) if scale == "smoke" else {}
    cells = data["cell"][:: int(smoke.get("every", 1))]
    parsed = tuple(_parse_cell(cell, data.get("defaults", {}), smoke, scale) for cell in cells)
    return Experiment(name, **{key: data[key] for key in SETTINGS if key in data}, cells=parsed)


def _parse_cell(cell: Mapping[str, Any], defaults: Mapping[str, Any], smoke: Mapping[str, Any], scale: Scale) -> Cell:
    values = {"seeds": [0, 1, 2], "methods": ["cvx"], "metric": "test", "paper": None, "note": "", **defaults, **cell}
    seeds = smoke.get("seeds", [0]) if scale == "smoke" else values["seeds"]
    methods = tuple(values["methods"])
    parts = {key: _merged(key, defaults, cell, smoke.get("only", {}).get(methods[0], smoke)) for key in CONFIG_KEYS}
    return Cell(
        row=str(values["row"]),
        column=str(values["column"]),
        metric=str(values["metric"]),
        paper=values.get("reference", values["paper"]),
        methods=methods,
        configs={seed: tuple(RunConfig(method, seed, **parts) for method in methods) for seed in seeds},
        note=str(values["note"]),
    )


def _merged(key: str, *tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return one table of all, later keys over earlier ones; ``replace_NAME`` drops what came before."""
    merged: dict[str, Any] = {}
    for table in tables:
        merged = dict(table[f"replace_{key}"]) if f"replace_{key}" in table else merged | table.get(key, {})
    return merged
