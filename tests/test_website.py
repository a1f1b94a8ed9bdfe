"""The site has every page and every public name; its links, formulas and scripts are handled as they must be."""

import importlib.util
import re

import pytest

if importlib.util.find_spec("sphinx") is None:
    pytest.skip("Sphinx is not installed: pip install 'cvxsnn[docs]'", allow_module_level=True)

from website import api, check, contents, gallery, mathml, staging

ROOT = contents.ROOT


def test_every_page_is_in_the_table_of_contents_once():
    listed = [page for groups in contents.list_pages().values() for pages in groups.values() for page in pages]
    assert len(listed) == len(set(listed))
    assert {page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/*.md")} <= set(listed)
    assert {page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/results/*.md")} <= set(listed)


def test_a_new_page_is_picked_up(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    for name in ("data", "brand-new"):
        (tmp_path / "docs" / f"{name}.md").write_text("# Page\n")
    monkeypatch.setattr(contents, "ROOT", tmp_path)
    guide = contents.list_pages()["guide"]
    assert guide["Data"] == ["docs/data.md"]
    assert guide[contents.OTHER_PAGES] == ["docs/brand-new.md"]


def test_links_lead_to_the_same_pages_on_the_site(tmp_path):
    text = "[a](data.md#arrays) [b](../CONTRIBUTING.md) [`c`](../benchmarks/RESULTS.md) [d](results/paper) [e](#here)\n"
    block = "```text\n[a](../data.md)\n```\n"
    pages = {"docs/data.md", "CONTRIBUTING.md", "benchmarks/RESULTS.md"}
    staged = staging.rewrite_links(text + block, "docs/methods.md", pages, tmp_path)
    assert staged == "[a](data.md#arrays) [b](CONTRIBUTING.md) [`c`](benchmarks/RESULTS.md) d [e](#here)\n" + block
    back = staging.rewrite_links("![g](../docs/images/house.png)", "benchmarks/RESULTS.md", pages, tmp_path)
    assert back == "![g](../images/house.png)"
    assert (tmp_path / "images" / "house.png").stat().st_size > 0


def test_every_formula_can_be_shown():
    for page in ROOT.glob("docs/*.md"):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for block in re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL):
            assert mathml.to_mathml(block, as_block=True).startswith("<math")
        for inline in re.findall(r"(?<!\$)\$([^$\n]+)\$(?!\$)", text):
            assert mathml.to_mathml(inline, as_block=False).startswith("<math")


def test_underscores_in_words_are_shown_as_they_are():
    assert "l1_strength" in mathml.to_mathml(r"s = \texttt{l1\_strength}", as_block=False)


def test_every_public_name_has_one_page():
    entries = [entry for group in api.list_names().values() for entry in group]
    names = [entry.name for entry in entries]
    assert len(names) == len(set(names))
    rooms = {module for _, modules in api.GROUPS.values() for module in modules}
    for room in rooms:
        module = importlib.import_module(room)
        public = [name for name in module.__all__ if type(getattr(module, name)).__name__ != "module"]
        assert set(public) <= set(names)
    assert [entry.path for entry in entries if not api.summary(entry)] == []


def test_scripts_that_need_more_are_not_run():
    assert gallery.why_not("import numpy\nimport cvxsnn") is None
    assert "cvxsnn[snntorch]" in gallery.why_not("try:\n    import snntorch as snn\nexcept ImportError:\n    pass")
    assert "recordings" in gallery.why_not("from x import read_recordings\nread_recordings()")
    title, text = gallery.describe('"""Draw it.\n\npython a.py  # do\n\nMore ``text``.\n"""')
    assert (title, text) == ("Draw it", "```console\npython a.py  # do\n```\n\nMore `text`.")


def test_dead_links_remote_files_and_missing_words_are_found(tmp_path):
    words = "".join(f'"{stem}":1,' for stem in ("delay", "certif", "snntorch", "elast", "net"))
    (tmp_path / "searchindex.js").write_text(words)
    (tmp_path / "b.html").write_text('<p id="there"></p>')
    page = tmp_path / "a.html"
    page.write_text('<a href="b.html#there"></a><a href="https://x.org"></a><link rel="next" href="b.html">')
    assert check.defects(tmp_path) == []
    page.write_text('<a href="b.html#gone"></a><a href="c.html"></a><script src="https://x.org/a.js"></script>')
    (tmp_path / "searchindex.js").write_text(words.replace('"delay"', '"other"'))
    assert check.defects(tmp_path) == [
        "a.html fetches https://x.org/a.js",
        "a.html links to b.html#gone, but there is no such place on that page",
        "a.html links to c.html, which does not exist",
        "the search does not find 'delay'",
    ]
