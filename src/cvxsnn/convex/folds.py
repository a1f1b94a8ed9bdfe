"""Cross-validation of a path: fit without a fold, judge on it."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, check_int_at_least, check_positive_int
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator
from .path import RegularizationPath, solve_path
from .problem import ConvexProblem
from .solution import Solution
from .validation import Validation, row_classes, row_hits, row_losses


def cross_validate(
    path: RegularizationPath,
    *,
    n_folds: int = 5,
    n_repeats: int = 1,
    seed: int = 0,
    tol: float = 1e-4,
    groups: Array | None = None,
) -> RegularizationPath:
    """Solve a path again without each fold of the samples, and compute the errors on the fold.

    The strengths are those of the path. They are relative to the mean loss, since the weights of the remaining rows
    again sum to one.

    A sample is a row, or all steps of a sequence if the dictionary has a row for each. Folds have equally many samples,
    and equally many of each class, up to one: that of the sample's last row, in the first head with classes. A class
    with fewer samples than folds is missing from some folds. The only sample of a class is never left out, nor are
    samples without weight: they have no part in the errors.

    Parameters
    ----------
    path : RegularizationPath
        Solutions of a problem, of any loss and penalty.
    n_folds : int
        The number of folds.
    n_repeats : int
        How often to draw folds.
    seed : int
        The seed of the folds.
    tol : float
        The relative gap of each certificate to reach.
    groups : array of shape (n_samples,), optional
        Labels of the samples; those with equal labels are left out together, as one sample.

    Returns
    -------
    RegularizationPath
        The same path with its ``validation``, whose parts are the folds.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> D = np.random.default_rng(0).integers(0, 2, (40, 8))
    >>> path = cs.solve_path(cs.ConvexProblem(D, D[:, 0], "logistic"), [0.2, 0.02])
    >>> path = cs.convex.cross_validate(path)
    >>> path.validation.method, tuple(path.validation.loss.shape)
    ('5 folds, 1 time', (2, 5))
    >>> path.select("accuracy").problem.l1_strength
    0.2
    """
    check_int_at_least("n_folds", n_folds, 2)
    check_positive_int("n_repeats", n_repeats)
    problem = path[0].problem
    sample_of_row = _samples(problem, groups)
    losses, accuracies, weights = [], [], []
    for repeat in range(n_repeats):
        fold_of_row = deal_rows(problem, sample_of_row, n_folds, child_generator(seed, "cross_validate", repeat))
        scores = _scores_left_out(path, fold_of_row, n_folds, tol)
        share = torch.nn.functional.one_hot(fold_of_row + 1, n_folds + 1)[:, 1:].to(problem.row_weight)
        share = share * problem.row_weight[:, None]
        weights.append(share.sum(0))
        losses.append(torch.stack([row_losses(problem.heads, own) for own in scores]) @ share / share.sum(0))
        hits = [hit for own in scores if (hit := row_hits(problem.heads, own)) is not None]
        accuracies += [torch.stack(hits) @ share / share.sum(0)] if hits else []
    weight = torch.cat(weights)
    validation = Validation(
        f"{n_folds} folds, {n_repeats} time{'s' if n_repeats > 1 else ''}",
        torch.cat(losses, dim=1),
        torch.cat(accuracies, dim=1) if accuracies else None,
        weight / weight.sum(),
        n_repeats,
    )
    return replace(path, validation=validation)


def _samples(problem: ConvexProblem, groups: Array | None) -> npt.NDArray[np.int64]:
    """Return the number of the sample, or group of samples, of each row."""
    dictionary = problem.dictionary
    n_steps = dictionary.n_steps if dictionary.readout == "all" else 1
    n_samples = dictionary.n_rows // n_steps
    if groups is None:
        samples = np.arange(n_samples)
    else:
        given = groups.cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
        if given.shape != (n_samples,):
            raise InvalidInputError(f"expected groups of shape ({n_samples},), one per sample, got {given.shape}")
        samples = np.unique(given, return_inverse=True)[1]
    return np.repeat(samples, n_steps)


def deal_rows(
    problem: ConvexProblem, sample_of_row: npt.NDArray[np.int64], n_folds: int, rng: np.random.Generator
) -> Tensor:
    """Return the fold of each row, −1 for rows that are never left out: samples in random order, class by class."""
    weighted = problem.row_weight.cpu().numpy() > 0
    samples = np.unique(sample_of_row[weighted])
    class_of_row = next((c for head in problem.heads if (c := row_classes(head.targets)) is not None), None)
    class_of_sample = np.zeros(sample_of_row.max() + 1, dtype=np.int64)
    if class_of_row is not None:
        classes = class_of_row.cpu().numpy()[weighted]
        class_of_sample[sample_of_row[weighted]] = classes  # of several rows the last one stays
        occurring, owners = np.unique(np.stack([classes, sample_of_row[weighted]]), axis=1)
        is_alone = np.bincount(occurring) == 1
        samples = np.setdiff1d(samples, owners[is_alone[occurring]])
    if len(samples) < n_folds:
        raise InvalidInputError(
            f"expected at most as many folds as samples that can be left out, got n_folds={n_folds} for {len(samples)}"
        )
    samples = rng.permutation(samples)
    samples = samples[np.argsort(class_of_sample[samples], kind="stable")]
    fold_of_sample = np.full_like(class_of_sample, -1)
    fold_of_sample[samples] = np.arange(len(samples)) % n_folds
    return torch.from_numpy(fold_of_sample[sample_of_row]).to(problem.row_weight.device)


def _scores_left_out(path: RegularizationPath, fold_of_row: Tensor, n_folds: int, tol: float) -> Tensor:
    """Return the scores of each row by the solutions without its fold, of shape (n_solutions, n_rows, n_outputs)."""
    problem = path[0].problem
    scores = problem.row_weight.new_zeros(len(path), problem.dictionary.n_rows, problem.n_outputs)
    for fold in range(n_folds):
        is_left = fold_of_row == fold
        left = torch.nonzero(is_left).squeeze(1)
        kept = problem.take_rows(torch.nonzero(~is_left).squeeze(1))
        _check_contrast(kept)
        dictionary = problem.dictionary.take_rows(left)
        for place, solution in _solve_again(path, kept, tol):
            scores[place, left] = dictionary.matvec(solution.coef) + solution.intercept
    return scores


def _solve_again(path: RegularizationPath, problem: ConvexProblem, tol: float) -> Iterator[tuple[int, Solution]]:
    """Yield the place of each solution on the path, and the solution of another problem at its strengths."""
    columns: dict[float, list[tuple[float, int]]] = {}
    for place, solution in enumerate(path):
        columns.setdefault(solution.problem.l2_strength, []).append((solution.problem.l1_strength, place))
    for l2_strength, cells in columns.items():
        falling = sorted(cells, reverse=True)
        again = solve_path(problem, [strength for strength, _ in falling], l2_strengths=[l2_strength], tol=tol)
        yield from zip([place for _, place in falling], again, strict=True)


def _check_contrast(problem: ConvexProblem) -> None:
    for head in problem.heads:
        if problem.intercept and head.loss.lacks_contrast(head.targets[problem.row_weight > 0]):
            raise InvalidInputError(
                f"expected two classes in head {head.name!r} among the rows that remain without a fold, got one class "
                "only, which an intercept separates by itself: use another seed, more folds or intercept=False"
            )
