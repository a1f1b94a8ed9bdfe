"""The page about the demonstration: a verdict on each task, three pictures, and a page about a network of each task."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..core.errors import InvalidInputError
from ..core.storage import write_atomically
from .demo import DemoResult
from .explore import Exploration, Subject, view_model
from .formatting import NOTHING, format_bound, plural
from .pages import Fact, Picture, Table, render_page, write_page
from .plots import plot_gaps, plot_health, plot_raster

COLUMNS = ("task", "method", "test", "longer", "gap", "neurons", "seconds")
"""Of the table; it fits a terminal of 80 columns."""

LEGEND = (
    "test: accuracy on test data; longer: on sequences ten times as long; gap: proven bound on what another read-out "
    "of the same neurons could gain, relative to the objective; neurons: how many are read, of how many"
)
_EXPLORE_SECONDS = 9.0
_EQUAL = 0.0005
"""Difference of accuracies that is not shown."""


@dataclass(frozen=True, eq=False)
class TaskSection:
    """What the page says about one task.

    Parameters
    ----------
    name : str
        The task.
    verdict : str
        What came out, in a few sentences.
    table : Table
        The methods.
    link : str or None
        The file with a page about one of the networks.
    link_text : str
        What that page shows.
    """

    name: str
    verdict: str
    table: Table
    link: str | None
    link_text: str


def make_rows(results: Sequence[DemoResult]) -> list[tuple[str, ...]]:
    """Return the table's cells as text, in the order of ``COLUMNS``."""
    cells: list[tuple[str, ...]] = []
    for result in results:
        trained = result.trained
        longer = [value for name, value in result.accuracy.items() if name != "test"]
        cells.append(
            (
                result.task_name,
                trained.method,
                f"{result.accuracy['test']:.3f}",
                ", ".join(f"{value:.3f}" for value in longer) or NOTHING,
                "none" if trained.certificate is None else format_bound(trained.certificate.relative_gap),
                f"{trained.network.n_active}/{_n_sampled(result)}",
                f"{trained.seconds:.1f}",
            )
        )
    return cells


def judge_task(results: Sequence[DemoResult]) -> str:
    """Return what came out of the methods on one task, in plain sentences."""
    scores = {result.trained.method: result.accuracy["test"] for result in results}
    best, worst = max(scores.values()), min(scores.values())
    if len(scores) == 1:
        told = f"The test accuracy is {best:.3f}."
    elif best - worst < _EQUAL:
        told = f"All {len(scores)} methods have a test accuracy of {best:.3f}."
    else:
        leaders = " and ".join(method for method, score in scores.items() if best - score < _EQUAL)
        told = f"The best test accuracy is {best:.3f}, by {leaders}; the worst is {worst:.3f}."
    proven = most_accurate(results)
    if proven is None or proven.trained.certificate is None:
        return f"{told} Nothing is proven."
    lag = best - proven.accuracy["test"]
    behind = "" if lag < _EQUAL else f", {100 * lag:.1f} points less accurate than the best"
    return (
        f"{told} The read-out of {proven.trained.method} is certified{behind}: it reads "
        f"{proven.trained.network.n_active} of {_n_sampled(proven)} neurons, and no other read-out of these neurons "
        f"lowers the training objective by more than {format_bound(proven.trained.certificate.relative_gap)} of it."
    )


def most_accurate(results: Sequence[DemoResult]) -> DemoResult | None:
    """Return the most accurate result with a certificate; of equal ones, the one that reads the fewest neurons."""
    certified = [result for result in results if result.trained.certificate is not None]
    return min(certified, key=lambda own: (-own.accuracy["test"], own.trained.network.n_active), default=None)


def write_demo_page(results: Sequence[DemoResult], directory: Path, explore_seconds: float = _EXPLORE_SECONDS) -> Path:
    """Write ``index.html``, its pictures and pages about networks into a directory, and return the page's path."""
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
    captions = {
        "Spike raster": (
            f"One test sequence of the task {example.task_name}, and the spikes that the network of "
            f"{example.trained.method} reads, each a small line. Neurons with the largest output weights are on top."
        ),
        "Gap against iterations": (
            "How much may still be gained, as the solver computes it, after each of its iterations; the large dot is "
            "the certificate, computed anew. A curve that starts again at the top belongs to the task's next head."
        ),
        "Dictionary health": (
            "What the sampled or trained neurons do on the training data. Dead ones never fire, saturated ones always; "
            "duplicates fire as another one does. A read-out has no use for any of these."
        ),
    }
    tasks = list(dict.fromkeys(result.task_name for result in results))
    explorations = {}
    for name in tasks:
        shown = most_accurate([result for result in results if result.task_name == name])
        found = None if shown is None else _explore(shown, explore_seconds)
        if found is not None:
            explorations[name] = found
    gaps = [s.certificate.relative_gap for s in certified.values()]
    values = {
        "facts": [
            Fact("tasks", str(len(results)), "networks trained", f"{plural(len(tasks), 'task')}, no data files"),
            Fact(
                "certificates",
                str(len(certified)),
                "read-outs proven optimal",
                f"gaps of at most {format_bound(max(gaps))}",
            ),
            Fact("tasks", str(len(explorations)), "networks to look inside", "neurons, sequences, costs"),
        ],
        "tasks": [_section(name, results, explorations) for name in tasks],
        "certificates": [(name, str(solution.certificate)) for name, solution in certified.items()],
        "pictures": {title: (Picture.from_png(title, png), captions[title]) for title, png in pictures.items()},
        "legend": LEGEND,
    }
    page = write_page(directory / "index.html", render_page("demo.html", values), "choose another --output")
    for title, png in pictures.items():
        write_atomically(directory / f"{title.lower().replace(' ', '-')}.png", png)
    for name, exploration in explorations.items():
        exploration.save(directory / _file_of(name))
    return page


def _section(name: str, results: Sequence[DemoResult], explorations: Mapping[str, Exploration]) -> TaskSection:
    own = [result for result in results if result.task_name == name]
    table = Table(f"Results of all methods on {name}", COLUMNS[1:], [row[1:] for row in make_rows(own)])
    shown = most_accurate(own)
    if name in explorations and shown is not None:
        return TaskSection(
            name, judge_task(own), table, _file_of(name), f"Look inside the network of {shown.trained.method}"
        )
    why = "It answers at every step, for several targets, which pages about networks do not show."
    return TaskSection(name, judge_task(own), table, None, why)


def _explore(result: DemoResult, seconds: float) -> Exploration | None:
    """Return a page about a network, or None for one that answers at every step."""
    if result.trained.network.readout == "all":
        return None
    name = f"{result.task_name}, {result.trained.method}"
    return Exploration(view_model(Subject.of_trained(result.trained, result.task, name), max_seconds=seconds))


def _file_of(task_name: str) -> str:
    return f"{re.sub('[^a-z0-9]+', '-', task_name.lower()).strip('-')}.html"


def _n_sampled(result: DemoResult) -> int:
    family = result.trained.settings.family
    assert isinstance(family, Mapping)  # once trained, a search has found one
    n_sampled: int = family["hidden"][-1] * family.get("n_subnetworks", 1)
    return n_sampled


def _new_axes(height: float) -> Axes:
    """Return axes of a figure that pyplot does not know, so that no window and no backend is asked for."""
    return Figure(figsize=(7, height), layout="constrained").subplots()


def _png(axes: Axes) -> bytes:
    buffer = io.BytesIO()
    cast(Figure, axes.figure).savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()
