"""A self-contained page about the demonstration: one table, the certificates, three pictures, no network."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import InvalidInputError
from ..core.storage import write_atomically
from .demo import DemoResult
from .pages import Picture, Table, render_page, write_page
from .plots import plot_gaps, plot_health, plot_raster

COLUMNS = ("task", "method", "accuracy", "certified gap", "active subnetworks", "seconds")


def make_rows(results: Sequence[DemoResult]) -> list[tuple[str, ...]]:
    """Return the table's cells as text, in the order of ``COLUMNS``."""
    cells: list[tuple[str, ...]] = []
    for result in results:
        trained = result.trained
        certificate, network = trained.certificate, trained.network
        n_active = network.n_active
        family = trained.settings.family
        assert isinstance(family, Mapping)  # once trained, a search has found one
        total = family["hidden"][-1] * family.get("n_subnetworks", 1)
        cells.append(
            (
                result.task_name,
                trained.method,
                ", ".join(f"{name} {value:.3f}" for name, value in result.accuracy.items()),
                "none" if certificate is None else f"{certificate.relative_gap:.1e}",
                f"{n_active} of {total}",
                f"{trained.seconds:.1f}",
            )
        )
    return cells


def write_demo_page(results: Sequence[DemoResult], directory: Path) -> Path:
    """Write ``index.html`` and its pictures into a directory, and return the page's path."""
    certified = {f"{r.task_name}, {r.trained.method}": r.trained.solution for r in results if r.trained.solution}
    example = next((r for r in results if r.trained.solution), None)
    if example is None:
        raise InvalidInputError("expected at least one result with a certificate, got none: add the method 'cvx'")
    pictures = {
        "Spike raster": _png(plot_raster(example.trained.network, example.task.test.inputs[0], _new_axes(4.0))),
        "Gap against iterations": _png(plot_gaps(certified, _new_axes(4.0))),
        "Dictionary health": _png(
            plot_health({name: s.problem.dictionary.health() for name, s in certified.items()}, _new_axes(3.4))
        ),
    }
    values = {
        "results": Table("Results of all methods", COLUMNS, make_rows(results)),
        "certificates": [(name, str(solution.certificate)) for name, solution in certified.items()],
        "pictures": {title: Picture.from_png(title, png) for title, png in pictures.items()},
    }
    page = write_page(directory / "index.html", render_page("demo.html", values), "choose another --output")
    for title, png in pictures.items():
        write_atomically(directory / f"{title.lower().replace(' ', '-')}.png", png)
    return page


def _new_axes(height: float) -> Axes:
    """Return axes of a figure that pyplot does not know, so that no window and no backend is asked for."""
    return Figure(figsize=(7, height), layout="constrained").subplots()


def _png(axes: Axes) -> bytes:
    buffer = io.BytesIO()
    cast(Figure, axes.figure).savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
