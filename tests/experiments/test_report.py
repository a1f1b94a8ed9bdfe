import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cvxsnn.core.errors import DataFileError
from cvxsnn.experiments.experiment import Experiment, parse_experiment
from cvxsnn.experiments.records import Damaged
from cvxsnn.experiments.report import render_report, write_report
from cvxsnn.experiments.summary import summarise_experiment

HOSTILE = """<script>alert("1")</script>'&amp;<img src=x onerror=alert(1)> $x_{$ \\$ _a \x00\x1b \ud800 名"""

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

VOID = {"meta", "link", "img", "source", "br"}


def table(name="table", text="") -> Experiment:
    rows = ["addition in base 2 of many digits", "first-last-XOR", f"one more {text}"]
    cells = [
        {
            "row": row,
            "column": f"{depth} layers {text}",
            "metric": "gap" if row == rows[1] else "test",
            "paper": 1e-8 if row == rows[1] else 0.9,
            "note": f"a note {text}" if depth == 3 else "",
            "family": {"hidden": [depth]},
        }
        for row in rows
        for depth in range(3, 10)
    ]
    data = {"title": f"Table {text}", "description": f"One.\n\nTwo {text}", "quantity": f"accuracy {text}"}
    defaults = {"methods": ["cvx", "sg"], "task": {"name": "addition", "text": text}, "convex": {"tol": 1e-8}}
    return parse_experiment(name, {**data, "defaults": defaults, "cell": cells}, "paper")


def figure(name="figure", text="", columns=("0.5", "1", "2", "10")) -> Experiment:
    cells = [
        {"row": f"{method}, {data}{text}", "column": column, "metric": "test", "methods": [method.lower()]}
        | ({"paper": 0.7} if data == "2x" else {})
        | {"objective": {"weight": number}}
        for method in ("CVX", "SG", "SG-CVX")
        for data in ("ID", "2x", "4x")
        for number, column in enumerate(columns)
    ]
    data = {"title": f"Figure {text}", "kind": "figure", "quantity": f"accuracy {text}"}
    return parse_experiment(name, {**data, "defaults": {"task": {"name": "addition"}}, "cell": cells}, "paper")


def records_of(*experiments: Experiment, text="", lost=()):
    records = {}
    for number, (run_id, config) in enumerate(sorted({k: v for e in experiments for k, v in e.runs().items()}.items())):
        record = {
            "config": config.as_dict(),
            "versions": {"cvxsnn": "0.1", "torch": f"2.13{text}"},
            "machine": {"platform": f"Linux{text}", "python": "3.11"},
            "finished": f"2026-11-0{1 + number % 9}T10:00:00+00:00",
            "seconds": 1.5,
        }
        result = {"status": "done", "val": number % 7 / 7, "scores": {"test": 0.8 + number % 11 / 55}, "gap": 1e-9}
        failure = {"status": "failed", "error": f"InvalidInputError: expected files, got none {text}"}
        records[run_id] = record | (failure if number % 13 == 5 else result)
    return {run_id: record for run_id, record in records.items() if run_id not in lost}


