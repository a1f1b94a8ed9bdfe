"""The squared loss from sums over the rows: the same sums however they come in, and the same optimum with its proof."""

import math
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from small_models import assert_one_sentence
from spies import LargestTensor
from tolerances import CERTIFIED_AGAIN, ROUNDING, SUMMED_EXACTLY
from torch.utils.data import DataLoader, TensorDataset

import cvxsnn as cs
from cvxsnn.convex import (
    SquaredStatistics,
    StatisticsProblem,
    Status,
    certify_statistics,
    gather_statistics,
    solve_statistics,
    solve_statistics_path,
)
from cvxsnn.convex.statistics import sums as statistics
from cvxsnn.core.errors import BudgetError
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import DenseDictionary
from cvxsnn.dictionary.blocks import Block

SUMS = ("gram", "cross", "column_sums", "target_squares", "target_sums")
N_SAMPLES = 300
FLOATS = st.floats(-1e9, 1e9, width=32, allow_subnormal=False)


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with patch.object(statistics, "_BLOCK_ROWS", 64):
        yield


@pytest.fixture(scope="module")
def witnesses():
    """Few features and a high threshold: many of the columns are dead or equal."""
    return cs.gaussian_witnesses(
        2, (48,), threshold=cs.witnesses.Uniform(1.0, 9.0), bias=cs.witnesses.Normal(0.0, 0.5), seed=1
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(N_SAMPLES, 3, 2)))
    targets = inputs[:, :, 0].sum(1, keepdim=True) * torch.tensor([[1.0, -0.1]]) + inputs[:, 0] + 0.3
    return inputs, targets


def batches(data, *sizes):
    """The data in batches of these sizes, over and over."""
    start, number = 0, 0
    while start < len(data[0]):
        stop = start + sizes[number % len(sizes)]
        yield tuple(part[start:stop] for part in data)
        start, number = stop, number + 1


def problem_in_memory(witnesses, data, readout="last", intercept=False, lengths=None):
    inputs, targets = data
    dictionary = cs.build_dictionary(witnesses, Sequences(inputs, lengths), readout)
    return cs.ConvexProblem(dictionary, targets, "squared", intercept=intercept)


def assert_same_sums(found, expected):
    for name in SUMS:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert (found.n_rows, found.n_roundings) == (expected.n_rows, expected.n_roundings)


def assert_same_optimum(solution, problem):
    """Objectives agree within the gaps, and the proof agrees with one from the rows."""
    expected = cs.solve(problem.with_strength(solution.problem.l1_strength), tol=1e-9)
    allowed = max(solution.certificate.gap, expected.certificate.gap)
    assert abs(solution.certificate.primal - expected.certificate.primal) <= allowed
    certificate, _ = cs.certify(expected.problem, solution.coef, solution.intercept)
    assert solution.certificate.primal == pytest.approx(certificate.primal, rel=CERTIFIED_AGAIN)
    assert solution.certificate.dual == pytest.approx(certificate.dual, rel=CERTIFIED_AGAIN)


def test_gram_of_spikes_and_equal_columns_are_the_dictionarys(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    dictionary = cs.build_dictionary(witnesses, data[0])
    assert dictionary.n_atoms < witnesses.n_witnesses
    assert torch.equal(found.atoms.first, dictionary.witness_of_atom)
    assert torch.equal(found.atoms.inverse, dictionary.atom_of_witness)
    assert torch.equal(StatisticsProblem(found, 1.0).gram[:-1, :-1], dictionary.gram())


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_statistics_do_not_depend_on_the_batches(witnesses, data, sizes):
    assert_same_sums(
        gather_statistics(witnesses, batches(data, *sizes)), gather_statistics(witnesses, batches(data, N_SAMPLES))
    )


def test_statistics_do_not_depend_on_processes_or_threads(witnesses, data):
    one = gather_statistics(witnesses, batches(data, 50))
    assert_same_sums(gather_statistics(witnesses, batches(data, 70), n_jobs=2), one)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert_same_sums(gather_statistics(witnesses, batches(data, 50)), one)
    finally:
        torch.set_num_threads(before)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(FLOATS, min_size=1, max_size=40), shift=st.sampled_from([0.0, 2.0**60, 1e-30]))
def test_sums_over_targets_are_those_of_exact_arithmetic(values, shift):
    targets = np.array([shift, *values, -shift])
    found = SquaredStatistics.of(cs.build_dictionary(np.ones((len(targets), 1), dtype=bool)), targets)
    # What is less than 2^-120 of the largest is not seen.
    unseen = len(targets) * 2.0**-120 * np.abs(targets).max()
    assert float(found.target_sums) == pytest.approx(math.fsum(targets), rel=SUMMED_EXACTLY, abs=unseen)
    assert float(found.cross) == float(found.target_sums)
    assert float(found.target_squares) == pytest.approx(math.fsum(targets**2), rel=SUMMED_EXACTLY)


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


def test_statistics_of_parts_add_up(witnesses, data):
    inputs, targets = data
    parts = (slice(0, 150), slice(150, None))
    halves = [gather_statistics(witnesses, batches((inputs[own], targets[own]), 50)) for own in parts]
    whole, total = gather_statistics(witnesses, batches(data, 50)), halves[0] + halves[1]
    assert torch.equal(total.gram, whole.gram)
    torch.testing.assert_close(total.cross, whole.cross, rtol=ROUNDING, atol=ROUNDING)
    assert total.n_rows == N_SAMPLES
    others = cs.gaussian_witnesses(2, (48,), seed=2)
    for other in (
        gather_statistics(others, batches(data, 50)),
        gather_statistics(witnesses, batches(data, 50), "mean"),
        gather_statistics(witnesses, batches((inputs, targets[:, 0]), 50)),
    ):
        with pytest.raises(cs.InvalidInputError, match="expected statistics") as error:
            whole + other
        assert_one_sentence(error.value)


