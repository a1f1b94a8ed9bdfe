"""Run numbered cases of a hunt, count their outcomes, and say how to repeat each failure."""

import argparse
import json
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

import numpy as np
from rich.console import Console
from rich.table import Table

from cvxsnn.core.progress import ShownProgress

_BATCH = 25
"""Cases that a worker runs before it reports."""

_SHOWN, _LINES = 20, 25
"""Findings printed, and the last lines printed of each."""


class Finding(Exception):  # noqa: N818 (it is a result)
    """The library did something it must not do."""


class Skip(Exception):  # noqa: N818
    """The case cannot be run on this machine."""


@dataclass(frozen=True)
class Hunt:
    """Numbered cases of one kind.

    Parameters
    ----------
    name : str
        Name on the command line: the name of the module.
    purpose : str
        What the cases try, in one sentence.
    case : callable
        ``case(rng, folder)`` runs one case drawn from ``rng`` in an empty folder, and returns the name of its outcome.
        It raises `Finding` when the library misbehaved; any other exception counts as a finding, too.
    cases : int
        Number of cases of the whole hunt.
    short : int
        Number of cases run by the tests.
    seconds : float
        Longest time of one case.
    gigabytes : float
        Most memory that one case may add to the largest use of the process.
    """

    name: str
    purpose: str
    case: Callable[[np.random.Generator, Path], str]
    cases: int
    short: int
    seconds: float = 60.0
    gigabytes: float = 1.0


@dataclass
class Record:
    """What the cases of a hunt came to."""

    hunt: str
    purpose: str
    first: int
    cases: int
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[int, str] = field(default_factory=dict)
    is_cut: bool = False


