import os
import signal
import threading

import pytest
from small_models import assert_one_sentence

from cvxsnn.core import claims
from cvxsnn.core.claims import claim, remove_abandoned
from cvxsnn.core.errors import DataFileError


def test_one_claims_and_others_do_not_until_it_ends(tmp_path):
    path = tmp_path / "claim"
    with claim(path) as is_ours:
        assert is_ours
        with claim(path) as is_theirs:
            assert not is_theirs
        assert path.exists()  # who came too late removes nothing
    assert os.listdir(tmp_path) == []
    with claim(path) as is_ours:
        assert is_ours


def test_a_claim_ends_with_an_exception(tmp_path):
    with pytest.raises(KeyboardInterrupt), claim(tmp_path / "claim"):
        raise KeyboardInterrupt
    with claim(tmp_path / "claim") as is_ours:
        assert is_ours


def test_a_claim_ends_with_a_killed_process(tmp_path):
    path = tmp_path / "claim"
    process = os.fork()
    if process == 0:
        with claim(path):
            (tmp_path / "begun").touch()
            signal.pause()
        os._exit(1)
    while not (tmp_path / "begun").exists():
        pass
    with claim(path) as is_ours:
        assert not is_ours
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert path.exists()
    with claim(path) as is_ours:
        assert is_ours
    assert not path.exists()


def test_claims_that_nobody_holds_are_removed(tmp_path):
    for name in (".left.claim", ".held.claim", ".other"):
        (tmp_path / name).touch()
    with claim(tmp_path / ".held.claim") as is_ours:
        remove_abandoned(tmp_path, ".*.claim")
        assert sorted(os.listdir(tmp_path)) == [".held.claim", ".other"]
        with claim(tmp_path / ".held.claim") as is_theirs:
            assert is_ours
            assert not is_theirs


def test_claims_that_cannot_be_removed_do_no_harm(tmp_path):
    (tmp_path / ".folder.claim").mkdir()
    remove_abandoned(tmp_path, ".*.claim")
    assert os.listdir(tmp_path) == [".folder.claim"]


def test_who_waits_comes_next_also_after_the_file_is_gone(tmp_path):
    path, order = tmp_path / "claim", []

    def wait(number):
        with claim(path, wait=True) as is_ours:
            order.append((is_ours, number))
            assert len(os.listdir(tmp_path)) == 1

    threads = [threading.Thread(target=wait, args=[number]) for number in range(8)]
    with claim(path):
        for thread in threads:
            thread.start()
        assert order == []
    for thread in threads:
        thread.join()
    assert sorted(order) == [(True, number) for number in range(8)]
    assert os.listdir(tmp_path) == []


def test_every_claim_is_granted_where_there_are_no_locks(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "fcntl", None)
    with claim(tmp_path / "claim") as one, claim(tmp_path / "claim") as other:
        assert one
        assert other


def test_a_place_that_cannot_be_claimed_is_one_sentence(tmp_path):
    with (
        pytest.raises(DataFileError, match=r"expected to claim work by .*missing/claim") as caught,
        claim(tmp_path / "missing" / "claim"),
    ):
        pass
    assert_one_sentence(caught.value)
