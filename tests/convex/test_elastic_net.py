"""The elastic net as a whole: its bounds hold, its limits are the programs that it generalises."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch
from convex.exact import ExactProblem, rational
from convex.problems import (
    COLUMNS,
    ELASTIC_NETS,
    LOSSES,
    PENALTIES,
    TWO_HEADS,
    Columns,
    Kind,
    conjugate,
    draw_dual,
    draw_point,
    objective,
)
from convex.reference import Reference
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import CLARABEL, FLOAT64_MEAN, ROUNDING
from torch import Tensor

from cvxsnn import Certificate, ConvexProblem, certify, solve
from cvxsnn.dictionary import DenseDictionary

KINDS = st.builds(
    Kind,
    loss=st.sampled_from((*LOSSES, *TWO_HEADS)),
    penalty=st.sampled_from(ELASTIC_NETS),
    intercept=st.booleans(),
    columns=st.sampled_from(COLUMNS),
    weighted=st.booleans(),
    n_outputs=st.integers(1, 2),
    l2_strength=st.sampled_from([10.0, 0.1, 1e-3, 1e-6]),
)
SEEDS = st.integers(0, 2**32 - 1)
RATIOS = st.sampled_from([2.0, 0.9, 0.1, 1e-3, 0.0])
SIZES = st.sampled_from([0.0, 1e-3, 1.0, 30.0])
NORM_OF = dict(zip(ELASTIC_NETS, PENALTIES, strict=True))
"""What an elastic net is without its quadratic."""


@settings(max_examples=400)
@given(KINDS, SEEDS, RATIOS, SIZES, SIZES, SIZES)
def test_no_dual_value_exceeds_the_objective_at_any_coefficients(
    kind: Kind, seed: int, ratio: float, size: float, other_size: float, dual_size: float
) -> None:
    problem = kind.draw(seed, ratio)
    coef, intercept = draw_point(problem, seed, size)
    certificate, dual_point = certify(problem, coef, intercept, [draw_dual(problem, seed, dual_size)])
    # The last ones attain the conjugate of the penalty: the lowest objective that a dual point can point to.
    correlation = problem.dictionary.columns().T @ dual_point
    attaining = problem.penalty.prox(correlation, problem.l1_strength) / problem.l2_strength
    for point in ((coef, intercept), draw_point(problem, seed + 1, other_size), (attaining, intercept)):
        value = objective(problem, *point)
        assert certificate.dual <= value + ROUNDING * max(1.0, value)


@settings(max_examples=150)
@given(KINDS, SEEDS, RATIOS, SIZES)
def test_primal_is_the_objective(kind: Kind, seed: int, ratio: float, size: float) -> None:
    problem = kind.draw(seed, ratio)
    point = draw_point(problem, seed, size)
    certificate, _ = certify(problem, *point)
    assert certificate.primal == pytest.approx(objective(problem, *point), rel=ROUNDING)


@settings(max_examples=80)
@given(KINDS, SEEDS, RATIOS, SIZES)
def test_no_dual_value_exceeds_the_optimum(kind: Kind, seed: int, ratio: float, size: float) -> None:
    problem = kind.draw(seed, ratio)
    optimum = solve(problem, CLARABEL, Reference())
    # Guesses around the optimal dual point, where a bound that is too high shows.
    noise = draw_dual(problem, seed, 0.1 * size)
    guesses = [optimum.dual_point * factor for factor in (1.0, 1.1, 0.9, 1 + noise)]
    for guess in guesses:
        certificate, _ = certify(problem, *draw_point(problem, seed, size), [guess])
        assert certificate.dual <= optimum.certificate.primal * (1 + ROUNDING)


@settings(max_examples=80)
@given(KINDS, SEEDS, RATIOS, SIZES)
def test_gap_of_a_wrong_solution_is_at_least_its_excess(kind: Kind, seed: int, ratio: float, size: float) -> None:
    problem = kind.draw(seed, ratio)
    optimum = solve(problem, CLARABEL, Reference())
    change, shift = draw_point(problem, seed, 0.1 * size)
    intercept = optimum.intercept + shift if shift is not None else None
    certificate, _ = certify(problem, optimum.coef + change, intercept, [optimum.dual_point])
    excess = certificate.primal - optimum.certificate.primal
    assert certificate.gap >= excess - ROUNDING * certificate.primal


@pytest.mark.parametrize("ratio", [0.0, 0.01])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_gap_of_zero_and_of_twice_the_solution_is_large(loss: str, intercept: bool, penalty: str, ratio: float) -> None:
    problem = Kind(loss, penalty, intercept, weighted=True, l2_strength=1e-3).draw(0, ratio)
    optimum = solve(problem, CLARABEL, Reference())
    for factor, constant in ((0.0, problem.null_intercept), (2.0, 2 * optimum.intercept)):
        point = factor * optimum.coef, constant if intercept else None
        certificate, _ = certify(problem, *point, [optimum.dual_point])
        excess = certificate.primal - optimum.certificate.primal
        assert excess > 0.1 * certificate.primal
        assert certificate.gap >= excess - ROUNDING * certificate.primal


def bound_by_definition(problem: ConvexProblem, unit_dual: Tensor) -> float:
    """The best dual value of three points: the point, the one shrunk until the norm's constraint holds, and zero."""
    unit_dual = problem.dual_domain(unit_dual)
    weighted = (problem.row_weight[:, None] * unit_dual).numpy()
    norms = np.linalg.norm(problem.dictionary.columns().numpy().T @ weighted, axis=1)
    outside = (np.maximum(0, norms - problem.l1_strength) ** 2).sum()
    here = -float(conjugate(problem, unit_dual)) - outside / (2 * problem.l2_strength)
    shrunk = unit_dual * (problem.l1_strength / norms.max() if norms.max() > problem.l1_strength else 1.0)
    return max(here, -float(conjugate(problem, shrunk)), 0.0)


