"""A self-contained page about the demonstration: one table, three pictures, no network."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import DataFileError, InvalidInputError
from ..core.storage import write_atomically
from .demo import Result
from .plots import plot_gaps, plot_health, plot_raster

COLUMNS = ("task", "method", "accuracy", "certified gap", "active subnetworks", "seconds")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .4rem .8rem .4rem 0;
border-bottom: 1px solid #ddd; vertical-align: top } img { max-width: 100%; height: auto }
.scroll { overflow-x: auto } code { background: #f3f3f3 }
"""


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """The table's cells, as text, in the order of ``COLUMNS``."""
    cells: list[tuple[str, ...]] = []
    for result in results:
        trained = result.trained
        certificate, network = trained.certificate, trained.network
        n_active = int(network.weight.detach().any(1).sum())
        family = trained.settings.family
        assert isinstance(family, Mapping)  # once trained, a search has found one
        total = family["hidden"][-1] * family.get("n_subnetworks", 1)
        cells.append(
            (
                result.experiment,
                trained.method,
                ", ".join(f"{name} {value:.3f}" for name, value in result.accuracy.items()),
                "none" if certificate is None else f"{certificate.relative_gap:.1e}",
                f"{n_active} of {total}",
                f"{trained.seconds:.1f}",
            )
        )
    return cells


def write_report(results: Sequence[Result], directory: Path) -> Path:
    """Write ``index.html`` and the pictures into a directory; give the page's path."""
    certified = {f"{r.experiment}, {r.trained.method}": r.trained.solution for r in results if r.trained.solution}
    example = next((r for r in results if r.trained.solution), None)
    if example is None:
        raise InvalidInputError("expected at least one result with a certificate, got none: add the method 'cvx'")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataFileError(
            f"expected to write the report into {directory}, got: {error}; choose another --output"
        ) from error
    encoded = {
        "Spike raster": _png(plot_raster(example.trained.network, example.task.test.inputs[0])),
        "Gap against iterations": _png(plot_gaps(certified)),
        "Dictionary health": _png(plot_health({name: s.problem.dictionary.health() for name, s in certified.items()})),
    }
    for title, picture in encoded.items():
        write_atomically(directory / f"{title.lower().replace(' ', '-')}.png", picture)
    page = directory / "index.html"
    write_atomically(page, _page(results, encoded).encode())
    return page


def _png(axes: Axes) -> bytes:
    figure = cast(Figure, axes.figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    plt.close(figure)
    return buffer.getvalue()


def _page(results: Sequence[Result], pictures: dict[str, bytes]) -> str:
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(results))
    images = "".join(
        f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        for title, data in pictures.items()
    )
    certificates = "".join(
        f"<li>{html.escape(f'{result.experiment}, {result.trained.method}: {result.trained.certificate}')}</li>"
        for result in results
        if result.trained.certificate is not None
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>cvxsnn demonstration</title><style>{_STYLE}</style><h1>Five ways to train a spiking network</h1>"
        "<p>cvx samples hidden LIF neurons and finds the globally optimal read-out of their spikes, proven by a "
        "duality gap on the original problem. sg trains all layers by surrogate gradients, which proves nothing. The "
        "others are one after the other.</p>"
        f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
        f"<h2>Certificates</h2><ul>{certificates}</ul>{images}"
    )
