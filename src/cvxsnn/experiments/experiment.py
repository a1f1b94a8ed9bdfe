"""Experiments as data: a file names cells, each with the paper's number and the runs that it is made of.

A cell is one number of a table or one point of a figure. Its runs are every method × seed, and its value is the mean
over seeds of the test score of the method that does best on validation data. Cells that need the same run share it: a
run is known by its configuration alone.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    surrogate : mapping, of ``SurrogateSettings``; lists are grids, of which validation data choose; and ``n_networks``
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
        return {"method": self.method, "seed": self.seed, **{key: dict(getattr(self, key)) for key in CONFIG_KEYS}}

    @property
    def id(self) -> str:
        """A short name that depends on the configuration alone."""
        return _digest(self.as_dict())

    @property
    def start_id(self) -> str:
        """The same for all runs whose first gradient stage is the same."""
        start = {key: value for key, value in self.as_dict().items() if key not in ("method", "convex")}
        return _digest(start)

    @property
    def shape_id(self) -> str:
        """The same for runs whose gradient stages are of one shape, so that they can train simultaneously."""
        shape = [dict(self.task), dict(self.family), dict(self.surrogate), {**self.objective, "head_weights": None}]
        return json.dumps(shape, sort_keys=True)

    @property
    def label(self) -> str:
        """A few words for a person."""
        shown = {k: v for k, v in self.task.items() if k != "name" and not isinstance(v, (list, dict))}
        arguments = ", ".join(f"{k}={v}" for k, v in shown.items())
        return f"{self.task['name']}({arguments}) {self.method} seed {self.seed}"


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cell:
    """One number.

    Attributes
    ----------
    row, column : str, where it stands in its table; for a figure, the curve and the place on the axis
    metric : str, a key of a record's scores, such as "test" or "10x"
    paper : float or None, what the paper prints
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
    quantity : str, what the numbers are
    axis : str, what a figure's columns are
    source : str, the path of a file of one's own; empty for those that come with the package
    digits : int, decimals of accuracies
    tolerance : float, the difference up to which accuracies match
    compared_with : str, whose numbers stand beside ours
    """

    name: str
    title: str
    kind: Literal["table", "figure"]
    description: str
    quantity: str
    cells: tuple[Cell, ...] = field(default_factory=tuple)
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

    def runs(self, rows: Collection[str] = ()) -> dict[str, RunConfig]:
        """Return every run by its id, or those of some rows."""
        cells = [cell for cell in self.cells if not rows or cell.row in rows]
        return {config.id: config for cell in cells for configs in cell.configs.values() for config in configs}


def parse_experiment(name: str, data: Mapping[str, Any], scale: Scale) -> Experiment:
    """Return an experiment from the contents of its file."""
    defaults, smoke = data.get("defaults", {}), data.get("smoke", {})
    cells = []
    chosen: Sequence[Mapping[str, Any]] = data["cell"]
    if scale == "smoke":
        chosen = [cell for number, cell in enumerate(chosen) if number % int(smoke.get("every", 1)) == 0]
    for cell in chosen:
        seeds = smoke.get("seeds", [0]) if scale == "smoke" else cell.get("seeds", defaults.get("seeds", [0, 1, 2]))
        methods = tuple(cell.get("methods", defaults.get("methods", ["cvx"])))
        small = smoke.get("only", {}).get(methods[0], smoke) if scale == "smoke" else {}
        parts = {key: _merged(key, defaults, cell, small) for key in CONFIG_KEYS}
        cells.append(
            Cell(
                row=str(cell["row"]),
                column=str(cell["column"]),
                metric=str(cell.get("metric", defaults.get("metric", "test"))),
                paper=cell.get("paper"),
                methods=methods,
                configs={seed: tuple(RunConfig(method, seed, **parts) for method in methods) for seed in seeds},
                note=str(cell.get("note", "")),
            )
        )
    return Experiment(
        name=name,
        title=data["title"],
        kind=data.get("kind", "table"),
        description=data.get("description", ""),
        quantity=data.get("quantity", "test accuracy"),
        cells=tuple(cells),
        axis=data.get("axis", ""),
        **{key: data[key] for key in ("digits", "tolerance", "compared_with") if key in data},
    )


def _merged(key: str, *tables: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration table with later tables' keys over earlier ones'; ``replace_`` before its name starts afresh."""
    merged: dict[str, Any] = {}
    for table in tables:
        merged = dict(table[f"replace_{key}"]) if f"replace_{key}" in table else merged | table.get(key, {})
    return merged


def iterate_grid(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every combination of a table whose values may be lists."""
    values = (value if isinstance(value, list) else [value] for value in table.values())
    for choice in itertools.product(*values):
        yield dict(zip(table, choice, strict=True))
