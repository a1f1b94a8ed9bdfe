"""The demonstration: a classifier beside others, five methods on three tasks without data files, and their pages."""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sklearn.base import ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..core.errors import InvalidInputError
from ..core.formatting import NOTHING, format_bound, plural
from ..data.tasks import Task, digits_seq
from ..estimators import SpikingClassifier
from ..explore import Exploration, Subject, view_model
from ..explore.pages import Fact, Table, render_page, write_page
from ..fitting.methods import Trained
from .experiment import RunConfig
from .files import load_experiment
from .run import train_and_score

COLUMNS = ("task", "method", "test", "longer", "gap", "neurons", "seconds")

LEGEND = (
    "test: accuracy on test data; longer: on sequences ten times as long; gap: proven bound on what another read-out "
    "of the same neurons could gain, relative to the objective; neurons: how many are read, of how many"
)


@dataclass(frozen=True, eq=False)
class DemoResult:
    """Outcome of one method on one task."""

    task_name: str
    config: RunConfig
    task: Task
    trained: Trained
    scores: dict[str, float]

    @property
    def n_sampled(self) -> int:
        """Neurons in the last hidden layer."""
        return int(self.config.family["hidden"][-1] * self.config.family.get("n_subnetworks", 1))

    @property
    def row(self) -> tuple[str, ...]:
        """The result as text, in the order of ``COLUMNS``."""
        longer = ", ".join(f"{score:.3f}" for name, score in self.scores.items() if re.fullmatch(r"\d+x", name))
        certificate = self.trained.certificate
        return (
            self.task_name,
            self.config.method,
            f"{self.scores['test']:.3f}",
            longer or NOTHING,
            "none" if certificate is None else format_bound(certificate.relative_gap),
            f"{self.trained.network.n_active}/{self.n_sampled}",
            f"{self.trained.seconds:.1f}",
        )


