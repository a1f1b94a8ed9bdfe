import warnings
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from convex.statistics.exact import ExactProgram
from convex.statistics.streams import batches, problem_in_memory
from hypothesis import given, settings
from small_models import assert_one_sentence
from tolerances import CERTIFIED_AGAIN, ROUNDING, UNMISTAKABLE

import cvxsnn as cs
from cvxsnn.convex import (
    SquaredStatistics,
    StatisticsProblem,
    Status,
    certify_statistics,
    gather_statistics,
    solve_statistics,
)
from cvxsnn.dictionary import DenseDictionary


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), intercept=st.booleans(), ratio=st.sampled_from([1e-3, 0.1, 2.0]))
def test_certificate_of_any_coefficients_bounds_that_of_the_rows(seed, intercept, ratio):
    rng = np.random.default_rng(seed)
    columns, targets = rng.random((24, 9)) < 0.5, rng.normal(size=(24, 2)).round(2)
    problem = cs.ConvexProblem(columns, targets, "squared", intercept=intercept)
    problem = problem.with_strength(ratio * problem.critical_strength)
    found = SquaredStatistics.of(problem.dictionary, targets)
    coef = torch.from_numpy(rng.normal(size=(problem.dictionary.n_atoms, 2)) * (rng.random() < 0.8))
    constant = torch.from_numpy(rng.normal(size=2)) * intercept
    given_rows, _ = cs.certify(problem, coef, constant)
    certificate, scale, correlation = certify_statistics(
        StatisticsProblem(found, problem.l1_strength, intercept), coef, constant
    )
    assert certificate.primal >= problem.objective(coef, problem.dictionary.matvec(coef) + constant)
    assert certificate.primal == pytest.approx(given_rows.primal, rel=CERTIFIED_AGAIN)
    assert certificate.dual == pytest.approx(given_rows.dual, rel=CERTIFIED_AGAIN, abs=ROUNDING)
    residual = problem.dictionary.matvec(coef) + constant - torch.from_numpy(targets)
    dual = -scale * (residual - residual.mean(0) * intercept) / problem.dictionary.n_rows
    torch.testing.assert_close(problem.dictionary.rmatvec(dual), correlation, rtol=0, atol=ROUNDING)
    assert float(correlation.abs().max()) <= problem.l1_strength


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    intercept=st.booleans(),
    l1_strength=st.sampled_from([0.0, 0.1, 1.0]),
    l2_strength=st.sampled_from([1.0, 1e-3, 1e-6, 1e-9, 1e-12, 1e-15, 1e-30, 1e-100, 1e-300]),
    shift=st.sampled_from([0, 2**22]),
    disturbance=st.sampled_from([1.0, 1e-3, 1e-6, 1e-9, 1e-12, 0.0]),
)
def test_certificate_of_the_elastic_net_holds_in_exact_arithmetic(
    seed, intercept, l1_strength, l2_strength, shift, disturbance
):
    rng = np.random.default_rng(seed)
    columns, targets = rng.random((8, 3)) < 0.5, rng.integers(-9, 10, size=(8, 2)) + shift
    dictionary = cs.build_dictionary(columns)
    problem = StatisticsProblem(SquaredStatistics.of(dictionary, targets), l1_strength, intercept, l2_strength)
    programs = [ExactProgram.of(dictionary.columns(), column, problem) for column in torch.from_numpy(targets).T]
    best = [program.minimiser() for program in programs]
    coef = torch.tensor([[float(value) for value in own] for own, _ in best], dtype=torch.float64).T
    coef = coef + disturbance * torch.from_numpy(rng.normal(size=coef.shape))
    constant = torch.tensor([float(own) for _, own in best], dtype=torch.float64)
    certificate, scale, _ = certify_statistics(problem, coef, constant)
    points = list(zip(coef.T.tolist(), constant.tolist(), strict=True))
    optimum = sum(program.objective(*own) for program, own in zip(programs, best, strict=True))
    bound = sum(program.bound(*own, tau) for program, own, tau in zip(programs, points, scale.tolist(), strict=True))
    assert certificate.dual <= bound <= optimum
    objective = sum(program.objective(*own) for program, own in zip(programs, points, strict=True))
    assert optimum <= objective <= certificate.primal


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    intercept=st.booleans(),
    ratio=st.sampled_from([1e-3, 0.1, 2.0]),
    l2_strength=st.sampled_from([10.0, 0.1, 1e-3]),
)
def test_certificate_of_the_elastic_net_is_that_of_the_rows(seed, intercept, ratio, l2_strength):
    rng = np.random.default_rng(seed)
    columns, targets = rng.random((24, 9)) < 0.5, rng.normal(size=(24, 2)).round(2)
    problem = cs.ConvexProblem(columns, targets, "squared", penalty="elastic-net", intercept=intercept)
    problem = problem.with_strength(ratio * problem.critical_strength, l2_strength)
    own = StatisticsProblem(
        SquaredStatistics.of(problem.dictionary, targets), problem.l1_strength, intercept, l2_strength
    )
    coef = torch.from_numpy(rng.normal(size=(problem.dictionary.n_atoms, 2)) * (rng.random() < 0.8))
    constant = torch.from_numpy(rng.normal(size=2)) * intercept
    given_rows, dual_point = cs.certify(problem, coef, constant)
    certificate, scale, correlation = certify_statistics(own, coef, constant)
    assert certificate.primal == pytest.approx(given_rows.primal, rel=CERTIFIED_AGAIN)
    assert certificate.dual == pytest.approx(given_rows.dual, rel=CERTIFIED_AGAIN, abs=ROUNDING)
    torch.testing.assert_close(problem.dictionary.rmatvec(dual_point), correlation, rtol=0, atol=ROUNDING)
    assert bool((correlation.abs().amax(0)[scale < 1] <= problem.l1_strength).all())
    # Whatever the two sets of coefficients are, the bound from one is below the objective at the other.
    other = torch.from_numpy(rng.normal(size=coef.shape))
    assert certificate.dual <= certify_statistics(own, other)[0].primal


