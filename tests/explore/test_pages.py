"""The machinery behind both pages: every value is escaped, pictures are inside, files are written whole."""

import os
import re

import pytest
from jinja2 import UndefinedError
from small_models import assert_one_sentence

from cvxsnn.core.errors import DataFileError
from cvxsnn.explore.pages import Fact, Table, render_page, write_page

HOSTILE = """<script>alert("1")</script>'&amp; onerror=alert(1) \x00 \ud800"""


def demo_values(text: str) -> dict[str, object]:
    table = Table(text, ["one", text], [[1, text]], prose=[text])
    return {
        "facts": [Fact(text, text, text, text)],
        "tasks": [{"name": text, "verdict": text, "table": table, "link": text}],
        "certificates": [(text, text)],
        "legend": text,
    }


def test_every_value_is_escaped_and_printable():
    page = render_page("demo.html", demo_values(HOSTILE))
    assert "<script>" not in page
    assert page.count("&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;&#39;&amp;amp;") == 15
    assert not re.search(r"[\x00\ud800]", page)
    page.encode()


def test_the_stylesheet_is_inside_the_page_and_serves_narrow_wide_dark_and_printed_pages():
    page = render_page("demo.html", demo_values("a"))
    style = page[page.index("<style>") : page.index("</style>")]
    for part in ("max-width: 30rem", "prefers-color-scheme: dark", "@media print", "overflow-x: auto"):
        assert part in style


def test_a_value_that_a_template_needs_and_does_not_get_is_an_error():
    with pytest.raises(UndefinedError):
        render_page("demo.html", {})


def test_a_page_is_written_into_a_new_folder_or_refused_in_one_sentence(tmp_path):
    path = write_page(tmp_path / "new" / "page.html", "<p>")
    assert path.read_text() == "<p>"
    assert os.listdir(path.parent) == ["page.html"]
    with pytest.raises(
        DataFileError, match=r"expected a folder for the report at .*page\.html, got: .*; try again"
    ) as e:
        write_page(path / "page.html", "<p>", "try again")
    assert_one_sentence(e.value)
