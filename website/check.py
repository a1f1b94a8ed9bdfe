"""Checks a built site: no link inside it is dead, nothing is fetched from a network, and the search knows its words."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.search.en import SearchEnglish

WORDS = ("delay", "certificate", "snntorch", "elastic", "net")
"""Words that readers search for. Sphinx stores the stems of words."""
_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_NOT_FETCHED = {"canonical", "next", "prev", "search", "index", "author"}


class _Page(HTMLParser):
    """Collects the links, the fetched files and the anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in _FETCHED and _FETCHED[tag] in values and values.get("rel") not in _NOT_FETCHED:
            self.fetched.append(values[_FETCHED[tag]])


def defects(site: Path) -> list[str]:
    """Return one sentence for every dead link, every remote file and every word that the search does not know."""
    pages = {file: _read(file) for file in site.rglob("*.html") if "_static" not in file.parts}
    found = []
    for file, page in pages.items():
        name = file.relative_to(site)
        found += [f"{name} fetches {url}" for url in page.fetched if urlsplit(url).netloc]
        for url in page.links + page.fetched:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if target.is_dir():
                target /= "index.html"
            if not target.exists():
                found.append(f"{name} links to {url}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{name} links to {url}, but there is no such place on that page")
    index = (site / "searchindex.js").read_text()
    found += [f"the search does not find {word!r}" for word in WORDS if not _is_indexed(word, index)]
    return sorted(set(found))


def _is_indexed(word: str, index: str) -> bool:
    return f'"{SearchEnglish({}).stem(word)}":' in index


def _read(file: Path) -> _Page:
    page = _Page()
    page.feed(file.read_text())
    return page
