"""The documents' code runs, and prints what they say it prints."""

import contextlib
import io
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]

_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


def read_blocks(page):
    """Python blocks with the line they start on, and the text block that follows each, if one does."""
    text = (ROOT / page).read_text()
    return [(text.count("\n", 0, block.start()) + 1, block["code"], block["output"]) for block in _BLOCK.finditer(text)]


def run_block(page, line, code, namespace):
    """Run one block where tracebacks show the page's own lines; give what it printed."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + code, str(ROOT / page), "exec"), namespace)
    return printed.getvalue()


def test_the_theory_page_computes_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "theory_page"}
    blocks = read_blocks("docs/theory.md")
    assert sum(output is not None for _, _, output in blocks) >= 10
    for line, code, expected in blocks:
        printed = run_block("docs/theory.md", line, code, namespace)
        assert printed.split() == (expected or "").split(), f"docs/theory.md, block at line {line}"
    assert (namespace["pictures"] / "cones.png").stat().st_size > 0


PAGES = {
    "README.md": 7,
    "docs/methods.md": 1,
    "docs/data.md": 3,
    "docs/delays.md": 5,
    "docs/deployment.md": 6,
    "docs/elastic-net.md": 2,
    "docs/exchange.md": 2,
    "docs/explore.md": 1,
    "docs/plots.md": 8,
    "docs/scaling.md": 2,
    "docs/readouts.md": 2,
    "docs/time-series.md": 3,
}
"""Python blocks of the pages that run from top to bottom."""


@pytest.mark.parametrize(("page", "n_blocks"), PAGES.items())
def test_pages_run_from_top_to_bottom(page, n_blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    blocks = read_blocks(page)
    assert len(blocks) == n_blocks
    for line, code, expected in blocks:  # gaps at the level of rounding differ between machines: nothing is compared
        printed = run_block(page, line, code, namespace)
        assert bool(printed) == (expected is not None), f"{page}, block at line {line}"


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    missing = [target for target in targets if not ((ROOT / page).parent / target).exists()]
    assert not missing
