"""Convex programs in decimal numbers of many digits, from the formulas alone: no code of the library is used here.

The primal value is that of the coefficients as they were returned. The dual value is that of the dual point, after it
is made feasible in exact arithmetic: clipped to the domain of the conjugate, balanced for an intercept, and shrunk.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np

Numbers = list[Decimal]
Matrix = list[Numbers]

DIGITS = Context(prec=120, Emin=-(10**9), Emax=10**9)
"""Cancellation leaves many digits of numbers between 1e-300 and 1e300."""

ZERO, ONE, TWO = Decimal(0), Decimal(1), Decimal(2)


@dataclass(frozen=True)
class ExactHead:
    """A loss, its weight, and its targets: labels −1 and 1, integer classes, or real numbers, by columns."""

    loss: str
    weight: Decimal
    targets: Matrix


@dataclass(frozen=True)
class ExactProblem:
    """A program: columns of the dictionary, weights of the rows, heads, penalty and strengths."""

    columns: Matrix
    row_weight: Numbers
    heads: Sequence[ExactHead]
    is_group: bool
    intercept: bool
    l1_strength: Decimal
    l2_strength: Decimal

    def objective(self, coef: Matrix, intercept: Numbers) -> Decimal:
        """Return the objective at coefficients, by outputs."""
        total = self.penalty(coef)
        scores = [self._scores(own, constant) for own, constant in zip(coef, intercept, strict=True)]
        start = 0
        for head in self.heads:
            own = scores[start : start + len(head.targets)]
            start += len(head.targets)
            for row, weight in enumerate(self.row_weight):
                f, y = [column[row] for column in own], [column[row] for column in head.targets]
                total += head.weight * weight * loss_value(head.loss, f, y)
        return total

    def penalty(self, coef: Matrix) -> Decimal:
        """Return the penalty of coefficients, by outputs."""
        atoms = list(zip(*coef, strict=True))
        norms = (norm(atom) for atom in atoms) if self.is_group else (abs(w) for atom in atoms for w in atom)
        squares = sum((w * w for own in coef for w in own), ZERO)
        return self.l1_strength * sum(norms, ZERO) + self.l2_strength * squares / 2

    def bound(self, dual_point: Matrix) -> Decimal:
        """Return the lower bound that a dual point λ gives, by outputs, once it is feasible."""
        total = ZERO
        start = 0
        duals: list[Matrix] = []
        for head in self.heads:
            own = dual_point[start : start + len(head.targets)]
            start += len(head.targets)
            duals.append(self._feasible(head, own))
        if self.is_group:
            return self._bound_of_part(list(zip(self.heads, duals, strict=True)))
        for head, own in zip(self.heads, duals, strict=True):
            if head.loss == "softmax":
                total += self._bound_of_part([(head, own)])
                continue
            for targets, column in zip(head.targets, own, strict=True):
                total += self._bound_of_part([(ExactHead(head.loss, head.weight, [targets]), [column])])
        return total

    def imbalance(self, dual_point: Matrix, objective: Decimal) -> Decimal:
        """Return the largest sum of a dual point over the rows, as a share of its mass; of all classes for softmax.

        Residuals of the squared loss that are nothing but rounding, beside the objective, have no balance.

        A class may have 1e-300 of the weight, so that its sum vanishes beside the errors of the others. The bound does
        not depend on it: it is that of a point which is balanced exactly.
        """
        shares, start = [ZERO], 0
        for head in self.heads:
            duals = dual_point[start : start + len(head.targets)]
            masses = [sum(map(abs, own), ZERO) for own in duals]
            if head.loss == "softmax":
                masses = [sum(masses, ZERO) + head.weight * sum(self.row_weight, ZERO)] * len(duals)
            if head.loss == "squared":
                masses = [mass + Decimal("1e-5") * (head.weight * objective).sqrt() for mass in masses]
            shares += [abs(sum(own, ZERO)) / (mass or ONE) for own, mass in zip(duals, masses, strict=True)]
            start += len(head.targets)
        return max(shares) if self.intercept else ZERO

    def violation(self, dual_point: Matrix) -> Decimal:
        """Return the largest dual norm of a correlation, relative to the strength."""
        products = [[dot(column, own) for column in self.columns] for own in dual_point]
        atoms = list(zip(*products, strict=True))
        norms = [norm(atom) if self.is_group else max(map(abs, atom)) for atom in atoms]
        return max(norms) / self.l1_strength

    def _scores(self, coef: Numbers, intercept: Decimal) -> Numbers:
        scores = [intercept] * len(self.row_weight)
        for column, w in zip(self.columns, coef, strict=True):
            if w:
                scores = [score + d * w for score, d in zip(scores, column, strict=True)]
        return scores

    def _feasible(self, head: ExactHead, dual_point: Matrix) -> Matrix:
        """Return u = −λ / (weight ω), in the domain of the conjugate and balanced."""
        units = [
            [
                -dual / (head.weight * weight) if weight else ZERO
                for dual, weight in zip(own, self.row_weight, strict=True)
            ]
            for own in dual_point
        ]
        if head.loss == "softmax":
            return self._feasible_classes(head, units)
        found = []
        for own, targets in zip(units, head.targets, strict=True):
            if head.loss != "squared":
                most = None if head.loss == "squared_hinge" else ONE
                shares = [max(ZERO, -u * y) for u, y in zip(own, targets, strict=True)]
                shares = [share if most is None else min(share, most) for share in shares]
                own = [-y * share for share, y in zip(shares, targets, strict=True)]
            if self.intercept:
                up = sum((w * u for w, u in zip(self.row_weight, own, strict=True) if u > 0), ZERO)
                down = -sum((w * u for w, u in zip(self.row_weight, own, strict=True) if u < 0), ZERO)
                lighter = min(up, down)
                own = [u * lighter / (up if u > 0 else down) if u else ZERO for u in own]
            found.append(own)
        return found

    def _feasible_classes(self, head: ExactHead, units: Matrix) -> Matrix:
        rows = []
        for row in range(len(self.row_weight)):
            p = [max(ZERO, own[row] + y[row]) for own, y in zip(units, head.targets, strict=True)]
            total = sum(p, ZERO)
            rows.append([one / total for one in p] if total else [y[row] for y in head.targets])
        if self.intercept:
            classes = range(len(units))
            mass = [sum((w * p[c] for w, p in zip(self.row_weight, rows, strict=True)), ZERO) for c in classes]
            wanted = [dot(self.row_weight, head.targets[c]) for c in classes]
            kept = [min(ONE, wanted[c] / mass[c]) if mass[c] else ONE for c in classes]
            lacking = [max(ZERO, wanted[c] - mass[c]) for c in classes]
            lack = sum(lacking, ZERO) or ONE
            for p in rows:
                freed = sum((p[c] * (1 - kept[c]) for c in classes), ZERO)
                p[:] = [p[c] * kept[c] + freed * lacking[c] / lack for c in classes]
        return [[p[c] - y[row] for row, p in enumerate(rows)] for c, y in enumerate(head.targets)]

    def _bound_of_part(self, part: list[tuple[ExactHead, Matrix]]) -> Decimal:
        """Return the best of −F*(tΘ) inside the constraint, −F*(Θ) − P*(DᵀΘ) for r > 0, and zero."""
        products = [
            [
                head.weight * sum((w * d * u for w, d, u in zip(self.row_weight, column, own, strict=True)), ZERO)
                for column in self.columns
            ]
            for head, duals in part
            for own in duals
        ]
        atoms = list(zip(*products, strict=True))
        sizes = [norm(atom) for atom in atoms] if self.is_group else [abs(c) for atom in atoms for c in atom]
        largest = max(sizes)
        shrink = min(ONE, self.l1_strength / largest) if largest else ONE
        bounds = [ZERO, -self._conjugate(part, shrink)]
        if self.l2_strength:
            outside = sum((max(ZERO, size - self.l1_strength) ** 2 for size in sizes), ZERO)
            bounds.append(-self._conjugate(part, ONE) - outside / (2 * self.l2_strength))
        return max(bounds)

    def _conjugate(self, part: list[tuple[ExactHead, Matrix]], shrink: Decimal) -> Decimal:
        total = ZERO
        for head, duals in part:
            for row, weight in enumerate(self.row_weight):
                u, y = [shrink * own[row] for own in duals], [column[row] for column in head.targets]
                if weight:
                    total += head.weight * weight * loss_conjugate(head.loss, u, y)
        return total


def loss_value(loss: str, f: Numbers, y: Numbers) -> Decimal:
    """Return the loss of one row."""
    if loss == "squared":
        return sum(((a - b) ** 2 for a, b in zip(f, y, strict=True)), ZERO) / 2
    if loss == "softmax":
        (true,) = [a for a, b in zip(f, y, strict=True) if b]
        return log1p(sum((exp(a - true) for a, b in zip(f, y, strict=True) if not b), ZERO))
    short = [1 - a * b for a, b in zip(f, y, strict=True)]
    if loss == "logistic":
        return sum((log1p(exp(z - 1)) for z in short), ZERO)
    excess = [max(ZERO, z) for z in short]
    return sum((z * z for z in excess) if loss == "squared_hinge" else excess, ZERO)


def loss_conjugate(loss: str, u: Numbers, y: Numbers) -> Decimal:
    """Return the conjugate of one row, at a point of its domain."""
    if loss == "softmax":
        return sum((xlogx(a + b) for a, b in zip(u, y, strict=True)), ZERO)
    total = ZERO
    for a, b in zip(u, y, strict=True):
        if loss == "squared":
            total += a * a / 2 + a * b
        elif loss == "hinge":
            total += a * b
        elif loss == "squared_hinge":
            total += a * b + a * a / 4
        else:
            total += xlogx(-a * b) + (1 + a * b) * log1p(a * b) if 1 + a * b else ZERO
    return total


def xlogx(x: Decimal) -> Decimal:
    """Return x log x, zero at zero."""
    return x * x.ln() if x else ZERO


def exp(x: Decimal) -> Decimal:
    """Return the exponential; that of numbers beyond any score of a case is cut off."""
    return min(max(x, Decimal(-(10**7))), Decimal(10**7)).exp()


def log1p(x: Decimal) -> Decimal:
    """Return log(1 + x), by its series where 1 + x would lose digits."""
    return (1 + x).ln() if abs(x) > Decimal("1e-40") else x - x * x / 2 + x**3 / 3


def norm(numbers: Sequence[Decimal]) -> Decimal:
    """Return the Euclidean norm."""
    return sum((x * x for x in numbers), ZERO).sqrt()


def dot(one: Numbers, other: Numbers) -> Decimal:
    """Return the inner product."""
    return sum((a * b for a, b in zip(one, other, strict=True)), ZERO)


def decimals(values: np.ndarray) -> Numbers:
    """Return float64 numbers as they are, up to the digits of the context."""
    return [+Decimal(float(value)) for value in values]


def by_columns(values: np.ndarray) -> Matrix:
    """Return the columns of a matrix."""
    return [decimals(column) for column in np.asarray(values, dtype=np.float64).T]
