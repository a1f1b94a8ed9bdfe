r"""Ridge regression from sums over the rows, when there are far more rows than columns.

With Z = [D, 1, Y], columns, ones and targets side by side, all that ridge needs of n rows is :math:`S = Z^\top \Omega
Z`, of the same size however many rows there are, and the sums of more rows add to it. For x = (W, b, −I) the residuals
are Zx, their loss is :math:`\tfrac12 \mathrm{tr}\, x^\top S x`, and Sx has their correlations with columns and ones.

The loss minimised over b is r-strongly convex in W, so that coefficients with gradient g, and with residuals whose mean
is m, are within :math:`\|g\|^2 / 2r + \tfrac12 \|m\|^2` of the optimum. This is the duality gap of the balanced
residuals, without the cancellation of two values that are almost equal.

The bounds hold for the program over the rows themselves. By the Cauchy–Schwarz inequality, S is wrong by at most
:math:`\gamma_K \sigma_i \sigma_j`, where K counts the roundings of a term and σ² is the diagonal of S, and so is what
is computed from it: an entry j of Sx by a multiple of :math:`\gamma\, \sigma_j\, \sigma^\top |x|`, and the loss by
:math:`\gamma\, (\sigma^\top |x|)^2`.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ..core.formatting import plural
from ..core.memory import check_fits, symmetric_bytes
from ..dictionary import Dictionary
from .certificate import VANISHED, Certificate, Scope, checked_certificate
from .linear import GRAM_COPIES, solve_ridge
from .losses import UNIT, gamma

_ROWS = 512
"""Rows that are summed in one product: a term is rounded once for each of them, and then once for each block."""

_OPERATIONS = 16
"""Roundings beside those of sums, at most: of entries, weights, scales, and the error bounds themselves."""


@dataclass(frozen=True, eq=False)
class RowSums:
    """The products of all pairs of columns, ones and targets, summed over weighted rows.

    Parameters
    ----------
    products : Tensor of shape (n_atoms + 1 + n_outputs, n_atoms + 1 + n_outputs), dtype float64
        The matrix S, of rows whose weights need not sum to one.
    shift : Tensor of shape (n_outputs,), dtype float64
        What was subtracted from the targets: sums of squares around a distant mean would lose their digits. Zero for
        programs without an intercept.
    n_blocks : int
        The number of blocks of rows that were added up.
    """

    products: Tensor
    shift: Tensor
    n_blocks: int

    @property
    def n_atoms(self) -> int:
        """The number of columns."""
        return len(self.products) - 1 - len(self.shift)

    @staticmethod
    def n_bytes(n_atoms: int, n_outputs: int) -> int:
        """Return the bytes of the sums, whatever the number of rows."""
        return symmetric_bytes(n_atoms + 1 + n_outputs)

    @classmethod
    def of(cls, dictionary: Dictionary, targets: Tensor, weight: Tensor, shift: Tensor) -> "RowSums":
        """Return the sums over some rows.

        Parameters
        ----------
        dictionary : Dictionary
            The columns.
        targets : Tensor of shape (n_rows, n_outputs)
            The targets.
        weight : Tensor of shape (n_rows,)
            The weights of the rows.
        shift : Tensor of shape (n_outputs,)
            What to subtract from the targets.

        Returns
        -------
        RowSums
            Their sums.
        """
        size = dictionary.n_atoms + 1 + targets.shape[1]
        check_fits(symmetric_bytes(size), dictionary.device, f"the sums of {plural(size, 'column')}")
        products = torch.zeros(size, size, dtype=torch.float64, device=dictionary.device)
        n_blocks = 0
        for rows, block in dictionary.iterate_rows(_ROWS):
            whole = torch.cat((block, torch.ones_like(block[:, :1]), targets[rows] - shift), dim=1)
            products.addmm_(whole.T, whole * weight[rows, None])
            n_blocks += 1
        return cls(products, shift, n_blocks)

    def plus(self, other: Self, atoms: Tensor) -> Self:
        """Return the sums over the rows of both.

        Parameters
        ----------
        other : RowSums
            The sums over other rows.
        atoms : Tensor of shape (other.n_atoms,), dtype int64
            The column here that equals each of the other columns on these rows.

        Returns
        -------
        RowSums
            The sums over all rows, with the columns of the other.
        """
        last = torch.arange(self.n_atoms, len(self.products), device=atoms.device)
        chosen = torch.cat((atoms, last))
        products = self.products[chosen][:, chosen].add_(other.products)
        return replace(self, products=products, n_blocks=self.n_blocks + other.n_blocks)

    def solve_ridge(self, l2_strength: float, intercept: bool, scope: Scope) -> tuple[Tensor, Tensor, Certificate]:
        """Return the optimum of the squared loss with ridge, and a proof of how close it is.

        Parameters
        ----------
        l2_strength : float
            The strength r of half the sum of squares.
        intercept : bool
            Whether there is an unpenalised constant.
        scope : str
            What the certificate covers.

        Returns
        -------
        coef : Tensor of shape (n_atoms, n_outputs)
            The coefficients.
        intercept : Tensor of shape (n_outputs,)
            The constants; zero without an intercept.
        certificate : Certificate
            Bounds on the program over all rows.
        """
        n, all_products = self.n_atoms, self.products
        check_fits((GRAM_COPIES - 1) * symmetric_bytes(n), all_products.device, f"ridge over {plural(n, 'column')}")
        mass = all_products[n, n]
        means = all_products[n] / mass
        gram, right = all_products[:n, :n] / mass, all_products[:n, n + 1 :] / mass
        if intercept:
            gram.addr_(means[:n], means[:n], alpha=-1)
            right = right - torch.outer(means[:n], means[n + 1 :])
        coef = solve_ridge(gram, right, l2_strength)
        coef = torch.zeros_like(right) if coef is None else coef
        constant = means[n + 1 :] - means[:n] @ coef if intercept else torch.zeros_like(means[n + 1 :])
        return coef, constant + self.shift, self._certify(coef, constant, l2_strength, intercept, scope)

    def _certify(
        self, coef: Tensor, constant: Tensor, l2_strength: float, intercept: bool, scope: Scope
    ) -> Certificate:
        n, size = self.n_atoms, len(self.products)
        mass = self.products[n, n]
        x = torch.cat((coef, constant[None], -torch.eye(len(constant)).to(coef)))
        image = self.products @ x / mass
        # A term of S and the mass it is divided by are rounded in their sums, an entry of Sx once more for each column.
        error = gamma(2 * (_ROWS + self.n_blocks) + 3 * size + _OPERATIONS)
        sigma = (1 + error) * (self.products.diagonal() / mass).sqrt()
        spread = (1 + error) * (sigma @ x.abs())
        # The constant that predicts is rounded once more, when the shift is added.
        moved = 2 * UNIT * (constant + self.shift).abs()
        mean = image[n].abs() + error * spread + moved
        of_loss = float((2 * error * spread.square() + 2 * mean * moved).sum()) + VANISHED
        loss = 0.5 * float((x * image).sum(0).sum())
        penalty = 0.5 * l2_strength * float(coef.square().sum(0).sum())
        of_penalty = error * penalty + VANISHED
        # The balanced residuals correlate with the columns like the residuals minus their mean.
        slope = image[:n] + l2_strength * coef
        if intercept:
            slope = slope - torch.outer(self.products[:n, n] / mass, image[n])
        wrong = 4 * error * torch.outer(sigma[:n], spread) + error * l2_strength * coef.abs()
        steepness = float((slope.abs() + wrong).square().sum(0).sum())
        of_mean = 0.5 * float(mean.square().sum()) if intercept else 0.0
        gap = (steepness / (2 * l2_strength) + of_mean) * (1 + error) + VANISHED
        primal = (max(loss, 0.0) + of_loss + penalty + of_penalty) * (1 + error)
        # Neither loss nor penalty is negative, so neither is the optimum.
        dual = max(0.0, (loss - of_loss + penalty - of_penalty - gap) - error * (abs(loss) + penalty))
        return checked_certificate(Certificate(primal, dual, scope))
