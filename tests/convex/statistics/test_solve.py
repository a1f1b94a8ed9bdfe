import numpy as np
import pytest
import torch
from convex.statistics.streams import assert_same_optimum, batches, problem_in_memory
from small_models import assert_one_sentence

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


def test_real_columns_have_statistics_too():
    rng = np.random.default_rng(5)
    columns, targets = rng.normal(size=(60, 7)), rng.normal(size=60)
    dictionary = DenseDictionary(torch.from_numpy(columns))
    problem = cs.ConvexProblem(dictionary, targets, "squared")
    assert_same_optimum(solve_statistics(SquaredStatistics.of(dictionary, targets), 0.05), problem)


def test_misuse_is_one_sentence(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    for call in (
        lambda: solve_statistics(found, 0.0),
        lambda: solve_statistics(found, 0.1, tol=0.0),
        lambda: solve_statistics_path(found, []),
        lambda: solve_statistics_path(found, smallest_ratio=2.0),
    ):
        with pytest.raises(cs.InvalidInputError, match="expected") as error:
            call()
        assert_one_sentence(error.value)
