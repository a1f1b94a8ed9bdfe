"""A self-contained page about some results: one table, three pictures, no network."""

import base64
import html
import io
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure

from .convex import Solution
from .demo import Result
from .errors import DataFileError

COLUMNS = ("task", "accuracy", "certified gap", "atoms used", "seconds")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
table { border-collapse: collapse; width: 100% } th, td { text-align: left; padding: .4rem .8rem .4rem 0;
border-bottom: 1px solid #ddd; vertical-align: top } img { max-width: 100%; height: auto }
.scroll { overflow-x: auto } code { background: #f3f3f3 }
"""


def rows(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """The table's cells, as text, in the order of ``COLUMNS``."""
    return [
        (
            result.name,
            ", ".join(f"{name} {value:.3f}" for name, value in result.accuracy.items()),
            f"{result.solution.certificate.relative_gap:.1e}",
            f"{len(result.solution.support)} of {result.health.n_witnesses}",
            f"{result.seconds:.1f}",
        )
        for result in results
    ]


def write_report(results: Sequence[Result], directory: Path) -> Path:
    """Write ``index.html`` and the pictures into a directory; give the page's path."""
    pictures = {
        "Spikes of the atoms in use": plot_spikes(results[0].solution),
        "Gap against time": plot_gaps(results),
        "Dictionary health": plot_health(results),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        encoded = {}
        for title, figure in pictures.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=120)
            plt.close(figure)
            encoded[title] = buffer.getvalue()
            _write(directory / f"{title.lower().replace(' ', '-')}.png", encoded[title])
        page = directory / "index.html"
        _write(page, _page(results, encoded).encode())
    except OSError as error:
        raise DataFileError(
            f"expected to write the report into {directory}, got: {error}; choose another --output"
        ) from error
    return page


def plot_spikes(solution: Solution, n_rows: int = 120) -> Figure:
    """What the active atoms do on the first rows of the dictionary; strongest coefficients on top."""
    order = torch.argsort(solution.coef.abs().amax(1), descending=True)[: min(60, len(solution.support))]
    values = solution.problem.dictionary.columns(order)[:n_rows].T.cpu().numpy()
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.imshow(values, cmap="Greys", aspect="auto", interpolation="nearest")
    axes.set(xlabel="row (sample or step)", ylabel="atom, strongest first", title="Spikes of the atoms in use")
    return figure


def plot_gaps(results: Sequence[Result]) -> Figure:
    """The solver's relative gap over time, and where the certificate put the end."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for result in results:
        history = [moment for moment in result.solution.history if moment.relative_gap > 0]
        (line,) = axes.semilogy(
            [moment.seconds for moment in history], [moment.relative_gap for moment in history], ".-", label=result.name
        )
        axes.plot(
            result.solution.seconds, max(result.solution.certificate.relative_gap, 1e-17), "o", color=line.get_color()
        )
    axes.set(xlabel="seconds", ylabel="relative gap", title="Gap against time (dot: certificate)")
    axes.legend(fontsize="small")
    return figure


def plot_health(results: Sequence[Result]) -> Figure:
    """Shares of distinct, duplicate, dead and saturated columns."""
    figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
    names = [result.name for result in results]
    left = [0.0] * len(results)
    # A dead or saturated column is a duplicate of the first of its kind: count it under one name only.
    for label, colour in (("distinct", "C0"), ("other duplicates", "C1"), ("saturated", "C2"), ("dead", "C7")):
        widths = [_shares(result)[label] for result in results]
        axes.barh(names, widths, left=left, color=colour, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="share of witnesses", title="Dictionary health")
    figure.legend(fontsize="small", ncols=4, loc="outside lower center")
    return figure


def _shares(result: Result) -> dict[str, float]:
    health = result.health
    constant = health.n_dead + health.n_saturated
    distinct = health.n_atoms - (health.n_dead > 0) - (health.n_saturated > 0)
    counts = {
        "distinct": distinct,
        "other duplicates": health.n_witnesses - constant - distinct,
        "saturated": health.n_saturated,
        "dead": health.n_dead,
    }
    return {label: count / health.n_witnesses for label, count in counts.items()}


def _page(results: Sequence[Result], pictures: dict[str, bytes]) -> str:
    head = "".join(f"<th>{column}</th>" for column in COLUMNS)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(results))
    images = "".join(
        f'<h2>{title}</h2><img alt="{title}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'
        for title, data in pictures.items()
    )
    certificates = "".join(
        f"<li>{html.escape(result.name)}: {html.escape(str(result.solution.certificate))}</li>" for result in results
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>cvxsnn demonstration</title><style>{_STYLE}</style><h1>Spiking networks with certificates</h1>"
        "<p>Hidden LIF neurons are sampled and fixed; their spikes make a dictionary; the read-out is the global "
        "optimum of a convex program, proven by a duality gap on the original problem.</p>"
        f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'
        f"<h2>Certificates</h2><ul>{certificates}</ul>{images}"
    )


def _write(path: Path, data: bytes) -> None:
    """Write whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
