"""A program of one output over the rational numbers that float64 holds: nothing is rounded."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from torch import Tensor

from cvxsnn import ConvexProblem

Vector = list[Fraction]


@dataclass(frozen=True)
class ExactProblem:
    """Squared loss or hinge with an elastic net, without an intercept."""

    loss: str
    columns: list[Vector]
    targets: Vector
    weight: Vector
    l1_strength: Fraction
    l2_strength: Fraction
    centre: Vector

    @classmethod
    def of(cls, problem: ConvexProblem) -> "ExactProblem":
        """The numbers of a problem."""
        (head,) = problem.heads
        return cls(
            head.loss.name,
            [rational(column) for column in problem.dictionary.columns().T],
            rational(head.targets[:, 0]),
            rational(problem.row_weight),
            Fraction(problem.l1_strength),
            Fraction(problem.l2_strength),
            [Fraction(0)] * problem.shape[1] if problem.centre is None else rational(problem.centre),
        )

    def scores(self, coef: Vector) -> Vector:
        """The product Dw."""
        rows = zip(*self.columns, strict=True)
        return [sum((d * w for d, w in zip(row, coef, strict=True)), Fraction(0)) for row in rows]

    def objective(self, coef: Vector) -> Fraction:
        """Loss, norm and half the sum of squared differences from the centre."""
        squares = sum((w - c) ** 2 for w, c in zip(coef, self.centre, strict=True))
        total = self.l1_strength * sum(map(abs, coef)) + self.l2_strength * squares / 2
        for score, target, weight in zip(self.scores(coef), self.targets, self.weight, strict=True):
            row = (score - target) ** 2 / 2 if self.loss == "squared" else max(Fraction(0), 1 - target * score)
            total += weight * row
        return total

    def dual_value(self, dual_point: Vector) -> Fraction | None:
        """−F*(Θ) − Σ min_u (u² / 2r − uw₀) at Θ = −λ, for |u − dᵀΘ| ≤ s; None outside of the domain."""
        value = Fraction(0)
        for dual, target, weight in zip(dual_point, self.targets, self.weight, strict=True):
            value += dual * target
            if self.loss == "squared":
                value -= dual**2 / (2 * weight)
            elif not 0 <= dual * target <= weight:
                return None
        for column, c in zip(self.columns, self.centre, strict=True):
            correlation = -dot(column, dual_point)
            nearest = max(correlation - self.l1_strength, min(self.l2_strength * c, correlation + self.l1_strength))
            value -= nearest**2 / (2 * self.l2_strength) - nearest * c
        return value

    def minimiser(self) -> Vector:
        """The coefficients that satisfy the optimality conditions of the squared loss, by trying all sign patterns."""
        weighted = [[w * d for w, d in zip(self.weight, column, strict=True)] for column in self.columns]
        gram = [[dot(one, other) for other in self.columns] for one in weighted]
        pull = [
            dot(column, self.targets) + self.l2_strength * c for column, c in zip(weighted, self.centre, strict=True)
        ]
        for signs in product((0, 1, -1), repeat=len(self.columns)):
            active = [j for j, sign in enumerate(signs) if sign]
            found = solve_linear(
                [[gram[j][k] + (self.l2_strength if j == k else 0) for k in active] for j in active],
                [pull[j] - self.l1_strength * signs[j] for j in active],
            )
            coef = [Fraction(0)] * len(signs)
            for j, w in zip(active, found, strict=True):
                coef[j] = w
            slopes = [pull[j] - dot(gram[j], coef) for j in range(len(signs))]
            if all(signs[j] * coef[j] >= 0 for j in active) and all(
                abs(slopes[j]) <= self.l1_strength for j, sign in enumerate(signs) if not sign
            ):
                return coef
        raise AssertionError("some sign pattern is optimal")

    def dual_of(self, coef: Vector) -> Vector:
        """λ = ω(y − Dw), the optimal dual point of the squared loss where the coefficients are optimal."""
        rows = zip(self.weight, self.targets, self.scores(coef), strict=True)
        return [weight * (target - score) for weight, target, score in rows]


def rational(vector: Tensor) -> Vector:
    """The exact values of float64 numbers."""
    return [Fraction(value) for value in vector.flatten().tolist()]


def dot(one: Vector, other: Vector) -> Fraction:
    """The inner product."""
    return sum((a * b for a, b in zip(one, other, strict=True)), Fraction(0))


def solve_linear(matrix: list[Vector], right: Vector) -> Vector:
    """The solution of a system with a positive definite matrix, by elimination."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for i, pivot in enumerate(rows):
        pivot[:] = [value / pivot[i] for value in pivot]
        for row in rows:
            if row is not pivot:
                row[:] = [value - row[i] * known for value, known in zip(row, pivot, strict=True)]
    return [row[-1] for row in rows]
