"""Numbers beside the paper's, from records: validation data choose, test data are only reported.

For every seed, the method with the highest validation score is chosen among a cell's methods, and its metric is the
seed's number. A cell's value is the mean of those numbers, its spread their sample standard deviation.
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ..core.formatting import plural
from .experiment import Cell, Experiment, Scale
from .metrics import finite, quantity_of, read_metric

Verdict = Literal["matches", "better", "worse", "cannot tell"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
NO_NUMBER = "no number in"
"""The beginning of the reason why a number that nothing is compared with has no verdict."""


@dataclass(frozen=True)
class Tolerances:
    """When two numbers match."""

    accuracy: float = 0.02
    """Difference of accuracies."""
    relative: float = 0.02
    """Difference of other quantities, as a share of the paper's number."""
    gap: float = 1e-6
    """Gap up to which a read-out counts as proven optimal."""
    n_standard_errors: int = 2
    """Standard errors of the mean over seeds."""
    rounding: float = 1e-9
    """Decimal fractions such as 0.92 − 0.90 are off by a last bit, which must not decide a verdict."""


TOLERANCES = Tolerances()

Records = Mapping[str, Mapping[str, Any]]
"""Records by the ids of their runs, as :meth:`RecordStore.read_all` gives them."""


@dataclass(frozen=True)
class ChosenRun:
    """The run that stands for a seed: the best on validation data.

    Attributes
    ----------
    seed : int
    method, run_id : str
    val : float, its validation score
    value : float or None, its metric; None where its record does not have that metric
    """

    seed: int
    method: str
    run_id: str
    val: float
    value: float | None


@dataclass(frozen=True)
class RunWithoutResult:
    """A run without a number, and the reason."""

    seed: int
    method: str
    run_id: str
    status: Literal["missing", "failed"]
    sentence: str


@dataclass(frozen=True)
class CellSummary:
    """One number of ours beside one of the paper's.

    Attributes
    ----------
    row, column, metric, note : str
    paper : float or None
    chosen : tuple of ChosenRun, one for each seed that has a finished run
    methods : tuple of str, those that were chosen, most often chosen first
    n_seeds, n_expected_seeds : int, seeds with a number, and seeds in all
    n_runs, n_expected_runs : int, usable runs, and runs in all
    mean : float or None, over seeds
    spread : float or None, sample standard deviation over seeds, of two at least
    difference : float or None, mean less the paper's
    verdict : Verdict
    reason : str, why the verdict is "cannot tell"; empty for other verdicts
    missing, failed : tuple of RunWithoutResult
    """

    row: str
    column: str
    metric: str
    note: str
    paper: float | None
    chosen: tuple[ChosenRun, ...]
    methods: tuple[str, ...]
    n_seeds: int
    n_expected_seeds: int
    n_runs: int
    n_expected_runs: int
    mean: float | None
    spread: float | None
    difference: float | None
    verdict: Verdict
    reason: str
    missing: tuple[RunWithoutResult, ...]
    failed: tuple[RunWithoutResult, ...]


