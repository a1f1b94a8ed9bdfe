"""The page about the demonstration, on one small experiment."""

import html
import os
import struct
import subprocess
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from app.test_demo import TINY
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError
from cvxsnn.app import demo, demo_page
from cvxsnn.convex import Objective
from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks import first_last_xor


@pytest.fixture(scope="module")
def results():
    return [demo.run(TINY, method) for method in ("sg", "cvx")]


@pytest.fixture(autouse=True)
def no_figure_is_left():
    yield
    assert plt.get_fignums() == []


def test_a_row_says_what_came_out_and_what_is_proven(results):
    sg, cvx = demo_page.make_rows(results)
    assert len(sg) == len(cvx) == len(demo_page.COLUMNS)
    accuracy = results[0].accuracy
    assert sg[:5] == ("tiny addition", "sg", f"{accuracy['test']:.3f}", f"{accuracy['2x longer']:.3f}", "none")
    assert float(cvx[4]) <= TINY.settings.convex.tol
    assert cvx[5] == f"{len(results[1].trained.network.neurons)}/64"
    assert sg[5] == "64/64"


def test_the_verdict_says_who_is_best_and_what_is_proven(results):
    sg, cvx = results
    told = demo_page.judge_task(results)
    better = max(results, key=lambda result: result.accuracy["test"])
    assert f"{better.accuracy['test']:.3f}" in told
    assert "The read-out of cvx is certified" in told
    assert f"reads {cvx.trained.network.n_active} of 64 neurons" in told
    bound = float(told.split("by more than ")[1].split(" of it")[0])
    assert cvx.trained.certificate.relative_gap <= bound <= 1.2 * cvx.trained.certificate.relative_gap
    assert demo_page.judge_task([sg]).endswith("Nothing is proven.")
    lower = replace(cvx, accuracy={"test": 0.5})
    assert "points less accurate than the best" in demo_page.judge_task([replace(sg, accuracy={"test": 0.75}), lower])
    equal = [replace(result, accuracy={"test": 0.75}) for result in results]
    assert demo_page.judge_task(equal).startswith("All 2 methods have a test accuracy of 0.750.")


def test_the_page_shows_every_row_and_needs_no_network(results, tmp_path):
    page = demo_page.write_demo_page(results, tmp_path / "new" / "folder")
    assert page == tmp_path / "new" / "folder" / "index.html"
    text = page.read_text()
    for row in demo_page.make_rows(results):
        assert "".join(f"<td>{cell}</td>" for cell in row[1:]) in text
    assert demo_page.judge_task(results) in html.unescape(text)
    assert str(results[1].trained.certificate) in text
    assert text.count('src="data:image/png;base64,') == 3
    assert text.count("<figcaption") == 3
    assert "http" not in text
    pictures = {"dictionary-health.png", "gap-against-iterations.png", "spike-raster.png"}
    assert set(os.listdir(page.parent)) == {"index.html", *pictures}
    for name in pictures:
        content = (page.parent / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert min(struct.unpack(">II", content[16:24])) > 100


def test_a_network_with_one_answer_has_a_page_of_its_own(tmp_path):
    settings = replace(TINY.settings, objective=Objective("hinge", "last"))
    tiny = demo.DemoTask(
        "Tiny XOR!", lambda: first_last_xor(4, n_train=60, n_val=20, n_test=40), settings, TINY.surrogate
    )
    result = demo.run(tiny, "cvx")
    page = demo_page.write_demo_page([result], tmp_path, explore_seconds=0)
    assert 'href="tiny-xor.html"' in page.read_text()
    shown = (tmp_path / "tiny-xor.html").read_text()
    assert "Tiny XOR!, cvx: a look inside" in shown
    assert f"{result.accuracy['test']:.1%}" in shown


def test_names_are_shown_as_text(results, tmp_path):
    named = replace(results[1], task_name="<script>alert(1)</script>")
    text = demo_page.write_demo_page([named], tmp_path).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_report_is_written_over_an_older_one(results, tmp_path):
    first = demo_page.write_demo_page(results[1:], tmp_path).read_text()
    assert demo_page.write_demo_page(results, tmp_path).read_text() != first


def test_a_report_that_cannot_be_written_is_one_sentence(results, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(DataFileError, match="choose another --output") as caught:
        demo_page.write_demo_page(results, blocker / "report")
    assert_one_sentence(caught.value)


def test_a_full_disk_is_one_sentence(results, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match="No space left on device") as caught:
        demo_page.write_demo_page(results, tmp_path)
    assert_one_sentence(caught.value)
    assert os.listdir(tmp_path) == []


def test_results_without_any_proof_are_refused(results, tmp_path):
    with pytest.raises(InvalidInputError, match="at least one result with a certificate, got none"):
        demo_page.write_demo_page(results[:1], tmp_path)


def test_pages_leave_the_backend_of_matplotlib_alone():
    """A program that shows figures in windows still does so after it has imported what writes pages."""
    modules = "cvxsnn.app.demo_page, cvxsnn.app.experiments.report, cvxsnn.app.experiments.tables, cvxsnn.app.plots"
    program = (
        f"import matplotlib; matplotlib.use('pdf'); import {modules}; assert matplotlib.get_backend().lower() == 'pdf'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
