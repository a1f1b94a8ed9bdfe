"""What an optimal read-out changed."""

from dataclasses import dataclass

from torch import nn

from ...convex import Certificate, Solution


@dataclass(frozen=True)
class ReadoutScore:
    """How good a read-out is on the data that it was given.

    Attributes
    ----------
    loss : float
        Mean loss of the layer's outputs, averaged over the steps or at the last one; without the penalty.
    accuracy : float or None
        Of the largest of those outputs; None for real targets.
    model_accuracy : float or None
        Of what the model itself decides, in which output neurons have a part; None where that is not known.
    n_weights, n_read : int
        Weights that are not zero, and neurons that have one.
    """

    loss: float
    accuracy: float | None
    model_accuracy: float | None
    n_weights: int
    n_read: int


@dataclass(frozen=True, eq=False)
class ReadoutResult:
    """What :func:`cvxsnn.reconstruct_readout` did.

    Attributes
    ----------
    model : nn.Module, with the optimal weights
    layer : str, the name of the layer that has them
    solution : Solution
    before, after : ReadoutScore
    has_changed : bool
        Whether the weights were written. They are not where the model's own have the lower loss.
    scale, shift : float
        The layer holds ``scale`` times the solution plus ``shift``, the same for all outputs, where output neurons
        follow that have to fire; 1 and 0 otherwise. Neither changes which of the layer's outputs is the largest.
    notes : tuple of str
        What a reader of the numbers should know.
    seconds : float
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
        """A table for a person."""
        one, two = self.before, self.after
        rows = [
            ("", "before", "after"),
            ("loss", f"{one.loss:.5f}", f"{two.loss:.5f}"),
            ("accuracy of the layer", _share(one.accuracy), _share(two.accuracy)),
            ("accuracy of the model", _share(one.model_accuracy), _share(two.model_accuracy)),
            ("weights", f"{one.n_weights:,}", f"{two.n_weights:,}"),
            ("neurons read", f"{one.n_read:,}", f"{two.n_read:,}"),
        ]
        table = [f"{name:<24}{before:>12}{after:>12}" for name, before, after in rows]
        head = f"layer {self.layer!r}, {self.seconds:.1f} s"
        return "\n".join([head, *table, str(self.certificate), *(f"note: {note}" for note in self.notes)])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
