"""Downloads of published files: tried again, kept only whole, refused in one sentence."""

import hashlib

import pooch
import pytest
import requests
from small_models import assert_one_sentence

from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks.files import PublishedFile

FILE = PublishedFile(
    ("data", "data.bin"),
    "https://example.org/data.bin",
    "things",
    "the file of things",
    hashlib.md5(b"whole").hexdigest(),
)


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch, tmp_path):
    monkeypatch.delenv("CVXSNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def kept(tmp_path):
    return [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "failure",
    [
        requests.ConnectionError("no route to host"),
        requests.Timeout("timed out"),
        requests.exceptions.ChunkedEncodingError("half"),
    ],
)
def test_without_network_three_attempts_end_in_one_sentence_that_says_what_to_set(serve, failure, tmp_path):
    def fail(url):
        raise failure

    asked = serve(fail)
    with pytest.raises(DataFileError, match=f"data.bin .* could not download .*{failure}.* set CVXSNN_DATA") as caught:
        FILE.read(None)
    assert_one_sentence(caught.value)
    assert asked == [FILE.url] * 3
    assert kept(tmp_path) == []


def test_an_address_that_is_gone_is_one_sentence(serve, tmp_path):
    serve(lambda url: b"not found", status=404)
    with pytest.raises(DataFileError, match=r"could not download it \(404 Client Error.*\)"):
        FILE.read(None)
    assert kept(tmp_path) == []


def test_a_download_that_breaks_off_is_tried_again_and_kept_once(serve, tmp_path, capsys):
    answers = [requests.ConnectionError("reset"), b"whole"]

    def answer(url):
        one = answers.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    asked = serve(answer)
    level = pooch.get_logger().level
    assert FILE.read(None) == b"whole"
    assert FILE.read(None) == b"whole"
    assert asked == [FILE.url] * 2
    assert kept(tmp_path) == ["cvxsnn/things/data.bin"]
    assert capsys.readouterr() == ("", "")
    assert pooch.get_logger().level == level


def test_contents_that_are_refused_are_not_kept_and_not_asked_for_again(serve, tmp_path):
    asked = serve(lambda url: b"page")
    message = r"expected https://.* to hold the original .*: get the file of things elsewhere and set"
    with pytest.raises(DataFileError, match=message):
        FILE.read(None)
    assert asked == [FILE.url]
    assert kept(tmp_path) == []
