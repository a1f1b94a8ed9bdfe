r"""Errors on rows left out, in closed form for the squared loss.

Let A be the active atoms of one output and :math:`K = D_A^\top \Omega D_A + rI`, of centred columns if there is an
intercept. Leaving row i out changes its residual e_i to

.. math:: \frac{e_i}{1 - h_i}, \qquad h_i = \omega_i \left( d_i^\top K^{-1} d_i + [\text{intercept}] \right) ,

with row i of the columns, d_i. This is exact for ridge. For s > 0 it holds as long as the same atoms stay active with
the same signs, so it is an approximation: it leaves out that the choice of atoms depends on row i.

Leaving a group of rows out is as exact: :func:`ridge_fold_scores` has the equation.

For ridge at many strengths one eigendecomposition serves all of them, of the Gram matrix or of the products of rows,
whichever is smaller. Of very many rows there is none: the products are inverted for each strength.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..data.sequences import deal_groups
from .linear import column_means, factorise, from_centre, gram_bytes, row_products, weighted_gram, with_ridge
from .losses import Squared
from .objective import Head, decide_class
from .path import RegularizationPath
from .problem import ConvexProblem
from .solving import Solution

_CERTAIN = 1e-12
"""Smallest 1 − h that counts as nonzero: with leverage one, a row's residual says nothing about the row left out."""

_SMALLEST = 1e-150
"""Smallest root of a weight that counts as nonzero."""

_MANY_ROWS = 2**14
"""Rows from which an inverse for each strength is faster than one eigendecomposition."""

_BLOCK = 2**25
"""Numbers per block of rows."""


@dataclass(frozen=True, eq=False)
class Validation:
    """Losses of solutions on rows that were left out of a fit; for classes, also hits.

    Parameters
    ----------
    method : str
        How the rows were left out, in words.
    loss : Tensor of shape (n_solutions, n_parts)
        The mean loss of each solution on each part: a row or a group of rows.
    accuracy : Tensor of shape (n_solutions, n_parts), optional
        The share of rows that are classified correctly; None for real targets.
    weight : Tensor of shape (n_parts,)
        The weight of each part; the weights sum to one.
    is_by_group : bool
        Whether the parts are groups of samples.

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
    is_by_group: bool = False

    def mean(self, of: str = "loss") -> Tensor:
        """Return the mean of each solution over the parts.

        Parameters
        ----------
        of : "loss" or "accuracy"
            The quantity to average.

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
            The averaged quantity.

        Returns
        -------
        Tensor of shape (n_solutions,)
            The standard errors.
        """
        return _standard_error(self._values(of), self.mean(of)[:, None], self.weight)

    def take(self, number: int) -> "Validation":
        """Return the validation of one solution.

        Parameters
        ----------
        number : int
            The number of the solution.

        Returns
        -------
        Validation
            With one row of losses.
        """
        rows = slice(number, number + 1)
        accuracy = None if self.accuracy is None else self.accuracy[rows]
        return replace(self, loss=self.loss[rows], accuracy=accuracy)

    def mean_of_repeats(self) -> "Validation":
        """Return one validation for several of the same parts, each after other folds; repeats add no parts.

        Returns
        -------
        Validation
            The means over the repeats.
        """
        accuracy = None if self.accuracy is None else self.accuracy.mean(0, keepdim=True)
        return replace(self, loss=self.loss.mean(0, keepdim=True), accuracy=accuracy)

    def _values(self, of: str) -> Tensor:
        values = self.accuracy if of == "accuracy" else self.loss
        assert values is not None
        return values


def paired_difference(values: Tensor, others: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of the differences between two numbers of each part, and its standard error."""
    difference = values - others
    mean = weight @ difference
    return mean, _standard_error(difference, mean, weight)


def _standard_error(values: Tensor, means: Tensor, weight: Tensor) -> Tensor:
    # Kish's effective sample size: with unequal weights, fewer parts count.
    n_effective = 1 / weight.square().sum()
    return ((values - means).square() @ weight / (n_effective - 1).clamp_min(1)).sqrt()


