"""The program of one output in rational numbers: its objective, its dual, and its minimiser over a few atoms."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product


@dataclass(frozen=True)
class ExactProgram:
    """Minimise ‖y − Dw − b‖² / 2n + s‖w‖₁ + ½r‖w‖², for r > 0."""

    columns: tuple[tuple[Fraction, ...], ...]
    targets: tuple[Fraction, ...]
    l1_strength: Fraction
    l2_strength: Fraction
    intercept: bool

    @classmethod
    def of(cls, columns, targets, problem):
        """The program of floats as they are, without another rounding; one column of targets."""
        return cls(
            tuple(_exact(column) for column in zip(*columns.tolist(), strict=True)),
            _exact(targets.tolist()),
            Fraction(problem.l1_strength),
            Fraction(problem.l2_strength),
            problem.intercept,
        )

    def objective(self, coef, constant):
        """The objective at some coefficients."""
        coef = _exact(coef)
        residual = self.residual(coef, Fraction(constant))
        loss = _dot(residual, residual) / (2 * len(residual))
        return loss + self.l1_strength * sum(map(abs, coef)) + self.l2_strength * _dot(coef, coef) / 2

    def bound(self, coef, constant, scale):
        """The dual value at λ = −τ (e − ē) / n for the residuals e of some coefficients."""
        residual = self.residual(_exact(coef), Fraction(constant))
        point = [Fraction(scale) * value for value in (_centred(residual) if self.intercept else residual)]
        n_rows = len(point)
        outside = [max(0, abs(_dot(d, point)) / n_rows - self.l1_strength) for d in self.columns]
        loss = (_dot(point, point) / 2 + _dot(point, self.targets)) / n_rows
        return -loss - _dot(outside, outside) / (2 * self.l2_strength)

    def minimiser(self):
        """The coefficients and the constant: of all sets of signs, one has a point that satisfies the conditions."""
        columns = [_centred(d) if self.intercept else d for d in self.columns]
        targets = _centred(self.targets) if self.intercept else self.targets
        n_rows, s, r = len(targets), self.l1_strength, self.l2_strength
        gram = [[_dot(d, e) / n_rows + r * (i == j) for j, e in enumerate(columns)] for i, d in enumerate(columns)]
        linear = [_dot(d, targets) / n_rows for d in columns]
        for signs in product((-1, 0, 1), repeat=len(columns)):
            used = [j for j, sign in enumerate(signs) if sign]
            found = _solve([[gram[i][j] for j in used] for i in used], [linear[i] - s * signs[i] for i in used])
            coef = [Fraction(0)] * len(columns)
            for j, value in zip(used, found, strict=True):
                coef[j] = value
            slopes = [linear[i] - _dot(gram[i], coef) for i in range(len(columns))]
            if all(
                coef[j] * sign > 0 if sign else abs(slope) <= s
                for j, (sign, slope) in enumerate(zip(signs, slopes, strict=True))
            ):
                return coef, -sum(self.residual(coef, 0)) / n_rows if self.intercept else Fraction(0)
        raise AssertionError("no signs are optimal")

    def residual(self, coef, constant):
        """The residuals e = Dw + b − y."""
        rows = zip(*self.columns, strict=True)
        return [_dot(row, coef) + constant - y for row, y in zip(rows, self.targets, strict=True)]


def _exact(values):
    return tuple(map(Fraction, values))


def _dot(left, right):
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def _centred(values):
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _solve(matrix, right):
    """Gauss and Jordan; the matrix is positive definite, so that no pivot is zero."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        rows[i] = [value / pivot[i] for value in pivot]
        for k, row in enumerate(rows):
            if k != i:
                rows[k] = [value - row[i] * own for value, own in zip(row, rows[i], strict=True)]
    return [row[-1] for row in rows]
