"""Values as plain text, for pages, tables and figures."""

import math
import re
from collections.abc import Mapping

NOTHING = "–"
"""Stands for a value that does not exist."""


def format_value(value: object) -> str:
    """Return a value of a record or a configuration as text: numbers in four digits, tables as a list of pairs."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {format_value(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(format_value(one) for one in value)
    return NOTHING if value is None else str(value)


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that fits it."""
    for limit, size, unit in ((1.0, 1e-3, "ms"), (120.0, 1.0, "s"), (7200.0, 60.0, "min"), (172_800.0, 3600.0, "h")):
        if seconds < limit:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86_400:,.1f} days"


def format_bound(value: float) -> str:
    """Return an upper bound in two digits, rounded up, so that it stays one."""
    if value <= 0:
        return "0"
    exponent = math.floor(math.log10(value))
    digits = math.ceil(round(value / 10 ** (exponent - 1), 9))
    return f"{digits * 10.0 ** (exponent - 1):.1e}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is one."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def printable(text: str) -> str:
    """Return a text without control characters and lone surrogates: terminals obey them, and HTML cannot write them."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
