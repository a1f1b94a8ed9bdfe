"""What an estimator remembers of its training: numbers, and none of the data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from ..convex import Certificate, Solution
from ..core.formatting import align
from ..fitting.engine import Fitted, Trial
from ..fitting.judges import HELD_OUT
from ..fitting.methods import Stage
from ..fitting.scores import Score, main_score
from ..fitting.search import Tuned

_MAX_LINES = 10


@dataclass(frozen=True)
class TrialSummary:
    """One mixture of families, judged on samples that were left out of its fit.

    Parameters
    ----------
    mixture : str
        The families (:func:`cvxsnn.witnesses.mixture_families`).
    readout : str
        What was read of the spikes.
    n_neurons : int
        Number of neurons.
    n_samples : int
        Number of samples that were left out.
    is_held_out : bool
        Whether they were left out all at once, rather than each in turn or in folds.
    loss : float
        Their mean loss, half the squared error.
    accuracy : float or None
        The share of them that is classified correctly; None for real targets.
    ratio : float
        The strength of ridge that did best, relative to the mean eigenvalue of the products of rows.
    seconds : float
        How long the trial took.
    is_chosen : bool
        Whether the network has these neurons.
    """

    mixture: str
    readout: str
    n_neurons: int
    n_samples: int
    is_held_out: bool
    loss: float
    accuracy: float | None
    ratio: float
    seconds: float
    is_chosen: bool


@dataclass(frozen=True)
class StageSummary:
    """One stage of training.

    Parameters
    ----------
    name : "tuning", "gradient", "convex" or "ridge"
        What kind of stage it was.
    score : Score
        The score on validation data: for a classifier accuracy and minus the loss, for a regressor minus the squared
        error.
    seconds : float
        How long the stage took.
    n_neurons : int
        The number of neurons that are read at its end; after a search, the number that the family is sampled with.
    n_trials : int
        The number of families that a search has tried.
    family : mapping, optional
        The family that a search has found, which :func:`cvxsnn.witnesses.sample_witnesses` samples.
    readout : str, optional
        The read-out that a search has found.
    certificate : Certificate, optional
        The certificate of a convex stage, on the data that were not held out.
    l1_strength : float, optional
        The strength of the penalty's norm that a convex stage has chosen.
    l2_strength : float, optional
        The strength of the penalty's quadratic that it has chosen; zero for penalties that have none.
    gaps : tuple of float
        The relative gaps of a convex stage as its solver went on.
    losses : tuple of float
        The training losses of the epochs of a gradient stage.
    scores : tuple of Score
        The validation scores of the epochs of a gradient stage, beginning with that of the start.
    trials : tuple of TrialSummary
        The mixtures that were tried, in order.
    reason : str
        Why a mixture was chosen.
    """

    name: str
    score: Score
    seconds: float
    n_neurons: int
    n_trials: int = 0
    family: Mapping[str, Any] | None = None
    readout: str | None = None
    certificate: Certificate | None = None
    l1_strength: float | None = None
    l2_strength: float | None = None
    gaps: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    scores: tuple[Score, ...] = ()
    trials: tuple[TrialSummary, ...] = ()
    reason: str = ""


@dataclass(frozen=True, repr=False)
class History(Sequence[StageSummary]):
    """The stages of training, in order; it prints as a short table.

    Parameters
    ----------
    stages : tuple of StageSummary
        The stages.
    """

    stages: tuple[StageSummary, ...] = ()

    def __len__(self) -> int:
        """Return the number of stages."""
        return len(self.stages)

    def __iter__(self) -> Iterator[StageSummary]:
        """Iterate over the stages, in order."""
        return iter(self.stages)

    @overload
    def __getitem__(self, index: int) -> StageSummary: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[StageSummary, ...]: ...

    def __getitem__(self, index: int | slice) -> StageSummary | tuple[StageSummary, ...]:
        """Return a stage, or several."""
        return self.stages[index]

    def __repr__(self) -> str:
        """Return a table with one line per stage."""
        rows = [
            (stage.name, f"{main_score(stage.score):.4f}", f"{stage.seconds:.2f}", f"{stage.n_neurons:,}")
            for stage in self.stages[: _MAX_LINES - 1]
        ]
        return align(("stage", "score", "seconds", "neurons"), rows)


def summarise_fit(fitted: Fitted, score: Score, seconds: float) -> tuple[StageSummary, ...]:
    """Return what is worth keeping of a fit: how neurons and read-out were chosen, and the optimum."""
    solution, trial = fitted.solution, fitted.chosen
    convex = _summarise_solution(StageSummary("convex", score, solution.seconds, trial.n_neurons), solution)
    if not fitted.reason:
        return (replace(convex, seconds=seconds),)
    tuning = StageSummary(
        "tuning",
        score,
        seconds - solution.seconds,
        fitted.n_sampled,
        n_trials=len(fitted.trials),
        family={"mixture": trial.family} if isinstance(trial.family, str) else None,
        readout=fitted.program.objective.readout,
        trials=tuple(_summarise_trial(own, own is trial) for own in fitted.trials if own.validation is not None),
        reason=fitted.reason,
    )
    return tuning, convex


def fit_score(trial: Trial) -> Score | None:
    """Return the score on rows left out: accuracy and minus the loss, or for real targets minus the loss."""
    if trial.validation is None:
        return None
    if trial.validation.accuracy is None:
        return -trial.loss
    return float(trial.validation.mean("accuracy")[0]), -trial.loss


def _summarise_trial(trial: Trial, is_chosen: bool) -> TrialSummary:
    assert trial.validation is not None
    accuracy = trial.validation.accuracy
    return TrialSummary(
        trial.family if isinstance(trial.family, str) else "given",
        trial.readout,
        trial.n_neurons,
        trial.n_rows,
        trial.validation.method == HELD_OUT,
        trial.loss,
        None if accuracy is None else float(trial.validation.mean("accuracy")[0]),
        trial.verdict.point[1],
        trial.seconds,
        is_chosen,
    )


def _summarise_solution(summary: StageSummary, solution: Solution) -> StageSummary:
    return replace(
        summary,
        certificate=solution.certificate,
        l1_strength=solution.problem.l1_strength,
        l2_strength=solution.problem.l2_strength,
        gaps=tuple(moment.relative_gap for moment in solution.history),
    )


def summarise_search(tuned: Tuned, seconds: float) -> StageSummary:
    """Return what is worth keeping of a search."""
    family = tuned.family
    n_neurons = family["n_subnetworks"] * family["hidden"][-1]
    return StageSummary(
        "tuning",
        tuned.score,
        seconds,
        n_neurons,
        n_trials=len(tuned.trials),
        family=family,
        readout=tuned.readout,
    )


def summarise_stage(stage: Stage) -> StageSummary:
    """Return what is worth keeping of a stage: numbers, and none of the data."""
    if stage.tuned is not None:
        return summarise_search(stage.tuned, stage.seconds)
    assert stage.network is not None
    summary = StageSummary(stage.name, stage.score, stage.seconds, stage.network.n_active)
    if stage.solution is not None:
        return _summarise_solution(summary, stage.solution)
    if stage.run is not None:
        epochs = stage.run.history
        losses, scores = tuple(epoch.loss for epoch in epochs[1:]), tuple(epoch.score for epoch in epochs)
        return replace(summary, losses=losses, scores=scores)
    return summary