def row_losses(heads: tuple[Head, ...], scores: Tensor) -> Tensor:
    """Return the loss of each row at scores of shape (n_rows, n_outputs)."""
    return torch.stack([head.weight * head.loss.value(scores[:, head.columns], head.targets) for head in heads]).sum(0)


def row_hits(heads: tuple[Head, ...], scores: Tensor) -> Tensor | None:
    """Return which rows are classified correctly, averaged over the heads; None if no head has classes.

    Outputs mean a class as :func:`.objective.decide_class` says; of several labels per row, each output has its own.
    Pass all rows: a few of them do not show whether targets are classes.
    """
    hits: list[Tensor] = []
    for head in heads:
        values, of_head = torch.unique(head.targets), scores[:, head.columns]
        if len(values) == 2:
            classes = row_classes(head.targets)
            if classes is not None and of_head.shape[1] > 1:
                hits.append(decide_class(of_head) == classes)
            else:
                labels = decide_class(of_head[:, :, None], float(values.mean()))
                hits.append((labels == (head.targets == values[1])).all(1))
    return torch.stack(hits).to(scores).mean(0) if hits else None


def row_classes(targets: Tensor) -> Tensor | None:
    """Return the class of each row; None if targets are real numbers, or several labels each."""
    values = torch.unique(targets)
    if len(values) != 2:
        return None
    is_up: Tensor = (targets == values[1]).to(torch.int64)
    if targets.shape[1] == 1:
        return is_up[:, 0]
    return is_up.argmax(1) if bool((is_up.sum(1) == 1).all()) else None


