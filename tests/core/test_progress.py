import io

import pytest
from rich.console import Console

from cvxsnn.core.progress import ProgressBar


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_the_bar_shows_each_stage_once_and_how_far_it_has_come():
    console = terminal()
    with ProgressBar(console) as bar:
        bar("1. gradient", 0, 5)
        bar("1. gradient", 3, 5)
        bar("2. convex", 0, 1)
        tasks = bar._bar.tasks
        assert [(task.description, task.completed, task.total) for task in tasks] == [
            ("1. gradient", 3, 5),
            ("2. convex", 0, 1),
        ]
        bar._bar.refresh()
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
    assert bar._bar.finished is False
    assert not bar._bar.live.is_started
    assert console.file.getvalue().endswith("\x1b[2K")  # the last line is erased


def test_the_bar_goes_to_standard_error_where_results_do_not(capsys):
    with ProgressBar() as bar:
        bar("demo", 1, 2)
    assert capsys.readouterr().out == ""
