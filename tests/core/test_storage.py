import errno
import json
import os
import re
from pathlib import Path

import pytest
import torch
from small_models import assert_one_sentence

from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError

SOURCE = Path(storage.__file__).parents[1]
OLD = b"what was there before"


def fail_with(error):
    def fail(*_):
        raise error

    return fail


def test_a_file_is_written_whole_and_readable_by_others(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    storage.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("exists", [True, False])
def test_a_write_that_fails_changes_nothing_and_leaves_nothing(monkeypatch, tmp_path, step, exists):
    path = tmp_path / "file"
    if exists:
        path.write_bytes(OLD)
    monkeypatch.setattr(os, step, fail_with(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(
        DataFileError, match=r"write .*file, got: No space left on device; nothing was changed"
    ) as caught:
        storage.write_atomically(path, b"new")
    assert_one_sentence(caught.value)
    assert os.listdir(tmp_path) == (["file"] if exists else [])
    assert not exists or path.read_bytes() == OLD


def test_an_interrupted_write_changes_nothing_and_leaves_nothing(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "fsync", fail_with(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        storage.write_atomically(path, b"new")
    assert os.listdir(tmp_path) == ["file"]
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("place", ["missing/file", "folder", "blocker/file"])
def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "blocker").write_bytes(OLD)
    with pytest.raises(DataFileError, match=f"expected to write .*{place}, got: .*choose another place") as caught:
        storage.write_atomically(tmp_path / place, b"new")
    assert_one_sentence(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["blocker", "folder"]


def test_tensors_and_header_come_back_as_they_went(tmp_path):
    big = torch.arange(12.0).reshape(3, 4)
    tensors = {"view": big.T, "part": big[:, 1], "integers": torch.tensor([1, -2]), "none": torch.zeros(0, 3)}
    header = {"text": "ä\n", "list": [1, 2.5, None, True], "nested": {"a": {}}}
    storage.write_tensors(tmp_path / "file", "thing", tensors, header)
    found, read = storage.read_tensors(str(tmp_path / "file"), "thing")
    assert read == header
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


def test_a_header_that_json_does_not_know_is_never_written(tmp_path):
    with pytest.raises(TypeError):
        storage.write_tensors(tmp_path / "file", "thing", {}, {"module": os})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("header", [None, "no JSON", "[" * 100_000])
def test_a_header_that_cannot_be_read_is_one_sentence(monkeypatch, tmp_path, header):
    metadata = {"format": "cvxsnn", "version": "1", "kind": "thing"} | ({} if header is None else {"header": header})
    metadata["checksum"] = storage._checksum(metadata, {})
    (tmp_path / "file").write_bytes(storage.pack_tensors({}, metadata))
    with pytest.raises(DataFileError, match=r"expected a header in .*file") as caught:
        storage.read_tensors(tmp_path / "file", "thing")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("version", "complaint"), [("2", "update cvxsnn"), ("x", "altered or damaged"), ("", "altered")]
)
def test_a_file_of_a_newer_version_says_to_update(tmp_path, version, complaint):
    metadata = {"format": "cvxsnn", "version": version, "kind": "thing", "header": json.dumps({})}
    metadata["checksum"] = storage._checksum(metadata, {})
    (tmp_path / "file").write_bytes(storage.pack_tensors({}, metadata))
    with pytest.raises(DataFileError, match=complaint) as caught:
        storage.read_tensors(tmp_path / "file", "thing")
    assert_one_sentence(caught.value)


def test_a_file_of_another_kind_is_named(tmp_path):
    storage.write_tensors(tmp_path / "file", "checkpoint", {}, {})
    with pytest.raises(DataFileError, match="expected a model file, got a checkpoint file"):
        storage.read_tensors(tmp_path / "file", "model")


@pytest.mark.parametrize("name", ["version", "kind", "header", "format", "checksum"])
@pytest.mark.parametrize("change", ["absent", "altered"])
def test_what_a_file_says_about_itself_is_part_of_its_checksum(tmp_path, name, change):
    metadata = {"format": "cvxsnn", "version": "1", "kind": "thing", "header": json.dumps({"a": 1})}
    tensors = {"x": torch.arange(3.0)}
    metadata["checksum"] = storage._checksum(metadata, tensors)
    (tmp_path / "file").write_bytes(storage.pack_tensors(tensors, metadata))
    assert storage.read_tensors(tmp_path / "file", "thing")[1] == {"a": 1}
    other = {"version": "0", "kind": "other", "header": json.dumps({"a": 2}), "format": "x", "checksum": "0" * 64}
    changed = metadata | {name: other[name]}
    if change == "absent":
        del changed[name]
    (tmp_path / "file").write_bytes(storage.pack_tensors(tensors, changed))
    with pytest.raises(DataFileError) as caught:
        storage.read_tensors(tmp_path / "file", changed.get("kind", "thing"))
    assert_one_sentence(caught.value)


def test_tensors_of_equal_bytes_have_different_checksums():
    same = torch.zeros(4, dtype=torch.int32)
    others = {"x": same.view(torch.float32)}, {"x": same.view(2, 2)}, {"y": same}, {"x": same + 1}, {}
    sums = [storage._checksum({}, tensors) for tensors in ({"x": same}, *others)]
    assert len(set(sums)) == len(sums)
    assert storage._checksum({}, {"a": same, "b": same + 1}) == storage._checksum({}, {"b": same + 1, "a": same})


def test_no_source_file_reads_a_format_that_can_run_code():
    forbidden = re.compile(
        r"import\s+(\w+,\s*)*(pickle|dill|cloudpickle|marshal|shelve)\b|from\s+(pickle|dill|cloudpickle)|joblib\.load"
        r"|torch\.load\(|allow_pickle=True|\beval\(|\bexec\(|yaml\.load"
    )
    # Tasks go from one process of a user to another by cloudpickle, and come from no file.
    sources = [source for source in SOURCE.rglob("*.py") if source.name != "parallel.py"]
    assert len(sources) > 50
    for source in sources:
        # nn.Module.eval is something else, and always has an object before it.
        assert not forbidden.search(re.sub(r"\.eval\(", "", source.read_text())), source
        for call in re.findall(r"np\.load\([^)]*\)", source.read_text()):
            assert "allow_pickle=False" in call, source
