import json
import re
import struct

import pytest
from cli.commands import run
from experiments.test_report import HOSTILE, figure, records_of, table

from cvxsnn.core.errors import DataFileError
from cvxsnn.experiments import RecordStore, experiment_names, load_experiment
from cvxsnn.experiments.figures import draw_panels
from cvxsnn.experiments.summary import summarise_experiment
from cvxsnn.experiments.tables import write_tables

EXPERIMENTS = [table(), figure()]
LOST = sorted(EXPERIMENTS[0].runs())[:2]
RECORDS = records_of(*EXPERIMENTS, lost=LOST)


def size_of(png):
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">II", png[16:24])


def rows_of(markdown, number=0):
    """The entries of a table in a file, the first by default, line by line, without its head."""
    tables = re.findall(r"(?:^\|.*\n)+", markdown, re.MULTILINE)
    lines = tables[number].splitlines()
    assert set(lines[1]) <= set("|- ")
    rows = [[entry.strip() for entry in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert {len(row) for row in rows} == {len(rows[0])}
    return [rows[0], *rows[2:]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "new"
    written = write_tables(folder, EXPERIMENTS, RECORDS, "paper")
    assert sorted(written) == sorted(folder.iterdir())
    return folder


def test_every_experiment_has_a_table_and_numbers_and_a_figure_its_picture(folder):
    names = {"verdicts.md", "table.md", "table.json", "figure.md", "figure.json", "figure.png"}
    assert {path.name for path in folder.iterdir()} == names


def test_numbers_are_the_summary_one_line_a_cell(folder):
    for one in EXPERIMENTS:
        text = (folder / f"{one.name}.json").read_text()
        summary = summarise_experiment(one, RECORDS)
        assert json.loads(text) == summary.as_dict()
        assert sum(line.startswith('{"row"') for line in text.splitlines()) == len(summary.cells)


def test_a_table_sets_our_number_beside_the_papers_with_verdict_and_method(folder):
    head, *rows = rows_of((folder / "table.md").read_text())
    found = {(row[0], column): text for row in rows for column, text in zip(head[1:], row[1:], strict=True)}
    cells = summarise_experiment(EXPERIMENTS[0], RECORDS).cells
    assert len(found) == len(cells) == 21
    for cell in cells:
        text = found[cell.row.strip(), cell.column.strip()]
        digits = ".1e" if cell.metric == "gap" else ".3f"
        assert text.startswith(f"{cell.mean:{digits}}")
        assert f" ({cell.paper:{digits}}) {cell.verdict}" in text
        assert cell.reason in text
        assert text.endswith(f", {' or '.join(cell.methods)}")


def test_a_table_tells_what_its_cells_took_and_the_command_that_makes_them_again(folder):
    one = EXPERIMENTS[0]
    _, *rows = rows_of((folder / "table.md").read_text(), 1)
    summary = summarise_experiment(one, RECORDS)
    assert len(rows) == len({tuple(run.run_id for run in cell.chosen) for cell in summary.cells if cell.chosen})
    by_row = {cell.row: cell for cell in summary.cells}
    for row in rows:
        runs = [RECORDS[run.run_id] for run in by_row[row[0]].chosen]
        assert row[4] != "" or "seconds" not in runs[0]
        assert f'cvxsnn reproduce table --scale paper --row "{row[0]}"' in row[6]


def test_a_figure_has_a_picture_and_the_mean_of_every_point(folder):
    text = (folder / "figure.md").read_text()
    assert "](figure.png)" in text
    head, *rows = rows_of(text)
    for cell in summarise_experiment(EXPERIMENTS[1], RECORDS).cells:
        (row,) = (row for row in rows if row[0] == cell.row)
        entry = row[head.index(cell.column)]
        whole = cell.n_runs == cell.n_expected_runs
        assert entry == f"{cell.mean:.3f}" + ("" if whole else f" ({cell.n_runs} of {cell.n_expected_runs})")


def test_verdicts_add_up_and_the_largest_gap_is_told(tmp_path):
    run_id = next(run_id for run_id in RECORDS if RECORDS[run_id]["status"] == "done" and run_id not in LOST)
    records = {name: record | {"relative_gap": 1e-9} for name, record in RECORDS.items()}
    records[run_id]["relative_gap"] = -3e-5
    write_tables(tmp_path, EXPERIMENTS, records, "paper")
    head, *rows = rows_of((tmp_path / "verdicts.md").read_text())
    for one, row in zip(EXPERIMENTS, rows, strict=True):
        told = dict(zip(head, row, strict=True))
        summary = summarise_experiment(one, records)
        n_unprinted = sum(cell.paper is None for cell in summary.cells)
        assert [int(told[name]) for name in ("matches", "better", "worse")] == list(summary.verdicts.values())[:3]
        assert int(told["no number in the paper"]) == n_unprinted
        assert int(told["cannot tell"]) == summary.verdicts["cannot tell"] - n_unprinted
        done = [name for name in one.runs() if name in records and records[name]["status"] == "done"]
        assert told["runs"] == f"{len(done)} of {len(one.runs())}"
        assert told["certified runs"] == str(len(done))
        assert told["largest relative gap"] == ("3.0e-05" if run_id in done else "1.0e-09")


def test_one_picture_holds_all_panels(folder):
    summary = summarise_experiment(EXPERIMENTS[1], RECORDS)
    alone = size_of(draw_panels(EXPERIMENTS[1], summary, {"ID": {"CVX, ID": "CVX"}}))
    assert size_of((folder / "figure.png").read_bytes()) == (2 * alone[0], 2 * alone[1])
    assert draw_panels(EXPERIMENTS[1], summary) == (folder / "figure.png").read_bytes()


def test_hostile_names_stay_in_their_places_of_a_table(tmp_path):
    one = table("hostile", f"{HOSTILE} | a\nb")
    write_tables(tmp_path, [one], records_of(one), "paper")
    _, *rows = rows_of((tmp_path / "hostile.md").read_text())
    assert len(rows) == 3
    assert json.loads((tmp_path / "hostile.json").read_text())["cells"]


def test_tables_that_cannot_be_written_are_refused_with_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataFileError, match="choose another place"):
        write_tables(tmp_path / "file" / "tables", [], {}, "paper")


def test_report_writes_tables_on_demand_beside_the_records(tmp_path):
    name = experiment_names()[0]
    store = RecordStore(tmp_path / "smoke")
    for run_id, record in records_of(load_experiment(name, "smoke")).items():
        store.write(run_id, record)
    before = {path: path.read_bytes() for path in store.folder.iterdir()}
    chosen = [name, "xor-depth"]
    arguments = ["report", *chosen, "--records", str(tmp_path), "-o", str(tmp_path / "page.html")]
    assert run(*arguments).exit_code == 0
    assert not (tmp_path / f"{name}.md").exists()
    outcome = run(*arguments, "--tables", str(tmp_path))
    assert outcome.exit_code == 0, outcome.output
    assert all((tmp_path / f"{name}.{kind}").exists() for name in chosen for kind in ("md", "json"))
    assert {path: path.read_bytes() for path in store.folder.iterdir()} == before


@pytest.mark.parametrize(
    "change",
    [
        *({key: value} for key in ("config", "scores", "machine", "versions", "stages") for value in ("text", 3, None)),
        *({key: 10**400} for key in ("val", "seconds", "n_atoms")),
        *({key: 1e308} for key in ("val", "seconds", "n_atoms")),
        {"scores": {"test": 1e308}},
        {"scores": {"test": ["text"]}},
        {"finished": "0001-01-01T00:00:00+14:00"},
    ],
)
def test_altered_records_are_told_of_or_shown(tmp_path, change):
    experiment = load_experiment(experiment_names()[0], "smoke")
    store = RecordStore(tmp_path / "smoke")
    for run_id, record in records_of(experiment).items():
        store.write(run_id, record | change)
    arguments = ["--records", tmp_path, "-o", tmp_path / "page.html", "--tables", tmp_path / "tables"]
    outcome = run("report", experiment.name, *arguments)
    assert outcome.exit_code == 0, outcome.output
    assert (tmp_path / "tables" / f"{experiment.name}.md").exists()


@pytest.mark.parametrize("text", ["[" * 10_000, "[]", '{"checksum": 1, "record": []}', "\0", '{"record": {"a": 1}}'])
def test_files_that_are_no_records_are_told_of(tmp_path, text):
    name = experiment_names()[0]
    (tmp_path / "smoke").mkdir()
    (tmp_path / "smoke" / "0.json").write_text(text)
    arguments = ["report", name, "--records", str(tmp_path), "-o", str(tmp_path / "page.html")]
    outcome = run(*arguments)
    assert outcome.exit_code == 0, outcome.output
    assert "1 damaged" in (tmp_path / "page.html").read_text()
