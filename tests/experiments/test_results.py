"""The results that come with the project: complete, and made from their records by nobody's hand."""

from collections import Counter
from pathlib import Path

import pytest

from cvxsnn.experiments import RecordStore, all_runs, experiment_names, load_experiment, tables
from cvxsnn.experiments.summary import TOLERANCES, summarise_experiment

DOCS = Path(__file__).parents[2] / "docs"
NAMES = experiment_names()
EXPERIMENTS = [load_experiment(name) for name in NAMES]


@pytest.fixture(scope="module")
def records():
    found, damaged = RecordStore(DOCS / "results" / "paper").read_all()
    assert damaged == []
    return found


def test_every_run_has_a_record_that_did_not_fail_and_no_record_is_left_over(records):
    assert records.keys() == all_runs(NAMES, "paper").keys()
    assert {record["status"] for record in records.values()} == {"done"}


def test_every_cell_for_which_the_paper_has_a_number_has_a_verdict(records):
    cells = [cell for one in EXPERIMENTS for cell in summarise_experiment(one, records).cells if cell.paper is not None]
    assert [cell for cell in cells if cell.verdict == "cannot tell"] == []


def test_every_convex_stage_is_certified(records):
    convex = [record for record in records.values() if record["config"]["method"] in ("cvx", "sg-cvx", "ridge")]
    assert all(abs(record["relative_gap"]) <= TOLERANCES.gap for record in convex)


def test_tables_are_what_the_records_give(records, tmp_path, monkeypatch):
    # Pictures depend on the fonts of the machine.
    monkeypatch.setattr(tables, "draw_panels", lambda *_: b"")
    for path in tables.write_tables(tmp_path, EXPERIMENTS, records, "paper"):
        kept = DOCS / "results" / path.name
        assert path.suffix == ".png" or kept.read_text() == path.read_text(), f"make {kept} again"
        assert kept.stat().st_size > 0


PAPER = NAMES[: NAMES.index("training-size") + 1]
"""The experiments that have the paper's numbers."""


@pytest.mark.parametrize("page", ["README.md", "docs/experiments.md"])
def test_the_pages_count_verdicts_as_the_records_do(page, records):
    cells = [cell for name in PAPER for cell in summarise_experiment(load_experiment(name), records).cells]
    verdicts = Counter(cell.verdict for cell in cells if cell.paper is not None)
    better = [cell.methods for cell in cells if cell.verdict == "better"]
    gradients, delayed = (sum(set(own) <= methods for own in better) for methods in ({"sg", "sg-sg"}, {"ridge"}))
    text = " ".join((DOCS.parent / page).read_text().split())
    counts = f"{verdicts.total()} comparisons: {len(better)} better, {verdicts['matches']} matching"
    assert f"{counts}, {verdicts['worse']} worse. Of the {len(better)}, {gradients} are surrogate gradients" in text
    assert f"{len(better) - gradients - delayed} are convex read-outs" in text
    assert f"{delayed} are neurons with delays" in text
