"""The demonstration and its page, on one small task."""

import html
import os
import subprocess
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import pytest
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, SpikingClassifier
from cvxsnn.core.errors import DataFileError
from cvxsnn.data.tasks import first_last_xor
from cvxsnn.experiments import demo
from cvxsnn.experiments.experiment import RunConfig

TINY = {
    "task": {
        "name": "addition", "base": 2, "n_digits": 2, "n_train": 60, "n_val": 20, "n_test": 40, "ood_digits": [4],
        "n_test_ood": 10,
    },
    "family": {
        "hidden": [16, 32], "n_subnetworks": 2, "decay": 0.1, "threshold": 0.1,
        "bias": {"distribution": "normal", "mean": 0.0, "sd": 0.5},
    },
    "objective": {"loss": {"sum": "softmax", "carry": "logistic"}, "readout": "all"},
    "surrogate": {"epochs": 2},
    "convex": {"n_strengths": 3},
}  # fmt: skip
XOR = {"name": "first_last_xor", "n_steps": 4, "n_train": 60, "n_val": 20, "n_test": 40}
METHODS = ("cvx", "sg", "sg-cvx", "sg-sg", "cvx-sg")


def tiny(method, **parts):
    return RunConfig(method, 0, **TINY | parts)


@pytest.fixture(scope="module")
def every():
    return [demo.run("tiny addition", tiny(method)) for method in METHODS]


@pytest.fixture(scope="module")
def results(every):
    return [every[1], every[0]]


@pytest.fixture(autouse=True)
def no_figure_is_left():
    yield
    assert plt.get_fignums() == []


def test_five_methods_on_three_tasks_with_one_seed():
    configs = demo.demo_configs(seed=3)
    assert list(dict.fromkeys(name for name, _ in configs)) == ["base-2 addition", "XOR, 6 steps", "digits, 8 steps"]
    assert tuple(config.method for _, config in configs) == 3 * METHODS
    assert {config.seed for _, config in configs} == {3}


def test_every_method_is_scored_on_all_test_sets(every):
    assert all({"test", "2x"} <= result.scores.keys() for result in every)
    assert every[0].scores["test"] > 0.9


def test_what_ends_in_a_convex_stage_is_certified_and_nothing_else_is(every):
    for result in every:
        certificate = result.trained.certificate
        assert (certificate is not None) == result.config.method.endswith("cvx")
        assert certificate is None or certificate.relative_gap <= result.trained.settings.program.tol


def test_a_row_says_what_came_out_and_what_is_proven(results):
    sg, cvx = (result.row for result in results)
    assert len(sg) == len(cvx) == len(demo.COLUMNS)
    scores = results[0].scores
    assert sg[:5] == ("tiny addition", "sg", f"{scores['test']:.3f}", f"{scores['2x']:.3f}", "none")
    assert float(cvx[4]) <= results[1].trained.settings.program.tol
    assert cvx[5] == f"{len(results[1].trained.network.neurons)}/64"
    assert sg[5] == "64/64"


def test_the_verdict_says_who_is_best_and_what_is_proven(results):
    sg, cvx = results
    verdict = demo.judge_task(results)
    assert f"{max(result.scores['test'] for result in results):.3f}" in verdict
    assert f"The read-out of cvx, with an accuracy of {cvx.scores['test']:.3f}, is certified" in verdict
    assert f"reads {cvx.trained.network.n_active} of 64 neurons" in verdict
    bound = float(verdict.split("by more than ")[1].split(" of it")[0])
    assert cvx.trained.certificate.relative_gap <= bound <= 1.2 * cvx.trained.certificate.relative_gap
    assert demo.judge_task([sg]).endswith("Nothing is proven.")
    assert demo.judge_task([cvx, cvx]).startswith(f"All 2 methods reach a test accuracy of {cvx.scores['test']:.3f}.")


def test_the_page_shows_every_row_and_needs_no_network(results, tmp_path):
    page = demo.write_demo_page(results, tmp_path / "new" / "folder")
    assert page == tmp_path / "new" / "folder" / "index.html"
    text = page.read_text()
    for result in results:
        assert "".join(f"<td>{cell}</td>" for cell in result.row[1:]) in text
    assert demo.judge_task(results) in html.unescape(text)
    assert str(results[1].trained.certificate) in text
    assert "http" not in text
    assert os.listdir(page.parent) == ["index.html"]  # a network that answers at every step has no page


def tiny_lead():
    task = first_last_xor(9, n_train=60, n_val=10, n_test=10)
    model = SpikingClassifier(n_neurons=32, random_state=0).fit(task.train.inputs, task.train.heads["label"])
    return demo.Lead(task, model, [("SpikingClassifier()", "0.9", "32", "1e-9", "0.1")])


def test_the_classifier_comes_first_with_its_proof_and_a_page(results, tmp_path):
    lead = tiny_lead()
    text = html.unescape(demo.write_demo_page(results, tmp_path, explore_seconds=0, lead=lead).read_text())
    assert text.index(lead.title) < text.index(results[0].task_name)
    assert "Proven: no other weights" in lead.verdict
    assert f"class {lead.model.predict(lead.task.test.inputs[:1])[0]}" in lead.verdict
    assert all(cell in text for cell in (lead.verdict, *lead.rows[0]))
    assert 'href="digits.html"' in text
    assert "a look inside" in (tmp_path / "digits.html").read_text()


def test_a_network_with_one_answer_has_a_page_of_its_own(tmp_path):
    result = demo.run("Tiny XOR!", tiny("cvx", task=XOR, objective={"loss": "hinge", "readout": "last"}))
    page = demo.write_demo_page([result], tmp_path, explore_seconds=0)
    assert 'href="tiny-xor.html"' in page.read_text()
    shown = (tmp_path / "tiny-xor.html").read_text()
    assert "Tiny XOR!, cvx: a look inside" in shown
    assert f"{result.scores['test']:.1%}" in shown


def test_names_are_shown_as_text(results, tmp_path):
    named = replace(results[1], task_name="<script>alert(1)</script>")
    text = demo.write_demo_page([named], tmp_path).read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_report_is_written_over_an_older_one(results, tmp_path):
    first = demo.write_demo_page(results[1:], tmp_path).read_text()
    assert demo.write_demo_page(results, tmp_path).read_text() != first


def test_a_report_that_cannot_be_written_is_one_sentence(results, tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    with pytest.raises(DataFileError, match="choose another --output") as caught:
        demo.write_demo_page(results, blocker / "report")
    assert_one_sentence(caught.value)


def test_a_full_disk_is_one_sentence(results, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match="No space left on device") as caught:
        demo.write_demo_page(results, tmp_path)
    assert_one_sentence(caught.value)
    assert os.listdir(tmp_path) == []


def test_results_without_any_proof_are_refused(results, tmp_path):
    with pytest.raises(InvalidInputError, match="at least one result with a certificate, got none"):
        demo.write_demo_page(results[:1], tmp_path)


def test_pages_leave_the_backend_of_matplotlib_alone():
    """A program that shows figures in windows still does so after it has imported what writes pages."""
    modules = "cvxsnn.experiments.demo, cvxsnn.experiments.report, cvxsnn.experiments.tables, cvxsnn.plots"
    program = (
        f"import matplotlib; matplotlib.use('pdf'); import {modules}; assert matplotlib.get_backend().lower() == 'pdf'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