@settings(max_examples=150)
@given(
    loss=st.sampled_from((*LOSSES, *TWO_HEADS)),
    intercept=st.booleans(),
    weighted=st.booleans(),
    l2_strength=st.sampled_from([10.0, 0.1, 1e-3, 1e-6]),
    seed=SEEDS,
    ratio=RATIOS,
    size=SIZES,
)
def test_bound_is_that_of_the_definition(
    loss: str, intercept: bool, weighted: bool, l2_strength: float, seed: int, ratio: float, size: float
) -> None:
    kind = Kind(loss, "group-elastic-net", intercept, "random", weighted, 2, l2_strength)
    problem = kind.draw(seed, ratio)
    coef, constant = draw_point(problem, seed, size)
    guess = draw_dual(problem, seed, 0.1 * size)
    certificate, _ = certify(problem, coef, constant, [-problem.row_weight[:, None] * guess])
    scores = problem.dictionary.columns() @ coef + (0.0 if constant is None else constant)
    expected = max(bound_by_definition(problem, unit) for unit in (problem.unit_dual(scores), guess))
    assert certificate.dual == pytest.approx(expected, rel=ROUNDING, abs=ROUNDING)


@pytest.mark.parametrize("size", [0.0, 0.1])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_bound_falls_to_that_of_the_norm_as_the_quadratic_vanishes(
    loss: str, penalty: str, intercept: bool, size: float
) -> None:
    norm = Kind(loss, NORM_OF[penalty], intercept, weighted=True, n_outputs=2).draw(0)
    problem = Kind(loss, penalty, intercept, weighted=True, n_outputs=2, l2_strength=1.0).draw(0)
    point = draw_point(problem, 0, size)
    # Feasible points are on the boundary of the constraint, where rounding puts some outside.
    _, feasible = certify(norm, *point, [draw_dual(problem, 0, size)])
    limit, _ = certify(norm, *point, [feasible])
    strengths = [*(10.0**-exponent for exponent in range(31)), 1e-100, 1e-300, 5e-324]
    bounds = [
        certify(problem.with_strength(problem.l1_strength, strength), *point, [feasible])[0].dual
        for strength in strengths
    ]
    margin = ROUNDING * max(1.0, limit.primal)
    for weaker, stronger in pairwise(reversed(bounds)):
        assert limit.dual - margin <= weaker <= stronger + margin
    assert bounds[-1] == pytest.approx(limit.dual, abs=margin)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_without_its_quadratic_it_is_the_norm_to_the_bit(loss: str, penalty: str, intercept: bool) -> None:
    norm = Kind(loss, NORM_OF[penalty], intercept, weighted=True, n_outputs=2).draw(0)
    net = Kind(loss, penalty, intercept, weighted=True, n_outputs=2).draw(0)
    stronger = Kind(loss, penalty, intercept, weighted=True, n_outputs=2, l2_strength=1.0).draw(0)
    expected = solve(norm)
    for problem in (net, stronger.with_strength(net.l1_strength, 0.0)):
        found = solve(problem)
        assert (found.certificate, found.solver) == (expected.certificate, expected.solver)
        for name in ("coef", "intercept", "dual_point"):
            assert torch.equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("l2_strength", [1e-6, 1e-12, 1e-15])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_optimum_falls_to_that_of_the_norm_as_the_quadratic_vanishes(
    loss: str, penalty: str, l2_strength: float
) -> None:
    limit = solve(Kind(loss, NORM_OF[penalty], intercept=True, columns="collinear", n_outputs=2).draw(0))
    kind = Kind(loss, penalty, True, "collinear", n_outputs=2, l2_strength=l2_strength)
    solution = solve(kind.draw(0))
    assert solution.has_converged
    assert_within_gaps(limit.certificate, solution.certificate, 0.5 * l2_strength * float(limit.coef.square().sum()))


