"""Runs the notebooks and writes their pages: python -m website.notebooks runs them again and keeps what they show.

The cells are run one after the other in one namespace, as Jupyter does; what is printed and the figures that are open
after a cell are its outputs. The tests run them too, and compare what is printed with what the files hold.
"""

import base64
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from .contents import ROOT
from .staging import write

NOTEBOOKS = ROOT / "notebooks"


def read(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a notebook."""
    return list(json.loads(path.read_text())["cells"])


def run_cell(source: str, namespace: dict[str, Any]) -> tuple[str, list[bytes]]:
    """Run a cell; return what it printed, and the figures that it left open, as PNG files."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<cell>", "exec"), namespace)
    pictures = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, format="png", dpi=80)
        pictures.append(file.getvalue())
    plt.close("all")
    return printed.getvalue(), pictures


def run(path: Path) -> None:
    """Run a notebook in an empty folder, and write its outputs into it."""
    notebook = json.loads(path.read_text())
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                printed, pictures = run_cell("".join(cell["source"]), namespace)
                cell["outputs"] = [_stream(printed)] if printed else []
                cell["outputs"] += [_picture(picture) for picture in pictures]
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def shown(cell: dict[str, Any]) -> str:
    """Return what a cell of a notebook holds as printed."""
    return "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")


def write_notebooks(folder: Path) -> list[tuple[str, str, str | None]]:
    """Write a page for every notebook; return name, title and first picture of each."""
    entries = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        lines: list[str] = []
        pictures: list[str] = []
        for cell in read(path):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                lines += [source, ""]
                continue
            lines += ["```python", source, "```", ""]
            if shown(cell):
                lines += ["```text", shown(cell).rstrip(), "```", ""]
            for output in cell["outputs"]:
                if output["output_type"] == "display_data":
                    name = f"notebook-{path.stem}-{len(pictures)}.png"
                    (folder / "images").mkdir(parents=True, exist_ok=True)
                    (folder / "images" / name).write_bytes(base64.b64decode(output["data"]["image/png"]))
                    pictures.append(f"images/{name}")
                    lines += [f"![What the cell draws](images/{name})", ""]
        (folder / "scripts").mkdir(parents=True, exist_ok=True)
        (folder / "scripts" / path.name).write_bytes(path.read_bytes())
        lines += [f"[Download this notebook](scripts/{path.name})", ""]
        write(folder / f"notebook-{path.stem}.md", "\n".join(lines))
        title = next(line for line in lines if line.startswith("# ")).splitlines()[0].removeprefix("# ")
        entries.append((f"notebook-{path.stem}", title, pictures[0] if pictures else None))
    return entries


def _stream(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def _picture(picture: bytes) -> dict[str, Any]:
    data = {"image/png": base64.b64encode(picture).decode()}
    return {"output_type": "display_data", "metadata": {}, "data": data}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for notebook_path in sorted(NOTEBOOKS.glob("*.ipynb")):
        run(notebook_path)
        print(f"ran {notebook_path.relative_to(ROOT)}")