class Page(HTMLParser):
    """A page's elements, refused where tags do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs)), f"an attribute twice in <{tag}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def values(self, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for _, attrs in self.elements if attribute in attrs]


def without_pictures(page: str) -> str:
    return re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)


@pytest.fixture(scope="module")
def experiments() -> list[Experiment]:
    return [table(), figure()]


@pytest.fixture(scope="module")
def lost(experiments) -> list[str]:
    return sorted(experiments[0].runs())[:2]


@pytest.fixture(scope="module")
def page(experiments, lost) -> str:
    damaged = [Damaged(Path(f"/records/{lost[0]}.json"), "contents that do not match their checksum")]
    return render_report(experiments, records_of(*experiments, lost=lost), damaged, "paper")


def test_page_shows_every_cell_with_its_number_verdict_and_method(experiments, lost, page):
    records = records_of(*experiments, lost=lost)
    found = re.findall(r'<td class="filled .*?</td>', page, re.DOTALL)
    cells = [cell for one in experiments for cell in summarise_experiment(one, records).cells]
    assert len(found) == len(cells) == 57
    shown = Page(page).text
    for cell in cells:
        assert cell.row in shown
        assert cell.column in shown
        number = f"{cell.mean:.1e}" if cell.metric == "gap" else f"{cell.mean:.3f}"
        places = [text for text in found if f"<b>{number}</b>" in text and f">{cell.verdict}<" in text]
        assert any(f"{cell.n_seeds} of 3 seeds" in text and cell.methods[0] in text for text in places)


def test_page_counts_verdicts(experiments, lost, page):
    records = records_of(*experiments, lost=lost)
    for verdict in ("matches", "better", "worse", "cannot tell"):
        count = sum(summarise_experiment(one, records).verdicts[verdict] for one in experiments)
        assert f'<b>{count}</b><span class="verdict">{verdict}</span>' in page


def test_contents_count_cells_without_a_number_in_the_paper_apart_from_those_that_cannot_be_told(experiments):
    page = render_report(experiments, records_of(*experiments), [], "paper")
    items = re.findall(r'<li><a href="#experiment-(\w+)">(.*?)</li>', page, re.DOTALL)
    records = records_of(*experiments)
    assert [name for name, _ in items] == ["table", "figure"]
    for one, (_, item) in zip(experiments, items, strict=True):
        unprinted = [cell for cell in summarise_experiment(one, records).cells if cell.paper is None]
        n_untold = summarise_experiment(one, records).verdicts["cannot tell"] - len(unprinted)
        assert n_untold > 0
        assert f">{n_untold} cannot tell<" in item
        assert (f"{len(unprinted)} without a number in the paper" in item) == bool(unprinted)


def test_page_names_failed_missing_and_damaged_runs(lost, page):
    assert "InvalidInputError: expected files, got none" in page
    assert "It has not been run yet." in page
    assert f"Its record {lost[0]}.json has contents that do not match their checksum." in page
    assert 'id="damaged"' in page
    assert lost[1] in page


def test_page_tells_when_and_on_what_it_was_made(page):
    assert "2026-11-01 10:00 to 2026-11-09 10:00 UTC" in page
    assert "platform Linux, python 3.11" in page
    assert "cvxsnn 0.1, torch 2.13" in page


def test_page_shows_the_strengths_that_records_have(experiments):
    records = records_of(*experiments)
    older = {name: record | {"l1_strength": 0.25} for name, record in records.items()}
    page = render_report(experiments, older, [], "paper")
    assert "l1 strength" in page
    assert "l2 strength" not in page
    newer = {name: record | {"l2_strength": 0.125} for name, record in older.items()}
    page = render_report(experiments, newer, [], "paper")
    assert "l2 strength" in page
    assert "0.125" in page


def test_page_is_well_formed_and_self_contained(page):
    parsed = Page(page)
    assert ("html", {"lang": "en"}) in parsed.elements
    assert any(attrs.get("name") == "viewport" for _, attrs in parsed.elements)
    assert all(attrs.get("alt") for tag, attrs in parsed.elements if tag == "img")
    assert not {"script", "iframe", "object", "base"} & {tag for tag, _ in parsed.elements}
    assert all(link.startswith(("data:", "#")) for link in parsed.values("src") + parsed.values("href"))
    assert "http" not in without_pictures(page)
    assert "url(" not in page


def test_anchors_exist_once(page):
    parsed = Page(page)
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in parsed.values("href") if link.startswith("#")} <= set(ids)
    assert {"experiment-table", "experiment-figure", "damaged"} <= set(ids)


def test_figure_has_a_picture_for_each_panel_and_its_numbers(page):
    alts = [attrs["alt"] for tag, attrs in Page(page).elements if tag == "img"]
    assert [re.search(r", (\w+):", alt).group(1) for alt in alts] == ["ID", "2x", "4x"]
    assert all("CVX, SG, SG-CVX" in alt for alt in alts)
    assert "The numbers of this figure" in page
    assert "Dashed lines with open markers are the paper's." in html.unescape(page)


@pytest.mark.parametrize("columns", [("ID", "OOD 2x"), ("1",), ("0", "1"), ("1", "1.0"), ("inf", "1"), ("2x", "10x")])
def test_figure_is_drawn_for_any_columns(columns):
    one = figure(columns=columns)
    assert "data:image/png" in render_report([one], records_of(one), [], "paper")


def test_equal_records_give_equal_pages(experiments, lost, page):
    damaged = [Damaged(Path(f"/records/{lost[0]}.json"), "contents that do not match their checksum")]
    records = dict(reversed(records_of(*experiments, lost=lost).items()))
    assert render_report(experiments, records, damaged, "paper") == page


def test_hostile_strings_are_shown_as_text():
    experiments = [table(HOSTILE, HOSTILE), figure(HOSTILE, HOSTILE)]
    lost = sorted(experiments[0].runs())[:1]
    damaged = [Damaged(Path(f"{lost[0]}.json"), HOSTILE), Damaged(Path("<b>.json"), HOSTILE)]
    page = render_report(experiments, records_of(*experiments, text=HOSTILE, lost=lost), damaged, "paper")
    parsed = Page(page)
    assert not {"script", "b>.json"} & {tag for tag, _ in parsed.elements}
    assert not any(name.startswith("on") for _, attrs in parsed.elements for name in attrs)
    assert all(link.startswith(("data:", "#")) for link in parsed.values("src") + parsed.values("href"))
    assert '<script>alert("1")</script>' in parsed.text
    assert len(parsed.values("id")) == len(set(parsed.values("id")))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\ud800-\udfff]", page)


def test_page_without_records_says_what_is_missing():
    page = render_report([table(), figure()], {}, [], "paper")
    Page(page)
    assert "0 runs failed, 42 missing" in page
    assert "It has not been run yet." in page


def test_page_without_experiments_says_so():
    assert "There are no experiments to show." in render_report([], {}, [], "paper")


def test_smoke_page_warns_and_gives_no_verdict(experiments):
    page = render_report(experiments, records_of(*experiments), [], "smoke")
    assert "Smoke scale." in page
    assert '<b>57</b><span class="verdict">cannot tell</span>' in page


def test_report_is_written_into_a_new_folder(tmp_path, experiments, lost, page):
    damaged = [Damaged(Path(f"/records/{lost[0]}.json"), "contents that do not match their checksum")]
    path = tmp_path / "new" / "index.html"
    write_report(path, experiments, records_of(*experiments, lost=lost), damaged, "paper")
    assert path.read_text(encoding="utf-8") == page


def test_report_that_cannot_be_written_is_refused_with_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataFileError, match="choose another place"):
        write_report(tmp_path / "file" / "index.html", [], {}, [], "paper")


PROBE = """
<script>
const frame = document.querySelector("iframe");
frame.addEventListener("load", () => {
  const page = frame.contentDocument, root = page.documentElement;
  const measure = () => [root.scrollWidth, page.body.scrollWidth];
  const closed = measure();
  page.querySelectorAll("details").forEach(one => one.open = true);
  const wide = [...page.querySelectorAll("table")].filter(one => one.offsetWidth > root.clientWidth);
  const found = {
    width: root.clientWidth, closed, open: measure(), n_wide: wide.length,
    held: wide.every(one => getComputedStyle(one.parentElement).overflowX === "auto"),
    pictures: [...page.images].map(one => one.complete && one.naturalWidth > 0 && one.offsetWidth <= root.clientWidth),
    lost: [...page.querySelectorAll("a[href^='#']")].filter(a => !page.getElementById(a.hash.slice(1))).length,
  };
  document.querySelector("pre").textContent = JSON.stringify(found);
});
frame.srcdoc = frame.dataset.page;
</script>
"""
"""Windows of Chromium have a least width of their own, frames have not: the page is laid out in a frame."""


def open_in_chromium(page: str, width: int, folder: Path) -> tuple[dict, list[str]]:
    """What a page looks like in a window of some width, and what the console says about it."""
    frame = f'<iframe style="border:0;width:{width}px;height:800px" data-page="{html.escape(page)}"></iframe>'
    (folder / "frame.html").write_text(f'<!doctype html><meta charset="utf-8">{frame}<pre></pre>{PROBE}')
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr --window-size=1400,900 "
        "--virtual-time-budget=5000 --dump-dom"
    )
    command = [CHROMIUM, *flags.split(), f"--user-data-dir={folder / 'user'}", (folder / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)
    return json.loads(html.unescape(found.group(1))), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [360, 1200])
def test_page_fits_a_window_and_keeps_the_console_silent(page, width, tmp_path):
    found, console = open_in_chromium(page, width, tmp_path)
    assert console == []
    assert found["width"] == width
    assert max(found["closed"] + found["open"]) <= width
    assert found["n_wide"] > 0
    assert found["held"]
    assert found["pictures"] == [True] * 3
    assert found["lost"] == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_chromium_notices_an_error_an_overflow_and_a_lost_anchor(tmp_path):
    broken = '<div style="width:500px">x</div><a href="#no">x</a><script>console.error("broken")</script>'
    found, console = open_in_chromium(f"<!doctype html>{broken}", 360, tmp_path)
    assert any("broken" in line for line in console)
    assert max(found["closed"]) >= 500
    assert found["lost"] == 1
