import hashlib
import io
import os
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from cvxsnn.core.errors import DataFileError, InvalidInputError
from cvxsnn.data.tasks import ecg_qtdb, files
from cvxsnn.data.tasks.ecg_qtdb import read_qtdb


def pack(n_samples, seed):
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 6, (n_samples, 7))
    one_hot = np.eye(6, dtype=np.uint8)[labels] * (generator.random((n_samples, 7, 1)) < 0.8).astype(np.uint8)
    file = io.BytesIO()
    savemat(file, {"x": generator.integers(-1, 2, (n_samples, 7, 4)).astype(np.int16), "y": one_hot})
    return file.getvalue(), one_hot


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Small files in the published format, with their own sums."""
    for seed, (part, n_samples) in enumerate({"train": 12, "test": 5}.items()):
        content, _ = pack(n_samples, seed)
        (tmp_path / f"QTDB_{part}.mat").write_bytes(content)
        changed = replace(files.FILES[f"qtdb {part}"], md5=hashlib.md5(content).hexdigest())
        monkeypatch.setitem(files.FILES, f"qtdb {part}", changed)
    return tmp_path


def test_every_step_has_a_class_and_splits_do_not_overlap(folder):
    task = ecg_qtdb(n_val=4, directory=folder, seed=1)
    assert task.train.inputs.shape == (8, 7, 4)
    assert task.val.heads["label"].shape == (4, 7)
    assert len(task.test) == 5
    inputs, labels, _ = read_qtdb("train", folder)
    together = np.concatenate((task.train.inputs, task.val.inputs))
    assert sorted(map(bytes, together)) == sorted(map(bytes, inputs))
    assert sorted(map(bytes, np.concatenate((task.train.targets, task.val.targets)))) == sorted(map(bytes, labels))


def test_steps_without_a_label_are_class_zero(folder):
    _, one_hot = pack(5, 1)
    _, labels, is_labelled = read_qtdb("test", folder)
    assert np.array_equal(is_labelled, one_hot.sum(2) == 1)
    assert not labels[~is_labelled].any()
    assert np.array_equal(labels[is_labelled], np.nonzero(one_hot)[2])


def test_another_file_is_refused(folder):
    (folder / "QTDB_test.mat").write_bytes(b"something else")
    with pytest.raises(DataFileError, match="MD5"):
        ecg_qtdb(n_val=4, directory=folder)


def test_validation_cannot_take_all_recordings(folder):
    with pytest.raises(InvalidInputError, match="n_val below n_runs and n_runs at most 12"):
        ecg_qtdb(n_val=12, directory=folder)


def test_whole_runs_of_neighbouring_recordings_are_held_out(folder):
    inputs, _, _ = read_qtdb("train", folder)
    task = ecg_qtdb(n_val=2, n_runs=4, directory=folder)
    held_out = [list(map(bytes, inputs)).index(bytes(own)) for own in task.val.inputs]
    assert len(held_out) == 6
    assert all(sum(number // 3 == run for number in held_out) in (0, 3) for run in range(4))


@pytest.mark.skipif("CVXSNN_DATA" not in os.environ, reason="set CVXSNN_DATA to a folder with the two QTDB files")
def test_the_published_files():
    task = ecg_qtdb()
    assert (len(task.train), len(task.val), len(task.test)) == (518, 100, 141)
    assert task.test.inputs.shape == (141, 1301, 4)
