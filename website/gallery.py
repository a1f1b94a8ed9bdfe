"""Writes the gallery: every script in ``examples`` with what it prints and the pictures it writes.

A script runs in a process of its own, in an empty folder. What it left behind is kept in ``build/gallery`` until the
script or the library changes. Scripts that need data files, or a library that is an extra, are shown and not run.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .contents import ROOT
from .notebooks import write_notebooks
from .staging import write

EXAMPLES = ROOT / "examples"
KEPT = ROOT / "build" / "gallery"
TIMEOUT = 900
ARGUMENTS = {"enumeration_time.py": ["--patterns", "2000"]}
"""Arguments of scripts that take long without them."""
EXTRAS = {
    "aeon": "aeon",
    "neurobench": "neurobench",
    "nir": "nir",
    "nirtorch": "nir",
    "norse": "norse",
    "snntorch": "snntorch",
    "spikingjelly": "spikingjelly",
    "tonic": "events",
}
"""Libraries that the site is built without, and the extra that installs each."""
DATA_FILES = {"read_recordings": "the recordings of spoken digits", "read_mnist": "the files of MNIST"}
"""Functions that read data files, and which ones."""
FIRST = "model_page.py"
"""The script that the gallery leads with; what it writes is a page, which needs a picture."""
PICTURES = {FIRST: [ROOT / "docs" / "images" / "explore-digits-wide-light.png"]}
"""Pictures of scripts that draw none, which tools take."""


def why_not(source: str) -> str | None:
    """Return why a script is not run when the site is built, or None if it is run."""
    tree = ast.parse(source)
    imported = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    imported += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    extras = sorted({EXTRAS[root] for module in imported if (root := module.split(".")[0]) in EXTRAS})
    if "cvxsnn.exchange.neurobench" in imported:
        extras = ["neurobench"]
    if extras:
        return f"It needs a library that is an extra: `pip install 'cvxsnn[{','.join(extras)}]'`."
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    files = [files for function, files in DATA_FILES.items() if function in names]
    return f"It needs {' and '.join(files)}." if files else None


def run(script: Path) -> Path:
    """Run a script if it, or the library, changed since the last time; return the folder with what it left behind."""
    digest = hashlib.sha256(script.read_bytes())
    for file in sorted((ROOT / "src").rglob("*.py")):
        digest.update(file.read_bytes())
    folder = KEPT / f"{script.stem}-{digest.hexdigest()[:16]}"
    if (folder / "printed.txt").exists():
        return folder
    for old in KEPT.glob(f"{script.stem}-*"):
        shutil.rmtree(old)
    folder.mkdir(parents=True)
    command = [sys.executable, str(script), *ARGUMENTS.get(script.name, [])]
    environment = {**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "110"}
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    if finished.returncode:
        raise RuntimeError(f"examples/{script.name} failed:\n{finished.stderr}")
    (folder / "printed.txt").write_text(finished.stdout)
    return folder


def write_gallery(folder: Path) -> None:
    """Write the index with pictures, and one page for every script."""
    cards: dict[str, list[str]] = {}
    lead: list[str] = []
    for script in sorted(EXAMPLES.glob("*.py")):
        source = script.read_text()
        title, text = describe(source)
        reason = why_not(source)
        shutil.copyfile(script, _folder(folder / "scripts") / script.name)
        lines = [f"# {title}", "", text, ""]
        pictures = []
        if reason:
            lines += [f"This script was not run when this page was made. {reason}", ""]
        else:
            left = run(script)
            for picture in [*sorted(left.rglob("*.png")), *PICTURES.get(script.name, [])]:
                name = f"{script.stem}-{picture.name}"
                shutil.copyfile(picture, _folder(folder / "images") / name)
                pictures.append(f"images/{name}")
            for page in sorted(left.rglob("*.html")):
                shutil.copyfile(page, _folder(folder / "pages") / page.name)
                lines += [f"[Open the page](pages/{page.name})", ""]
                lead += [f"[Open this page](pages/{page.name}), or see [how to make one](../explore.md).", ""]
            lines += [f"![What {script.name} draws]({picture})\n" for picture in pictures]
            lines += ["## What it prints", "", "```text", (left / "printed.txt").read_text().rstrip(), "```", ""]
        lines += ["## The script", "", f"[Download](scripts/{script.name})", ""]
        lines += [f"```{{literalinclude}} scripts/{script.name}", ":language: python", "```", ""]
        write(folder / f"{script.stem}.md", "\n".join(lines))
        note = "Shown, not run." if reason else ""
        cards[script.stem] = _card(script.stem, title, pictures[0] if pictures else None, note)
    notebooks = write_notebooks(folder)
    lines = ["# Gallery", "", "## A page about a model", ""]
    lines += ["Every model has a page, which answers when you click on it: what it confuses and why, what is proven,"]
    lines += ["which neurons matter, and what an answer costs.", "", *lead]
    picture = f"images/{Path(FIRST).stem}-{PICTURES[FIRST][0].name}"
    lines += [f"![The page about a model of handwritten digits]({picture})", ""]
    lines += ["## Notebooks", "", "Three paths from start to end.", ""]
    lines += _grid([line for entry in notebooks for line in _card(*entry)])
    lines += ["## Scripts", "", "The scripts in `examples/`, with what they print and draw.", ""]
    lines += _grid([line for own in cards.values() for line in own])
    lines += ["```{toctree}", ":hidden:", "", *(entry[0] for entry in notebooks), *cards, "```", ""]
    write(folder / "index.md", "\n".join(lines))


def describe(source: str) -> tuple[str, str]:
    """Return the first sentence of a script's docstring without its period, and the rest with commands as code."""
    first, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    paragraphs = [
        f"```console\n{paragraph}\n```" if paragraph.startswith("python ") else paragraph.replace("``", "`")
        for paragraph in re.split(r"\n\n+", rest.strip())
    ]
    return first.strip().removesuffix(".").replace("``", "`"), "\n\n".join(paragraphs)


def _card(page: str, title: str, picture: str | None, note: str = "") -> list[str]:
    lines = [f":::{{grid-item-card}} {title}", f":link: {page}", ":link-type: doc"]
    return [*lines, *([f":img-top: {picture}"] if picture else []), "", *([note] if note else []), ":::"]


def _grid(cards: list[str]) -> list[str]:
    return ["::::{grid} 1 2 3 3", ":gutter: 3", "", *cards, "::::", ""]


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path
