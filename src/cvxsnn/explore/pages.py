"""Self-contained HTML pages: jinja2 templates that escape every value, one stylesheet, pictures inside the page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..core.formatting import plural, printable
from ..core.storage import make_folder, write_atomically


@dataclass(frozen=True)
class Table:
    """A table of plain values.

    Attributes
    ----------
    label : str, read aloud by screen readers
    columns : sequence of str
    rows : sequence of rows, one value per column
    prose : names of columns that hold sentences, which wrap
    """

    label: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    prose: Sequence[str] = ()


@dataclass(frozen=True)
class Fact:
    """A number at the top of a page, and the section that says more.

    Attributes
    ----------
    section : str, the section
    value : str, the number
    text : str, what the number measures
    note : str, a remark
    """

    section: str
    value: str
    text: str
    note: str = ""


def render_page(template: str, values: Mapping[str, Any], filters: Mapping[str, Any] | None = None) -> str:
    """Return the page that a template of ``cvxsnn/explore/templates`` makes of some values.

    Parameters
    ----------
    template : str
        File name of the template.
    values : mapping of str to anything
        The values that the template refers to; all are escaped.
    filters : mapping of str to functions, optional
        Filters of this template, beside ``plural``.
    """
    environment = Environment(
        loader=PackageLoader("cvxsnn.explore"),
        autoescape=True,
        # A misspelt name is an error, not an empty spot on the page.
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters |= {"plural": plural, **(filters or {})}
    # Imported macros see globals, but not the values of the page.
    environment.globals |= values
    return environment.get_template(template).render()


def write_page(path: Path, page: str, remedy: str = "choose another place") -> Path:
    """Write a page whole or not at all, create its folder if needed, and return its path."""
    make_folder(path.parent, "the report", remedy)
    write_atomically(path, page.encode())
    return path
