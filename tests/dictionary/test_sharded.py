"""Rows on disk: the same dictionary as in memory, and the same optimum."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from dictionary.streams import N_SAMPLES, batches, shards_of
from spies import LargestTensor
from tolerances import CERTIFIED_AGAIN, ROUNDING

import cvxsnn as cs
from cvxsnn.core.storage import read_tensors
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import sharded, stream_dictionary


def labels_for(loss, targets):
    return targets if loss == "softmax" else targets.double() if loss == "squared" else (targets > 0).long()


@pytest.mark.parametrize("readout", ["last", "all", "mean"])
@pytest.mark.parametrize("shard_rows", [37, 128, 2000])
def test_products_are_those_in_memory(tmp_path, witnesses, data, readout, shard_rows):
    inputs, targets = data
    own = targets[:, None].expand(-1, 3) if readout == "all" else targets
    found, read = stream_dictionary(witnesses, batches((inputs, own)), tmp_path, readout, shard_rows=shard_rows)
    expected = cs.build_dictionary(witnesses, inputs, readout)
    assert torch.equal(read, own)
    assert expected.n_atoms < witnesses.n_witnesses
    assert found.shape == expected.shape
    assert found.device == expected.device
    assert torch.equal(found.atom_of_column, expected.atom_of_column)
    assert torch.equal(found.column_of_atom, expected.column_of_atom)
    assert torch.equal(found.columns(), expected.columns())
    assert torch.equal(found.columns(slice(2, 5), torch.float32), expected.columns(slice(2, 5), torch.float32))
    torch.testing.assert_close(found.gram(), expected.gram(), rtol=0 if readout != "mean" else ROUNDING, atol=0)
    torch.testing.assert_close(found.row_gram(), expected.row_gram(), rtol=0 if readout != "mean" else ROUNDING, atol=0)
    rng = np.random.default_rng(1)
    coef = torch.from_numpy(rng.normal(size=(expected.n_atoms, 2)) * (rng.random((expected.n_atoms, 1)) < 0.3))
    rows = torch.from_numpy(rng.normal(size=(expected.n_rows, 2)))
    torch.testing.assert_close(found.matvec(coef), expected.matvec(coef), rtol=0, atol=ROUNDING)
    torch.testing.assert_close(found.rmatvec(rows), expected.rmatvec(rows), rtol=0, atol=ROUNDING)
    assert not found.matvec(torch.zeros_like(coef)).any()
    chosen = torch.from_numpy(rng.permutation(expected.n_rows)[:90])
    assert torch.equal(found.take_rows(chosen).columns(), expected.take_rows(chosen).columns())
    atoms = torch.tensor([3, 1])
    joined = torch.cat([block for _, block in found.iterate_rows(16, atoms=atoms)])
    assert torch.equal(joined, expected.columns(atoms))
    assert f"{expected.n_rows} rows" in repr(found)


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge", "squared", "hinge"])
@pytest.mark.parametrize("intercept", [False, True])
def test_optimum_is_that_in_memory(tmp_path, witnesses, data, loss, intercept):
    inputs, _ = data
    dictionary, read = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    in_memory = cs.build_dictionary(witnesses, inputs)
    found, expected = (
        cs.ConvexProblem(own, labels_for(loss, read), loss, intercept=intercept) for own in (dictionary, in_memory)
    )
    strength = 0.05 * expected.critical_strength
    one, other = (cs.solve(problem.with_strength(strength)) for problem in (found, expected))
    assert one.has_converged
    allowed = max(one.certificate.gap, other.certificate.gap)
    assert abs(one.certificate.primal - other.certificate.primal) <= allowed
    network = cs.reconstruct(one)
    torch.testing.assert_close(network(inputs).detach(), one.scores(), rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
@pytest.mark.parametrize("ratio", [0.05, 0.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_elastic_net_and_ridge_have_the_optimum_in_memory(tmp_path, witnesses, data, loss, ratio, intercept):
    inputs, _ = data
    dictionary, read = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    in_memory = cs.build_dictionary(witnesses, inputs)
    found, expected = (
        cs.ConvexProblem(own, labels_for(loss, read), loss, penalty="elastic-net", intercept=intercept)
        for own in (dictionary, in_memory)
    )
    strength = ratio * expected.critical_strength
    one, other = (cs.solve(problem.with_strength(strength, 0.01)) for problem in (found, expected))
    assert one.has_converged
    assert other.has_converged
    allowed = max(one.certificate.gap, other.certificate.gap)
    assert abs(one.certificate.primal - other.certificate.primal) <= allowed
    # The minimiser is unique, and as near as the gap and the strength of the quadratic say.
    distance = float((one.coef - other.coef).norm())
    assert distance <= sum((2 * own.certificate.gap / 0.01) ** 0.5 for own in (one, other))
    again, _ = cs.certify(other.problem, one.coef, one.intercept)
    assert again.primal == pytest.approx(one.certificate.primal, rel=CERTIFIED_AGAIN)


def test_path_and_weights_work_from_disk(tmp_path, witnesses, data):
    dictionary, targets = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    weight = (torch.arange(N_SAMPLES) % 3).double()
    problem = cs.ConvexProblem(dictionary, targets > 0, "logistic", row_weight=weight)
    assert all(solution.has_converged for solution in cs.solve_path(problem, n_strengths=4, smallest_ratio=0.1))


def test_rows_on_disk_are_not_merged(tmp_path, witnesses, data):
    dictionary, targets = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    problem = cs.ConvexProblem(dictionary, targets > 0, "logistic")
    assert problem.reduced[0] is problem
    groups = dictionary.group_rows()
    assert torch.equal(groups.first, torch.arange(N_SAMPLES))
    assert torch.equal(groups.inverse, torch.arange(N_SAMPLES))


def test_no_tensor_has_an_entry_for_each_row_and_atom(tmp_path, witnesses, data):
    many = (batch for _ in range(8) for batch in batches(data))
    with LargestTensor() as writing:
        dictionary, targets = stream_dictionary(witnesses, many, tmp_path, shard_rows=64)
    problem = cs.ConvexProblem(dictionary, targets > 0, "logistic")
    with LargestTensor() as solving:
        cs.solve(problem.with_strength(0.1 * problem.critical_strength))
    n_rows, n_atoms = dictionary.shape
    assert n_rows == 8 * N_SAMPLES
    assert writing.numel <= max(n_rows, 8 * 64 * witnesses.n_witnesses) < n_rows * n_atoms / 4
    assert solving.numel <= max(2 * n_rows, 8 * 64 * n_atoms) < n_rows * n_atoms / 4


def test_one_pass_reads_each_shard_once(tmp_path, witnesses, data):
    dictionary, _ = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    rows = torch.ones(N_SAMPLES, 1, dtype=torch.float64)
    for product in (
        lambda: dictionary.rmatvec(rows),
        lambda: dictionary.matvec(torch.ones(dictionary.n_atoms, 1, dtype=torch.float64)),
        dictionary.gram,
        lambda: list(dictionary.iterate_rows(8)),
    ):
        with patch.object(sharded, "safe_open", wraps=sharded.safe_open) as opened:
            product()
        assert [call.args[0] for call in opened.call_args_list] == shards_of(tmp_path)


def test_unequal_lengths_are_those_in_memory(tmp_path, witnesses, data):
    inputs, targets = data
    lengths = torch.from_numpy(np.random.default_rng(3).integers(1, 4, N_SAMPLES)).sort().values
    in_memory = cs.build_dictionary(witnesses, Sequences(inputs, lengths), "mean")
    whole, _ = stream_dictionary(witnesses, batches((inputs, targets, lengths)), tmp_path / "a", "mean", shard_rows=64)
    assert torch.equal(whole.columns(), in_memory.columns())
    # Batches that are as long as their sequences, so that early shards have fewer steps.
    cut = [(inputs[lengths == n, :n], targets[lengths == n]) for n in (1, 2, 3)]
    each, _ = stream_dictionary(witnesses, cut, tmp_path / "b", "mean", shard_rows=64)
    assert torch.equal(each.columns(), in_memory.columns())
    assert torch.equal(each.take_rows(torch.arange(40, 200)).columns(), in_memory.columns()[40:200])


def test_shards_of_shorter_sequences_may_store_narrower_counts(tmp_path, witnesses):
    inputs, lengths = torch.randn(128, 300, 2, generator=torch.Generator().manual_seed(0)), torch.full((128,), 300)
    lengths[:64] = 200
    in_memory = cs.build_dictionary(witnesses, Sequences(inputs, lengths), "mean")
    cut = [(inputs[:64, :200], lengths[:64]), (inputs[64:], lengths[64:])]
    found, _ = stream_dictionary(witnesses, cut, tmp_path, "mean", shard_rows=64)
    stored = [read_tensors(path, "dictionary shard")[0]["patterns"].dtype for path in shards_of(tmp_path)]
    assert stored == [torch.uint8, torch.int16]
    assert torch.equal(found.columns(), in_memory.columns())
    chosen = torch.arange(60, 70)
    assert torch.equal(found.take_rows(chosen).patterns, in_memory.take_rows(chosen).patterns)
