"""Reports of an estimator: the history of its training, which contains none of the data, and a summary in words."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..convex import Certificate, Solution, Validation
from ..core.formatting import NOTHING, align, plural, round_up
from ..fitting.engine import Fitted, Trial
from ..fitting.judges import HELD_OUT
from ..fitting.scores import Score, main_score
from ..fitting.search import Tuned
from ..network import Operations
from ..network.summary import NetworkSummary


@dataclass(frozen=True)
class TrialSummary:
    """Neurons of a family, judged on samples that were left out of its fit.

    Parameters
    ----------
    mixture : str
        Name of the kinds (:class:`cvxsnn.witnesses.Kinds`) or of the mixture (:class:`cvxsnn.witnesses.Mixed`).
    readout : str
        The spikes that are read.
    n_neurons : int
        Number of neurons.
    n_samples : int
        Number of samples that were left out.
    is_held_out : bool
        Whether they were left out all at once, rather than each in turn or in folds.
    is_by_group : bool
        Whether groups of samples were left out together.
    loss : float
        Their mean loss, half the squared error.
    accuracy : float or None
        The fraction classified correctly; None for real targets.
    ratio : float
        The best strength of ridge, relative to the mean eigenvalue of the products of rows.
    seconds : float
        How long the trial took.
    is_chosen : bool
        Whether the network has these neurons.
    n_spikes : float, optional
        Spikes of an answer, if the neurons were selected from others: the mean over some of the data.
    n_bytes : int, optional
        Bytes of the network, if its neurons were selected from others.
    """

    mixture: str
    readout: str
    n_neurons: int
    n_samples: int
    is_held_out: bool
    is_by_group: bool
    loss: float
    accuracy: float | None
    ratio: float
    seconds: float
    is_chosen: bool
    n_spikes: float | None = None
    n_bytes: int | None = None


@dataclass(frozen=True)
class StageSummary:
    """One stage of training.

    Parameters
    ----------
    name : "tuning", "gradient", "projection", "convex", "ridge" or "update"
        The kind of stage.
    score : Score
        The score on validation data: for a classifier accuracy and minus the loss, for a regressor minus the squared
        error. For an update, and a fit with ``warm_start``, that of its samples before.
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
        The certificate of a convex stage, on the data that were not held out; None if it kept the trained read-out.
    l1_strength : float, optional
        The strength of the penalty's norm that a convex stage has chosen.
    l2_strength : float, optional
        The strength of the penalty's quadratic that it has chosen; zero for penalties that have none.
    gaps : tuple of float
        The relative gaps of a convex stage as its solver went on.
    losses : tuple of float
        The training losses of the epochs of a gradient or projection stage.
    scores : tuple of Score
        The validation scores of these epochs, beginning with that of the start.
    trials : tuple of TrialSummary
        The families and read-outs that were tried, in order.
    reason : str
        Why these neurons, or this read-out of trained neurons, were chosen.
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


class History(tuple[StageSummary, ...]):
    """The stages of training, in order; it prints as a short table."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return a table with one line per stage."""
        rows = [
            (stage.name, f"{main_score(stage.score):.4f}", f"{stage.seconds:.2f}", f"{stage.n_neurons:,}")
            for stage in self
        ]
        return align(("stage", "score", "seconds", "neurons"), rows)

    def explained(self, reason: str) -> "History":
        """Return the history with one more reason for the choice of its first stage."""
        first, *others = self
        return History((replace(first, reason=f"{first.reason}; {reason}"), *others))


