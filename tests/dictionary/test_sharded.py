"""Rows on disk: the same dictionary as in memory, the same optimum, and files that may be interrupted or damaged."""

import errno
import os
from unittest.mock import patch

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence
from spies import LargestTensor
from tolerances import CERTIFIED_AGAIN, ROUNDING
from torch.utils.data import DataLoader, TensorDataset

import cvxsnn as cs
from cvxsnn.convex import SquaredStatistics
from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError
from cvxsnn.core.storage import read_tensors
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import ShardedDictionary, open_dictionary, sharded, stream_dictionary
from cvxsnn.dictionary.blocks import Block

N_SAMPLES = 300


@pytest.fixture(scope="module")
def witnesses():
    """Dead and equal columns are among them."""
    return cs.gaussian_witnesses(
        2, (48,), threshold=cs.witnesses.Uniform(1.0, 9.0), bias=cs.witnesses.Normal(0.0, 0.5), seed=1
    )


@pytest.fixture(scope="module")
def data():
    inputs = torch.from_numpy(np.random.default_rng(0).normal(size=(N_SAMPLES, 3, 2)))
    return inputs, (inputs[:, :, 0].sum(1) > 0).long() + (inputs[:, 0, 1] > 0.5).long()


def batches(data, size=50, stop=None):
    for start in range(0, len(data[0]) if stop is None else stop, size):
        yield tuple(part[start : start + size] for part in data)


def interrupted(data, after):
    yield from batches(data, stop=after)
    raise KeyboardInterrupt


def shards_of(folder):
    return sorted(folder.glob("shard-*"))


def read_shard(path):
    """What is in a shard; the bytes of its header come in any order."""
    tensors, header = read_tensors(path, "dictionary shard")
    return {name: value.tolist() for name, value in tensors.items()} | header


def labels_for(loss, targets):
    return targets if loss == "softmax" else targets.double() if loss == "squared" else (targets > 0).long()


@pytest.mark.parametrize("readout", ["last", "all", "mean"])
@pytest.mark.parametrize("shard_rows", [37, 128, 2000])
def test_products_and_health_are_those_in_memory(tmp_path, witnesses, data, readout, shard_rows):
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
    assert str(found.health()) == str(expected.health())
    assert f"{expected.n_rows} rows" in repr(found)


def test_complementary_columns_are_counted(tmp_path):
    signs = torch.randn(200, 1, 6, generator=torch.Generator().manual_seed(0))
    inputs = torch.cat((signs, -signs), dim=2)
    with patch.object(Block, "dictionary", lambda block, *_: cs.build_dictionary(block.sequences.inputs[:, 0] > 0)):
        found, _ = stream_dictionary(
            cs.gaussian_witnesses(12, (12,)), batches((inputs, signs[:, 0])), tmp_path, shard_rows=64
        )
    assert found.health().n_complementary == 6
    assert str(found.health()) == str(cs.build_dictionary(inputs[:, 0] > 0).health())


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
    assert problem.reduced.problem is problem
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


def test_files_do_not_depend_on_batches_or_processes(tmp_path, witnesses, data):
    folders = [tmp_path / name for name in ("one", "loader", "two")]
    stream_dictionary(witnesses, batches(data), folders[0], shard_rows=64)
    stream_dictionary(witnesses, DataLoader(TensorDataset(*data), 7), folders[1], shard_rows=64)
    stream_dictionary(witnesses, batches(data, 300), folders[2], shard_rows=64, n_jobs=2)
    one, loader, two = ([read_shard(path) for path in shards_of(folder)] for folder in folders)
    assert one == loader == two


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
    assert each.health().n_distinct_rows == in_memory.health().n_distinct_rows


def test_statistics_can_be_taken_from_disk(tmp_path, witnesses, data):
    dictionary, targets = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    found = SquaredStatistics.of(dictionary, targets)
    expected = SquaredStatistics.of(cs.build_dictionary(witnesses, data[0]), targets)
    assert torch.equal(found.gram, expected.gram)
    assert torch.equal(found.cross, expected.cross)