def test_network_rebuilt_from_statistics_gives_the_fitted_scores(witnesses, data):
    inputs, _ = data
    found = gather_statistics(witnesses, batches(data, 50))
    solution = solve_statistics(found, 0.01, intercept=True)
    columns = cs.build_dictionary(witnesses, inputs).columns()
    expected = columns @ solution.coef + solution.intercept
    for form in ("compact", "parallel", "full"):
        network = cs.reconstruct(solution, form)
        torch.testing.assert_close(network(inputs).detach(), expected, rtol=0, atol=ROUNDING)
    plain = SquaredStatistics.of(cs.build_dictionary(np.eye(4, dtype=bool)), np.arange(4.0))
    with pytest.raises(cs.InvalidInputError, match="built from witnesses"):
        cs.reconstruct(solve_statistics(plain, 0.01))


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_sequences_of_unequal_length_are_padded(witnesses, data, readout):
    inputs, targets = data
    lengths = torch.from_numpy(np.random.default_rng(3).integers(1, 4, N_SAMPLES))
    problem = problem_in_memory(witnesses, data, readout, lengths=lengths)
    expected = SquaredStatistics.of(problem.dictionary, targets)
    given_lengths = gather_statistics(witnesses, batches((inputs, targets, lengths), 70), readout)
    torch.testing.assert_close(given_lengths.gram, expected.gram, rtol=ROUNDING, atol=0)
    order = torch.argsort(lengths, stable=True)
    each_length = [order[lengths[order] == length] for length in (1, 2, 3)]
    cut = [(inputs[own, :length], targets[own]) for length, own in enumerate(each_length, 1)]
    torch.testing.assert_close(gather_statistics(witnesses, cut, readout).gram, expected.gram, rtol=ROUNDING, atol=0)


def test_loader_serves_as_well_as_a_generator(witnesses, data):
    loader = DataLoader(TensorDataset(*data), batch_size=32)
    assert_same_sums(gather_statistics(witnesses, loader), gather_statistics(witnesses, batches(data, 50)))


def test_no_tensor_grows_with_the_rows(witnesses, data):
    many = ((inputs, targets) for _ in range(8) for inputs, targets in batches(data, 50))
    with LargestTensor() as spy, patch.object(Block, "dictionary", autospec=True, side_effect=Block.dictionary) as seen:
        found = gather_statistics(witnesses, many)
    assert found.n_rows == 8 * N_SAMPLES
    assert max(len(call.args[0]) for call in seen.call_args_list) <= 64
    assert spy.numel <= 8 * 64 * witnesses.n_witnesses < found.n_rows * witnesses.n_witnesses / 4


def test_real_columns_have_statistics_too():
    rng = np.random.default_rng(5)
    columns, targets = rng.normal(size=(60, 7)), rng.normal(size=60)
    dictionary = DenseDictionary(torch.from_numpy(columns))
    problem = cs.ConvexProblem(dictionary, targets, "squared")
    assert_same_optimum(solve_statistics(SquaredStatistics.of(dictionary, targets), 0.05), problem)


@pytest.mark.parametrize(
    ("stream", "message"),
    [
        ([], "at least one batch"),
        ([np.zeros((2, 3, 2))], "expected batches"),
        ([(np.ones((2, 3, 2)), np.zeros(3))], "one target for each"),
        ([(np.ones((2, 3, 2)), np.array(["a", "b"]))], "number the classes"),
        ([(np.ones((2, 3, 2)), np.zeros(2)), (np.ones((2, 3, 2)), np.zeros((2, 1)))], "every batch"),
        ([(np.ones((2, 3, 2)), np.array([1e200, 0.0]))], "squares are finite"),
        ([(np.ones((2, 3, 2)), np.array([np.nan, 0.0]))], "finite targets"),
    ],
)
def test_streams_that_mean_nothing_are_refused(witnesses, stream, message):
    with pytest.raises(cs.InvalidInputError, match=message) as error:
        gather_statistics(witnesses, stream)
    assert_one_sentence(error.value)


def test_misuse_is_one_sentence(witnesses, data):
    found = gather_statistics(witnesses, batches(data, 50))
    with pytest.raises(BudgetError, match="stream_dictionary"):
        gather_statistics(cs.gaussian_witnesses(1, (30_000,)), [])
    with pytest.raises(cs.InvalidInputError, match="one per step"):
        gather_statistics(witnesses, batches(data, 50), "all")
    for call in (
        lambda: gather_statistics(witnesses, [], n_jobs=0),
        lambda: solve_statistics(found, 0.0),
        lambda: solve_statistics(found, 0.1, tol=0.0),
        lambda: solve_statistics_path(found, []),
        lambda: solve_statistics_path(found, smallest_ratio=2.0),
        lambda: certify_statistics(StatisticsProblem(found, 0.1), torch.zeros(1, 2)),
        lambda: certify_statistics(
            StatisticsProblem(found, 0.1), torch.zeros(len(found.atoms.first), 2), torch.ones(2)
        ),
        lambda: SquaredStatistics.of(cs.build_dictionary(np.eye(3)), np.zeros(2)),
    ):
        with pytest.raises(cs.InvalidInputError, match="expected") as error:
            call()
        assert_one_sentence(error.value)
