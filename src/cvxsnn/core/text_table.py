"""Tables as plain text."""

from collections.abc import Sequence


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns as wide as their widest cell, the first flush left and the others right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    cells = [
        [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
        for first, *rest in (header, *rows)
    ]
    return "\n".join("  ".join(line).rstrip() for line in cells)