def test_folder_can_be_opened_again(tmp_path, witnesses, data):
    written, targets = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    found, read = open_dictionary(tmp_path, witnesses)
    assert torch.equal(read, targets)
    assert torch.equal(found.columns(), written.columns())
    assert open_dictionary(tmp_path)[0].witnesses is None
    with pytest.raises(cs.InvalidInputError, match="got others"):
        open_dictionary(tmp_path, cs.gaussian_witnesses(2, (48,), seed=2))


def test_interrupted_writing_goes_on_where_it_stopped(tmp_path, witnesses, data):
    with pytest.raises(KeyboardInterrupt):
        stream_dictionary(witnesses, interrupted(data, after=200), tmp_path / "a", shard_rows=64)
    assert len(shards_of(tmp_path / "a")) == 3
    with pytest.raises(DataFileError, match="found nothing"):
        open_dictionary(tmp_path / "a")
    (tmp_path / "a" / ".shard-000003.safetensors.0123456789abcdef.cvxsnn-part").write_bytes(b"half a shard")
    with patch.object(Block, "dictionary", autospec=True, side_effect=Block.dictionary) as rolled:
        found, _ = stream_dictionary(witnesses, batches(data), tmp_path / "a", shard_rows=64)
    assert rolled.call_count == 2
    expected, _ = stream_dictionary(witnesses, batches(data), tmp_path / "b", shard_rows=64)
    assert torch.equal(found.columns(), expected.columns())
    assert {p.name for p in (tmp_path / "a").iterdir()} == {p.name for p in (tmp_path / "b").iterdir()}


def test_full_disk_is_one_sentence_and_no_loss(tmp_path, witnesses, data, monkeypatch):
    calls = []

    def fill_up(_):
        calls.append(1)
        if len(calls) > 4:  # a file and its folder each
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill_up)
        with pytest.raises(DataFileError, match="No space left on device") as error:
            stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    assert_one_sentence(error.value)
    assert [path.name for path in tmp_path.iterdir()] == [path.name for path in shards_of(tmp_path)]
    assert len(shards_of(tmp_path)) == 2
    stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    assert len(shards_of(tmp_path)) == 5


def test_shards_of_other_data_are_kept_unless_told_otherwise(tmp_path, witnesses, data):
    inputs, targets = data
    stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    before = shards_of(tmp_path)[0].read_bytes()
    others = cs.gaussian_witnesses(2, (48,), seed=2)
    for call in (
        lambda **own: stream_dictionary(others, batches(data), tmp_path, shard_rows=64, **own),
        lambda **own: stream_dictionary(witnesses, batches((inputs + 1, targets)), tmp_path, shard_rows=64, **own),
        lambda **own: stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=32, **own),
    ):
        with pytest.raises(cs.InvalidInputError, match="restart=True") as error:
            call()
        assert_one_sentence(error.value)
    assert shards_of(tmp_path)[0].read_bytes() == before
    dictionary, _ = stream_dictionary(others, batches(data), tmp_path, shard_rows=128, restart=True)
    assert torch.equal(dictionary.columns(), cs.build_dictionary(others, inputs).columns())
    with pytest.raises(DataFileError, match="got others"):
        ShardedDictionary(
            tmp_path, (64,), dictionary.atom_of_column, dictionary.column_of_atom, others, "last", 3
        ).gram()


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "replace"])
def test_damaged_shard_is_one_sentence_and_made_again(tmp_path, witnesses, data, harm):
    dictionary, _ = stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
    path = shards_of(tmp_path)[1]
    whole, before = path.read_bytes(), read_shard(path)
    harmed = {
        "truncate": whole[:-40],
        "flip": whole[:-1] + bytes([whole[-1] ^ 1]),
        "remove": None,
        "replace": shards_of(tmp_path)[2].read_bytes(),
    }[harm]
    path.unlink()
    if harmed is not None:
        path.write_bytes(harmed)
    with pytest.raises(DataFileError, match=path.name) as error:
        open_dictionary(tmp_path)
    assert_one_sentence(error.value)
    if harm in ("truncate", "remove"):  # the rest shows when the folder is opened and checked
        with pytest.raises(DataFileError, match=path.name) as error:
            dictionary.gram()
        assert_one_sentence(error.value)
    if harm != "replace":
        stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=64)
        assert read_shard(path) == before


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, witnesses, data):
    (tmp_path / "taken").write_text("")
    with pytest.raises(DataFileError, match="expected a folder") as error:
        stream_dictionary(witnesses, batches(data), tmp_path / "taken")
    assert_one_sentence(error.value)
    with pytest.raises(cs.InvalidInputError, match="shard_rows"):
        stream_dictionary(witnesses, batches(data), tmp_path, shard_rows=0)
    with pytest.raises(cs.InvalidInputError, match="at least one batch"):
        stream_dictionary(witnesses, [], tmp_path)


