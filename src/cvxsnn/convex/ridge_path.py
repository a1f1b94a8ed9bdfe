"""Ridge regression at many strengths from one eigendecomposition."""

import torch
from torch import Tensor

_MOST_FREEDOM = 0.9
"""Parameters, as a share of the rows, with which a fit may still be judged by cross-validation."""


class RidgePath:
    """Minimises  Σ_i ω_i ‖f_i − y_i‖² + strength·‖W‖²  for scores f = XW + b, with row weights ω that sum to one.

    Parameters
    ----------
    features : Tensor of shape (n_rows, n_features), float64
    targets : Tensor of shape (n_rows, n_outputs), float64
    row_weight : Tensor of shape (n_rows,), float64
    """

    def __init__(self, features: Tensor, targets: Tensor, row_weight: Tensor) -> None:
        self._feature_mean, self._target_mean = row_weight @ features, row_weight @ targets
        root = row_weight.sqrt()[:, None]
        x, y = (features - self._feature_mean) * root, (targets - self._target_mean) * root
        eigenvalues, self._basis = torch.linalg.eigh(x.T @ x)
        self.eigenvalues = eigenvalues.clamp_min(0)
        self._rotated = self._basis.T @ (x.T @ y)
        self._is_real = self.eigenvalues > 1e-12 * self.eigenvalues.max().clamp_min(1e-300)
        explained = self._rotated.square().sum(1) / self.eigenvalues.clamp_min(1e-300)
        self._explained = torch.where(self._is_real, explained, 0.0)
        self._unexplained = float((y.square().sum() - self._explained.sum()).clamp_min(0))
        self._n_rows = int((row_weight > 0).sum())

    def fit(self, strength: float) -> tuple[Tensor, Tensor]:
        """Return the coefficients (n_features, n_outputs) and the intercept (n_outputs,)."""
        coef = self._basis @ (self._rotated / (self.eigenvalues + strength)[:, None])
        return coef, self._target_mean - self._feature_mean @ coef

    def error(self, strength: float) -> float:
        """Return the squared error to expect on new rows, by generalised cross-validation.

        Infinite where there are nearly as many parameters as rows: what fits every row says nothing about others.
        """
        left = strength / (self.eigenvalues + strength)
        freedom = float((1 - left)[self._is_real].sum()) + 1
        if freedom > _MOST_FREEDOM * self._n_rows:
            return torch.inf
        residual = self._unexplained + float((self._explained * left.square()).sum())
        return residual / (1 - freedom / self._n_rows) ** 2
