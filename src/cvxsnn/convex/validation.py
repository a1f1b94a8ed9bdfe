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
    n_repeats : int
        How often each row was left out.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> D = np.random.default_rng(0).integers(0, 2, (40, 8))
    >>> problem = cs.ConvexProblem(D, D[:, 0] - D[:, 1], "squared", penalty="elastic-net")
    >>> path = cs.convex.leave_one_out(cs.solve_path(problem, [0.0], l2_strengths=[1.0, 1e-3]))
    >>> path.validation.method, tuple(path.validation.mean("loss").shape)
    ('leave one out', (2,))
    """

    method: str
    loss: Tensor
    accuracy: Tensor | None
    weight: Tensor
    n_repeats: int = 1

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
        """Return the standard error of each mean, taking the parts of one repeat for independent draws.

        Repeats average out the luck of the parts, but have no rows of their own: they do not lower it.

        Parameters
        ----------
        of : "loss" or "accuracy"
            What was averaged.

        Returns
        -------
        Tensor of shape (n_solutions,)
            The standard errors.
        """
        return _standard_error(self._values(of), self.mean(of)[:, None], self.weight, self.n_repeats)

    def _values(self, of: str) -> Tensor:
        values = self.accuracy if of == "accuracy" else self.loss
        assert values is not None
        return values


def paired_difference(values: Tensor, others: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the differences between two numbers of each part, and its standard error."""
    difference = values - others
    mean = weight @ difference
    return mean, _standard_error(difference, mean, weight)


def _standard_error(values: Tensor, means: Tensor, weight: Tensor, n_repeats: int = 1) -> Tensor:
    n_effective = 1 / weight.square().sum() / n_repeats
    return ((values - means).square() @ weight / (n_effective - 1).clamp_min(1)).sqrt()


def row_losses(heads: tuple[Head, ...], scores: Tensor) -> Tensor:
    """Return the loss of each row at scores of shape (n_rows, n_outputs)."""
    return torch.stack([head.weight * head.loss.value(scores[:, head.columns], head.targets) for head in heads]).sum(0)


def row_hits(heads: tuple[Head, ...], scores: Tensor) -> Tensor | None:
    """Return which rows are classified correctly, averaged over the heads; None if no head has classes.

    Of several outputs the largest names the class. A single one does by the side of the middle between two targets.
    All rows must be there: from a few of them, classes cannot be told from real targets.
    """
    hits = [_hits(head.targets, scores[:, head.columns]) for head in heads]
    known = [hit for hit in hits if hit is not None]
    return torch.stack(known).mean(0) if known else None


def row_classes(targets: Tensor) -> Tensor | None:
    """Return the class of each row; None if targets are real numbers, or several labels each."""
    values = torch.unique(targets)
    if len(values) != 2:
        return None
    is_up: Tensor = (targets == values[1]).to(torch.int64)
    if targets.shape[1] == 1:
        return is_up[:, 0]
    return is_up.argmax(1) if bool((is_up.sum(1) == 1).all()) else None


def _hits(targets: Tensor, scores: Tensor) -> Tensor | None:
    values = torch.unique(targets)
    if len(values) != 2:
        return None
    hits: Tensor
    classes = row_classes(targets)
    if classes is not None and targets.shape[1] > 1:
        hits = scores.argmax(1) == classes
    else:
        hits = ((scores > values.mean()) == (targets == values[1])).all(1)
    return hits.to(scores)
