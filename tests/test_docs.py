"""The documents' code runs, and prints what they say it prints."""

import contextlib
import io
import re
from itertools import zip_longest
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
    assert sum(output is not None for _, _, output in blocks) >= 7
    for line, code, expected in blocks:
        printed = run_block("docs/theory.md", line, code, namespace)
        assert printed.split() == (expected or "").split(), f"docs/theory.md, block at line {line}"


PAGES = {
    "README.md": 1,
    "website/start.md": 1,
    "docs/quick-start.md": 4,
    "docs/certificates.md": 2,
    "docs/data.md": 2,
    "docs/time-series.md": 3,
    "docs/witnesses.md": 3,
    "docs/sparsity.md": 2,
    "docs/explore.md": 3,
    "docs/scaling.md": 2,
    "docs/readouts.md": 1,
    "docs/exchange.md": 2,
    "docs/deployment.md": 4,
    "docs/serving.md": 2,
    "docs/device.md": 2,
    "docs/experiments.md": 1,
}
"""Python blocks of the pages that run from top to bottom."""


@pytest.mark.parametrize(("page", "n_blocks"), PAGES.items())
def test_pages_run_from_top_to_bottom(page, n_blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "page"}
    blocks = read_blocks(page)
    assert len(blocks) == n_blocks
    for line, code, expected in blocks:
        printed = run_block(page, line, code, namespace)
        assert bool(printed) == (expected is not None), f"{page}, block at line {line}"
        differences = compare(printed, expected or "")
        assert not differences, f"{page}, block at line {line}: {differences}"


_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
_SECONDS = re.compile(r"\d+(\.\d+)? (s|ms|seconds)\b")
_RULES = re.compile(r"[─━┏┳┓┡╇┩└┴┘├┼┤│┃]+")
SMALL = 1e-5
"""Numbers below this are gaps, or rounding: they differ between machines."""
ROUGHLY = 0.05
"""Other numbers may differ by this share or, below 1, by this much: spikes are exact, but solutions are not unique."""


def compare(printed, shown):
    """Words that differ, and numbers that differ by more than those of two machines do. Times are not compared."""
    ours, theirs = (_RULES.sub(" ", _SECONDS.sub("TIME", text)) for text in (printed, shown))
    words = [_NUMBER.sub("#", text).split() for text in (ours, theirs)]
    if words[0] != words[1]:
        return [pair for pair in zip_longest(*words) if pair[0] != pair[1]]
    numbers = [
        [float(text.replace(",", "").replace("−", "-")) for text in _NUMBER.findall(own)] for own in (ours, theirs)
    ]
    return [pair for pair in zip(*numbers, strict=True) if not is_close(*pair)]


def is_close(one, other):
    if max(abs(one), abs(other)) < SMALL:
        return True
    return abs(one - other) <= ROUGHLY * max(1.0, abs(one), abs(other))


def test_outputs_are_compared_with_the_pages():
    assert not compare("accuracy 0.98, gap 1e-9, 3 s", "accuracy 0.97, gap 4e-12, 5 s")
    assert compare("accuracy 0.98", "accuracy 0.90")
    assert compare("accuracy 0.98", "error 0.98")
    assert compare("100 neurons", "200 neurons")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))])
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text())
    missing = [target for target in targets if not ((ROOT / page).parent / target).exists()]
    assert not missing
