"""The table of contents of the site: the only place where pages are put in order.

Pages of ``docs`` that are not listed here are added to the end of the user guide, so a new page is never lost.
"""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Section:
    """A section of the site: a page with a sentence and links to its pages.

    Parameters
    ----------
    name : str
        The name of its page.
    title : str
        The title of its page.
    sentence : str
        What the section is about.
    groups : dict of str to list of str
        Captions, and the pages under each, as paths in the repository without ``.md``. Patterns are allowed.
    """

    name: str
    title: str
    sentence: str
    groups: dict[str, list[str]]


OTHER_PAGES = "Other pages"
SECTIONS = [
    Section(
        "guide",
        "User guide",
        "How to prepare data, train a model, read its certificate, and take it to other libraries and chips.",
        {
            "First steps": ["docs/install", "docs/quick-start", "docs/explore"],
            "Data": ["docs/data", "docs/time-series"],
            "Training": ["docs/methods", "docs/certificates", "docs/witnesses", "docs/sparsity", "docs/scaling"],
            "Other libraries and chips": [
                "docs/readouts",
                "docs/exchange",
                "docs/deployment",
                "docs/serving",
                "docs/device",
            ],
            OTHER_PAGES: [],
        },
    ),
    Section(
        "theory-index",
        "Theory",
        "The theorems as computations, proofs over all neurons, the files that hold them, and the words and symbols.",
        {"": ["docs/theory", "docs/proof-files", "docs/glossary"]},
    ),
    Section(
        "benchmarks-index",
        "Benchmarks",
        "What was measured, on which data, with which commands.",
        {
            "": ["docs/defaults", "docs/experiments", "benchmarks/RESULTS"],
            "Results of experiments": ["docs/results/*"],
        },
    ),
    Section(
        "development",
        "Development",
        "How the library is built and tested, and how to change it.",
        {"": ["docs/architecture", "docs/testing", "CONTRIBUTING", "SECURITY"]},
    ),
]
WHATS_NEW = "CHANGELOG"


def list_pages() -> dict[str, dict[str, list[str]]]:
    """Return the pages that exist, as paths in the repository: for each section, for each caption."""
    sections = {
        section.name: {caption: _existing(patterns) for caption, patterns in section.groups.items()}
        for section in SECTIONS
    }
    listed = {page for groups in sections.values() for pages in groups.values() for page in pages}
    others = [page for page in _existing(["docs/*"]) if page not in listed]
    sections["guide"][OTHER_PAGES] = others
    return sections


def _existing(patterns: list[str]) -> list[str]:
    found = [file for pattern in patterns for file in sorted(ROOT.glob(f"{pattern}.md"))]
    return [file.relative_to(ROOT).as_posix() for file in found]
