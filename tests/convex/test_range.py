"""Weights, targets, columns and strengths at the edge of float64: a true certificate, or one sentence."""

import warnings
from fractions import Fraction

import numpy as np
import pytest
import torch
from convex.problems import ELASTIC_NETS, PENALTIES
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING, UNMISTAKABLE

from cvxsnn import Certificate, ConvexProblem, certify, solve, solve_path
from cvxsnn.convex.certificate import checked_certificate
from cvxsnn.core.errors import CertificateError, ConvergenceWarning, InvalidInputError
from cvxsnn.dictionary.dense import DenseDictionary

SCALES = st.sampled_from([1e-320, 1e-308, 1e-200, 1e-154, 1e-100, 1.0, 1e100, 1e154, 1e200, 1e307])
ALL_PENALTIES = (*PENALTIES, *ELASTIC_NETS)
SEEDS = st.integers(0, 2**32 - 1)


def exact_objective(columns, targets, weight, coef, intercept, strength, quadratic):
    """The objective of the squared loss in rational numbers."""
    shares = [Fraction(float(own)) for own in weight]
    loss = Fraction(0)
    for row, target, share in zip(columns, targets, shares, strict=True):
        score = sum(Fraction(float(d)) * Fraction(float(w)) for d, w in zip(row, coef, strict=True))
        loss += share * (score + Fraction(float(intercept)) - Fraction(float(target))) ** 2
    size = sum(abs(Fraction(float(w))) for w in coef)
    squares = sum(Fraction(float(w)) ** 2 for w in coef)
    return loss / sum(shares) / 2 + Fraction(strength) * size + Fraction(quadratic) * squares / 2


@settings(max_examples=150, deadline=None)
@given(SEEDS, SCALES, SCALES, SCALES, SCALES, st.sampled_from(ALL_PENALTIES), st.booleans())
def test_a_certificate_is_true_at_the_edge_of_float64_or_refused(
    seed, weight_scale, target_scale, column_scale, strength_scale, penalty, intercept
):
    rng = np.random.default_rng(seed)
    columns, targets = column_scale * rng.random((6, 3)), target_scale * rng.normal(size=6)
    weight = weight_scale * rng.random(6)
    quadratic = strength_scale if "net" in penalty else 0.0
    options = {"penalty": penalty, "intercept": intercept, "row_weight": weight, "l2_strength": quadratic}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            problem = ConvexProblem(
                DenseDictionary(torch.from_numpy(columns)), targets, "squared", strength_scale, **options
            )
            solution = solve(problem)
    except InvalidInputError:
        return
    certificate = solution.certificate
    at_found, at_zero = (
        exact_objective(columns, targets, weight, coef, constant, strength_scale, quadratic)
        for coef, constant in (
            (solution.coef[:, 0], solution.intercept[0]),
            (np.zeros(3), problem.null_intercept[0]),
        )
    )
    assert float(at_found) == pytest.approx(certificate.primal, rel=UNMISTAKABLE)
    assert certificate.dual <= float(min(at_found, at_zero)) * (1 + ROUNDING)


@pytest.mark.parametrize("loss", ["squared", "hinge", "squared_hinge", "logistic", "softmax"])
@pytest.mark.parametrize("unit", [1e308, 1e-300, 5e-324, 2.0**-1000])
def test_the_unit_of_the_weights_changes_nothing(loss, unit):
    columns, labels = np.random.default_rng(0).random((20, 4)) < 0.5, np.arange(20) % 2
    plain = solve(ConvexProblem(columns, labels, loss, 0.01, intercept=True))
    scaled = solve(ConvexProblem(columns, labels, loss, 0.01, intercept=True, row_weight=np.full(20, unit)))
    assert torch.equal(plain.coef, scaled.coef)
    assert plain.certificate == scaled.certificate
    assert plain.certificate.primal > 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["primal", "dual"])
def test_no_certificate_passes_with_a_value_that_is_not_finite(place, value):
    with pytest.raises(CertificateError, match=r"underflow in float64 .*: rescale the targets"):
        checked_certificate(Certificate(**{"primal": 1.0, "dual": 0.5, place: value}))


def test_a_dual_guess_that_is_not_finite_proves_nothing_and_spoils_nothing():
    problem = ConvexProblem(np.eye(4), np.arange(4.0), "squared", 0.1)
    solution = solve(problem)
    for value in (np.nan, np.inf, 1e300):
        guess = torch.full_like(solution.dual_point, value)
        found, _ = certify(problem, solution.coef, dual_candidates=[guess])
        assert found == solution.certificate
    with pytest.raises(CertificateError, match="overflow or underflow in float64"):
        certify(problem, 1e200 * torch.ones(4, 1))


def test_correlations_that_are_not_numbers_are_no_proof():
    # Each product overflows, in both directions: their sum is not a number, and so nothing is below the strength.
    columns = torch.tensor([[1e300, 1.0], [-1e300, 1.0]], dtype=torch.float64)
    problem = ConvexProblem(DenseDictionary(columns), np.array([1e10, 1e10]), "squared", 1e9)
    with pytest.raises(InvalidInputError, match="overflow or underflow in float64"):
        solve(problem)
    certificate, dual_point = certify(problem, torch.zeros(2, 1))
    assert certificate.primal == pytest.approx(5e19)
    assert certificate.dual == 0
    assert not bool(dual_point.any())


@pytest.mark.parametrize("excess", [5e-324, 1e-300])
def test_a_dual_value_above_the_primal_one_is_an_error_however_small_the_difference(excess):
    with pytest.raises(CertificateError, match="above primal value"):
        checked_certificate(Certificate(primal=0.0, dual=excess))
    with pytest.raises(CertificateError, match="above primal value"):
        checked_certificate(Certificate(primal=1.0, dual=float(np.nextafter(1.0, 2.0))))


