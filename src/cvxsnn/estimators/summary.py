"""A fitted estimator in words: its training, its certificate and the cost of a prediction."""

from dataclasses import dataclass

from ..convex import Certificate
from ..core.formatting import align
from ..network.energy import Operations
from ..network.summary import NetworkSummary
from .history import History, TrialSummary

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
    """

    name: str
    history: History
    certificate: Certificate | None
    network: NetworkSummary
    n_read: int
    n_sampled: int | None
    operations: Operations | None

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
        for stage in self.history:
            if stage.reason:
                lines.append(f"Chosen: {stage.reason}.")
            elif stage.name == "tuning":
                lines.append(f"Chosen: of {stage.n_trials:,} families, the one with the best score.")
        return lines

    def _proof(self) -> list[str]:
        """Return the lines about the certificate."""
        if self.certificate is None:
            return ["Proven: nothing. The read-out is not the solution of a convex problem."]
        over = _OVER[self.certificate.scope].format(n="" if self.n_sampled is None else f"{self.n_sampled:,} ")
        gap, share = max(self.certificate.gap, 0.0), max(self.certificate.relative_gap, 0.0)
        proven = (
            f"Proven: no other weights for {over} lower the training objective (loss plus penalty, "
            f"{self.certificate.primal:.6g}) by more than {gap:.2g}, which is {share:.2g} of it."
        )
        lacks = "" if self.certificate.scope == "complete" else "that no other hidden neurons do better, or "
        return [proven, f"Not proven: {lacks}anything about new data."]

    def _costs(self) -> list[str]:
        """Return the lines about sizes and costs."""
        n_weights, n_bytes = self.network.layers[-1].n_nonzero, self.network.n_bytes
        of = "" if self.n_sampled is None else f" of {self.n_sampled:,}"
        size = f"Size: {self.n_read:,}{of} neurons are read by {n_weights:,} weights; {n_bytes:,} bytes."
        if self.operations is None:
            return [size, "Cost of an answer: pass sequences to summary to count spikes and synaptic operations."]
        total, n_samples = self.operations.total, self.operations.n_samples
        return [
            size,
            f"Cost of an answer: {total.n_spikes / n_samples:,.0f} spikes and "
            f"{total.n_synaptic / n_samples:,.0f} synaptic operations (mean of {n_samples:,} sequences).",
        ]


def _table(trials: tuple[TrialSummary, ...]) -> str:
    """Return one line for each trial; the one that was chosen has a star."""
    rows = [
        (
            f"{'*' if trial.is_chosen else ' '} {trial.mixture}",
            trial.readout,
            f"{trial.n_neurons:,}",
            f"{trial.n_samples:,}{' at once' if trial.is_held_out else ' in turn'}",
            "–" if trial.accuracy is None else f"{trial.accuracy:.4f}",
            f"{trial.loss:.5g}",
            f"{trial.seconds:.1f}",
        )
        for trial in trials
    ]
    return align(("  mixture", "read-out", "neurons", "left out", "accuracy", "loss", "seconds"), rows)