def summarise_fit(fitted: Fitted, score: Score, seconds: float) -> tuple[StageSummary, ...]:
    """Return how neurons and read-out were chosen, if there was a choice, and the optimum."""
    solution, trial = fitted.solution, fitted.chosen
    if not fitted.reason:
        return (StageSummary("convex", score, seconds, trial.n_neurons, **of_solution(solution)),)
    tuning = StageSummary(
        "tuning",
        score,
        seconds - solution.seconds,
        fitted.n_sampled,
        n_trials=len(fitted.trials),
        family={"mixture": trial.family} if isinstance(trial.family, str) else None,
        readout=fitted.program.objective.readout,
        trials=tuple(_summarise_trial(item, item is trial) for item in fitted.trials if item.validation is not None),
        reason=fitted.reason,
    )
    return tuning, StageSummary("convex", score, solution.seconds, trial.n_neurons, **of_solution(solution))


def summarise_search(tuned: Tuned, seconds: float) -> StageSummary:
    """Return the family that a search has found."""
    family = tuned.family
    n_neurons = family["n_subnetworks"] * family["hidden"][-1]
    n_trials = len(tuned.trials)
    return StageSummary("tuning", tuned.score, seconds, n_neurons, n_trials, family, tuned.readout)


def trial_score(trial: Trial) -> Score | None:
    """Return the score on rows left out: accuracy and minus the loss, or for real targets minus the loss."""
    if trial.validation is None:
        return None
    accuracy = _accuracy(trial.validation)
    return -trial.loss if accuracy is None else (accuracy, -trial.loss)


def _accuracy(validation: Validation) -> float | None:
    return None if validation.accuracy is None else float(validation.mean("accuracy")[0])


def _summarise_trial(trial: Trial, is_chosen: bool) -> TrialSummary:
    assert trial.validation is not None
    return TrialSummary(
        trial.family if isinstance(trial.family, str) else "given",
        trial.readout,
        trial.n_neurons,
        trial.n_rows,
        trial.validation.method == HELD_OUT,
        trial.validation.is_by_group,
        trial.loss,
        _accuracy(trial.validation),
        trial.verdict.point[1],
        trial.seconds,
        is_chosen,
        trial.n_spikes,
        trial.n_bytes,
    )


def of_solution(solution: Solution) -> dict[str, Any]:
    """Return the certificate of a convex stage, its strengths, and the gaps on the way."""
    return {
        "certificate": solution.certificate,
        "l1_strength": solution.problem.l1_strength,
        "l2_strength": solution.problem.l2_strength,
        "gaps": tuple(moment.relative_gap for moment in solution.history),
    }


_OVER = {
    "sampled": "these {n}hidden neurons",
    "selected": "these {n}hidden neurons, selected from a larger sample,",
    "pool": "the hidden neurons of the pool",
    "complete": "any hidden neurons of the family",
}