def run_case(hunt: Hunt, number: int) -> tuple[str | None, str]:
    """Run one case.

    Parameters
    ----------
    hunt : Hunt
        The hunt.
    number : int
        Number of the case; a number always has the same draws.

    Returns
    -------
    outcome : str or None
        Name of the outcome, or None if the library misbehaved.
    finding : str
        What went wrong, or "".
    """
    rng = np.random.default_rng([zlib.crc32(hunt.name.encode()), number])
    memory = _forget_peak()
    with tempfile.TemporaryDirectory(prefix="cvxsnn-fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with _alarm(hunt.seconds):
                outcome = hunt.case(rng, Path(folder))
        except Skip as reason:
            return f"skipped: {reason}", ""
        except Finding as finding:
            return None, str(finding)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a bare SystemExit of the library is a finding, too
            return None, traceback.format_exc()
    if (added := _peak_gigabytes() - memory) > hunt.gigabytes:
        return None, f"expected at most {hunt.gigabytes:g} GB of memory, the case ({outcome}) took {added:.1f} GB"
    return outcome, ""


def run_hunt(
    hunt: Hunt,
    first: int = 0,
    cases: int | None = None,
    jobs: int = 1,
    progress: Callable[[str, int, int], None] | None = None,
) -> Record:
    """Run cases of a hunt; if it is interrupted, return what there is.

    Parameters
    ----------
    hunt : Hunt
        The hunt; with several jobs it must be the HUNT of its module.
    first : int
        Number of the first case.
    cases : int, optional
        Number of cases; by default the whole hunt.
    jobs : int
        Number of processes.
    progress : callable, optional
        Called with the hunt's name, the cases done and all cases.

    Returns
    -------
    Record
        The outcomes and the findings.
    """
    cases = hunt.cases if cases is None else cases
    record = Record(hunt.name, hunt.purpose, first, cases)
    begin, done = time.perf_counter(), 0
    ends = range(first, first + cases, _BATCH)
    batches = [range(start, min(start + _BATCH, first + cases)) for start in ends]
    try:
        for numbers, results in _run_batches(hunt, batches, jobs):
            for number, (outcome, finding) in zip(numbers, results, strict=True):
                if outcome is None:
                    record.findings[number] = finding
                else:
                    record.outcomes[outcome] += 1
            done += len(numbers)
            if progress is not None:
                progress(hunt.name, done, cases)
    except KeyboardInterrupt:
        record.cases, record.is_cut = done, True
    record.seconds = round(time.perf_counter() - begin, 1)
    return record


def main(package: str, modules: Sequence[str], arguments: Sequence[str] | None = None) -> int:
    """Run the hunts named on the command line, or all of them.

    Parameters
    ----------
    package : str
        Package of the hunts.
    modules : sequence of str
        Its modules that have a HUNT.
    arguments : sequence of str, optional
        Arguments; by default those of the process.

    Returns
    -------
    int
        0, or 1 if there are findings.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {package}")
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of {', '.join(modules)}; all by default")
    parser.add_argument("--cases", type=int, help="number of cases; by default the whole hunt")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument("--record", type=Path, help="file of JSON lines to add the counts to")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(modules):
        parser.error(f"expected names among {', '.join(modules)}, got {', '.join(sorted(unknown))}")
    records = []
    with ShownProgress(True) as progress:
        for name in options.names or modules:
            hunt: Hunt = import_module(f"{package}.{name}").HUNT
            records.append(run_hunt(hunt, options.first, options.cases, options.jobs, progress))
            if records[-1].is_cut:
                break
    for record in records:
        for number, finding in list(record.findings.items())[:_SHOWN]:
            shown = "\n".join(finding.splitlines()[-_LINES:])
            print(f"\npython -m {package} {record.hunt} --first {number} --cases 1\n{shown}", file=sys.stderr)
        if len(record.findings) > _SHOWN:
            print(f"\nfurther cases of {record.hunt}: {list(record.findings)[_SHOWN:]}", file=sys.stderr)
        if options.record:
            line = vars(record) | {"package": package, "findings": len(record.findings)}
            del line["is_cut"]  # the number of cases says it
            with options.record.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
    Console().print(_table(records))
    for record in records:
        if record.is_cut:
            left = f"python -m {package} {record.hunt} --first {record.first + record.cases}"
            print(f"interrupted; the counts above are those of the cases before. To go on: {left}", file=sys.stderr)
    return 130 if records[-1].is_cut else int(any(record.findings for record in records))


def _run_batches(hunt: Hunt, batches: list[range], jobs: int) -> Iterator[tuple[range, list[tuple[str | None, str]]]]:
    if jobs == 1 or len(batches) <= 1:
        yield from ((batch, [run_case(hunt, number) for number in batch]) for batch in batches)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by the workers: the problems are tiny
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_run_numbers, hunt.case.__module__, batch) for batch in batches]
        try:
            for batch, future in zip(batches, futures, strict=True):  # in order: what is done is the first cases
                try:
                    yield batch, future.result()
                except BrokenProcessPool:
                    lost = (
                        f"a process died in one of the cases {batch.start} to {batch.stop - 1}, or before it got there"
                    )
                    yield batch, [(None, lost)] * len(batch)
        finally:
            pool.shutdown(cancel_futures=True)


def _run_numbers(module: str, numbers: range) -> list[tuple[str | None, str]]:
    hunt: Hunt = import_module(module).HUNT
    return [run_case(hunt, number) for number in numbers]


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Finding(f"expected an end within {seconds:g} s; it was here:\n{''.join(traceback.format_stack(frame))}")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _forget_peak() -> float:
    """Let the largest use of memory begin anew, where Linux does so, and return it in gigabytes."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_gigabytes()


def _peak_gigabytes() -> float:
    with suppress(OSError):
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            return int(found[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _table(records: Sequence[Record]) -> Table:
    table = Table("hunt", "cases", "seconds", "outcomes", "findings")
    for record in records:
        outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in record.outcomes.most_common())
        table.add_row(record.hunt, f"{record.cases:,}", f"{record.seconds:,.0f}", outcomes, str(len(record.findings)))
    return table
