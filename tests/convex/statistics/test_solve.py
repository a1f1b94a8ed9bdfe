import numpy as np
import pytest
import torch
from convex.statistics.streams import assert_same_optimum, batches, problem_in_memory
from sklearn.linear_model import Ridge
from small_models import assert_one_sentence
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.convex import SquaredStatistics, gather_statistics, solve_statistics, solve_statistics_path
from cvxsnn.dictionary import DenseDictionary


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ratio", [0.3, 0.01])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_optimum_and_certificate_are_those_of_the_rows(witnesses, data, intercept, ratio, readout):
    found = gather_statistics(witnesses, batches(data, 50), readout)
    problem = problem_in_memory(witnesses, data, readout, intercept)
    strength = ratio * problem.critical_strength
    solution = solve_statistics(found, strength, intercept=intercept)
    assert solution.has_converged
    if readout == "last":
        assert_same_optimum(solution, problem)
    else:  # equal means are not merged, so the coefficients are of the witnesses
        expected = cs.solve(problem.with_strength(strength), tol=1e-9).certificate
        assert abs(solution.certificate.primal - expected.primal) <= max(solution.certificate.gap, expected.gap)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("ratio", [2.0, 0.3, 0.01, 0.0])
@pytest.mark.parametrize("l2_strength", [1.0, 1e-3, 1e-6])
def test_elastic_net_and_ridge_have_the_optimum_of_the_rows(witnesses, data, intercept, ratio, l2_strength):
    found = gather_statistics(witnesses, batches(data, 50))
    problem = problem_in_memory(witnesses, data, intercept=intercept)
    strength = ratio * problem.critical_strength
    solution = solve_statistics(found, strength, l2_strength=l2_strength, intercept=intercept)
    assert solution.has_converged
    assert_same_optimum(solution, problem)


@pytest.mark.parametrize("intercept", [False, True])
def test_equal_means_share_the_sum_of_squares(witnesses, data, intercept):
    found = gather_statistics(witnesses, batches(data, 50), "mean")
    dictionary = cs.build_dictionary(witnesses, data[0], "mean")
    assert dictionary.n_atoms < witnesses.n_witnesses
    each = DenseDictionary(dictionary.columns()[:, dictionary.atom_of_column])
    problem = cs.ConvexProblem(each, data[1], "squared", penalty="elastic-net", intercept=intercept)
    assert_same_optimum(solve_statistics(found, 0.05, l2_strength=0.1, intercept=intercept), problem)


@pytest.mark.parametrize("intercept", [False, True])
def test_without_the_norm_it_is_scikit_learns_ridge(data, intercept):
    columns = np.random.default_rng(2).random((300, 12)) < 0.4
    found = SquaredStatistics.of(cs.build_dictionary(columns), data[1])
    solution = solve_statistics(found, 0.0, l2_strength=0.01, intercept=intercept)
    ridge = Ridge(alpha=len(columns) * 0.01, fit_intercept=intercept, solver="cholesky").fit(columns, data[1])
    # The minimiser is unique, so that coefficients can be compared.
    torch.testing.assert_close(solution.coef, torch.from_numpy(ridge.coef_.T), rtol=ROUNDING, atol=ROUNDING)
    constant = torch.from_numpy(np.broadcast_to(ridge.intercept_, 2).copy())
    torch.testing.assert_close(solution.intercept, constant, rtol=ROUNDING, atol=ROUNDING)
    assert solution.certificate.relative_gap <= ROUNDING


def test_trajectories_have_a_row_for_each_step(witnesses, data):
    inputs = data[0]
    targets = inputs.cumsum(1)[:, :, 0]
    found = gather_statistics(witnesses, batches((inputs, targets), 50), "all")
    problem = problem_in_memory(witnesses, (inputs, targets), "all")
    assert found.n_rows == problem.dictionary.n_rows
    assert_same_optimum(solve_statistics(found, 0.05 * problem.critical_strength), problem)


def test_path_solves_each_strength_to_its_own_optimum(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    problem = problem_in_memory(witnesses, data, intercept=True)
    path = solve_statistics_path(found, intercept=True, n_strengths=6)
    strengths = [solution.problem.l1_strength for solution in path]
    assert strengths == sorted(strengths, reverse=True)
    assert strengths[0] == pytest.approx(problem.critical_strength)
    assert len(path[0].support) == 0
    for solution in path:
        assert_same_optimum(solution, problem)
    assert len(solve_statistics_path(found, [0.1, 0.2])) == 2


def test_path_of_elastic_nets_may_end_at_ridge(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    problem = problem_in_memory(witnesses, data, intercept=True)
    path = solve_statistics_path(found, [0.0, 0.3, 0.01], l2_strength=0.02, intercept=True)
    assert [solution.problem.l1_strength for solution in path] == [0.3, 0.01, 0.0]
    for solution in path:
        assert solution.problem.l2_strength == 0.02
        assert_same_optimum(solution, problem)
    assert len(path[-1].support) > len(path[0].support)
    own = solve_statistics_path(found, l2_strength=0.02, n_strengths=3)
    assert len(own[0].support) == 0
    assert all(solution.has_converged for solution in own)


def test_real_columns_have_statistics_too():
    rng = np.random.default_rng(5)
    columns, targets = rng.normal(size=(60, 7)), rng.normal(size=60)
    dictionary = DenseDictionary(torch.from_numpy(columns))
    problem = cs.ConvexProblem(dictionary, targets, "squared", penalty="elastic-net")
    found = SquaredStatistics.of(dictionary, targets)
    assert_same_optimum(solve_statistics(found, 0.05), problem)
    assert_same_optimum(solve_statistics(found, 0.05, l2_strength=0.1), problem)


def test_misuse_is_one_sentence(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    for call in (
        lambda: solve_statistics(found, 0.0),
        lambda: solve_statistics(found, 0.1, l2_strength=-1.0),
        lambda: solve_statistics(found, 0.1, tol=0.0),
        lambda: solve_statistics_path(found, []),
        lambda: solve_statistics_path(found, smallest_ratio=2.0),
        lambda: solve_statistics_path(found, [0.1, 0.0]),
        lambda: solve_statistics_path(found, l2_strength=np.inf),
    ):
        with pytest.raises(cs.InvalidInputError, match="expected") as error:
            call()
        assert_one_sentence(error.value)
