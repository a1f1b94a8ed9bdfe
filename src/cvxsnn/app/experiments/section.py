"""The values behind the report's section about one experiment: its numbers or curves, settings and runs."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..formatting import NOTHING, format_value
from ..pages import Picture, Table
from .experiment import Cell, Experiment, RunConfig
from .figures import draw_panel, flatten, panels_of
from .records import Damaged
from .summary import CellSummary, ExperimentSummary, Records, RunWithoutResult, Verdict, what_is_wrong

_LIGHT, _DARK = ("#1c2024", "#ffffff"), ("#e4e7ea", "#14171a")
"""Ink and paper of a figure, as in the stylesheet."""

_FACTS = ("relative_gap", "l1_strength", "l2_strength", "learning_rate", "weight_decay", "n_active", "seconds")
"""Facts of a record that are shown for every run that has them."""


@dataclass(frozen=True)
class Section:
    """What the template shows of one experiment.

    Attributes
    ----------
    experiment : Experiment
    summary : ExperimentSummary, of it
    anchor : str, the name that links lead to
    panels : tuple of Picture, of a figure; a table has none
    without_result, finished : Table, of runs
    settings : tuple of Table: what all cells share, then what they differ in
    n_failed : int, runs among those without a result that failed
    """

    experiment: Experiment
    summary: ExperimentSummary
    anchor: str
    panels: tuple[Picture, ...]
    without_result: Table
    n_failed: int
    settings: tuple[Table, ...]
    finished: Table

    @property
    def paragraphs(self) -> list[str]:
        """Paragraphs of the description."""
        parts = re.split(r"\n\s*\n", self.experiment.description.strip())
        return [" ".join(part.split()) for part in parts if part]

    @property
    def rows(self) -> list[str]:
        """Names of the rows, each once."""
        return list(dict.fromkeys(cell.row for cell in self.summary.cells))

    @property
    def columns(self) -> list[str]:
        """Names of the columns, each once."""
        return list(dict.fromkeys(cell.column for cell in self.summary.cells))

    @property
    def notes(self) -> list[str]:
        """Notes of cells, each once."""
        return list(dict.fromkeys(cell.note for cell in self.summary.cells if cell.note))

    @property
    def has_paper(self) -> bool:
        """Whether the paper prints any of the numbers."""
        return any(cell.paper is not None for cell in self.summary.cells)

    @property
    def n_unprinted(self) -> int:
        """Number of cells without a number in the paper."""
        return sum(cell.paper is None for cell in self.summary.cells)

    @property
    def judged(self) -> dict[Verdict, int]:
        """Counts of verdicts, without the cells that the paper has no number for."""
        verdicts = self.summary.verdicts
        return {**verdicts, "cannot tell": verdicts["cannot tell"] - self.n_unprinted}

    def cells_at(self, row: str, column: str) -> list[CellSummary]:
        """Return the cells of a place in the table."""
        return [cell for cell in self.summary.cells if (cell.row, cell.column) == (row, column)]

    def chosen_methods(self, cell: CellSummary) -> str:
        """Return the methods that were chosen for a cell, with how often where there are several."""
        chosen = [run.method for run in cell.chosen]
        counted = [f"{method} ×{chosen.count(method)}" for method in cell.methods]
        return ", ".join(counted if len(cell.methods) > 1 else cell.methods)


def make_section(
    experiment: Experiment, summary: ExperimentSummary, anchor: str, records: Records, damaged: Mapping[str, Damaged]
) -> Section:
    """Return the section of an experiment.

    Parameters
    ----------
    experiment : Experiment
    summary : ExperimentSummary, of it
    anchor : str
    records : mapping of run ids to records
    damaged : mapping of run ids to Damaged, records that could not be read
    """
    places = _places(experiment)
    # Cells may share a run; one that finished without some cell's metric may have several sentences.
    found = {(run.run_id, run.sentence): run for cell in summary.cells for run in (*cell.failed, *cell.missing)}
    lost = sorted(found.values(), key=lambda run: run.status)
    return Section(
        experiment=experiment,
        summary=summary,
        anchor=anchor,
        panels=_panels(experiment, summary) if experiment.kind == "figure" and summary.cells else (),
        without_result=_without_result(summary.title, lost, places, damaged),
        n_failed=sum(run.status == "failed" for run in lost),
        settings=_settings(experiment),
        finished=_finished(experiment, records, places),
    )


def _panels(experiment: Experiment, summary: ExperimentSummary) -> tuple[Picture, ...]:
    """Return curves of rows over columns, one picture per panel, so that panels fit a narrow window."""
    panels = []
    drawn = {cell.row for cell in summary.cells if cell.mean is not None}
    for title, curves in panels_of(list(dict.fromkeys(cell.row for cell in summary.cells))).items():
        names = ", ".join(name for row, name in curves.items() if row in drawn)
        alt = f"{summary.quantity}{f', {title}' if title else ''}: curves of {names or 'no run yet'}"
        light, dark = (draw_panel(experiment, summary, title, curves, *colours) for colours in (_LIGHT, _DARK))
        panels.append(Picture.from_png(f"{alt}; the numbers follow as a table", light, dark))
    return tuple(panels)


def _places(experiment: Experiment) -> dict[str, str]:
    """Return, for every run, the names of the cells that use it."""
    found: dict[str, list[Cell]] = {}
    for cell in experiment.cells:
        for config in (config for configs in cell.configs.values() for config in configs):
            found.setdefault(config.id, []).append(cell)
    return {run_id: _cell_names(cells) for run_id, cells in found.items()}


def _cell_names(cells: Iterable[Cell]) -> str:
    rows: dict[str, dict[str, None]] = {}
    for cell in cells:
        rows.setdefault(cell.row, {})[cell.column] = None
    return "; ".join(f"{row}: {', '.join(columns)}" for row, columns in rows.items())


def _without_result(
    title: str, runs: Iterable[RunWithoutResult], places: Mapping[str, str], damaged: Mapping[str, Damaged]
) -> Table:
    rows = []
    for run in runs:
        status, sentence = str(run.status), run.sentence
        damage = damaged.get(run.run_id)
        if status == "missing" and damage is not None:
            status, sentence = "damaged", f"Its record {damage.path.name} has {damage.reason}."
        rows.append((places[run.run_id], run.method, run.seed, status, sentence, run.run_id))
    columns = ("cell", "method", "seed", "status", "what happened", "run")
    return Table(f"Runs without a result: {title}", columns, rows, prose=("what happened",))


def _settings(experiment: Experiment) -> tuple[Table, ...]:
    """Return what all cells share, then what they differ in: together, the whole configuration of every run."""
    groups: dict[tuple[tuple[str, str], ...], list[Cell]] = {}
    for cell in experiment.cells:
        settings = _settings_of(config for configs in cell.configs.values() for config in configs)
        groups.setdefault(tuple(sorted(settings.items())), []).append(cell)
    if not groups:
        return ()
    names = sorted({name for settings in groups for name, _ in settings}, key=_settings_order)
    values = {name: [dict(settings).get(name, NOTHING) for settings in groups] for name in names}
    shared = [(name, values[name][0]) for name in names if len(set(values[name])) == 1]
    differing = [name for name in names if len(set(values[name])) > 1]
    columns = ("setting", "value in all cells")
    tables = [Table(f"Settings of all cells: {experiment.title}", columns, shared, prose=columns[1:])]
    if differing:
        rows = [
            (_cell_names(cells), *(values[name][number] for name in differing))
            for number, cells in enumerate(groups.values())
        ]
        tables.append(Table(f"Settings that differ: {experiment.title}", ("cells", *differing), rows))
    return tuple(tables)


def _settings_of(configs: Iterable[RunConfig]) -> dict[str, str]:
    """Return every setting of a cell's runs; where runs differ, all values."""
    found: dict[str, dict[str, None]] = {}
    for config in configs:
        for name, value in flatten(config.as_dict()):
            found.setdefault(name, {})[format_value(value)] = None
    return {name: " | ".join(values) for name, values in found.items()}


def _settings_order(name: str) -> tuple[bool, str]:
    return "." in name or name not in ("method", "seed"), name


def _finished(experiment: Experiment, records: Records, places: Mapping[str, str]) -> Table:
    """Return every finished run, also those that were not chosen."""
    done = {
        run_id: (config, records[run_id])
        for run_id, config in experiment.runs().items()
        if run_id in records and not what_is_wrong(records[run_id])
    }
    facts = [name for name in _FACTS if any(record.get(name) is not None for _, record in done.values())]
    rows = [
        (
            places[run_id],
            config.method,
            config.seed,
            *(format_value(record.get(name)) for name in ("val", "scores", *facts)),
            run_id,
        )
        for run_id, (config, record) in done.items()
    ]
    columns = ("cells", "method", "seed", "validation", "scores", *(name.replace("_", " ") for name in facts), "run")
    return Table(f"Finished runs: {experiment.title}", columns, rows)