@dataclass(frozen=True, eq=False)
class Lead:
    """Classifiers of handwritten digits that are read row by row, as ``fit(X, y)`` makes them."""

    task: Task
    model: SpikingClassifier
    """The classifier with 64 neurons."""
    rows: Sequence[tuple[str, ...]]

    columns = ("classifier", "test", "neurons", "gap", "seconds")
    title = "Handwritten digits, from fit(X, y)"

    @classmethod
    def run(cls, seed: int = 0) -> "Lead":
        """Fit the classifier, its twin with 64 neurons, and two classifiers that see all pixels at once."""
        task = digits_seq(8)
        small = SpikingClassifier(sparsity=64, random_state=seed, verbose=False)
        models: dict[str, ClassifierMixin] = {
            "SpikingClassifier()": SpikingClassifier(random_state=seed, verbose=False),
            "SpikingClassifier(sparsity=64)": small,
            "gradient boosting": HistGradientBoostingClassifier(random_state=seed),
            "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        }
        rows: list[tuple[str, ...]] = []
        for name, model in models.items():
            is_spiking = isinstance(model, SpikingClassifier)
            X, X_test = (
                data.inputs if is_spiking else data.inputs.reshape(len(data.inputs), -1)
                for data in (task.train, task.test)
            )
            begin = time.perf_counter()
            model.fit(X, task.train.heads["label"])
            seconds = time.perf_counter() - begin
            accuracy = model.score(X_test, task.test.heads["label"])
            proven = (NOTHING, NOTHING)
            if is_spiking:
                proven = f"{model.network_.n_active:,}", format_bound(model.certificate_.relative_gap)
            rows.append((name, f"{accuracy:.3f}", *proven, f"{seconds:.1f}"))
        return cls(task, small, rows)

    @property
    def verdict(self) -> str:
        """What is proven of the small classifier, and why it answers as it does for one image."""
        proven = next(line for line in str(self.model.summary()).splitlines() if line.startswith("Proven"))
        lines = str(self.model.explain(self.task.test.inputs[0])).removeprefix("Explanation: ").splitlines()
        explanation = "; ".join(line.strip() for line in lines)
        return f"The classifier with 64 neurons. {proven} Its answer for the first test image: {explanation}."


def demo_configs(seed: int = 0) -> list[tuple[str, RunConfig]]:
    """Return the name of the task and the configuration of every run."""
    cells = load_experiment("demo").cells
    return [(cell.row, replace(config, seed=seed)) for cell in cells for config in cell.configs[0]]


def run(task_name: str, config: RunConfig) -> DemoResult:
    """Train by one method, choose on validation data, and test once."""
    return DemoResult(task_name, config, *train_and_score(config))


def judge_task(results: Sequence[DemoResult]) -> str:
    """Return the outcome of all methods on one task in plain sentences."""
    best, worst = (choose(result.scores["test"] for result in results) for choose in (max, min))
    leaders = " and ".join(result.config.method for result in results if result.scores["test"] == best)
    verdict = f"The best test accuracy is {best:.3f}, by {leaders}; the worst is {worst:.3f}."
    if best == worst and len(results) > 1:
        verdict = f"All {len(results)} methods reach a test accuracy of {best:.3f}."
    proven = most_accurate(results)
    if proven is None or proven.trained.certificate is None:
        return f"{verdict} Nothing is proven."
    return (
        f"{verdict} The read-out of {proven.config.method}, with an accuracy of {proven.scores['test']:.3f}, is "
        f"certified: it reads {proven.trained.network.n_active} of {plural(proven.n_sampled, 'neuron')}, and no other "
        "read-out of these neurons lowers the training objective by more than "
        f"{format_bound(proven.trained.certificate.relative_gap)} of it."
    )


def most_accurate(results: Sequence[DemoResult]) -> DemoResult | None:
    """Return the most accurate result with a certificate; among equals, the one that reads the fewest neurons."""
    certified = [result for result in results if result.trained.certificate is not None]
    return min(certified, key=lambda one: (-one.scores["test"], one.trained.network.n_active), default=None)


def write_demo_page(
    results: Sequence[DemoResult], directory: Path, explore_seconds: float = 9.0, lead: Lead | None = None
) -> Path:
    """Write ``index.html`` and a page about one network of each task, and return the path of the former."""
    proven = [(f"{one.task_name}, {one.config.method}", one.trained.certificate) for one in results]
    proven = [(name, certificate) for name, certificate in proven if certificate is not None]
    if not proven:
        raise InvalidInputError("expected at least one result with a certificate, got none: add the method 'cvx'")
    tasks: list[dict[str, Any]] = []
    pages: dict[str, Exploration] = {}
    if lead is not None:
        train, name = lead.task.train, lead.title
        pages["digits.html"] = lead.model.explore(train.inputs, train.heads["label"], max_seconds=explore_seconds)
        table = Table(name, lead.columns, lead.rows)
        tasks.append({"name": name, "verdict": lead.verdict, "table": table, "link": "digits.html"})
        proven.insert(0, (name, lead.model.certificate_))
    for name in dict.fromkeys(result.task_name for result in results):
        members = [result for result in results if result.task_name == name]
        shown, link = most_accurate(members), None
        if shown is not None and shown.trained.network.readout != "all":
            link = f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.html"
            subject = Subject.of_trained(shown.trained, shown.task, f"{name}, {shown.config.method}")
            pages[link] = Exploration(view_model(subject, max_seconds=explore_seconds))
        table = Table(f"Results of all methods on {name}", COLUMNS[1:], [result.row[1:] for result in members])
        tasks.append({"name": name, "verdict": judge_task(members), "table": table, "link": link})
    largest = format_bound(max(certificate.relative_gap for _, certificate in proven if certificate))
    values = {
        "facts": [
            Fact("tasks", str(len(results)), "networks trained", f"{plural(len(tasks), 'task')}, no data files"),
            Fact("certificates", str(len(proven)), "read-outs proven optimal", f"gaps of at most {largest}"),
            Fact("tasks", str(len(pages)), "networks to look inside", "neurons, sequences, costs"),
        ],
        "tasks": tasks,
        "certificates": proven,
        "legend": LEGEND,
    }
    page = write_page(directory / "index.html", render_page("demo.html", values), "choose another --output")
    for link, exploration in pages.items():
        exploration.save(directory / link)
    return page