@pytest.mark.parametrize("scale", [1e-130, 1e-40, 1e40, 1e150])
@pytest.mark.parametrize("penalty", ALL_PENALTIES)
def test_the_unit_of_the_targets_changes_nothing(penalty, scale):
    rng = np.random.default_rng(0)
    columns, targets = rng.random((12, 6)) < 0.5, rng.normal(size=(12, 2))
    options = {"penalty": penalty, "intercept": True, "l2_strength": 0.01 if "net" in penalty else 0.0}
    unit = 2.0 ** round(np.log2(scale))
    plain = solve(ConvexProblem(columns, targets, "squared", 0.05, **options))
    scaled = solve(ConvexProblem(columns, unit * targets, "squared", 0.05 * unit, **options))
    assert scaled.has_converged
    torch.testing.assert_close(scaled.coef / unit, plain.coef, rtol=0, atol=ROUNDING)
    assert scaled.certificate.primal / unit**2 == pytest.approx(plain.certificate.primal, rel=ROUNDING)


@pytest.mark.parametrize("unit", [2.0**-400, 2.0**400])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_the_unit_of_real_columns_changes_nothing(loss, unit):
    rng = np.random.default_rng(0)
    columns, labels = torch.from_numpy(rng.normal(size=(12, 4))), np.arange(12) % 2
    plain = solve(ConvexProblem(DenseDictionary(columns), labels, loss, 0.05))
    scaled = solve(ConvexProblem(DenseDictionary(unit * columns), labels, loss, 0.05 * unit))
    assert scaled.has_converged
    difference = abs(scaled.certificate.primal - plain.certificate.primal)
    assert difference <= scaled.certificate.gap + plain.certificate.gap


@pytest.mark.parametrize("offset", [0.0, 1e3, -1e6, 1e9, 1e12])
@pytest.mark.parametrize("penalty", ALL_PENALTIES)
def test_an_offset_of_the_targets_moves_the_intercept_and_nothing_else(offset, penalty):
    rng = np.random.default_rng(0)
    columns, weight = rng.random((40, 6)) < 0.5, rng.random(40)
    targets = np.round(2.0 * columns[:, 0] - columns[:, 3] + rng.normal(size=40), 2)
    options = {"penalty": penalty, "intercept": True, "row_weight": weight}
    if "net" in penalty:
        options["l2_strength"] = 0.01
    plain, moved = (solve(ConvexProblem(columns, y, "squared", 0.01, **options)) for y in (targets, targets + offset))
    assert moved.has_converged
    spacing = np.spacing(offset + 1.0)
    assert float((moved.intercept - plain.intercept)[0]) == pytest.approx(offset, abs=4 * spacing + ROUNDING)
    torch.testing.assert_close(moved.coef, plain.coef, rtol=0, atol=40 * spacing + 1e-6)


def test_targets_that_float64_cannot_tell_from_their_mean_are_one_warning():
    rng = np.random.default_rng(0)
    columns = rng.random((40, 6)) < 0.5
    problem = ConvexProblem(columns, 1e15 + columns[:, 0] + rng.normal(size=40), "squared", 0.01, intercept=True)
    with pytest.warns(ConvergenceWarning, match="below float64 resolution; subtract the mean") as caught:
        path = solve_path(problem, n_strengths=4)
    assert len(caught) == 1
    assert all(solution.certificate.gap >= 0 for solution in path)


@pytest.mark.parametrize("constant", [0.1, 1000.0, -1e6, 1e300])
def test_constant_targets_are_fitted_by_the_intercept_exactly(constant):
    columns = np.random.default_rng(0).random((30, 5)) < 0.5
    weight = np.random.default_rng(1).random(30)
    solution = solve(ConvexProblem(columns, np.full(30, constant), "squared", 1e-3, intercept=True, row_weight=weight))
    assert solution.intercept.tolist() == [constant]
    assert (solution.certificate.primal, solution.certificate.dual) == (0.0, 0.0)
    assert len(solution.support) == 0


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
@pytest.mark.parametrize(
    ("column", "target", "quadratic"),
    [(1e-135, 1e-30, 1e-270), (1e-150, 1e-120, 1e-300), (1e-150, 1.0, 1e-300)],
)
def test_squares_that_vanish_in_float64_do_not_raise_the_bound(column, target, quadratic, penalty):
    targets = target * np.array([1.0, -1.0, 1.0, -1.0])
    dictionary = DenseDictionary(column * torch.eye(4, dtype=torch.float64))
    problem = ConvexProblem(
        dictionary, targets, "squared", 0.0, penalty=penalty, l2_strength=quadratic, intercept=False
    )
    square, r = Fraction(column) ** 2 / 4, Fraction(quadratic)
    optimum = sum(Fraction(float(y)) ** 2 for y in targets) / 8 * r / (r + square)
    certificate, _ = certify(problem, np.zeros((4, 1)))
    assert Fraction(certificate.dual) <= optimum <= Fraction(certificate.primal)


@pytest.mark.parametrize("centre", [None, np.full((4, 1), 2e-170)])
def test_squares_of_coefficients_that_vanish_in_float64_count_in_the_objective(centre):
    dictionary = DenseDictionary(torch.eye(4, dtype=torch.float64))
    problem = ConvexProblem(
        dictionary,
        np.zeros(4),
        "squared",
        0.0,
        penalty="elastic-net",
        l2_strength=1e300,
        intercept=False,
        centre=centre,
    )
    assert certify(problem, np.full((4, 1), 1e-170))[0].primal >= 2e-40
