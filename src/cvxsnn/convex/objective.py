"""The loss part of an objective: one loss per head, its targets, and the weights of the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, as_real, as_tensor, check_choice, relative_weights
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import TrainingSet
from ..dictionary import Readout
from ..dictionary.base import parse_readout
from .losses import Loss, Softmax, make_loss

TimestepWeighting = Literal["uniform", "ramped"]
Scores = TypeVar("Scores", Tensor, npt.NDArray[Any])


@dataclass(frozen=True, eq=False)
class Head:
    """One loss of the objective, on its own output columns.

    Attributes
    ----------
    name : str
    loss : Loss
    weight : float, multiplies the loss
    columns : slice of the outputs
    targets : Tensor of shape (n_rows, n_columns), encoded by the loss
    """

    name: str
    loss: Loss
    weight: float
    columns: slice
    targets: Tensor


def weighted_loss(heads: Sequence[Head], row_weight: Tensor, scores: Tensor) -> Tensor:
    """Return Σ_h λ_h Σ_i ω_i ℓ_h at scores of shape (n_rows, n_outputs)."""
    return torch.stack([h.weight * (row_weight @ h.loss.value(scores[:, h.columns], h.targets)) for h in heads]).sum()


def decide_class(scores: Scores, midpoint: float = 0.0) -> Scores:
    """Return the class that scores of shape (..., n_scores) mean, as an integer array of shape (...).

    The largest of several scores decides; of equal ones, the first. A single score separates two classes: above the
    midpoint between their targets it means the second class, otherwise the first. So a tie is always the first class,
    as in scikit-learn. Networks, estimators, judges, pages and read-outs all decide here.
    """
    return 1 * (scores[..., 0] > midpoint) if scores.shape[-1] == 1 else scores.argmax(-1)


def timestep_weights(weighting: TimestepWeighting, n_steps: int) -> Tensor:
    """Return the relative weight of each step, shape (n_steps,): 1, or t for t = 1 ... n_steps."""
    check_choice("timestep_weighting", weighting, ("uniform", "ramped"))
    if weighting == "ramped":
        return torch.arange(1, n_steps + 1, dtype=torch.float64)
    return torch.ones(n_steps, dtype=torch.float64)


def check_weighting(weighting: TimestepWeighting, readout: Readout) -> None:
    """Refuse ramped weights for rows that are no steps."""
    if weighting == "ramped" and readout != "all":
        raise InvalidInputError("expected a trajectory dictionary (readout='all') for ramped timestep weights")


def make_heads(
    targets: Array | Mapping[str, Array],
    loss: str | Loss | Mapping[str, str | Loss],
    head_weights: Mapping[str, float],
    n_samples: int,
    n_steps: int,
    device: torch.device,
) -> tuple[Head, ...]:
    """Return the losses of an objective, one for each named array of targets; a sample has ``n_steps`` rows."""
    named = targets if isinstance(targets, Mapping) else {"label": targets}
    if not named:
        raise InvalidInputError("expected targets for at least one head, got none")
    unknown = (set(head_weights) | set(loss if isinstance(loss, Mapping) else ())) - set(named)
    if unknown:
        raise InvalidInputError(f"expected losses and weights for heads {sorted(named)}, got {sorted(unknown)} too")
    heads: list[Head] = []
    for name, values in named.items():
        if isinstance(loss, Mapping) and name not in loss:
            raise InvalidInputError(f"expected a loss for head {name!r}, got none")
        kind = make_loss(loss[name] if isinstance(loss, Mapping) else loss)
        weight = float(head_weights.get(name, 1.0))
        if not 0 < weight < float("inf"):
            raise InvalidInputError(f"expected the weight of head {name!r} to be above zero, got {weight}")
        encoded = kind.encode(_one_per_row(name, values, n_samples, n_steps)).to(device)
        start = heads[-1].columns.stop if heads else 0
        heads.append(Head(name, kind, weight, slice(start, start + encoded.shape[1]), encoded))
    return tuple(heads)


def _one_per_row(name: str, values: Array, n_samples: int, n_steps: int) -> Tensor:
    """Return targets with one entry per row; (n_samples, n_steps) is flattened if each step has a row."""
    values = as_tensor("targets", values)
    shape, n_rows = tuple(values.shape), n_samples * n_steps
    if n_steps > 1 and shape[:2] == (n_samples, n_steps):
        values = values.flatten(0, 1)
    if values.ndim == 0 or len(values) != n_rows:
        raise InvalidInputError(
            f"expected one target for each of {plural(n_rows, 'row')} in head {name!r}, got shape {shape}"
        )
    return values


def make_row_weight(
    weight: Array | None, weighting: TimestepWeighting, n_samples: int, n_steps: int, device: torch.device
) -> Tensor:
    """Return the weights of the rows, which sum to one: those of the steps times those of the rows, if any."""
    of_steps = timestep_weights(weighting, n_steps).repeat(n_samples)
    if weight is not None:
        weight = torch.tensor(as_real("row_weight", weight))  # a copy: data may be read-only
        if weight.shape != of_steps.shape:
            raise InvalidInputError(f"expected row_weight of shape {tuple(of_steps.shape)}, got {tuple(weight.shape)}")
        of_steps = of_steps * relative_weights("row_weight", weight)
    return (of_steps / of_steps.sum()).to(device)


@dataclass(frozen=True)
class Objective:
    """The training objective without the penalty.

    Parameters
    ----------
    loss : str, Loss, or a mapping of heads to them
        The loss of each head: "squared", "hinge", "squared_hinge", "logistic", "softmax", or one of your own.
    readout : "last", "all", "mean" or "windows-k"
        The spikes to read: those of the last step, of every step, their mean over the steps, or their means in k
        windows of time.
    head_weights : mapping of heads to float
        The weight of each head's loss; 1 when not given.
    timestep_weighting : "uniform" or "ramped"
        For readout "all": whether step t has weight 1 or t.

    Examples
    --------
    >>> from cvxsnn.convex import Objective
    >>> objective = Objective("softmax", readout="mean")
    >>> objective.readout
    'mean'
    """

    loss: str | Loss | Mapping[str, str | Loss]
    readout: Readout = "last"
    head_weights: Mapping[str, float] = field(default_factory=dict)
    timestep_weighting: TimestepWeighting = "uniform"

    def __post_init__(self) -> None:
        """Check the read-out."""
        object.__setattr__(self, "readout", str(parse_readout(self.readout)))

    def for_classes(self, n_classes: Mapping[str, int]) -> Self:
        """Return the objective with as many softmax outputs as there are classes, whether all occur or not.

        Parameters
        ----------
        n_classes : mapping of heads to int
            The number of classes of each head.

        Returns
        -------
        Objective
            The objective with softmax losses of these sizes.
        """
        named = self.loss if isinstance(self.loss, Mapping) else dict.fromkeys(n_classes, self.loss)
        known = {
            head: Softmax(n_classes[head]) if loss == "softmax" and head in n_classes else loss
            for head, loss in named.items()
        }
        return replace(self, loss=known)

    def heads(self, data: TrainingSet) -> tuple[tuple[Head, ...], Tensor]:
        """Return the losses with their targets, and the weights of the rows.

        Parameters
        ----------
        data : TrainingSet
            Sequences with targets; there is one row per sequence, or one per step for readout "all".

        Returns
        -------
        heads : tuple of Head
            One loss per head, with its encoded targets.
        row_weight : Tensor of shape (n_rows,)
            Weights that sum to one.
        """
        check_weighting(self.timestep_weighting, self.readout)
        rows = len(data), data.inputs.shape[1] if self.readout == "all" else 1, data.inputs.device
        heads = make_heads(data.targets, self.loss, self.head_weights, *rows)
        return heads, make_row_weight(self.row_weight(data, rows[1]), self.timestep_weighting, *rows)

    def row_weight(self, data: TrainingSet, n_steps: int) -> Tensor | None:
        """Return the sample weights as weights of the rows.

        Parameters
        ----------
        data : TrainingSet
            Sequences with their weights.
        n_steps : int
            The number of rows per sequence.

        Returns
        -------
        Tensor of shape (n_rows,), or None
            None if all sequences have the same weight.
        """
        return None if data.sample_weight is None else data.sample_weight.repeat_interleave(n_steps)


def logits(scores: Tensor, scale: float) -> Tensor:
    """Return scaled scores of all classes, whose softmax is the probability.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_outputs)
        Scores; one output is positive for the second of two classes.
    scale : float
        The factor.

    Returns
    -------
    Tensor of shape (n_samples, n_classes)
        The logits.
    """
    scaled = scale * scores
    # The softmax of (0, s) is the logistic function of s.
    return torch.cat((torch.zeros_like(scaled), scaled), dim=1) if scores.shape[1] == 1 else scaled