@pytest.mark.parametrize("intercept", [False, True])
def test_certificate_becomes_that_of_the_norm_as_the_quadratic_vanishes(witnesses, data, intercept):
    found = gather_statistics(witnesses, batches(data, 50))
    plain = solve_statistics(found, 0.02, intercept=intercept)
    strengths = 10.0 ** -np.array([*range(31), 100, 200, 300])
    solutions = [solve_statistics(found, 0.02, l2_strength=r, intercept=intercept) for r in strengths]
    # In between both bounds lose to rounding, and alternating directions stop a little earlier.
    assert max(own.certificate.relative_gap for own in solutions) <= 4 * plain.certificate.relative_gap
    assert solutions[-1].certificate == plain.certificate
    assert bool((solutions[0].dual_scale == 1).all())
    assert float(solutions[0].dual_correlation.abs().max()) > 0.02
    assert torch.equal(solutions[-1].dual_scale, plain.dual_scale)
    # At coefficients that are far from optimal the bound falls to that of the norm, and not below.
    coef, constant = 0.9 * plain.coef, plain.intercept
    bounds = [certify_statistics(own.problem, coef, constant)[0].dual for own in solutions]
    assert bounds[-1] == certify_statistics(plain.problem, coef, constant)[0].dual
    assert bounds[0] > bounds[-1]
    assert all(later <= sooner + ROUNDING * abs(sooner) for sooner, later in pairwise(bounds))


@pytest.mark.parametrize("l1_strength", [0.02, 0.0])
@pytest.mark.parametrize("l2_strength", [1.0, 1e-3, 1e-9])
def test_wrong_coefficients_have_a_large_gap(witnesses, data, l1_strength, l2_strength):
    found = gather_statistics(witnesses, batches(data, 50))
    problem = StatisticsProblem(found, l1_strength, l2_strength=l2_strength)
    best = solve_statistics(found, 0.02, l2_strength=l2_strength)
    assert best.certificate.relative_gap <= ROUNDING
    for coef in (torch.zeros_like(best.coef), -best.coef, 1.1 * best.coef, best.coef.flip(0), best.coef.flip(1)):
        certificate, _, _ = certify_statistics(problem, coef)
        assert certificate.relative_gap > UNMISTAKABLE
        assert certificate.dual <= best.certificate.primal


def test_coefficients_in_float32_are_certified_in_float64(witnesses, data):
    problem = StatisticsProblem(gather_statistics(witnesses, batches(data, 50)), 0.02, l2_strength=0.1)
    coef = torch.randn(problem.n_atoms, 2, generator=torch.Generator().manual_seed(0))
    assert certify_statistics(problem, coef)[0] == certify_statistics(problem, coef.double())[0]


def test_certificate_owns_up_to_cancellation(witnesses, data):
    inputs, targets = data
    problem = problem_in_memory(witnesses, data, intercept=True)
    strength = 0.05 * problem.critical_strength
    optimum = cs.solve(problem.with_strength(strength), tol=1e-9).certificate.primal
    found = gather_statistics(witnesses, batches((inputs, targets + 2.0**22), 50))
    with pytest.warns(cs.ConvergenceWarning):
        solution = solve_statistics(found, strength, intercept=True)
    assert solution.status is Status.STALLED
    assert solution.certificate.dual <= optimum <= solution.certificate.primal


def test_coefficients_that_do_not_fit_are_refused_in_one_sentence(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    for call in (
        lambda: certify_statistics(StatisticsProblem(found, 0.1), torch.zeros(1, 2)),
        lambda: certify_statistics(
            StatisticsProblem(found, 0.1), torch.zeros(len(found.atoms.first), 2), torch.ones(2)
        ),
    ):
        with pytest.raises(cs.InvalidInputError, match="expected") as error:
            call()
        assert_one_sentence(error.value)


@pytest.mark.parametrize("strength", [1e-170, 1e-150])
def test_targets_whose_squares_vanish_are_not_proven_to_be_fitted(strength):
    columns, targets = np.eye(4), 1e-165 * np.arange(1.0, 5.0)
    statistics = SquaredStatistics.of(cs.build_dictionary(columns), targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        certificate = solve_statistics(statistics, strength).certificate
    assert certificate.primal > 0
    assert certificate.dual == 0


@pytest.mark.parametrize("scale", [1e-170, 1e170])
def test_real_columns_whose_squares_float64_cannot_hold_are_refused(scale):
    columns = DenseDictionary(scale * torch.eye(4, dtype=torch.float64))
    with pytest.raises(
        cs.InvalidInputError, match="expected columns whose squares float64 can hold, got entries of up to"
    ):
        SquaredStatistics.of(columns, np.ones(4))
