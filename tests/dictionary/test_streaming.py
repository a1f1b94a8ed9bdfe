"""Files that may be interrupted, damaged or of other data."""

import errno
import os
import pickle
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from dictionary.streams import batches, read_shard, shards_of
from small_models import assert_one_sentence
from torch.utils.data import DataLoader, TensorDataset

import cvxsnn as cs
from cvxsnn.core.errors import DataFileError
from cvxsnn.dictionary import open_dictionary, stream_dictionary, streaming
from cvxsnn.dictionary.streaming import iterate_blocks


def interrupted(data, after):
    yield from batches(data, stop=after)
    raise KeyboardInterrupt


def test_files_do_not_depend_on_batches_or_processes(tmp_path, witnesses, data):
    folders = [tmp_path / name for name in ("one", "loader", "two")]
    stream_dictionary(witnesses, batches(data), folders[0], shard_rows=64)
    stream_dictionary(witnesses, DataLoader(TensorDataset(*data), 7), folders[1], shard_rows=64)
    stream_dictionary(witnesses, batches(data, 300), folders[2], shard_rows=64, n_jobs=2)
    one, loader, two = ([read_shard(path) for path in shards_of(folder)] for folder in folders)
    assert one == loader == two


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
    with patch.object(streaming, "roll_dictionary", side_effect=streaming.roll_dictionary) as rolled:
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
        replace(dictionary, shard_rows=(64,)).gram()


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


def test_only_the_samples_of_a_block_travel_to_another_process(data):
    (block,) = iterate_blocks([data], len(data[0]), "last")
    assert len(pickle.dumps(block.cut(0, 2))) < 5000 < block.sequences.inputs.nbytes
    assert torch.equal(pickle.loads(pickle.dumps(block.cut(5, 9))).sequences.inputs, data[0][5:9])
