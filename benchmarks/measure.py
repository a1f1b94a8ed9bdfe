"""What the benchmarks share: the clock, the machine's facts, tables."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

console = Console(width=120, highlight=False)


def best_seconds(contenders: Mapping[str, Callable[[], object]], n_rounds: int = 9) -> dict[str, float]:
    """The shortest time of each contender, after one round to warm up.

    They take turns, so that a busy moment of the machine falls on all of them.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for round_number in range(n_rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if round_number > 0:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def machine_facts() -> dict[str, str | int]:
    """What two runs must share for their times to be compared."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }


def describe_machine(facts: Mapping[str, str | int] | None = None) -> str:
    """Processor, cores and versions on one line; of this machine at this moment if no facts are given."""
    line = "{processor}, {cores} cores, torch {torch} with {threads} threads, Python {python}"
    return line.format(**facts) if facts else f"{line.format(**machine_facts())}, load {os.getloadavg()[0]:.2f}"


def make_table(title: str, *columns: str) -> Table:
    """An empty table: the first column says what, the others are numbers."""
    table = Table(title=title, title_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def verdict(value: str, goal: str, is_met: bool) -> str:
    """A result beside its goal."""
    return f"{value} (goal {goal}: {'met' if is_met else '[bold]missed[/bold]'})"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
