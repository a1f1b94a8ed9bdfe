import io
import logging
import re
import threading
import time
from itertools import pairwise

import pytest
from rich.console import Console

from cvxsnn import InvalidInputError
from cvxsnn.core import progress
from cvxsnn.core.progress import ProgressBar, ShownProgress


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_the_bar_shows_each_stage_once_and_how_far_it_has_come():
    console = terminal()
    with ProgressBar(console) as bar:
        bar("1. gradient", 0, 5)
        bar("1. gradient", 3, 5)
        bar("2. convex", 0, 1)
        tasks = bar.tasks
        assert [(task.description, task.completed, task.total) for task in tasks] == [
            ("1. gradient", 3, 5),
            ("2. convex", 0, 1),
        ]
        bar.refresh()
        shown = console.file.getvalue()
    assert "1. gradient" in shown
    assert "3/5" in shown


def test_the_bar_is_taken_away_also_after_an_error():
    console = terminal()

    def work(bar):
        bar("demo", 1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), ProgressBar(console) as bar:
        work(bar)
    assert bar.finished is False
    assert not bar.live.is_started
    assert console.file.getvalue().endswith("\x1b[2K")  # the last line is erased


def test_the_bar_goes_to_standard_error_where_results_do_not(capsys):
    with ProgressBar() as bar:
        bar("demo", 1, 2)
    assert capsys.readouterr().out == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


class GoneTerminal(Terminal):
    def write(self, text):
        raise OSError("input/output error")


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def console_on(file):
    return Console(file=file, force_terminal=True, width=100, _environ={})


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(ShownProgress, "tick", 3600.0)  # only calls look at the clock
    return Clock()


def shown(console):
    return console.file.getvalue()


def test_the_bar_of_short_work_never_appears(clock):
    console = console_on(Terminal())
    with ShownProgress("auto", console, clock) as bar:
        bar("fit", 1, 2)
        clock.now += 2.9
        bar("fit", 2, 2)
    assert shown(console) == ""


def test_the_bar_of_long_work_appears_after_three_seconds_and_is_removed(clock):
    console = console_on(Terminal())
    with ShownProgress("auto", console, clock) as bar:
        bar("fit", 1, 4)
        assert shown(console) == ""
        clock.now += 3.1
        bar("fit", 2, 4)
        bar._shown.refresh()
        assert "2/4" in shown(console)
    assert not bar._shown.live.is_started
    assert shown(console).endswith("\x1b[2K")


def test_the_bar_appears_also_while_nothing_is_reported(monkeypatch):
    monkeypatch.setattr(ShownProgress, "tick", 0.001)
    console, clock = console_on(Terminal()), Clock()
    with ShownProgress("auto", console, clock) as bar:
        bar("fit", 1, 4)
        clock.now += 3.1
        deadline = time.monotonic() + 60
        while not shown(console) and time.monotonic() < deadline:
            time.sleep(0.001)
        assert shown(console)


@pytest.mark.parametrize(("verbose", "is_shown"), [(True, True), (1, True), (False, False), (0, False)])
def test_a_bar_is_there_from_the_start_or_never(clock, verbose, is_shown):
    console = console_on(Terminal())
    with ShownProgress(verbose, console, clock) as bar:
        assert bool(shown(console)) == is_shown
        clock.now += 60
        bar("fit", 1, 2)
        assert bool(shown(console)) == is_shown


def test_the_bar_is_removed_after_an_error(clock):
    console = console_on(Terminal())
    with pytest.raises(KeyboardInterrupt), ShownProgress(True, console, clock) as bar:
        raise KeyboardInterrupt
    assert not bar._shown.live.is_started
    assert not bar._watcher.is_alive()


@pytest.mark.parametrize("verbose", ["auto", True])
def test_a_file_gets_no_bar_even_if_colours_are_forced(clock, verbose):
    console = console_on(io.StringIO())
    with ShownProgress(verbose, console, clock) as bar:
        clock.now += 60
        bar("fit", 1, 2)
        assert not bar._watcher.is_alive()  # nobody would see anything
    assert shown(console) == ""


def test_a_closed_file_gets_no_bar(clock):
    console = console_on(io.StringIO())
    console.file.close()
    with ShownProgress(True, console, clock) as bar:
        bar("fit", 1, 2)


def test_a_terminal_that_is_gone_does_not_end_the_work(clock):
    with ShownProgress(True, console_on(GoneTerminal()), clock) as bar:
        bar("fit", 1, 2)


def test_other_threads_draw_no_bars(clock):
    console = console_on(Terminal())

    def work():
        with ShownProgress(True, console, clock) as bar:
            bar("fit", 1, 2)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert shown(console) == ""


def test_workers_draw_no_bars(clock, monkeypatch):
    monkeypatch.setattr(progress, "parent_process", lambda: "the process that started this one")
    console = console_on(Terminal())
    with ShownProgress(True, console, clock) as bar:
        bar("fit", 1, 2)
    assert shown(console) == ""


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_needs_widgets_for_a_bar(monkeypatch, has_widgets):
    monkeypatch.setattr(progress, "find_spec", lambda name: "found" if has_widgets and name == "ipywidgets" else None)
    console = Console(file=io.StringIO(), force_jupyter=True)
    assert progress._can_draw(console) == has_widgets


@pytest.mark.parametrize(("verbose", "first"), [("auto", 3), (True, 0)])
def test_lines_in_the_log_are_few_and_tell_how_far_the_work_is(clock, caplog, verbose, first):
    times = []
    with caplog.at_level(logging.INFO, "cvxsnn"), ShownProgress(verbose, console_on(io.StringIO()), clock) as lines:
        for second in range(200):
            n_lines = len(caplog.records)
            lines("fit", second, 400)
            times += [second] * (len(caplog.records) - n_lines)
            clock.now += 1
    assert times[0] == first
    assert all(later - earlier >= max(5, earlier // 10) for earlier, later in pairwise(times))
    assert len(times) > 15
    at_100 = next(message for message in caplog.messages if message.startswith("fit: 1"))
    _, done, total, seconds, left = map(int, re.findall(r"\d+", f"0 {at_100}"))
    assert (done, total, left) == (seconds, 400, 400 - done)


def test_the_estimate_is_that_of_the_stage(clock, caplog):
    with caplog.at_level(logging.INFO, "cvxsnn"), ShownProgress("auto", console_on(io.StringIO()), clock) as lines:
        lines("search", 0, 1)
        clock.now += 100
        lines("fit", 0, 4)
        clock.now += 20
        lines("fit", 1, 4)
    assert caplog.messages == ["fit: 0 of 4 after 100 s", "fit: 1 of 4 after 120 s, about 60 s left"]


def test_lines_are_written_also_while_nothing_is_reported(monkeypatch, caplog):
    monkeypatch.setattr(ShownProgress, "tick", 0.001)
    clock = Clock()
    with caplog.at_level(logging.INFO, "cvxsnn"), ShownProgress("auto", console_on(io.StringIO()), clock) as lines:
        lines("fit", 0, 4)
        clock.now += 3.1
        deadline = time.monotonic() + 60
        while not caplog.records and time.monotonic() < deadline:
            time.sleep(0.001)
    assert caplog.messages == ["fit: 0 of 4 after 3 s"]


@pytest.mark.parametrize("verbose", ["loud", None, 2])
def test_another_verbosity_is_refused(verbose):
    with pytest.raises(InvalidInputError, match="expected verbose to be True, False or 'auto', got"):
        ShownProgress(verbose)
