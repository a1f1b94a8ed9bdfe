"""The table of docs/testing.md is the one that the record says."""

import json

from fuzz.table import PAGE, RECORD, write_table


def line(package, hunt, cases, findings=0, **outcomes):
    values = {"package": package, "hunt": hunt, "purpose": f"{hunt}.", "first": 0, "seconds": 1.0}
    return json.dumps(values | {"cases": cases, "outcomes": outcomes, "findings": findings})


def test_counts_of_the_same_hunt_are_added_up():
    record = [line("fuzz", "npz", 2000, read=2000), line("fuzz", "npz", 3, 1, read=1, refused=1)]
    record.append(line("torture", "signals", 5, **{"SIGKILL × 2": 3, "SIGTERM × 4": 2}))
    record.append(line("torture", "workers", 1, **{"pool, worker of dask killed × 2": 1}))
    page = write_table("\n".join(record), PAGE.read_text())
    assert "| `fuzz npz` | 2,003 | 1 |" in page
    assert "| `torture signals` | 5 | 0 |" in page
    assert "In total 2,009 cases; 8 processes were killed." in page
    assert write_table("\n".join(record), page) == page
    assert page.startswith("# How it is tested")
    assert "## Mutation testing" in page.partition("processes were killed.")[2]


def test_the_page_shows_the_record():
    if RECORD.exists():
        assert write_table(RECORD.read_text(), PAGE.read_text()) == PAGE.read_text()
