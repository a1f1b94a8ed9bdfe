"""Values as plain text, for pages, tables and figures."""

import re
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal

NOTHING = "–"
"""Placeholder for a missing value."""


def format_value(value: object) -> str:
    """Return a value of a record or a configuration as text: numbers in four digits, tables as a list of pairs."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_value(item)}" for name, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(format_value(item) for item in value)
    return NOTHING if value is None else str(value)


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that fits it."""
    for limit, size, unit in ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:,.1f} days"


def round_up(value: float, digits: int) -> float:
    """Return an upper bound in fewer digits, rounded up, so that it stays one."""
    # The shortest text of a float: 0.2 is 0.2, and not the 0.2000000000000000111 that it stands for.
    return float(Context(digits, ROUND_CEILING).plus(Decimal(repr(float(value)))))


def round_down(value: float, digits: int) -> float:
    """Return a lower bound in fewer digits, rounded down, so that it stays one."""
    return -round_up(-value, digits)


def format_bound(value: float) -> str:
    """Return an upper bound in two digits, rounded up, so that it stays one."""
    return "0" if value <= 0 else f"{round_up(value, 2):.1e}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Return a count with its noun, in the plural unless it is one; ``many`` is its plural if s is not added."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def printable(text: str) -> str:
    """Return a text without control characters and lone surrogates: terminals obey them, and HTML cannot write them."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns as wide as their widest cell, the first flush left and the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    cells = [
        [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        for first, *rest in (header, *rows)
    ]
    return "\n".join("  ".join(line).rstrip() for line in cells)