def _losses_and_hits(problem: ConvexProblem, scores: Sequence[Tensor] | Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the loss of each row at each of several scores, and which rows are classified correctly."""
    hits = [hit for each in scores if (hit := row_hits(problem.heads, each)) is not None]
    losses = torch.stack([row_losses(problem.heads, each) for each in scores])
    return losses, torch.stack(hits) if hits else None


def leave_one_out(path: RegularizationPath) -> RegularizationPath:
    """Compute the leave-one-out errors of every solution of a path, for the squared loss.

    They are those of fits in which row i has no weight and all else, the strengths among it, stays as it is. They are
    exact if ``l1_strength`` is zero. Otherwise they take the active atoms as given. On 30 random problems with 60 to
    120 rows, their mean was within 5 % of that of n fits where at most a quarter as many atoms as rows were active, and
    within 15 % up to a half. With more active atoms it was within 10 % at an ``l2_strength`` of 0.05 or 0.1, and up to
    twice as high without a quadratic: judge by :class:`cvxsnn.fitting.Folds` there.

    Parameters
    ----------
    path : RegularizationPath
        Solutions of a problem with the squared loss and the penalty "l1" or "elastic-net".

    Returns
    -------
    RegularizationPath
        The same path with its ``validation``.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> D = np.random.default_rng(0).integers(0, 2, (40, 8))
    >>> problem = cs.ConvexProblem(D, D[:, 0] - D[:, 1], "squared", penalty="elastic-net")
    >>> path = cs.convex.leave_one_out(cs.solve_path(problem, [0.0], l2_strengths=[1.0, 1e-3]))
    >>> path.select("loss").problem.l2_strength
    0.001
    """
    problem = path[0].problem
    _check_squared(problem)
    if problem.groups is not None and (path.strengths > 0).any():
        raise InvalidInputError(
            "expected l1_strength=0 for the errors of groups that are left out, got more: use cvxsnn.fitting.Folds"
        )
    targets = problem.heads[0].targets
    ridges = [solution.problem.l2_strength for solution in path if solution.problem.l1_strength == 0]
    of_ridge = dict(zip(ridges, ridge_scores(problem, ridges), strict=True)) if ridges else {}
    scores = []
    for solution in path:
        if solution.problem.l1_strength == 0:
            # Leaving out a row without weight changes nothing, so its score is that of the fit.
            is_weighted = problem.row_weight[:, None] > 0
            scores.append(torch.where(is_weighted, of_ridge[solution.problem.l2_strength], solution.scores()))
        else:
            complement = (1 - _leverages(problem, solution)).clamp_min(_CERTAIN)
            scores.append(targets + (solution.scores() - targets) / complement)
    return replace(path, validation=validation_of(problem, scores))


def ridge_scores(problem: ConvexProblem, l2_strengths: Sequence[float]) -> Tensor:
    """Return the scores of each row by ridge regressions that leave it or its group out, without any fit.

    Parameters
    ----------
    problem : ConvexProblem
        A problem with the squared loss. Its own strengths do not matter.
    l2_strengths : sequence of float
        The strengths of the quadratic.

    Returns
    -------
    Tensor of shape (n_strengths, n_rows, n_outputs)
        The scores. Rows without weight get their targets.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.convex.left_out import ridge_scores
    >>> D = np.random.default_rng(0).integers(0, 2, (40, 100))
    >>> problem = cs.ConvexProblem(D, D[:, 0] - D[:, 1], "squared", penalty="elastic-net")
    >>> tuple(ridge_scores(problem, [1.0, 0.1]).shape)
    (2, 40, 1)
    """
    if problem.groups is not None:
        groups = torch.unique(problem.groups, return_inverse=True)[1]
        if len(torch.unique(groups[problem.row_weight > 0])) < 2:
            raise InvalidInputError("expected at least two groups of samples, to leave each of them out, got one")
        return ridge_fold_scores(problem, l2_strengths, groups)
    head, weight, root, targets = _weighted_targets(problem)
    n_rows, n_atoms = problem.dictionary.shape
    # For a single strength, one inverse is cheaper than one eigendecomposition.
    can_invert = n_rows <= n_atoms and problem.dictionary.is_in_memory
    inverts = can_invert and (n_rows > _MANY_ROWS or len(l2_strengths) == 1)
    ridges, scores = [strength / head.weight for strength in l2_strengths], []
    if inverts:
        blocks = _residuals_by_inverses(problem, targets, ridges)
    else:
        blocks = problem.row_workspace.get(_Spectrum, problem).residuals(targets, ridges)
    for rows, residual, complement in blocks:
        # An intercept fits the weighted mean, which adds ω_i to the leverage of row i.
        complement = (complement - problem.intercept * weight[rows]).clamp_min(_CERTAIN)
        scores.append(head.targets[rows] + residual / (complement * root[rows, 0].clamp_min(_SMALLEST))[:, :, None])
    return torch.where(weight[:, None] > 0, torch.cat(scores, dim=1), head.targets)


def ridge_fold_scores(problem: ConvexProblem, l2_strengths: Sequence[float], fold_of_row: Tensor) -> Tensor:
    r"""Return the scores of each row by ridge regressions without its fold, without any fit.

    Leaving the rows F out changes their weighted residuals e to :math:`(I - H)_{FF}^{-1} e`, with the matrix H that
    maps targets to scores. All else, the strength and the weights of the other rows among it, stays as it is.

    Parameters
    ----------
    problem : ConvexProblem
        A problem with the squared loss. Its own strengths do not matter.
    l2_strengths : sequence of float
        The strengths of the quadratic.
    fold_of_row : Tensor of shape (n_rows,), dtype int64
        The fold of each row. Rows with a negative one are never left out.

    Returns
    -------
    Tensor of shape (n_strengths, n_judged, n_outputs)
        The scores of the rows that are in a fold, in the order of the rows.
    """
    head, _, root, targets = _weighted_targets(problem)
    spectrum = problem.row_workspace.get(_Spectrum, problem)
    ridges = [strength / head.weight for strength in l2_strengths]
    residual = torch.cat([residual for _, residual, _ in spectrum.residuals(targets, ridges)], dim=1)
    scores = head.targets.repeat(len(ridges), 1, 1)
    folds = [torch.nonzero(fold_of_row == fold).squeeze(1) for fold in range(int(fold_of_row.max()) + 1)]
    for rows, some, blocks in spectrum.residual_matrices([rows for rows in folds if len(rows)], ridges):
        # The intercept's part of H, which fits the weighted mean, is √ω√ωᵀ.
        blocks = blocks - problem.intercept * root[rows] * root[rows].T
        blocks.diagonal(dim1=1, dim2=2).add_(_CERTAIN)
        scores[some, rows] += torch.linalg.solve(blocks, residual[some, rows]) / root[rows].clamp_min(_SMALLEST)
    return scores[:, fold_of_row >= 0]


def validation_of(problem: ConvexProblem, scores: Sequence[Tensor] | Tensor, method: str | None = None) -> Validation:
    """Return the losses and hits of rows at the scores of fits that left them out.

    Parameters
    ----------
    problem : ConvexProblem
        The problem, whose rows they are.
    scores : sequence of Tensor of shape (n_rows, n_outputs)
        The scores of each fit.
    method : str, optional
        How the rows were left out, in words; by default one by one, or group by group.

    Returns
    -------
    Validation
        One part per row, or per group.
    """
    loss, hits = _losses_and_hits(problem, scores)
    if problem.groups is None:
        return Validation(method or "leave one out", loss, hits, problem.row_weight)
    groups = torch.unique(problem.groups, return_inverse=True)[1]
    weight = problem.row_weight
    total = weight.new_zeros(int(groups.max()) + 1).index_add_(0, groups, weight)

    def mean(values: Tensor) -> Tensor:
        sums = values.new_zeros(len(values), len(total)).index_add_(1, groups, weight * values)
        return sums / total.clamp_min(_SMALLEST)

    accuracy = None if hits is None else mean(hits)
    return Validation(method or "leave one group out", mean(loss), accuracy, total, is_by_group=True)


def _check_squared(problem: ConvexProblem) -> None:
    if len(problem.heads) != 1 or type(problem.heads[0].loss) is not Squared or not problem.penalty.has_l1_norm:
        raise InvalidInputError(
            "expected the squared loss with the penalty 'l1' or 'elastic-net' for leave-one-out errors, got "
            f"{problem!r}: use cvxsnn.fitting.Folds"
        )


def _weighted_targets(problem: ConvexProblem) -> tuple[Head, Tensor, Tensor, Tensor]:
    """Return the head, the weights of the rows, their roots as a column, and roots times targets, centred or not."""
    _check_squared(problem)
    (head,) = problem.heads
    weight, root = problem.row_weight, problem.row_weight.sqrt()[:, None]
    # The residuals are those of the program of W − W₀, and so are leverages.
    targets = from_centre(problem).heads[0].targets
    return head, weight, root, root * (targets - weight @ targets if problem.intercept else targets)


class _Spectrum:
    """Eigenvalues of the weighted products of rows, or of the Gram matrix, which are the same but for zeros."""

    def __init__(self, problem: ConvexProblem) -> None:
        self._problem = problem.without_workspace()  # which keeps this spectrum: a cycle would keep both
        needed = gram_bytes(min(problem.dictionary.shape))
        check_fits(needed, problem.row_weight.device, "leave-one-out errors", "use fewer witnesses or rows")
        values, self._basis = torch.linalg.eigh(problem.row_workspace.get(_smaller_products, problem))
        self._by_rows = len(values) == problem.dictionary.n_rows
        # Rounding leaves some eigenvalues of a semidefinite matrix slightly below zero.
        self.values = values.clamp_min(0)

    def residuals(self, targets: Tensor, ridges: Sequence[float]) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield rows, their weighted residuals at each ridge, and one minus their leverages.

        If the basis is that of all rows, both are sums of shares ρ / (λ + ρ), which do not cancel.
        """
        ridge = torch.tensor(ridges, dtype=self.values.dtype, device=self.values.device)[:, None]
        share = ridge / (self.values + ridge)
        if self._by_rows:
            rotated = share.T[:, :, None] * (self._basis.T @ targets)[:, None]
            # One product of matrices for all ridges: a product per ridge would read the basis as often.
            fitted = (self._basis @ rotated.flatten(1)).view(rotated.shape).transpose(0, 1)
            yield slice(0, len(targets)), -fitted, share @ self._basis.square().T
            return
        inverse = 1 / (self.values + ridge)
        rotated = targets.new_zeros(len(self._basis), targets.shape[1])
        for rows, block in self._blocks():
            rotated += block.T @ targets[rows]
        for rows, block in self._blocks():
            yield rows, block @ (inverse[:, :, None] * rotated) - targets[rows], 1 - inverse @ block.square().T

    def residual_matrices(
        self, parts: Sequence[Tensor], ridges: Sequence[float]
    ) -> Iterator[tuple[Tensor, slice, Tensor]]:
        """Yield rows of each part, some of the ridges, and the diagonal block of I − H of these rows at each of them.

        H maps weighted targets to scores, leaving the intercept out.
        """
        basis = self._basis if self._by_rows else torch.cat([block for _, block in self._blocks()])
        ridge = torch.tensor(ridges, dtype=self.values.dtype, device=self.values.device)[:, None, None]
        for rows in parts:
            of_part = basis[rows]
            at_once = max(1, _BLOCK // of_part.numel())
            for start in range(0, len(ridges), at_once):
                some = slice(start, start + at_once)
                if self._by_rows:
                    blocks = (of_part * (ridge[some] / (self.values + ridge[some]))) @ of_part.T
                else:
                    blocks = torch.eye(len(rows)).to(basis) - (of_part / (self.values + ridge[some])) @ of_part.T
                yield rows, some, blocks

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yield weighted rows in the basis of the Gram matrix."""
        root = self._problem.row_weight.sqrt()[:, None]
        for rows, block in _centred_rows(self._problem):
            yield rows, (root[rows] * block) @ self._basis


def _residuals_by_inverses(
    problem: ConvexProblem, targets: Tensor, ridges: Sequence[float]
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield the same as :meth:`_Spectrum.residuals`, from ρ(K + ρ)⁻¹, the matrix that maps targets to residuals."""
    products = problem.row_workspace.get(row_products, problem)
    residuals, complements = [], []
    for ridge in ridges:
        factor = factorise(with_ridge(products, ridge))
        if factor is None:  # squares of the columns overflow: nothing is fitted
            residuals.append(-targets)
            complements.append(torch.ones_like(targets[:, 0]))
            continue
        residuals.append(-ridge * torch.cholesky_solve(targets, factor))
        complements.append(ridge * torch.cholesky_inverse(factor).diagonal())
        del factor  # before the next one: no other matrices are as large
    yield slice(0, len(targets)), torch.stack(residuals), torch.stack(complements)


def mean_eigenvalue(problem: ConvexProblem) -> float:
    """Return the mean over the rows of the eigenvalues of their products, the unit of ridge strengths."""
    return problem.row_workspace.get(_mean_eigenvalue, problem)


def _mean_eigenvalue(problem: ConvexProblem) -> float:
    n_rows, smaller = problem.dictionary.n_rows, min(problem.dictionary.shape)
    is_squared = type(problem.heads[0].loss) is Squared
    if is_squared and problem.dictionary.is_in_memory and smaller <= _MANY_ROWS:
        # The sum of the eigenvalues is the trace of the products, which leave-one-out errors need anyway.
        return float(problem.row_workspace.get(_smaller_products, problem).trace()) / n_rows
    blocks = _centred_rows(problem)
    return sum(float(problem.row_weight[rows] @ block.square().sum(1)) for rows, block in blocks) / n_rows


def _smaller_products(problem: ConvexProblem) -> Tensor:
    """Return the weighted products of rows or those of columns, whichever are fewer."""
    n_rows, n_atoms = problem.dictionary.shape
    function = row_products if n_rows <= n_atoms and problem.dictionary.is_in_memory else weighted_gram
    return problem.row_workspace.get(function, problem)


def _centred_rows(problem: ConvexProblem, atoms: Tensor | None = None) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows and their entries in the dictionary, centred if there is an intercept."""
    means = problem.row_workspace.get(column_means, problem) if problem.intercept else None
    n_rows = max(1, _BLOCK // problem.dictionary.n_atoms)
    for rows, block in problem.dictionary.iterate_rows(n_rows, atoms=atoms):
        yield rows, block if means is None else block - (means if atoms is None else means[atoms])


def _leverages(problem: ConvexProblem, solution: Solution) -> Tensor:
    """Return the leverages h of a solution with active atoms, of shape (n_rows, n_outputs)."""
    needed = gram_bytes(problem.dictionary.n_atoms)
    check_fits(needed, problem.row_weight.device, "leave-one-out errors", "use fewer witnesses")
    ridge = solution.problem.l2_strength / problem.heads[0].weight
    forms = [_quadratic_forms(problem, torch.nonzero(column).squeeze(1), ridge) for column in solution.coef.T]
    return problem.row_weight[:, None] * (torch.stack(forms, dim=1) + problem.intercept)


def _quadratic_forms(problem: ConvexProblem, atoms: Tensor, ridge: float) -> Tensor:
    """Return dᵀ K⁻¹ d of each row, over some atoms."""
    if len(atoms) == 0:
        return torch.zeros_like(problem.row_weight)
    gram = problem.row_workspace.get(weighted_gram, problem)
    factor = factorise(with_ridge(gram[atoms][:, atoms], ridge))
    if factor is None or not bool(torch.isfinite(factor).all()):
        # Squares of the columns overflow: assume leverage one for every row.
        return 1 / problem.row_weight.clamp_min(_SMALLEST)
    # K = LLᵀ, so dᵀK⁻¹d is ‖L⁻¹d‖².
    blocks = _centred_rows(problem, atoms)
    return torch.cat(
        [torch.linalg.solve_triangular(factor, block.T, upper=False).square().sum(0) for _, block in blocks]
    )


def sample_of_row(problem: ConvexProblem) -> npt.NDArray[np.int64]:
    """Return the number of the sample, or group of samples, of each row."""
    if problem.groups is not None:
        return problem.groups.cpu().numpy()
    dictionary = problem.dictionary
    n_steps = dictionary.n_steps if dictionary.readout == "all" else 1
    return np.repeat(np.arange(dictionary.n_rows // n_steps), n_steps)


def deal_rows(problem: ConvexProblem, n_folds: int, rng: np.random.Generator) -> Tensor:
    """Return the fold of each row, −1 for rows that are never left out: samples in random order, class by class.

    If there are fewer groups of samples than folds, each of them is a fold.
    """
    weighted = problem.row_weight.cpu().numpy() > 0
    samples_of_rows = sample_of_row(problem)
    class_of_row = next((c for head in problem.heads if (c := row_classes(head.targets)) is not None), None)
    classes = None if class_of_row is None else class_of_row.cpu().numpy()[weighted]
    if problem.groups is not None:
        fold_of_row, groups = np.full(len(weighted), -1), samples_of_rows[weighted]
        fold_of_row[weighted] = deal_groups(groups, np.zeros_like(groups) if classes is None else classes, n_folds, rng)
        return torch.from_numpy(fold_of_row).to(problem.row_weight.device)
    samples = np.unique(samples_of_rows[weighted])
    class_of_sample = np.zeros(samples_of_rows.max() + 1, dtype=np.int64)
    if classes is not None:
        class_of_sample[samples_of_rows[weighted]] = classes  # of several rows the last one stays
        occurring, owners = np.unique(np.stack([classes, samples_of_rows[weighted]]), axis=1)
        # A fit without the only sample of a class cannot predict the class.
        is_alone = np.bincount(occurring) == 1
        samples = np.setdiff1d(samples, owners[is_alone[occurring]])
    if len(samples) < n_folds:
        raise InvalidInputError(
            f"expected at most as many folds as samples that can be left out, got n_folds={n_folds} for {len(samples)}"
        )
    samples = rng.permutation(samples)
    # Dealing them out in turn, class by class, gives folds equally many of each class, up to one.
    samples = samples[np.argsort(class_of_sample[samples], kind="stable")]
    fold_of_sample = np.full_like(class_of_sample, -1)
    fold_of_sample[samples] = np.arange(len(samples)) % n_folds
    return torch.from_numpy(fold_of_sample[samples_of_rows]).to(problem.row_weight.device)
