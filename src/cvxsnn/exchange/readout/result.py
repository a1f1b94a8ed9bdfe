"""The outcome of a read-out reconstruction."""

from dataclasses import dataclass

from torch import nn

from ...convex import Certificate, Solution


@dataclass(frozen=True)
class ReadoutScore:
    """How good a read-out is on the data that it was solved for.

    Parameters
    ----------
    loss : float
        Mean loss of the layer's outputs, averaged over the steps or at the last one, without the penalty.
    accuracy : float or None
        Accuracy of the largest of those outputs; None for real targets.
    model_accuracy : float or None
        Accuracy of the model's own decisions, to which output neurons contribute; None where it is unknown.
    n_weights : int
        Number of non-zero weights.
    n_read : int
        Number of neurons that have a non-zero weight.
    """

    loss: float
    accuracy: float | None
    model_accuracy: float | None
    n_weights: int
    n_read: int


@dataclass(frozen=True, eq=False)
class ReadoutResult:
    """The outcome of :func:`cvxsnn.reconstruct_readout`.

    Parameters
    ----------
    model : nn.Module
        The model with the optimal weights.
    layer : str
        Name of the layer that holds them.
    solution : Solution
        The solution of the convex program.
    before : ReadoutScore
        Scores of the model's own weights.
    after : ReadoutScore
        Scores of the weights that it has now.
    has_changed : bool
        Whether the weights were written. They are not where the model's own have the lower loss.
    scale : float
        The layer holds ``scale`` times the solution, where output neurons follow that have to fire; 1 otherwise.
    shift : float
        Added to all outputs for the same purpose; 0 otherwise. Neither changes which output is the largest.
    notes : tuple of str
        What a reader of the numbers should know.
    seconds : float
        Time taken.
    """

    model: nn.Module
    layer: str
    solution: Solution
    before: ReadoutScore
    after: ReadoutScore
    has_changed: bool
    scale: float
    shift: float
    notes: tuple[str, ...]
    seconds: float

    @property
    def certificate(self) -> Certificate:
        """The proof that no other read-out of these spikes has a lower objective."""
        return self.solution.certificate

    def __str__(self) -> str:
        """Return a table."""
        before, after = self.before, self.after
        rows = [
            ("", "before", "after"),
            ("loss", f"{before.loss:.5f}", f"{after.loss:.5f}"),
            ("accuracy of the layer", _share(before.accuracy), _share(after.accuracy)),
            ("accuracy of the model", _share(before.model_accuracy), _share(after.model_accuracy)),
            ("weights", f"{before.n_weights:,}", f"{after.n_weights:,}"),
            ("neurons read", f"{before.n_read:,}", f"{after.n_read:,}"),
        ]
        table = [f"{name:<24}{first:>12}{second:>12}" for name, first, second in rows]
        head = f"layer {self.layer!r}, {self.seconds:.1f} s"
        return "\n".join([head, *table, str(self.certificate), *(f"note: {note}" for note in self.notes)])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