def put(name, value):
    return lambda tensors, header: tensors.update({name: value})


def change(name, value):
    return lambda tensors, header: header.update({name: value})


TAMPERED_INDEX = {
    "no readout": lambda tensors, header: header.pop("readout"),
    "unknown readout": change("readout", "some"),
    "endless steps": change("n_steps", float("inf")),
    "no shards": change("sources", []),
    "shards are a number": change("sources", 3),
    "more shards": lambda tensors, header: header["sources"].append("x"),
    "other rows": lambda tensors, header: tensors["shard_rows"].add_(1),
    "no atoms": lambda tensors, header: tensors.pop("atom_of_witness"),
    "atoms of fractions": lambda tensors, header: tensors.update(atom_of_witness=tensors["atom_of_witness"] + 0.5),
    "atoms out of range": lambda tensors, header: tensors["atom_of_witness"].add_(10**6),
    "negative columns": lambda tensors, header: tensors["witness_of_atom"].sub_(10**6),
    "columns of other atoms": lambda tensors, header: tensors.update(
        witness_of_atom=tensors["witness_of_atom"].flip(0)
    ),
}
TAMPERED_SHARD = {
    "no source": lambda tensors, header: header.pop("source"),
    "rows of text": change("n_rows", "64"),
    "other rows": change("n_rows", 10**9),
    "no spikes": lambda tensors, header: tensors.pop("packed"),
    "spikes of other type": lambda tensors, header: tensors.update(packed=tensors["packed"].to(torch.int64)),
    "spikes of other shape": put("packed", torch.zeros(3, 1, 5, dtype=torch.uint8)),
    "fewer spikes": lambda tensors, header: tensors.update(packed=tensors["packed"][:1]),
    "atoms out of range": lambda tensors, header: tensors["atom_of_witness"].add_(10**6),
    "targets of other length": lambda tensors, header: tensors.update(targets=tensors["targets"][1:]),
    "targets of other shape": lambda tensors, header: tensors.update(targets=tensors["targets"][:, None]),
    "targets of other type": lambda tensors, header: tensors.update(targets=tensors["targets"].bool()),
    "lengths beyond the end": lambda tensors, header: tensors["lengths"].add_(10**6),
    "no lengths": lambda tensors, header: tensors.pop("lengths"),
}


@pytest.mark.parametrize(
    ("file", "case"),
    [("dictionary", case) for case in TAMPERED_INDEX] + [("shard-000001", case) for case in TAMPERED_SHARD],
)
def test_files_that_were_altered_with_their_checksum_are_refused_or_made_again(tmp_path, witnesses, data, file, case):
    written, _ = stream_dictionary(witnesses, batches(data), tmp_path, "mean", shard_rows=64)
    expected = written.columns()
    path = tmp_path / f"{file}.safetensors"
    kind, tampered = (
        ("sharded dictionary", TAMPERED_INDEX) if file == "dictionary" else ("dictionary shard", TAMPERED_SHARD)
    )
    tensors, header = storage.read_tensors(path, kind)
    tampered[case](tensors, header)
    storage.write_tensors(path, kind, tensors, header)
    with pytest.raises(DataFileError, match=f"expected .* {tmp_path}") as error:
        open_dictionary(tmp_path)
    assert_one_sentence(error.value)
    if "targets" not in case and case != "no source":
        again, _ = stream_dictionary(witnesses, batches(data), tmp_path, "mean", shard_rows=64)
        assert torch.equal(again.columns(), expected)
        assert torch.equal(open_dictionary(tmp_path)[0].columns(), expected)
