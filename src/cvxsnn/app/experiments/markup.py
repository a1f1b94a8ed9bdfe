"""Values as text, tables as HTML, and the style that they are shown in."""

import html
from collections.abc import Iterable, Mapping, Sequence

from .figures import printable
from .summary import Verdict, quantity_of

NOTHING = "–"

VERDICT_CLASSES: dict[Verdict, str] = {
    "matches": "matches",
    "better": "better",
    "worse": "worse",
    "cannot tell": "unknown",
}

STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --soft: #5b646d; --page: #fff; --card: #f6f7f9; --line: #d9dde2;
  --link: #0b57b0; --matches: #1a6fb5; --better: #16794a; --worse: #b3391f; --unknown: #69727b }
@media screen and (prefers-color-scheme: dark) { :root { --text: #e4e7ea; --soft: #a2abb4; --page: #14171a;
  --card: #1e2327; --line: #394047; --link: #82b7f5; --matches: #78b4ee; --better: #5fc794; --worse: #f2937d;
  --unknown: #9ba5ae } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
  overflow-wrap: anywhere }
header, main, footer { max-width: 76rem; margin: 0 auto; padding: 0 1rem }
header { padding-top: 2rem } footer { padding-bottom: 3rem }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 0 0 .25rem } h3 { font-size: 1rem; margin: 1.5rem 0 .5rem }
p, ul, ol { margin: .5rem 0; max-width: 48rem }
a { color: var(--link) } a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--link);
  outline-offset: 2px }
code { font: .875em ui-monospace, monospace }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 1.5rem }
.soft { color: var(--soft) } .small { font-size: .8125rem; line-height: 1.4 }
.notice { border-left: 4px solid var(--worse); background: var(--card); padding: .6rem .9rem; max-width: 48rem }
.strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; margin: 1.25rem 0;
  padding: 0; list-style: none; max-width: none }
.strip li { background: var(--card); border-top: 4px solid var(--verdict); padding: .5rem .9rem .6rem }
.strip b { display: block; font-size: 1.75rem; line-height: 1.2; font-variant-numeric: tabular-nums }
.strip .small { display: block }
.matches { --verdict: var(--matches) } .better { --verdict: var(--better) }
.worse { --verdict: var(--worse) } .unknown { --verdict: var(--unknown) }
.verdict { color: var(--verdict); font-weight: 600; white-space: nowrap }
.contents li { margin: .3rem 0 } .contents .small { display: block }
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 1rem 0 }
dl.facts dt { color: var(--soft) } dl.facts dd { margin: 0; min-width: 0 }
.scroll { overflow-x: auto; margin: .75rem 0 }
table { border-collapse: collapse; font-size: .875rem; line-height: 1.4; overflow-wrap: normal }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem }
th, td { text-align: left; vertical-align: top; padding: .4rem .75rem; border-bottom: 1px solid var(--line) }
thead th { border-bottom: 2px solid var(--line); vertical-align: bottom }
tbody th { font-weight: 600 }
.grid tbody th { position: sticky; left: 0; background: var(--page); min-width: 6rem; max-width: 11rem; z-index: 1 }
.grid tbody td { min-width: 9.5rem } .grid td.filled { border-left: 4px solid var(--verdict); background: var(--card) }
.grid { border-collapse: separate; border-spacing: 3px } .grid th, .grid td { border-bottom: 0 }
.ours { font-size: 1.0625rem; font-variant-numeric: tabular-nums; white-space: nowrap }
.grid .line { display: block } .difference { white-space: nowrap } .compact td { font-variant-numeric: tabular-nums }
.compact td:first-child { min-width: 11rem }
.sentence { min-width: 18rem; max-width: 40rem; overflow-wrap: anywhere }
.back { margin-left: 1rem; white-space: nowrap }
details { margin: .5rem 0 } summary { cursor: pointer; padding: .35rem 0; color: var(--link) }
figure { margin: 1rem 0 } figure img { width: 100%; max-width: 45rem; height: auto;
  display: block } .panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
  gap: 1rem }
@media (max-width: 30rem) { h1 { font-size: 1.4rem } .strip { grid-template-columns: 1fr 1fr }
  dl.facts { grid-template-columns: 1fr; gap: 0 } dl.facts dd { margin-bottom: .5rem }
  th, td { padding: .35rem .5rem } .grid tbody th { min-width: 4.25rem; max-width: 5.5rem }
  .grid tbody td { min-width: 7rem } }
@page { size: A4 landscape; margin: 12mm }
@media print { body { font-size: 10pt } header, main, footer { max-width: none; padding: 0 }
  table { font-size: 7.5pt } .ours { font-size: 8.5pt } table .small { font-size: 6.5pt } th, td { padding: 2pt 4pt }
  .grid tbody td, .grid tbody th, .compact td:first-child, .sentence { min-width: 0 } .scroll { overflow: visible }
  .panels { grid-template-columns: 1fr 1fr }
  .grid tbody th { position: static } .back { display: none } thead { display: table-header-group }
  tr, figure, .strip { break-inside: avoid } h2, h3 { break-after: avoid } a { color: inherit }
  .strip li, .grid td.filled { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  details.numbers::details-content { content-visibility: visible; block-size: auto } }
"""


def escape(value: object) -> str:
    """Text that means nothing to a browser but itself."""
    return html.escape(printable(str(value)))


def number_text(value: float | None, metric: str) -> str:
    """A number in as many digits as its kind needs."""
    if value is None:
        return NOTHING
    quantity = quantity_of(metric)
    return f"{value:.3f}" if quantity == "accuracy" else f"{value:.1e}" if quantity == "gap" else f"{value:.4g}"


def signed_text(value: float | None, metric: str) -> str:
    """A difference, in as many digits as :func:`number_text` gives, zero without a sign."""
    if value is None:
        return NOTHING
    size = number_text(abs(value), metric)
    return size if float(size) == 0 else ("−" if value < 0 else "+") + size


def fact_text(value: object) -> str:
    """Whatever a record or a configuration holds, in words."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {fact_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(fact_text(one) for one in value)
    return NOTHING if value is None else str(value)


def plural(count: int, noun: str) -> str:
    """So many of a noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def scrolling(label: str, table: str) -> str:
    """A table that scrolls by itself where the window is narrower."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>\n'


def render_table(
    label: str, columns: Sequence[str], rows: Iterable[Sequence[object]], classes: Sequence[str] = ()
) -> str:
    """A table of plain values; classes, if given, are one a column and may be empty."""
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    named = [f' class="{name}"' if name else "" for name in classes] or [""] * len(columns)
    body = "".join(
        "<tr>" + "".join(f"<td{name}>{escape(cell)}</td>" for name, cell in zip(named, row, strict=True)) + "</tr>\n"
        for row in rows
    )
    return scrolling(label, f'<table class="compact"><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>')
