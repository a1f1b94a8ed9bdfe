"""Figures of experiments: curves of rows over columns, one PNG picture per panel."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from ..formatting import printable
from .experiment import Experiment
from .metrics import quantity_of
from .summary import CellSummary, ExperimentSummary

_MAX_CURVES_IN_ONE_PANEL = 6


def draw_panel(
    experiment: Experiment, summary: ExperimentSummary, title: str, curves: Mapping[str, str], ink: str, page: str
) -> bytes:
    """Return one panel as a PNG picture, in two colours and those of its curves."""
    return _draw(experiment, summary, {title: curves}, ink, page)


def draw_figure(experiment: Experiment, summary: ExperimentSummary) -> bytes:
    """Return all panels as one PNG picture on white, two beside each other."""
    panels = panels_of(list(dict.fromkeys(cell.row for cell in summary.cells)))
    return _draw(experiment, summary, panels, "#1c2024", "#ffffff")


def _draw(
    experiment: Experiment, summary: ExperimentSummary, panels: Mapping[str, Mapping[str, str]], ink: str, page: str
) -> bytes:
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: dict[Any, Any] = {
        **dict.fromkeys(inked, ink),
        "figure.facecolor": page,
        "axes.facecolor": page,
        "font.size": 11,
        "grid.alpha": 0.25,
    }
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    buffer = io.BytesIO()
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # Names come from files: a sign that the font lacks is drawn as a box, which is no reason to complain.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(6 * n_columns, 4.2 * n_rows), layout="constrained")
        grid = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
        for axes, (title, curves) in zip(grid, panels.items(), strict=False):
            _draw_axes(axes, experiment, summary, title, curves)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        # Panels that share a picture have curves of the same names, so each is explained once.
        named = {label: line for axes in grid for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        if named:
            has_reference = any(cell.paper is not None for cell in summary.cells)  # whose names are longer
            figure.legend(
                named.values(),
                named.keys(),
                loc="outside lower center",
                ncols=(2 if has_reference else 3) * n_columns,
                fontsize="small",
                frameon=False,
            )
        figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()


def _draw_axes(
    axes: Axes, experiment: Experiment, summary: ExperimentSummary, title: str, curves: Mapping[str, str]
) -> None:
    columns = list(dict.fromkeys(cell.column for cell in summary.cells))
    places = _axis(columns)
    axes.grid(True)
    axes.set_title(_plain(title), fontsize="medium", loc="left")
    axes.set_xlabel(_plain(experiment.axis or _axis_name(experiment)))
    axes.set_ylabel(_plain(summary.quantity))
    for number, (row, curve) in enumerate(curves.items()):
        cells = sorted((c for c in summary.cells if c.row == row), key=lambda cell: places[cell.column])
        _draw_curve(axes, cells, places, _plain(curve), number, _plain(experiment.compared_with))
    _set_axes(axes, summary, columns, places)


def _draw_curve(
    axes: Axes, cells: Sequence[CellSummary], places: Mapping[str, float], label: str, number: int, reference: str
) -> None:
    colour, marker = f"C{number % 10}", "osD^vP*X"[number % 8]
    ours = [(places[cell.column], cell.mean, cell.spread or 0.0) for cell in cells if cell.mean is not None]
    if ours:
        x, y, spread = zip(*ours, strict=True)
        axes.plot(x, y, marker=marker, markersize=5, color=colour, label=label)
        low, high = [m - s for m, s in zip(y, spread, strict=True)], [m + s for m, s in zip(y, spread, strict=True)]
        if any(spread):
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
    theirs = [(places[cell.column], cell.paper) for cell in cells if cell.paper is not None]
    if theirs:
        x, y = zip(*theirs, strict=True)
        axes.plot(
            x, y, "--", marker=marker, markersize=6, color=colour, fillstyle="none", label=f"{label}, {reference}"
        )


def _set_axes(axes: Axes, summary: ExperimentSummary, columns: Sequence[str], places: Mapping[str, float]) -> None:
    """Ticks at the columns, in powers of two where they are numbers."""
    shown = list(columns)
    if _numbers(columns):
        axes.set_xscale("log", base=2)
        shown = _legible(places)
    axes.xaxis.set_major_locator(FixedLocator([places[column] for column in shown]))
    axes.xaxis.set_major_formatter(FixedFormatter([_plain(column) for column in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = _range(summary.cells)
    if low > 0 and all(quantity_of(cell.metric) == "gap" for cell in summary.cells):
        axes.set_yscale("log")
    elif low < high:
        # The same in all panels, so that they compare at a glance.
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _range(cells: Sequence[CellSummary]) -> tuple[float, float]:
    ends = [cell.mean + sign * (cell.spread or 0.0) for cell in cells if cell.mean is not None for sign in (-1, 1)]
    ends += [cell.paper for cell in cells if cell.paper is not None]
    return (min(ends), max(ends)) if ends else (0.0, 0.0)


def _legible(places: Mapping[str, float]) -> list[str]:
    """The columns that have room for a name on a logarithmic axis: the outermost, and others not close to them."""
    ordered = sorted(places, key=lambda column: places[column])
    space = 0.06 * math.log(places[ordered[-1]] / places[ordered[0]])
    shown = ordered[:1]
    for column in ordered[1:-1]:
        neighbours = (places[column] / places[shown[-1]], places[ordered[-1]] / places[column])
        if math.log(min(neighbours)) > space:
            shown.append(column)
    return [*shown, ordered[-1]]


def panels_of(rows: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return panels by their titles, each with its rows and their names there.

    Many curves whose names end alike after a comma, such as "CVX, 2x" and "SG, 2x", share a panel for each ending.
    """
    parts = [row.rpartition(", ") for row in rows]
    panels: dict[str, dict[str, str]] = {}
    if len(rows) > _MAX_CURVES_IN_ONE_PANEL and all(start for start, _, _ in parts):
        for row, (start, _, end) in zip(rows, parts, strict=True):
            panels.setdefault(end, {})[row] = start
        if 1 < len(panels) < len(rows):
            return panels
    return {"": {row: row for row in rows}}


def _numbers(columns: Sequence[str]) -> dict[str, float]:
    """Columns as places on a logarithmic axis; empty where one of them is no positive number."""
    try:
        places = {column: float(column.removesuffix("x")) for column in columns}
    except ValueError:
        return {}
    is_axis = len(set(places.values())) > 1 and all(0 < place < math.inf for place in places.values())
    return places if is_axis else {}


def _axis(columns: Sequence[str]) -> dict[str, float]:
    return _numbers(columns) or {column: float(number) for number, column in enumerate(columns)}


def _axis_name(experiment: Experiment) -> str:
    """The setting whose value the columns are, where there is one."""
    places = _numbers([cell.column for cell in experiment.cells])
    found = [
        {name for name, value in flatten(config.as_dict()) if value == places.get(cell.column, math.nan)}
        for cell in experiment.cells
        for configs in cell.configs.values()
        for config in configs
    ]
    return ", ".join(sorted(set.intersection(*found))) if found else ""


def _plain(text: str) -> str:
    """Text that matplotlib draws as it is: no mathematics, and no underscore in front, which would hide a curve."""
    text = printable(text)
    return (" " + text if text.startswith("_") else text).replace("$", r"\$")


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested tables, with names such as ``task.n_steps``."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