@pytest.mark.parametrize("ratio", [1e-6, 1e-12, 1e-300])
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
@pytest.mark.parametrize("loss", LOSSES)
def test_optimum_falls_to_that_of_ridge_as_the_norm_vanishes(loss: str, penalty: str, ratio: float) -> None:
    kind = Kind(loss, penalty, intercept=True, columns="collinear", n_outputs=2, l2_strength=0.01)
    limit, problem = solve(kind.draw(0, 0.0)), kind.draw(0, ratio)
    solution = solve(problem)
    assert solution.has_converged
    norm = problem.l1_strength * float(problem.penalty.norm(limit.coef))
    assert_within_gaps(limit.certificate, solution.certificate, norm)


def assert_within_gaps(lower: Certificate, upper: Certificate, difference: float) -> None:
    """The second optimum is at least the first, and above it by no more than a difference."""
    assert lower.dual <= upper.primal + ROUNDING
    assert upper.dual <= lower.primal + difference + ROUNDING


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_without_their_norms_the_two_are_the_same_ridge(loss: str, intercept: bool, columns: Columns) -> None:
    net, group = (
        solve(Kind(loss, penalty, intercept, columns, True, 2, l2_strength=0.01).draw(0, 0.0))
        for penalty in ELASTIC_NETS
    )
    assert net.has_converged
    assert torch.equal(group.coef, net.coef)
    assert group.certificate.primal == pytest.approx(net.certificate.primal, rel=ROUNDING)
    assert group.certificate.dual == pytest.approx(net.certificate.dual, rel=ROUNDING)


def draw_integers(
    seed: int, loss: str, is_binary: bool, l1_strength: float, l2_strength: float, centre: float
) -> tuple[ConvexProblem, ExactProblem]:
    """A problem of at most six rows and three atoms of small integers, and the same one without rounding."""
    rng = np.random.default_rng(seed)
    n_rows, n_atoms = rng.integers(2, 7), rng.integers(1, 4)
    columns = rng.integers(0, 2, (n_rows, n_atoms)) if is_binary else rng.integers(-3, 4, (n_rows, n_atoms))
    targets = rng.integers(-4, 5, n_rows)
    if loss == "hinge":
        targets = (targets > 0).astype(int)
        targets[:2] = 0, 1
    problem = ConvexProblem(
        columns if is_binary else DenseDictionary(torch.from_numpy(columns)),
        targets,
        loss,
        l1_strength,
        l2_strength=l2_strength,
        penalty="elastic-net",
        row_weight=rng.integers(1, 4, n_rows),
    )
    if centre:
        problem = problem.with_centre(centre * rng.normal(size=problem.shape[1:]))
    return problem, ExactProblem.of(problem)


L1_STRENGTHS = st.sampled_from([0.0, 2.0**-20, 0.125, 1.0])
L2_STRENGTHS = [2.0**-40, 2.0**-20, 0.0625, 1.0]
CENTRES = st.sampled_from([0.0, 1.0, 1000.0])


