"""Ridge from sums: the same optimum as from the rows, within bounds that hold in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.sums import RowSums
from cvxsnn.dictionary import build_dictionary

STRENGTH = 2.0**-7


def make_rows(n_rows=60, mean=0.0, seed=0):
    rng = np.random.default_rng(seed)
    dictionary = build_dictionary(rng.integers(0, 2, (n_rows, 6)))
    targets = torch.from_numpy(mean + rng.normal(size=(n_rows, 2)))
    weight = torch.from_numpy(rng.uniform(0.5, 2.0, n_rows))
    return dictionary, targets, weight


def solved(sums, intercept=True):
    return sums.solve_ridge(STRENGTH, intercept, "sampled")


def exact_objective(dictionary, targets, weight, coef, intercept):
    columns, total = dictionary.columns().int().tolist(), sum(map(Fraction, weight.tolist()))
    loss = Fraction(0)
    for entries, target, share in zip(columns, targets.tolist(), weight.tolist(), strict=True):
        for k, value in enumerate(target):
            score = Fraction(intercept[k].item()) + sum(
                entry * Fraction(w) for entry, w in zip(entries, coef[:, k].tolist(), strict=True)
            )
            loss += Fraction(share) * (score - Fraction(value)) ** 2
    squares = sum(Fraction(w) ** 2 for w in coef.flatten().tolist())
    return (loss / total + Fraction(STRENGTH) * squares) / 2


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("mean", [0.0, 1e6])
def test_bounds_hold_in_exact_arithmetic(mean, intercept):
    rows = make_rows(mean=mean)
    shift = rows[1].mean(0) if intercept else torch.zeros(2, dtype=torch.float64)
    coef, constant, certificate = solved(RowSums.of(*rows, shift), intercept)
    assert exact_objective(*rows, coef, constant) <= Fraction(certificate.primal)
    problem = ConvexProblem(
        rows[0],
        rows[1],
        "squared",
        0.0,
        l2_strength=STRENGTH,
        penalty="elastic-net",
        intercept=intercept,
        row_weight=rows[2],
    )
    best = solve(problem, 1e-10)
    assert Fraction(certificate.dual) <= exact_objective(*rows, best.coef, best.intercept)
    assert certificate.relative_gap <= 1e-9 if intercept or not mean else certificate.relative_gap <= 1e-6
    assert certificate.relative_gap > 0


def test_bounds_are_about_the_coefficients_and_not_the_solver():
    """Coefficients that are off have a gap that says so, and bounds that hold."""
    rows = make_rows()
    sums = RowSums.of(*rows, torch.zeros(2, dtype=torch.float64))
    coef, constant, certificate = solved(sums)
    for moved in (coef + 0.1, coef * 0.9, torch.zeros_like(coef)):
        found = sums._certify(moved, constant, STRENGTH, True, "sampled")
        value = exact_objective(*rows, moved, constant)
        assert value <= Fraction(found.primal)
        assert float(value) == pytest.approx(found.primal, rel=1e-10)
        assert found.dual <= certificate.primal
        assert found.gap >= 0.99 * (found.primal - certificate.primal)
    # The balanced residuals of a wrong constant are those of the optimum: nothing but the constant is off.
    found = sums._certify(coef, constant + 0.5, STRENGTH, True, "sampled")
    assert found.gap == pytest.approx(0.5 * 2 * 0.5**2, rel=1e-9)


def test_sums_add_up():
    dictionary, targets, weight = make_rows(n_rows=1400)
    shift = torch.tensor([0.5, -1.0], dtype=torch.float64)
    whole = RowSums.of(dictionary, targets, weight, shift)
    parts = [torch.arange(0, 700), torch.arange(700, 1400)]
    first, second = (RowSums.of(dictionary.take_rows(rows), targets[rows], weight[rows], shift) for rows in parts)
    total = first.plus(second, torch.arange(dictionary.n_atoms))
    torch.testing.assert_close(total.products, whole.products, rtol=1e-13, atol=1e-12)
    assert total.n_blocks == 4
    for one, other in zip(solved(total)[:2], solved(whole)[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
