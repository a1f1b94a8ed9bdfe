"""The page about a model: one file that opens without a network, and an object that shows it in a notebook."""

import html
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace

from markupsafe import Markup

from ..core.formatting import format_bound, plural
from .limits import LIMITS
from .packing import to_json
from .pages import Fact, render_page, write_page
from .view import ModelView

_PARTS = ("core", "quality", "optimality", "neurons", "sequence", "costs", "comparison", "main")

SECTIONS = (
    ("quality", "What it does", "How often is it right, and what does it confuse?"),
    ("optimality", "Why it is optimal", "What is proven, and what is not?"),
    ("path", "The path", "What would fewer neurons cost in accuracy?"),
    ("neurons", "Its neurons", "How many matter, what do they read, and what do they say?"),
    ("sequence", "One sequence", "How does it come to an answer, step by step?"),
    ("health", "Health", "How many of the neurons are of no use?"),
    ("costs", "Cost", "What does an answer cost?"),
)
"""Sections of the page: identifier, title, and the question that each answers."""

_COMPARISON = ("comparison", "Side by side", "Which model is better, and where do they differ?")


class Exploration:
    """A page about one model, or about two of them side by side.

    A notebook shows it as it is; elsewhere, :meth:`save` it and open the file in a browser.

    Parameters
    ----------
    views : sequence of ModelView
        One or two summaries.
    comparison : SimpleNamespace, optional
        How the answers of two models differ, as :func:`~cvxsnn.explore.comparison.compare` returns it.
    """

    def __init__(self, *views: ModelView, comparison: SimpleNamespace | None = None) -> None:
        self.views = views
        self.comparison = comparison

    @property
    def html(self) -> str:
        """The page as text."""
        first, *others = self.views
        texts = {
            "title": " and ".join(view.name for view in self.views) if others else f"{first.name}: a look inside",
            "subtitle": _describe_data(first) if others else f"{_describe(first)} {_describe_data(first)}",
            "facts": [] if others else _facts(first),
            "sections": (_COMPARISON, *SECTIONS) if others else SECTIONS,
        }
        data = Markup(to_json({"models": self.views, "comparison": self.comparison}))
        return render_page("explore.html", {**texts, "data": data, "scripts": _scripts()})

    def save(self, path: Path | str) -> Path:
        """Write the page to a file.

        Parameters
        ----------
        path : Path or str
            The file; an existing one is replaced.

        Returns
        -------
        Path
            The file.
        """
        return write_page(Path(path), self.html, "choose another file")

    def _repr_html_(self) -> str:
        """Return the page as a frame, which a notebook shows."""
        # Inside a frame, styles and scripts cannot clash with those of the notebook.
        content = html.escape(self.html)
        return f'<iframe srcdoc="{content}" style="width:100%;height:{LIMITS.frame_height}px;border:0"></iframe>'

    def __repr__(self) -> str:
        """Return the names of the models on one line."""
        names = ", ".join(view.name for view in self.views)
        return f"Exploration({names}; save(path) writes a page)"


def _describe(view: ModelView) -> str:
    """Return the network in one sentence."""
    n_answers = len(view.columns)
    answers = plural(n_answers, "class", "classes") if view.is_classifier else plural(n_answers, "output")
    layers = "" if len(view.health.layers) < 2 else f" in {len(view.health.layers)} layers"
    inputs, neurons = plural(len(view.features), "input"), plural(view.neurons.n_read, "neuron")
    return f"A spiking network{layers} with {inputs}, reading {neurons}, and {answers}."


def _describe_data(view: ModelView) -> str:
    """Return the data in one sentence."""
    about = ", on which it was trained" if view.is_training else ""
    return f"Shown on {plural(view.quality.n_samples, 'sequence')} of up to {plural(view.n_steps, 'step')}{about}."


def _facts(view: ModelView) -> list[Fact]:
    """Return the answers at the top of the page."""
    quality = view.quality
    neurons = view.neurons
    costs = view.costs
    gap = view.optimality.relative_gap
    score, measure = f"{quality.score:.3f}", "R²"
    if view.is_classifier:
        score, measure = f"{quality.score:.1%}", "accuracy"
    facts = [Fact("quality", score, measure, "training data: expect less on new data" if view.is_training else "")]
    for worst in [cell for cell in quality.cells if cell.truth != cell.predicted][:1]:
        mistake = f"{view.columns[worst.truth]} → {view.columns[worst.predicted]}"
        facts.append(Fact("quality", mistake, "most common mistake", plural(worst.count, "sequence")))
    share = "of its answers" if view.is_classifier else "of the variance of its outputs"
    enough = f"the {neurons.n_enough:,} that matter most give 95 % {share}"
    if neurons.n_enough == neurons.n_read:
        enough = "nearly all of them matter"
    proven = "none" if gap is None else format_bound(gap)
    return [
        *facts,
        Fact("neurons", f"{neurons.n_read:,}", "neurons are read", enough),
        Fact("optimality", proven, "proven gap to the optimum", "of the read-out, on the training data"),
        Fact("costs", f"{costs.synaptic:,.0f}", "synaptic operations per answer", f"{costs.spikes:,.0f} spikes"),
    ]


def _scripts() -> list[Markup]:
    """Return the libraries and the parts of the page's script."""
    root = files("cvxsnn.explore")
    licence = (root / "static" / "LICENSES.txt").read_text()
    libraries = [(root / "static" / name).read_text() for name in ("d3.min.js", "plot.min.js")]
    parts = [(root / "templates" / "explore" / f"{name}.js").read_text() for name in _PARTS]
    # All parts share one block, so that their names cannot clash with those of the libraries.
    script = "\n".join(part.replace('"use strict";\n', "") for part in parts)
    return [Markup(f"/*\n{licence}*/\n{libraries[0]}"), Markup(libraries[1]), Markup(f'"use strict";\n{{\n{script}}}')]