@dataclass(frozen=True)
class ExperimentSummary:
    """A table or a figure in numbers; ``as_dict`` is small enough to commit."""

    name: str
    title: str
    kind: Literal["table", "figure"]
    quantity: str
    scale: Scale
    cells: tuple[CellSummary, ...]

    @property
    def rows(self) -> list[str]:
        """Names of the rows, each once."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """Names of the columns, each once."""
        return list(dict.fromkeys(cell.column for cell in self.cells))

    @property
    def n_unprinted(self) -> int:
        """Number of cells without a number in the paper."""
        return sum(cell.paper is None for cell in self.cells)

    @property
    def has_paper(self) -> bool:
        """Whether the paper prints any of the numbers."""
        return self.n_unprinted < len(self.cells)

    @property
    def verdicts(self) -> dict[Verdict, int]:
        """Counts of each verdict."""
        counts = Counter(cell.verdict for cell in self.cells)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    @property
    def judged(self) -> dict[Verdict, int]:
        """Counts of each verdict over the cells that the paper has a number for."""
        return {**self.verdicts, "cannot tell": self.verdicts["cannot tell"] - self.n_unprinted}

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as JSON gives them back."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self), allow_nan=False))
        return {**plain, "verdicts": self.verdicts}


def summarise_experiment(experiment: Experiment, records: Records, scale: Scale = "paper") -> ExperimentSummary:
    """Return the comparison of an experiment's records with the paper.

    Parameters
    ----------
    experiment : Experiment
    records : mapping of run ids to records
    scale : "paper" or "smoke"
        What the experiment was loaded at. Smoke runs are too small to be compared with the paper: their verdict is
        always "cannot tell".
    """
    tolerance, source = experiment.tolerance, experiment.compared_source
    cells = tuple(_summarise_cell(cell, records, scale, tolerance, source) for cell in experiment.cells)
    return ExperimentSummary(experiment.name, experiment.title, experiment.kind, experiment.quantity, scale, cells)


def judge(
    metric: str, values: Sequence[float], paper: float, accuracy_tolerance: float = TOLERANCES.accuracy
) -> Verdict:
    """Return the verdict on the numbers of all seeds against the paper's.

    Accuracies match within 0.02, other quantities within 2 % of the paper's value, and both within two standard errors
    of the mean. Beyond that the sign decides. A gap is a proof or it is none: where every seed's is at most 1e-6, it
    matches a paper's that is, and is better than one that is not, whatever the spread.
    """
    quantity = quantity_of(metric)
    if quantity == "gap":
        # Gaps of opposite signs prove nothing together: sizes count.
        sizes = [abs(value) for value in values]
        if max(sizes) <= TOLERANCES.gap:
            return "matches" if paper <= TOLERANCES.gap else "better"
        size = statistics.fmean(sizes)
        return "matches" if size == paper else "better" if size < paper else "worse"
    difference = statistics.fmean(values) - paper
    tolerance = accuracy_tolerance if quantity == "accuracy" else TOLERANCES.relative * abs(paper)
    if len(values) > 1:
        tolerance = max(tolerance, TOLERANCES.n_standard_errors * statistics.stdev(values) / math.sqrt(len(values)))
    if abs(difference) <= tolerance + TOLERANCES.rounding * max(1.0, abs(paper)):
        return "matches"
    if quantity == "other":
        return "cannot tell"
    return "better" if (difference < 0) == (quantity == "cost") else "worse"


def _summarise_cell(cell: Cell, records: Records, scale: Scale, tolerance: float, source: str) -> CellSummary:
    chosen, lost = _choose(cell, records)
    missing, failed = (tuple(run for run in lost if run.status == status) for status in ("missing", "failed"))
    values = [run.value for run in chosen if run.value is not None]
    n_runs = sum(len(configs) for configs in cell.configs.values())
    mean = statistics.fmean(values) if values else None
    paper = finite(cell.paper)
    reasons = {
        "no runs": n_runs == 0,
        f"{len(missing)} of {plural(n_runs, 'run')} missing": missing,
        f"{len(failed)} of {plural(n_runs, 'run')} failed": failed,
        f"{NO_NUMBER} {source}": paper is None,
        "smoke scale": scale == "smoke",
    }
    reason = ", ".join(name for name, holds in reasons.items() if holds)
    verdict: Verdict = "cannot tell"
    if not reason and paper is not None:
        verdict = judge(cell.metric, values, paper, tolerance)
        reason = "neither more nor less is better" if verdict == "cannot tell" else ""
    return CellSummary(
        *(cell.row, cell.column, cell.metric, cell.note),
        paper=paper,
        chosen=tuple(chosen),
        methods=tuple(method for method, _ in Counter(run.method for run in chosen).most_common()),
        n_seeds=len(values),
        n_expected_seeds=len(cell.configs),
        n_runs=n_runs - len(lost),
        n_expected_runs=n_runs,
        mean=mean,
        spread=statistics.stdev(values) if len(values) > 1 else None,
        difference=None if mean is None or paper is None else mean - paper,
        verdict=verdict,
        reason=reason,
        missing=missing,
        failed=failed,
    )


def _choose(cell: Cell, records: Records) -> tuple[list[ChosenRun], list[RunWithoutResult]]:
    """Return the best run of every seed by validation score alone, and the runs that could not take part."""
    chosen: list[ChosenRun] = []
    lost: list[RunWithoutResult] = []
    for seed, configs in cell.configs.items():
        usable: list[ChosenRun] = []
        for config in configs:
            run, record = (seed, config.method, config.id), records.get(config.id)
            if record is None:
                lost.append(RunWithoutResult(*run, "missing", "It has not been run yet."))
            elif sentence := what_is_wrong(record):
                lost.append(RunWithoutResult(*run, "failed", sentence))
            else:
                usable.append(ChosenRun(*run, float(record["val"]), read_metric(record, cell.metric)))
        if usable:
            best = max(usable, key=lambda run: run.val)  # among equals the first, in the order of the cell's methods
            chosen.append(best)
            if best.value is None:
                sentence = f"Its record has no finite number called {cell.metric!r}."
                lost.append(RunWithoutResult(seed, best.method, best.run_id, "failed", sentence))
    return chosen, lost


def finished_runs(experiment: Experiment, records: Records) -> dict[str, Mapping[str, Any]]:
    """Return the usable records of an experiment by the ids of their runs."""
    return {name: records[name] for name in experiment.runs() if name in records and not what_is_wrong(records[name])}


def what_is_wrong(record: Mapping[str, Any]) -> str:
    """Return why a record cannot take part in a choice; empty if it can."""
    status = record.get("status")
    if status == "failed":
        return str(record.get("error") or "It failed, and its record does not say why.")
    if status != "done":
        return f"Its record has status {status!r}, neither 'done' nor 'failed'."
    if finite(record.get("val")) is None:
        return f"Its record has no finite validation score, but {record.get('val')!r}."
    return ""
