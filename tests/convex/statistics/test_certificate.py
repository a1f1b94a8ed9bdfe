import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from convex.statistics.streams import batches, problem_in_memory
from hypothesis import given, settings
from small_models import assert_one_sentence
from tolerances import CERTIFIED_AGAIN, ROUNDING

import cvxsnn as cs
from cvxsnn.convex import (
    SquaredStatistics,
    StatisticsProblem,
    Status,
    certify_statistics,
    gather_statistics,
    solve_statistics,
)


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
    assert certificate.primal >= given_rows.primal
    assert certificate.dual <= given_rows.dual
    assert certificate.primal == pytest.approx(given_rows.primal, rel=CERTIFIED_AGAIN)
    assert certificate.dual == pytest.approx(given_rows.dual, rel=CERTIFIED_AGAIN, abs=ROUNDING)
    residual = problem.dictionary.matvec(coef) + constant - torch.from_numpy(targets)
    dual = -scale * (residual - residual.mean(0) * intercept) / problem.dictionary.n_rows
    torch.testing.assert_close(problem.dictionary.rmatvec(dual), correlation, rtol=0, atol=ROUNDING)
    assert float(correlation.abs().max()) <= problem.l1_strength


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