@dataclass(frozen=True, repr=False)
class ModelSummary:
    """Training, certificate and costs of an estimator; it prints as text.

    Parameters
    ----------
    name : str
        The class of the estimator.
    history : History
        The stages of training; empty for a model from a file.
    certificate : Certificate or None
        The certificate of the read-out.
    network : NetworkSummary
        Layers and sizes of the network.
    n_read : int
        The number of neurons that are read.
    n_sampled : int or None
        The number of neurons that the certificate is over; None if there is none.
    operations : Operations or None
        Operations on some sequences, if any were passed.
    shift : tuple of float
        What is added to the targets of each output of a least-squares classifier; empty if nothing is.
    """

    name: str
    history: History
    certificate: Certificate | None
    network: NetworkSummary
    n_read: int
    n_sampled: int | None
    operations: Operations | None
    shift: tuple[float, ...] = ()

    @property
    def trials(self) -> tuple[TrialSummary, ...]:
        """Mixtures that were tried, in order."""
        return tuple(trial for stage in self.history for trial in stage.trials)

    @property
    def seconds(self) -> float:
        """Seconds that all stages took."""
        return sum(stage.seconds for stage in self.history)

    def __repr__(self) -> str:
        """Return the text."""
        return "\n".join([f"{self.name}: {self.network.title}", *self._training(), *self._proof(), *self._costs()])

    def _training(self) -> list[str]:
        """Return the lines about training."""
        if not self.history:
            return ["Training: not known. Model files do not contain the history of training."]
        stages = ", ".join(f"{stage.name} {stage.seconds:.1f} s" for stage in self.history)
        lines = [f"Training: {self.seconds:.1f} s ({stages})."]
        if self.trials:
            lines += ["Tried, and judged on samples that were left out of the fit:", _table(self.trials)]
        else:
            lines += ["Stages, with their scores on samples that were held out:", str(self.history)]
        choices = [stage for stage in self.history if stage.name == "tuning" or stage.reason]
        best = "of {:,} families, the one with the best score"
        return [*lines, *(f"Chosen: {stage.reason or best.format(stage.n_trials)}." for stage in choices)]

    def _proof(self) -> list[str]:
        """Return the lines about the certificate."""
        if self.certificate is None:
            return ["Proven: nothing. The read-out is not the solution of a convex problem."]
        over = _OVER[self.certificate.scope].format(n="" if self.n_sampled is None else f"{self.n_sampled:,} ")
        objective = round_up(self.certificate.primal, 6)
        gap, share = round_up(self.certificate.gap, 2), round_up(self.certificate.relative_gap, 2)
        proven = (
            f"Proven: no other weights for {over} lower the training objective (loss plus penalty, "
            f"{objective:.6g}) by more than {gap:.2g}, which is {share:.2g} of it."
        )
        if self.shift:
            proven += (
                f" Its targets are shifted by {min(self.shift):+.2g} to {max(self.shift):+.2g}, "
                "so that the scores of samples left out favour no class."
            )
        lacks = "" if self.certificate.scope == "complete" else "that no other hidden neurons do better, or "
        return [proven, f"Not proven: {lacks}anything about new data."]

    def _costs(self) -> list[str]:
        """Return the lines about sizes and costs."""
        n_weights, n_bytes = self.network.layers[-1].n_nonzero, self.network.n_bytes
        read = plural(self.n_read, "neuron is", "neurons are")
        if self.n_sampled is not None:
            read = f"{self.n_read:,} of {plural(self.n_sampled, 'neuron')} {'is' if self.n_read == 1 else 'are'}"
        size = f"Size: {read} read by {plural(n_weights, 'weight')}; {n_bytes:,} bytes."
        cost = "pass sequences to summary to count spikes and synaptic operations"
        if self.operations is not None:
            total, n_samples = self.operations.total, self.operations.n_samples
            n_spikes, n_synaptic = total.n_spikes / n_samples, total.n_synaptic / n_samples
            over = f"mean of {plural(n_samples, 'sequence')}"
            cost = f"{n_spikes:,.0f} spikes and {n_synaptic:,.0f} synaptic operations ({over})"
        return [size, f"Cost of an answer: {cost}."]


def _how_left_out(trial: TrialSummary) -> str:
    by_group = "by group" if trial.is_by_group else ""
    return f"at once {by_group}".strip() if trial.is_held_out else by_group or "in turn"


def _table(trials: tuple[TrialSummary, ...]) -> str:
    """Return one line for each trial; the one that was chosen has a star. Costs appear if there are any."""
    rows = [
        (
            f"{'*' if trial.is_chosen else ' '} {trial.mixture}",
            trial.readout,
            f"{trial.n_neurons:,}",
            f"{trial.n_samples:,} {_how_left_out(trial)}",
            NOTHING if trial.accuracy is None else f"{trial.accuracy:.4f}",
            f"{trial.loss:.5g}",
            f"{trial.seconds:.1f}",
            NOTHING if trial.n_spikes is None else f"{trial.n_spikes:,.0f}",
            NOTHING if trial.n_bytes is None else f"{trial.n_bytes:,}",
        )
        for trial in trials
    ]
    header = ["  mixture", "read-out", "neurons", "left out", "accuracy", "loss", "seconds", "spikes", "bytes"]
    n_shown = 7 if all(trial.n_spikes is None for trial in trials) else 9
    return align(header[:n_shown], [row[:n_shown] for row in rows])
