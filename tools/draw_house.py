"""Draw the house from the tree and the import graph: rooms as floors, their files in them, imports as arcs.

python tools/draw_house.py docs/images/house.png
"""

import sys
import tomllib
from collections import Counter
from pathlib import Path

import grimp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Rectangle

PACKAGE = "cvxsnn"
PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src" / PACKAGE

WIDTH, ROW, GAP = 100.0, 2.0, 1.2
INK, WALL, FOLDER, ROOM, UPWARD = "#222222", "#9aa5b1", "#dfe7ef", "#f5f7fa", "#c0392b"
ARCS = plt.get_cmap("viridis")


def floors() -> list[str]:
    """Return the rooms from the top down, as the layers in pyproject.toml list them."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return [layer.removeprefix(f"{PACKAGE}.") for layer in contracts[0]["layers"]]


def imports_between_rooms() -> Counter[tuple[str, str]]:
    """Return how many modules of one room import one of another."""
    graph, rooms = grimp.build_graph(PACKAGE), set(floors())
    between: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            pair = room_of(module), room_of(imported)
            if rooms.issuperset(pair) and pair[0] != pair[1]:
                between[pair] += 1
    return between


def room_of(module: str) -> str:
    """Return the room of a module: the folder, or a module of the package itself, which is no room."""
    return module.partition(".")[2].partition(".")[0]


def purpose(room: str) -> str:
    """Return the first line of the room's docstring."""
    lines = (SOURCE / room / "__init__.py").read_text().splitlines()
    return lines[0].strip('"') if lines else ""


def contents(room: str) -> list[tuple[str, list[str]]]:
    """Return the files of a room and of each of its folders."""
    groups: dict[str, list[str]] = {}
    for path in sorted((SOURCE / room).rglob("*.py")):
        if path.stem != "__init__":
            folder = path.parent.relative_to(SOURCE / room).as_posix()
            groups.setdefault("" if folder == "." else folder, []).append(path.stem)
    return sorted(groups.items())


def draw(axes: Axes) -> None:
    """Draw every floor, then the imports between them."""
    top, middles = 0.0, {}
    order = floors()
    for room in order:
        bottom = draw_room(axes, room, top)
        middles[room] = (top + bottom) / 2
        top = bottom - GAP
    between = imports_between_rooms()
    most = max(between.values())
    for (importer, imported), n_imports in sorted(between.items(), key=lambda item: item[1]):
        start, end = middles[importer], middles[imported]
        is_upward = order.index(importer) > order.index(imported)
        distance = abs(order.index(importer) - order.index(imported))
        axes.add_patch(
            FancyArrowPatch(
                (WIDTH, start),
                (WIDTH, end),
                connectionstyle=f"arc3,rad={0.25 if is_upward else -0.55}",
                arrowstyle="-|>",
                mutation_scale=7,
                linewidth=1.2 if is_upward else 0.4 + 3.2 * n_imports / most,
                color=UPWARD if is_upward else ARCS(0.15 + 0.07 * distance),
                alpha=0.75,
            )
        )
    axes.set_xlim(-1, WIDTH + 44)
    axes.set_ylim(top, 1.5)
    axes.set_axis_off()
    upward = [importer for importer, imported in between if order.index(importer) > order.index(imported)]
    words = "imports go down, but for those in red" if upward else "imports: all of them go down"
    axes.text(WIDTH + 43, 0.6, words, ha="right", fontsize=9, color=INK)


def draw_room(axes: Axes, room: str, top: float) -> float:
    """Draw one floor; return where it ends."""
    x, y = 1.0, top - 3.4
    for folder, names in contents(room):
        if folder:
            x, y = 1.0, (y - ROW if x > 1.0 else y)
            axes.text(x, y, f"{folder}/", fontsize=7.5, weight="bold", color=INK, va="center")
            x += 3.0 + 0.95 * len(folder)
        for name in names:
            width = 1.6 + 0.93 * len(name)
            if x + width > WIDTH - 1:
                x, y = 1.0, y - ROW
            axes.add_patch(Rectangle((x, y - 0.7), width, 1.4, facecolor=FOLDER, edgecolor=WALL, linewidth=0.5))
            axes.text(x + width / 2, y, name, fontsize=6.5, ha="center", va="center", color=INK)
            x += width + 0.6
    bottom = y - 1.3
    axes.add_patch(Rectangle((0, bottom), WIDTH, top - bottom, facecolor=ROOM, edgecolor=INK, linewidth=1.2, zorder=-1))
    axes.text(1, top - 1.3, f"{room}/", fontsize=11, weight="bold", va="center", color=INK)
    axes.text(19, top - 1.3, purpose(room), fontsize=8, va="center", color=INK)
    return bottom


def main(path: str) -> None:
    """Write the picture."""
    figure, axes = plt.subplots(figsize=(13, 15))
    draw(axes)
    figure.savefig(path, dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:])
