import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks import files
from cvxsnn.data.tasks.mnist import read_mnist

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
PIXELS = (np.arange(3 * 784) % 251).astype(np.uint8).reshape(3, 784)
CONTENT = {IMAGES: bytes(16) + PIXELS.tobytes(), LABELS: bytes(8) + bytes([7, 2, 1])}


@pytest.fixture(autouse=True)
def small_files(monkeypatch, tmp_path):
    """Three images stand for the original test files, and this machine has none of them."""
    for key, content in zip(("mnist t10k images", "mnist t10k labels"), CONTENT.values(), strict=True):
        monkeypatch.setitem(files.FILES, key, replace(files.FILES[key], md5=hashlib.md5(content).hexdigest()))
    monkeypatch.delenv("CVXSNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_files(folder, suffix=".gz"):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in CONTENT.items():
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    return folder


def packed(url):
    """The answer to a download."""
    return gzip.compress(CONTENT[url.rpartition("/")[2].removesuffix(".gz")])


def assert_small_files(read):
    images, labels = read
    np.testing.assert_array_equal(images, PIXELS)
    np.testing.assert_array_equal(labels, [7, 2, 1])
    assert images.dtype == labels.dtype == np.uint8


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("subfolder", [".", "mnist"])
def test_files_are_found_in_the_directory_packed_or_not(tmp_path, suffix, subfolder):
    write_files(tmp_path / "data" / subfolder, suffix)
    assert_small_files(read_mnist("t10k", tmp_path / "data"))
    assert_small_files(read_mnist("t10k", str(tmp_path / "data")))


@pytest.mark.parametrize("subfolder", [".", "mnist"])
def test_files_are_found_in_the_folder_of_the_variable(tmp_path, monkeypatch, subfolder):
    write_files(tmp_path / "data" / subfolder)
    monkeypatch.setenv("CVXSNN_DATA", str(tmp_path / "data"))
    assert_small_files(read_mnist("t10k"))


def test_files_are_found_in_the_cache_when_the_variable_names_a_folder_without_them(tmp_path, monkeypatch):
    write_files(tmp_path / "cache" / "cvxsnn" / "mnist")
    monkeypatch.setenv("CVXSNN_DATA", str(tmp_path))
    assert_small_files(read_mnist("t10k"))


def test_cache_is_under_home_without_xdg_cache_home(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    write_files(tmp_path / ".cache" / "cvxsnn" / "mnist")
    assert_small_files(read_mnist("t10k"))


def test_directory_comes_before_the_variable(tmp_path, monkeypatch):
    write_files(tmp_path / "data")
    monkeypatch.setenv("CVXSNN_DATA", str(tmp_path / "elsewhere"))
    (write_files(tmp_path / "elsewhere") / f"{IMAGES}.gz").write_bytes(b"not read")
    assert_small_files(read_mnist("t10k", tmp_path / "data"))


def test_what_a_directory_lacks_is_never_searched_elsewhere(tmp_path, monkeypatch):
    write_files(tmp_path / "data")
    monkeypatch.setenv("CVXSNN_DATA", str(tmp_path / "data"))
    with pytest.raises(DataFileError, match=f"expected {IMAGES} or {IMAGES}.gz in .*empty, found neither: download"):
        read_mnist("t10k", tmp_path / "empty")


def test_missing_files_are_downloaded_once_into_the_cache(tmp_path, serve):
    asked = serve(packed)
    assert_small_files(read_mnist("t10k"))
    assert_small_files(read_mnist("t10k"))
    assert asked == [f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz" for name in (IMAGES, LABELS)]
    kept = sorted(path.name for path in (tmp_path / "cache" / "cvxsnn" / "mnist").iterdir())
    assert kept == [f"{IMAGES}.gz", f"{LABELS}.gz"]


@pytest.mark.parametrize(
    "answer", [b"<html>log in first</html>", gzip.compress(b"something else")], ids=["page", "gzip"]
)
def test_a_bad_download_is_refused_and_not_kept(tmp_path, serve, answer):
    serve(lambda url: answer)
    with pytest.raises(DataFileError, match=f"expected https://.*{IMAGES}.gz to .* set CVXSNN_DATA"):
        read_mnist("t10k")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cache_that_cannot_be_written_is_named(tmp_path, serve):
    (tmp_path / "cache").write_text("a file where a folder should be")
    serve(packed)
    with pytest.raises(DataFileError, match=r"could not download it .*cache.*, or XDG_CACHE_HOME to a folder"):
        read_mnist("t10k")


def flip_one_bit(packed):
    return packed[:40] + bytes([packed[40] ^ 1]) + packed[41:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: b"",
        lambda packed: b"not gzip at all",
        lambda packed: packed[:-20],
        flip_one_bit,
        lambda packed: packed[:10] + b"\xff" + packed[11:],
        lambda packed: packed + b"rubbish",
        lambda packed: gzip.compress(gzip.decompress(packed)[:-1]),
        lambda packed: gzip.compress(gzip.decompress(packed)[:-1] + b"\x01"),
    ],
    ids=[
        "empty",
        "not gzip",
        "truncated",
        "bit flipped",
        "unknown block",
        "rubbish after",
        "one byte short",
        "one byte other",
    ],
)
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, damage):
    path = write_files(tmp_path / "data") / f"{IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataFileError, match=f"data/{IMAGES}.gz to .* delete it and put https://") as caught:
        read_mnist("t10k", tmp_path / "data")
    assert "\n" not in str(caught.value)


def test_a_damaged_plain_file_is_refused_too(tmp_path):
    (write_files(tmp_path, suffix="") / LABELS).write_bytes(CONTENT[LABELS][:-1])
    with pytest.raises(DataFileError, match=f"{LABELS} to hold the original .* got other content .* delete it"):
        read_mnist("t10k", tmp_path)


def test_a_small_file_of_very_many_bytes_is_not_unpacked_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    (write_files(tmp_path) / f"{LABELS}.gz").write_bytes(gzip.compress(bytes(10**6)))
    with pytest.raises(DataFileError, match="to hold the original"):
        read_mnist("t10k", tmp_path)
