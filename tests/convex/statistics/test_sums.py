"""Sums over the rows: the same however the data come in."""

import math
from unittest.mock import patch

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from convex.statistics.streams import N_SAMPLES, assert_same_sums, batches, problem_in_memory
from hypothesis import given, settings
from small_models import assert_one_sentence
from spies import LargestTensor
from tolerances import ROUNDING, SUMMED_EXACTLY
from torch.utils.data import DataLoader, TensorDataset

import cvxsnn as cs
from cvxsnn.convex import SquaredStatistics, gather_statistics
from cvxsnn.core.errors import BudgetError
from cvxsnn.dictionary.blocks import Block

FLOATS = st.floats(-1e9, 1e9, width=32, allow_subnormal=False)


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
    with pytest.raises(BudgetError, match="stream_dictionary"):
        gather_statistics(cs.gaussian_witnesses(1, (30_000,)), [])
    with pytest.raises(cs.InvalidInputError, match="one per step"):
        gather_statistics(witnesses, batches(data, 50), "all")
    for call in (
        lambda: gather_statistics(witnesses, [], n_jobs=0),
        lambda: SquaredStatistics.of(cs.build_dictionary(np.eye(3)), np.zeros(2)),
    ):
        with pytest.raises(cs.InvalidInputError, match="expected") as error:
            call()
        assert_one_sentence(error.value)
