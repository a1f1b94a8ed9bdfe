"""Figures of experiments: curves of rows over columns, as PNG pictures."""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ..core.formatting import printable
from .experiment import Experiment
from .metrics import quantity_of
from .summary import CellSummary, ExperimentSummary


def draw_panels(
    experiment: Experiment, summary: ExperimentSummary, panels: Mapping[str, Mapping[str, str]] | None = None
) -> bytes:
    """Return panels as one PNG picture, two beside each other; by default all panels of :func:`panels_of`."""
    panels = panels or panels_of(summary)
    n_columns = min(2, len(panels))
    n_rows = -(-len(panels) // n_columns)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"font.size": 11, "grid.alpha": 0.25}), warnings.catch_warnings():
        # Names come from files; a character that the font lacks is drawn as a box without a warning.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(6 * n_columns, 4.2 * n_rows), layout="constrained")
        grid = list(figure.subplots(n_rows, n_columns, squeeze=False).flat)
        for axes, (title, curves) in zip(grid, panels.items(), strict=False):
            _draw_axes(axes, experiment, summary, title, curves)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        # Curves of the same name appear in several panels; the legend lists each once.
        named = {label: line for axes in grid for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
        if named:
            n_names = (2 if summary.has_paper else 3) * n_columns  # names of the paper's curves are longer
            style: dict[str, Any] = {"loc": "outside lower center", "fontsize": "small", "frameon": False}
            figure.legend(named.values(), named.keys(), ncols=n_names, **style)
        figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    return buffer.getvalue()


def _draw_axes(
    axes: Axes, experiment: Experiment, summary: ExperimentSummary, title: str, curves: Mapping[str, str]
) -> None:
    numbers, shown = _numbers(summary.columns), summary.columns
    positions = numbers or {column: float(k) for k, column in enumerate(shown)}
    axes.grid(True)
    axes.set_title(_plain(title), fontsize="medium", loc="left")
    axes.set(xlabel=_plain(experiment.axis), ylabel=_plain(summary.quantity))
    for number, (row, curve) in enumerate(curves.items()):
        cells = sorted((c for c in summary.cells if c.row == row), key=lambda cell: positions[cell.column])
        _draw_curve(axes, cells, positions, _plain(curve), number, _plain(experiment.compared_with))
    if numbers:
        axes.set_xscale("log", base=2)
        shown = _legible(positions)
    axes.set_xticks([positions[column] for column in shown], [_plain(column) for column in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    ends = [cell.paper for cell in summary.cells if cell.paper is not None]
    for cell in summary.cells:
        if cell.mean is not None:
            ends += [cell.mean - (cell.spread or 0.0), cell.mean + (cell.spread or 0.0)]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    if low > 0 and all(quantity_of(cell.metric) == "gap" for cell in summary.cells):
        axes.set_yscale("log")
    elif low < high:
        # The same limits in all panels, so that they can be compared.
        axes.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _draw_curve(
    axes: Axes, cells: Sequence[CellSummary], positions: Mapping[str, float], label: str, number: int, reference: str
) -> None:
    style: dict[str, Any] = {"color": f"C{number % 10}", "marker": "osD^vP*X"[number % 8]}
    ours = np.array([(positions[cell.column], cell.mean, cell.spread or 0) for cell in cells if cell.mean is not None])
    if len(ours):
        x, y, spread = ours.T
        axes.plot(x, y, markersize=5, label=label, **style)
        if spread.any():
            axes.fill_between(x, y - spread, y + spread, color=style["color"], alpha=0.18, linewidth=0)
    theirs = [(positions[cell.column], cell.paper) for cell in cells if cell.paper is not None]
    if theirs:
        x, y = np.array(theirs).T
        axes.plot(x, y, "--", markersize=6, fillstyle="none", label=f"{label}, {reference}", **style)


def _legible(positions: Mapping[str, float]) -> list[str]:
    """Return the columns whose names fit on a logarithmic axis: the outermost, and others not close to them."""
    ordered = sorted(positions, key=lambda column: positions[column])
    space = 0.06 * math.log(positions[ordered[-1]] / positions[ordered[0]])
    shown = ordered[:1]
    for column in ordered[1:-1]:
        neighbours = (positions[column] / positions[shown[-1]], positions[ordered[-1]] / positions[column])
        if math.log(min(neighbours)) > space:
            shown.append(column)
    return [*shown, ordered[-1]]


def panels_of(summary: ExperimentSummary) -> dict[str, dict[str, str]]:
    """Return panels by their titles, each with its rows and their names there.

    More than six curves whose names end alike after a comma, such as "CVX, 2x" and "SG, 2x", have a panel per ending.
    """
    parts = [row.rpartition(", ") for row in summary.rows]
    panels: dict[str, dict[str, str]] = {}
    if len(parts) > 6 and all(start for start, _, _ in parts):
        for row, (start, _, end) in zip(summary.rows, parts, strict=True):
            panels.setdefault(end, {})[row] = start
        if 1 < len(panels) < len(parts):
            return panels
    return {"": {row: row for row in summary.rows}}


def _numbers(columns: Sequence[str]) -> dict[str, float]:
    """Return columns as positions on a logarithmic axis; empty if one of them is no positive number."""
    try:
        positions = {column: float(column.removesuffix("x")) for column in columns}
    except ValueError:
        return {}
    is_axis = len(set(positions.values())) > 1 and all(0 < position < math.inf for position in positions.values())
    return positions if is_axis else {}


def _plain(text: str) -> str:
    """Return text that matplotlib draws literally: no mathematics, no leading underscore, which would hide a curve."""
    text = printable(text)
    return (" " + text if text.startswith("_") else text).replace("$", r"\$")