@settings(max_examples=300)
@given(
    loss=st.sampled_from(["squared", "hinge"]),
    seed=SEEDS,
    is_binary=st.booleans(),
    l1_strength=L1_STRENGTHS,
    l2_strength=st.sampled_from([2.0**-120, *L2_STRENGTHS]),
    centre=CENTRES,
    size=SIZES,
    dual_size=SIZES,
)
def test_certificate_of_any_pair_holds_in_exact_arithmetic(
    loss: str,
    seed: int,
    is_binary: bool,
    l1_strength: float,
    l2_strength: float,
    centre: float,
    size: float,
    dual_size: float,
) -> None:
    problem, exact = draw_integers(seed, loss, is_binary, l1_strength, l2_strength, centre)
    coef, _ = draw_point(problem, seed, size)
    certificate, dual_point = certify(problem, coef, None, [draw_dual(problem, seed, dual_size)])
    assert certificate.primal == pytest.approx(float(exact.objective(rational(coef))), rel=FLOAT64_MEAN)
    dual_value = exact.dual_value(rational(dual_point))
    assert dual_value is not None
    assert certificate.dual <= dual_value + FLOAT64_MEAN * max(1.0, abs(certificate.dual), certificate.primal)
    if loss == "squared":
        assert certificate.dual <= exact.objective(exact.minimiser()) * (1 + Fraction(FLOAT64_MEAN))


@settings(max_examples=200)
@given(SEEDS, st.booleans(), L1_STRENGTHS, st.sampled_from(L2_STRENGTHS), CENTRES)
def test_certificate_of_the_exact_optimum_is_tight(
    seed: int, is_binary: bool, l1_strength: float, l2_strength: float, centre: float
) -> None:
    problem, exact = draw_integers(seed, "squared", is_binary, l1_strength, l2_strength, centre)
    coef = exact.minimiser()
    optimum = exact.objective(coef)
    assert exact.dual_value(exact.dual_of(coef)) == optimum
    certificate, _ = certify(problem, as_column(coef), None, [as_column(exact.dual_of(coef))])
    zero = exact.objective([Fraction(0)] * len(coef))
    assert certificate.primal == pytest.approx(float(optimum), rel=FLOAT64_MEAN)
    # The rounding of correlations counts as often as the centre says.
    assert certificate.dual >= optimum - FLOAT64_MEAN * max(1, zero) * max(1, int(centre))
    assert certificate.dual <= optimum * (1 + Fraction(FLOAT64_MEAN))


def as_column(vector: Sequence[Fraction]) -> Tensor:
    """Rational numbers, each rounded once."""
    return torch.tensor([[float(value)] for value in vector], dtype=torch.float64)


@pytest.mark.parametrize("exponent", [40, 44, 50])
@pytest.mark.parametrize(("entry", "target"), [(1.0, 1.0), (2.0**30, 1.0), (1.0, 2.0**30)])
def test_bound_allows_for_the_rounding_of_correlations(entry: float, target: float, exponent: int) -> None:
    """Two columns differ in their last bits, and the optimal coefficients, which are huge, use the difference.

    The correlations are r times these coefficients: small sums of terms that almost cancel. Of many guesses next to the
    optimal dual point some have these sums rounded towards zero, and a bound that believes them is above the optimum.
    """
    n_rows, difference = 64, 2.0**-exponent
    rng = np.random.default_rng(0)
    signs = rng.choice([-1.0, 1.0], n_rows)
    targets = signs + rng.normal(size=n_rows)
    order = np.argsort(targets)  # equal signs next to each other: partial sums are large
    signs, targets = signs[order], target * targets[order]
    columns = entry * np.stack((1 + difference * signs, 1 - difference * signs), axis=1)
    problem = ConvexProblem(
        DenseDictionary(torch.from_numpy(columns)),
        targets,
        "squared",
        0.0,
        l2_strength=2 * (entry * difference) ** 2,
        penalty="elastic-net",
    )
    exact = ExactProblem.of(problem)
    coef = exact.minimiser()
    guess = as_column(exact.dual_of(coef))
    guesses = [guess * (1 + 2.0**-30 * step) for step in range(200)]
    certificate, _ = certify(problem, torch.zeros(2, 1), None, guesses)
    assert certificate.dual <= exact.objective(coef)
