"""Tasks run by joblib's workers: every result once, errors as they are, and killed workers cost time alone."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest
import torch
from joblib import parallel_config, register_parallel_backend
from joblib.parallel import ThreadingBackend

from cvxsnn import InvalidInputError
from cvxsnn.core.parallel import Shared, idle_cores, limit_threads, n_threads, run_tasks

TASKS = [(number,) for number in range(6)]
SQUARES = {number: number**2 for number in range(6)}


class Silent(ThreadingBackend):
    """Returns its results at the end, as Ray's backend does."""

    supports_return_generator = False


class Broken(ThreadingBackend):
    """Accepts no task."""

    n_taken = 0

    def submit(self, func, callback=None):
        Broken.n_taken += 1
        raise ConnectionError("nobody there")

    apply_async = submit  # its name in joblib 1.4


register_parallel_backend("silent", Silent)
register_parallel_backend("broken", Broken)


def square(number):
    return number**2


def refuse(number, folder):
    (folder / f"{number}-{os.getpid()}").touch()
    raise InvalidInputError(f"expected another number, got {number}")


def die_once(number, folder):
    """Take the process along on the first try of the number 3."""
    trace = folder / str(number)
    if number == 3 and not trace.exists():
        trace.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def add_first(shared, number):
    return float(shared.value["inputs"][0]) + shared.value["shift"](number)


@pytest.mark.parametrize("backend", ["sequential", "threading", "silent", "loky"])
def test_every_task_is_answered_once(backend):
    with parallel_config(backend, n_jobs=2):
        answers = list(run_tasks(square, TASKS))
    assert sorted(answers) == list(SQUARES.items())


def test_without_a_configuration_tasks_stay_in_this_process_and_in_order():
    assert [answer for _, answer in run_tasks(lambda: os.getpid(), [()] * 3)] == [os.getpid()] * 3
    assert list(run_tasks(square, TASKS)) == list(SQUARES.items())


def test_workers_that_always_fail_are_given_up():
    with parallel_config("broken", n_jobs=2), pytest.raises(ConnectionError, match="nobody there"):
        list(run_tasks(square, TASKS))
    assert Broken.n_taken == 4


@pytest.mark.parametrize("backend", ["sequential", "threading", "silent"])
def test_no_task_is_submitted_after_the_stop(backend):
    handed_out = []

    def note(number):
        handed_out.append(number)
        return number

    with parallel_config(backend, n_jobs=2):
        answers = list(run_tasks(note, [(number,) for number in range(100)], should_stop=lambda: len(handed_out) >= 3))
    assert 3 <= len(answers) < 50
    assert sorted(number for number, _ in answers) == sorted(handed_out)


@pytest.mark.parametrize("n_numbers", [10, 10**6])
def test_shared_values_arrive_small_and_large_with_closures(n_numbers):
    offset = 0.5
    shared = Shared({"inputs": torch.full((n_numbers,), 2.0), "shift": lambda number: number + offset})
    with parallel_config("loky", n_jobs=2):
        answers = dict(run_tasks(add_first, [(shared, number) for number in range(4)]))
    assert answers == {number: 2.5 + number for number in range(4)}


@pytest.mark.parametrize("backend", ["sequential", "threading", "loky"])
def test_what_a_task_raises_is_raised_and_not_tried_again(tmp_path, backend):
    with parallel_config(backend, n_jobs=2), pytest.raises(InvalidInputError, match="expected another number, got 0"):
        list(run_tasks(refuse, [(0, tmp_path)]))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_shared_value_is_pickled_once_and_unpacked_once():
    n_pickled = []

    class Counted:
        def __reduce__(self):
            n_pickled.append(1)
            return np.zeros, (1000,)

    shared = Shared(Counted())
    assert n_pickled == []
    travelling = [pickle.dumps(shared) for _ in range(3)]
    assert n_pickled == [1]
    first, *others = map(pickle.loads, travelling)
    assert all(other is first for other in others)
    assert first.value.shape == (1000,)


def test_a_shared_value_says_how_large_it_is():
    # Joblib puts what is large on a Dask cluster once, and asks for the size in this way.
    assert sys.getsizeof(Shared(np.zeros(1000))) > 8000


def test_a_limit_is_for_a_while():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with contextlib.suppress(KeyError), limit_threads(1):
            assert torch.get_num_threads() == 1
            assert n_threads() == 2
            raise KeyError
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_limit_is_for_one_thread():
    """Blocks that overlap leave later threads with the number there was before, and so does one that is still open."""

    def in_a_fresh_thread(function):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function).result()

    def open_and_close():
        with limit_threads(1):
            is_open.set()
            assert may_close.wait(10)
            return torch.get_num_threads()

    before = torch.get_num_threads()
    is_open, may_close = Event(), Event()
    try:
        torch.set_num_threads(2)
        with ThreadPoolExecutor(1) as pool:
            with limit_threads(1):
                assert in_a_fresh_thread(torch.get_num_threads) == 2
                inside = pool.submit(open_and_close)
                assert is_open.wait(10)
                with limit_threads(1):
                    pass
                assert torch.get_num_threads() == 1
            may_close.set()
            assert inside.result() == 1
        assert torch.get_num_threads() == 2
        assert in_a_fresh_thread(torch.get_num_threads) == 2
    finally:
        torch.set_num_threads(before)


def test_a_killed_process_costs_time_and_no_answer(tmp_path):
    with parallel_config("loky", n_jobs=2):
        answers = sorted(run_tasks(die_once, [(number, tmp_path) for number in range(6)]))
    assert (tmp_path / "3").exists()
    assert answers == list(SQUARES.items())


FORKED = """
import os
import torch
import cvxsnn.core.parallel

torch.set_num_threads(2)
numbers = torch.arange(2.0**20)
expected = numbers.sin()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert torch.get_num_threads() == 2
else:
    os._exit(not torch.equal(numbers.sin(), expected))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_process_does_not_wait_for_the_threads_of_its_parent():
    child = subprocess.Popen([sys.executable, "-c", FORKED], start_new_session=True)
    try:
        assert child.wait(timeout=120) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # the forked process too
        child.wait()


def test_an_interrupt_on_the_way_in_puts_the_number_of_threads_back():
    from fuzz.refits import Interrupter  # not above: workers import this file

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        watched, block = Interrupter(), limit_threads(1)
        with watched.watching():
            block.__enter__()
        block.__exit__(None, None, None)
        for place in range(len(watched.lines)):
            with pytest.raises(KeyboardInterrupt), Interrupter(place).watching(), limit_threads(1):
                pass
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("running", "n_idle"), [(1, 4), (2, 3), (4, 1), (9, 1)])
def test_cores_that_others_use_are_not_idle(running, n_idle, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("pathlib.Path.read_text", lambda path: f"0.10 0.20 0.30 {running}/321 4711\n")
    assert idle_cores() == n_idle


def test_all_cores_are_idle_on_systems_that_do_not_say(monkeypatch):
    def fail(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("pathlib.Path.read_text", fail)
    assert idle_cores() == 4
