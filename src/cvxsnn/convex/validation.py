"""What solutions do on rows that they were not fitted to."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .objective import Head


@dataclass(frozen=True, eq=False)
class Validation:
    """Losses, and where targets are classes hits, of solutions on parts of the rows that were left out of a fit.

    Parameters
    ----------
    method : str
        How the rows were left out, in words.
    loss : Tensor of shape (n_solutions, n_parts)
        The mean loss of each solution on each part: a row, or a fold.
    accuracy : Tensor of shape (n_solutions, n_parts), optional
        The share of rows that are classified correctly; None for real targets.
    weight : Tensor of shape (n_parts,)
        The weight of each part; the weights sum to one.
    """

    method: str
    loss: Tensor
    accuracy: Tensor | None
    weight: Tensor

    def mean(self, of: str = "loss") -> Tensor:
        """Return the mean of each solution over the parts.

        Parameters
        ----------
        of : "loss" or "accuracy"
            What to average.

        Returns
        -------
        Tensor of shape (n_solutions,)
            The means.
        """
        return self._values(of) @ self.weight

    def standard_error(self, of: str = "loss") -> Tensor:
        """Return the standard error of each mean, taking the parts for independent draws.

        Parameters
        ----------
        of : "loss" or "accuracy"
            What was averaged.

        Returns
        -------
        Tensor of shape (n_solutions,)
            The standard errors.
        """
        values = self._values(of)
        spread = (values - self.mean(of)[:, None]).square() @ self.weight
        n_effective = 1 / self.weight.square().sum()
        return (spread / (n_effective - 1).clamp_min(1)).sqrt()

    def _values(self, of: str) -> Tensor:
        values = self.accuracy if of == "accuracy" else self.loss
        assert values is not None
        return values


def row_losses(heads: tuple[Head, ...], scores: Tensor) -> Tensor:
    """Return the loss of each row at scores of shape (n_rows, n_outputs)."""
    return torch.stack([head.weight * head.loss.value(scores[:, head.columns], head.targets) for head in heads]).sum(0)


def row_hits(heads: tuple[Head, ...], scores: Tensor) -> Tensor | None:
    """Return which rows are classified correctly, averaged over the heads; None if no head has classes.

    Of several outputs the largest names the class. A single one does by the side of the middle between two targets.
    """
    hits = [_hits(head.targets, scores[:, head.columns]) for head in heads]
    known = [hit for hit in hits if hit is not None]
    return torch.stack(known).mean(0) if known else None


def _hits(targets: Tensor, scores: Tensor) -> Tensor | None:
    values = torch.unique(targets)
    if len(values) != 2:
        return None
    hits: Tensor
    is_up = targets == values[1]
    if targets.shape[1] > 1 and bool((is_up.sum(1) == 1).all()):
        hits = scores.argmax(1) == is_up.to(torch.uint8).argmax(1)
    else:
        hits = ((scores > values.mean()) == is_up).all(1)
    return hits.to(scores.dtype)
