import io
import pickle
import zipfile

import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn import CvxsnnError, InvalidInputError
from cvxsnn.core import memory
from cvxsnn.core.errors import BudgetError, DataFileError
from cvxsnn.data.npz import read_data

X = np.arange(24.0).reshape(4, 3, 2)
Y = np.array([0, 1, 0, 1])


def write(folder, **arrays):
    np.savez(folder / "data.npz", **arrays)
    return folder / "data.npz"


@pytest.mark.parametrize(("inputs", "targets"), [("X", "y"), ("inputs", "targets"), ("X", "labels")])
def test_arrays_are_found_under_their_usual_names(tmp_path, inputs, targets):
    data, labels, weight = read_data(write(tmp_path, **{inputs: X, targets: Y}), needs_targets=True)
    np.testing.assert_array_equal(data, X)
    np.testing.assert_array_equal(labels, Y)
    assert weight is None


def test_lengths_cut_sequences_and_weights_are_read(tmp_path):
    path = write(tmp_path, X=X, y=Y, lengths=np.array([1, 3, 2, 1]), sample_weight=np.arange(4))
    data, _, weight = read_data(path, needs_targets=True)
    assert [len(sequence) for sequence in data] == [1, 3, 2, 1]
    np.testing.assert_array_equal(data[2], X[2, :2])
    np.testing.assert_array_equal(weight, np.arange(4))


def test_targets_are_needed_only_where_they_are_asked_for(tmp_path):
    path = write(tmp_path, X=X)
    assert read_data(path, needs_targets=False)[1] is None
    with pytest.raises(DataFileError, match=r"expected arrays X and y in .*data.npz, got \['X'\]"):
        read_data(path, needs_targets=True)
    with pytest.raises(DataFileError, match=r"expected arrays X in .*data.npz, got \['y'\]"):
        read_data(write(tmp_path, y=Y), needs_targets=False)


@pytest.mark.parametrize(
    ("lengths", "complaint"),
    [
        (np.array([1, 2, 3]), "one length per sequence"),
        (np.array([1.0, 2, 3, 3]), "one length per sequence"),
        (np.array([0, 1, 2, 3]), "lengths from 1 to 3"),
        (np.array([1, 2, 3, 4]), "lengths from 1 to 3, got values from 1 to 4"),
    ],
)
def test_lengths_that_fit_no_sequence_are_refused(tmp_path, lengths, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        read_data(write(tmp_path, X=X, y=Y, lengths=lengths), needs_targets=True)
    assert_one_sentence(caught.value)


def test_lengths_of_rows_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="one length per sequence"):
        read_data(write(tmp_path, X=X[:, 0], y=Y, lengths=np.ones(4, int)), needs_targets=True)


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    path = write(tmp_path, X=np.array([{}, {}], dtype=object), y=Y)
    with pytest.raises(
        DataFileError, match=r"expected a NumPy archive .* of numbers or strings, but .*data.npz"
    ) as caught:
        read_data(path, needs_targets=True)
    assert_one_sentence(caught.value)


def zip_of(name, content, kind=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def npy_of(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def absurd_array():
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 1000), }"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


OTHERS = {
    "empty": b"",
    "text": b"1,2,3\n4,5,6\n",
    "pickle": pickle.dumps({"X": [1.0]}),
    "one array": npy_of(X),
    "a zip of text": zip_of("X.npy", b"hello"),
    "a zip of nothing": zip_of("X.npy", b""),
    "an absurd array": zip_of("X.npy", absurd_array()),
    "an array cut short": zip_of("X.npy", npy_of(X)[:-8]),
    "a damaged zip": zip_of("X.npy", npy_of(X), zipfile.ZIP_DEFLATED)[:70]
    + b"\xff" * 40
    + zip_of("X.npy", npy_of(X), zipfile.ZIP_DEFLATED)[110:],
    "half a zip": zip_of("X.npy", npy_of(X))[:100],
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_files_are_refused_in_one_sentence(tmp_path, case):
    path = tmp_path / "data.npz"
    path.write_bytes(OTHERS[case])
    with pytest.raises(CvxsnnError, match=r"expected .*data\.npz") as caught:
        read_data(path, needs_targets=False)
    assert_one_sentence(caught.value)


def test_any_flipped_byte_is_read_or_refused_in_one_sentence(tmp_path):
    np.savez_compressed(tmp_path / "data.npz", X=X, y=Y)
    whole = (tmp_path / "data.npz").read_bytes()
    path = tmp_path / "damaged.npz"
    for place in range(0, len(whole), 5):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_data(path, needs_targets=True)
        except CvxsnnError as error:
            assert_one_sentence(error)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(DataFileError, match=r"expected a data file at .*missing.npz, found nothing"):
        read_data(tmp_path / "missing.npz", needs_targets=True)
    with pytest.raises(DataFileError, match=r"something else: .*Is a directory"):
        read_data(tmp_path, needs_targets=True)


def test_an_archive_that_does_not_fit_into_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    path = write(tmp_path, X=X, y=Y)
    monkeypatch.setattr(memory, "NEGLIGIBLE", 0)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 400)
    with pytest.raises(BudgetError, match=r"the contents of .*data.npz to fit into .* needs 480 B") as caught:
        read_data(path, needs_targets=True)
    assert_one_sentence(caught.value)
