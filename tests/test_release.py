"""The files of a release agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

import cvxsnn
from tools.oldest import lowest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    version = re.escape(PROJECT["version"])
    changelog = re.search(
        rf"^## \[{version}\] - (\d{{4}}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert changelog is not None
    assert cvxsnn.__version__ == PROJECT["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {version}$", citation, re.MULTILINE)
    assert re.search(rf"^date-released: {changelog[1]}$", citation, re.MULTILINE)


def test_workflows_test_every_version_of_python_that_is_declared():
    declared = {text.split(" :: ")[-1] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)}
    tested = set(re.findall(r'"(3\.\d+)"', (ROOT / ".github/workflows/tests.yml").read_text()))
    assert tested == declared
    assert f">={min(declared)}" == PROJECT["requires-python"]


def test_workflows_call_targets_that_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = {
        target
        for file in ROOT.glob(".github/workflows/*.yml")
        for target in re.findall(r"run: make (\w+)", file.read_text())
    }
    assert {"lint", "test", "oldest", "docs", "wheels"} <= called <= targets


def test_every_library_is_tested_at_its_lowest_version():
    tested = {requirement.partition("==")[0] for requirement in lowest([*PROJECT["dependencies"], "cvxsnn[test]"])}
    declared = {re.match(r"[\w-]+", requirement)[0] for requirement in PROJECT["dependencies"]}
    assert declared - tested == {"torch"}
    assert {"pandas", "distributed", "nir", "cvxpy"} <= tested
    assert list(lowest(["a>=1.6,<2", "cvxsnn[tables]"]))[:2] == ["a==1.6", "pandas==2.2"]


@pytest.mark.parametrize("page", ["README.md", "website/start.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_pages_do_not_promise_a_package_index(page):
    text = (ROOT / page).read_text()
    promised = re.findall(r"^\s*pip install cvxsnn.*$", text, re.MULTILINE)
    assert promised == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
