"""Puts the Markdown pages of the repository into one folder for Sphinx, with the links between them."""

import os
import re
import shutil
from pathlib import Path

from .contents import ROOT, SECTIONS, WHATS_NEW, list_pages

_LINK = re.compile(
    r"(?P<label>\[(?:[^\]\[]|\[[^\]]*\])*\])\((?P<target>(?!https?:|mailto:|#)[^)\s#]+)(?P<anchor>#[^)\s]*)?\)"
)
_BLOCK = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def write(path: Path, text: str) -> None:
    """Write a file, unless it has this text: Sphinx reads only files that changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def staged(page: str) -> str:
    """Return where a file of the repository is on the site; pages of ``docs`` are at the top."""
    return "index.md" if page == "README.md" else page.removeprefix("docs/")


def stage_pages(folder: Path) -> set[str]:
    """Copy all pages and what they link to; return the pages on the site."""
    pages = [page for groups in list_pages().values() for files in groups.values() for page in files]
    pages.append(f"{WHATS_NEW}.md")
    for page in pages:
        write(folder / staged(page), rewrite_links((ROOT / page).read_text(), page, {*pages, "README.md"}, folder))
    written = {staged(page) for page in pages}
    write(folder / "index.md", rewrite_links(start_page(), "docs/index.md", {*pages, "README.md"}, folder))
    for section in SECTIONS:
        write(folder / f"{section.name}.md", section_page(section.name))
    return written | {"index.md", *(f"{section.name}.md" for section in SECTIONS)}


def rewrite_links(text: str, page: str, pages: set[str], folder: Path) -> str:
    """Return a page whose links lead to the same files on the site. Links to folders become plain text."""

    def replace(link: re.Match[str]) -> str:
        target = os.path.normpath((ROOT / page).parent / link["target"])
        file = Path(target).relative_to(ROOT).as_posix()
        if Path(target).is_dir():
            return link["label"][1:-1]
        if file not in pages and Path(target).exists():
            destination = folder / staged(file)
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, destination)
        relative = os.path.relpath(staged(file), Path(staged(page)).parent)
        return f"{link['label']}({relative}{link['anchor'] or ''})"

    parts = _BLOCK.split(text)
    return "".join(part if i % 2 else _LINK.sub(replace, part) for i, part in enumerate(parts))


def section_page(name: str) -> str:
    """Return the page of a section: its sentence and its pages."""
    section = next(section for section in SECTIONS if section.name == name)
    lines = [f"# {section.title}", "", section.sentence, ""]
    for caption, pages in list_pages()[name].items():
        if pages:
            lines += ["```{toctree}", ":maxdepth: 1", *([f":caption: {caption}"] if caption else []), ""]
            lines += [*(staged(page).removesuffix(".md") for page in pages), "```", ""]
    return "\n".join(lines)


def start_page() -> str:
    """Return the start page, with the table of contents of the site."""
    text = (Path(__file__).parent / "start.md").read_text()
    entries = ["guide", "gallery/index", "api/index", "theory-index", "benchmarks-index", "development", WHATS_NEW]
    titles = {"development": "Development", WHATS_NEW: "What's new"}
    lines = [f"{titles[entry]} <{entry}>" if entry in titles else entry for entry in entries]
    return text + "\n".join(["", "```{toctree}", ":hidden:", "", *lines, "```", ""])
