"""From records to numbers that stand beside the paper's: validation data choose, test data are only read.

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

from .experiment import Cell, Experiment, RunConfig, Scale
from .metrics import finite, quantity_of, read_metric

Verdict = Literal["matches", "better", "worse", "cannot tell"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ACCURACY_TOLERANCE = 0.02
RELATIVE_TOLERANCE = 0.02
CERTIFIED_GAP = 1e-6
N_STANDARD_ERRORS = 2

_ROUNDING = 1e-9
"""Decimal fractions such as 0.92 − 0.90 are off by a last bit, which must not decide a verdict."""

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
    def verdicts(self) -> dict[Verdict, int]:
        """Counts of each verdict."""
        counts = Counter(cell.verdict for cell in self.cells)
        return {verdict: counts[verdict] for verdict in VERDICTS}

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
    cells = tuple(_summarise_cell(cell, records, scale, experiment.tolerance) for cell in experiment.cells)
    return ExperimentSummary(experiment.name, experiment.title, experiment.kind, experiment.quantity, scale, cells)


def judge(
    metric: str, values: Sequence[float], paper: float, accuracy_tolerance: float = ACCURACY_TOLERANCE
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
        if max(sizes) <= CERTIFIED_GAP:
            return "matches" if paper <= CERTIFIED_GAP else "better"
        size = statistics.fmean(sizes)
        return "matches" if size == paper else "better" if size < paper else "worse"
    difference = statistics.fmean(values) - paper
    tolerance = accuracy_tolerance if quantity == "accuracy" else RELATIVE_TOLERANCE * abs(paper)
    if len(values) > 1:
        tolerance = max(tolerance, N_STANDARD_ERRORS * statistics.stdev(values) / math.sqrt(len(values)))
    if abs(difference) <= tolerance + _ROUNDING * max(1.0, abs(paper)):
        return "matches"
    if quantity == "other":
        return "cannot tell"
    return "better" if (difference < 0) == (quantity == "cost") else "worse"


def _summarise_cell(cell: Cell, records: Records, scale: Scale, tolerance: float) -> CellSummary:
    chosen, missing, failed = _choose(cell, records)
    values = [run.value for run in chosen if run.value is not None]
    n_runs = sum(len(configs) for configs in cell.configs.values())
    mean = statistics.fmean(values) if values else None
    paper = finite(cell.paper)
    reason = _reason(len(missing), len(failed), n_runs, paper, scale)
    verdict: Verdict = "cannot tell"
    if not reason and paper is not None:
        verdict = judge(cell.metric, values, paper, tolerance)
        reason = "neither more nor less is better" if verdict == "cannot tell" else ""
    return CellSummary(
        row=cell.row,
        column=cell.column,
        metric=cell.metric,
        note=cell.note,
        paper=paper,
        chosen=tuple(chosen),
        methods=tuple(method for method, _ in Counter(run.method for run in chosen).most_common()),
        n_seeds=len(values),
        n_expected_seeds=len(cell.configs),
        n_runs=n_runs - len(missing) - len(failed),
        n_expected_runs=n_runs,
        mean=mean,
        spread=statistics.stdev(values) if len(values) > 1 else None,
        difference=None if mean is None or paper is None else mean - paper,
        verdict=verdict,
        reason=reason,
        missing=tuple(missing),
        failed=tuple(failed),
    )


def _choose(cell: Cell, records: Records) -> tuple[list[ChosenRun], list[RunWithoutResult], list[RunWithoutResult]]:
    """Return the best run of every seed by validation score alone, and the runs that could not take part."""
    chosen: list[ChosenRun] = []
    missing: list[RunWithoutResult] = []
    failed: list[RunWithoutResult] = []
    for seed, configs in cell.configs.items():
        best: ChosenRun | None = None
        for config in configs:
            record = records.get(config.id)
            if record is None:
                missing.append(RunWithoutResult(seed, config.method, config.id, "missing", "It has not been run yet."))
                continue
            sentence = what_is_wrong(record)
            if sentence:
                failed.append(_failed(config, sentence))
                continue
            val = float(record["val"])
            # Strictly higher: of equals, the method that the cell names first is chosen.
            if best is None or val > best.val:
                best = ChosenRun(seed, config.method, config.id, val, read_metric(record, cell.metric))
        if best is not None:
            chosen.append(best)
            if best.value is None:
                config = next(config for config in configs if config.id == best.run_id)
                failed.append(_failed(config, f"Its record has no finite number called {cell.metric!r}."))
    return chosen, missing, failed


def what_is_wrong(record: Mapping[str, Any]) -> str:
    """Return why a record cannot take part in a choice; empty where it can."""
    status = record.get("status")
    if status == "failed":
        return str(record.get("error") or "It failed, and its record does not say why.")
    if status != "done":
        return f"Its record has status {status!r}, neither 'done' nor 'failed'."
    if finite(record.get("val")) is None:
        return f"Its record has no finite validation score, but {record.get('val')!r}."
    return ""


def _failed(config: RunConfig, sentence: str) -> RunWithoutResult:
    return RunWithoutResult(config.seed, config.method, config.id, "failed", sentence)


def _reason(n_missing: int, n_failed: int, n_runs: int, paper: float | None, scale: Scale) -> str:
    reasons = []
    if n_runs == 0:
        reasons.append("no runs")
    if n_missing:
        reasons.append(f"{n_missing} of {n_runs} runs missing")
    if n_failed:
        reasons.append(f"{n_failed} of {n_runs} runs failed")
    if paper is None:
        reasons.append("no number in the paper")
    if scale == "smoke":
        reasons.append("smoke scale")
    return ", ".join(reasons)
