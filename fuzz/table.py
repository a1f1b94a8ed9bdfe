"""Write the table of docs/testing.md from the record of the hunts: `python -m fuzz.table`."""

import json
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD, PAGE = ROOT / "fuzz" / "results.jsonl", ROOT / "docs" / "testing.md"

_BEGIN, _END = "<!-- python -m fuzz.table writes this -->\n", "<!-- end -->"


def write_table(record: str, page: str) -> str:
    """Return a page with the table of a record.

    Parameters
    ----------
    record : str
        Lines of JSON, as `--record` adds them. Of a hunt that was recorded several times, the cases are added up.
    page : str
        A page with the two marks between which the table is.
    """
    hunts: dict[tuple[str, str], Counter[str]] = {}
    lines = [json.loads(line) for line in record.splitlines()]
    for line in lines:
        hunts.setdefault((line["package"], line["hunt"]), Counter()).update(line["outcomes"])
    table = ["| hunt | cases | findings |", "|---|---:|---:|"]
    for package, hunt in hunts:
        own = [line for line in lines if (line["package"], line["hunt"]) == (package, hunt)]
        cases, findings = (sum(line[name] for line in own) for name in ("cases", "findings"))
        table.append(f"| `{package} {hunt}` | {cases:,} | {findings} |")
    n_killed = sum(
        int(match[1]) * count
        for outcomes in hunts.values()
        for outcome, count in outcomes.items()
        if (match := re.search(r"(?:SIGKILL|killed) × (\d+)", outcome))
    )
    sentence = f"In total {sum(line['cases'] for line in lines):,} cases; {n_killed:,} processes were killed."
    before, _, rest = page.partition(_BEGIN)
    return "".join([before, _BEGIN, "\n", "\n".join([*table, "", sentence, ""]), "\n", _END, rest.partition(_END)[2]])


if __name__ == "__main__":
    PAGE.write_text(write_table(RECORD.read_text(), PAGE.read_text()))
