"""Tables and the picture of the convex solvers, made from the records alone."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from .measure import console, describe_machine, make_table, verdict
from .peers import CONTENDERS, EVERY_LOSS, GOAL, OUR_PATH, OURS

Record = dict[str, Any]
"""How one contender did on one problem: see ``measure`` in :mod:`benchmarks.solvers`."""

Problem = tuple[str, str, float, int]
"""Dictionary, loss, strength of the quadratic, and what the critical strength is divided by (0: no L1 norm)."""

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "benchmarks" / "results" / "solvers.jsonl"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PICTURE = ROOT / "docs" / "images" / "gap-against-time.png"

PATH_GOAL = 3.0
"""Single solves that a path may cost."""

PICTURED_RATIO = 100
SMALLEST_PICTURED_GAP = 1e-12

METHOD = f"""Seconds to a certified relative gap of {GOAL:g}, judged for everybody by `cvxsnn.certify` in float64 on the
original problem, without an intercept. Everybody works in a fresh process with the default threads, after solving a toy
once. Ours is timed from the packed dictionary to the certified solution; the others get its distinct columns as a dense
float64 matrix. They go through tightening tolerances, and only the first fit that reaches the gap counts, by itself.
"> t" means that the time limit came first, and that a fit had lasted t seconds without reaching the gap; "never" that
the tightest tolerance ended short of it; each with the best gap reached. "(Gram)" starts from the Gram matrix, whose
time counts, as LARS does where there are more rows than atoms; "(dual)" is the linear program's dual, which we wrote
down for HiGHS. adelie has no part in softmax: its penalty groups the classes.
"""

ELASTIC_METHOD = """The same measurement with s times the L1 norm plus r/2 times the sum of squares; s = 0 is ridge. For
each dictionary and loss, r is a power of ten near the best for ridge on validation data, and ten times that. "Counts"
are mean spike counts of MNIST in 28 steps; their squared loss has ten outputs. "> t" means that no peer reached the gap
within the time limit, and that the first to be cut off had then fitted for t seconds. Clarabel takes part on addition3
only, adelie in softmax for ridge only.
"""


def goal_for(dictionary: str, loss: str, ratio: int) -> float:
    """How many times as fast as the fastest peer ours should be at least."""
    if loss == "squared":
        return 50.0 if dictionary == "addition3" and ratio >= 100 else 1.0
    return 3.0 if loss == "hinge" else 10.0


def read_records(path: Path = RECORDS) -> list[Record]:
    """All records, from the oldest to the newest; the first ones knew no elastic nets."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [{"penalty": "l1", "l2": 0.0, **json.loads(line)} for line in lines]


def select(records: Sequence[Record], penalty: str) -> list[Record]:
    """The records of one penalty."""
    return [record for record in records if record["penalty"] == penalty]


def append_record(record: Record, path: Path = RECORDS) -> None:
    """Write one record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")


def latest(records: Sequence[Record]) -> dict[tuple[str, str, float, int, str], Record]:
    """The newest record of each problem and contender, all of the machine of the newest: others cannot be compared."""
    newest = {
        tuple(record[name] for name in ("dictionary", "loss", "l2", "ratio", "contender")): record
        for record in records
        if record["machine"] == records[-1]["machine"]
    }
    order = list(CONTENDERS)
    return dict(
        sorted(newest.items(), key=lambda item: (item[0][0], EVERY_LOSS.index(item[0][1]), order.index(item[0][4])))
    )


def best_gap(record: Record) -> float:
    """The smallest certified gap of all fits."""
    return min((fit["relative_gap"] for fit in record["fits"]), default=math.inf)


def seconds_to_goal(record: Record) -> float:
    """Seconds of the fit that reached the goal, the shortest if it was repeated; infinite if none did."""
    return min((fit["seconds"] for fit in record["fits"] if fit["relative_gap"] <= GOAL), default=math.inf)


def least_seconds(record: Record) -> float:
    """What reaching the goal takes at least: as long as the fits that missed it, and the one that was cut off."""
    if record["outcome"] != "limit":
        return seconds_to_goal(record)
    return max(record["unfinished_seconds"], *(fit["seconds"] for fit in record["fits"]), 0.0)


def describe(record: Record) -> str:
    """One cell: seconds and gap, or how far it came."""
    gap = best_gap(record)
    if record["outcome"] == "reached":
        return f"{seconds_to_goal(record):.3g} s (gap {gap:.0e})"
    if record["outcome"] == "limit":
        return f"> {least_seconds(record):.0f} s " + (f"(gap {gap:.0e})" if record["fits"] else "(no fit ended)")
    if record["outcome"] == "stopped":
        return f"never (gap {gap:.0e} in {sum(fit['seconds'] for fit in record['fits'][-1:]):.3g} s)"
    return f"failed ({record['complaints'][-1][:60].replace('|', '/') if record['complaints'] else 'no reason given'})"


def describe_strengths(record: Record) -> str:
    """Both strengths, that of the L1 norm as a part of the critical one."""
    norm = f"critical / {record['ratio']}" if record["ratio"] else "s = 0"
    return f"{norm}, r = {record['l2']:g}" if record["l2"] else norm


def compare(ours: Record | None, peers: Sequence[Record], goal: float) -> str:
    """How many times as long as ours the fastest peer takes, beside the goal."""
    if ours is None or not peers or ours["outcome"] != "reached":
        return ""
    seconds, least = min(map(seconds_to_goal, peers)), min(map(least_seconds, peers))
    if math.isinf(least):
        return verdict("no peer gets there", f"{goal:g} ×", True)
    ratio = least / seconds_to_goal(ours)
    if least < seconds and ratio < goal:  # a peer that was cut off might have been the fastest
        return f"≥ {ratio:.1f} × (goal {goal:g} ×: open, raise the limit)"
    return verdict(f"{'≥ ' if least < seconds else ''}{ratio:.1f} ×", f"{goal:g} ×", ratio >= goal)


def tabulate(records: Sequence[Record]) -> list[tuple[str, list[list[str]]]]:
    """Title and rows of a table for each problem: header first, then ours, the peers, and the comparison."""
    newest = {(*key[:2], *key[3:]): record for key, record in latest(records).items()}
    tables = []
    for dictionary, loss in dict.fromkeys(key[:2] for key in newest):
        here = {key[2:]: record for key, record in newest.items() if key[:2] == (dictionary, loss)}
        ratios = sorted({ratio for ratio, _ in here})
        names = [name for name in dict.fromkeys(name for _, name in here) if name not in (OURS, OUR_PATH)]
        rows = [["", *(f"critical / {ratio}" for ratio in ratios)]]
        for name in (OURS, *names):
            rows.append([name, *(describe(here[ratio, name]) if (ratio, name) in here else "" for ratio in ratios)])
        last = ["fastest peer / ours"]
        for ratio in ratios:
            peers = [here[ratio, name] for name in names if (ratio, name) in here]
            last.append(compare(here.get((ratio, OURS)), peers, goal_for(dictionary, loss, ratio)))
        rows.append(last)
        n_rows, n_atoms = next(iter(here.values()))["shape"]
        tables.append((f"{dictionary}, {loss}, {n_rows:,} × {n_atoms:,}", rows))
    return tables


def tabulate_elastic(records: Sequence[Record]) -> list[list[str]]:
    """Rows of one table, header first: a problem with our time, the fastest peer, and how many times as long it takes.

    A peer whose fits ended short of the goal at every tolerance is out; one that was cut off takes at least that long.
    """
    rows = [["", "s", "r", "cvxsnn", "fastest peer", "", "peer / cvxsnn"]]
    by_problem: dict[Problem, dict[str, Record]] = {}
    for (*problem, contender), record in latest(records).items():
        by_problem.setdefault(tuple(problem), {})[contender] = record
    for dictionary, loss, l2_strength, ratio in sorted(
        by_problem, key=lambda problem: (problem[0], EVERY_LOSS.index(problem[1]), *problem[2:])
    ):
        contenders = by_problem[dictionary, loss, l2_strength, ratio]
        ours = contenders.pop(OURS, None)
        n_rows, n_atoms = (ours or next(iter(contenders.values())))["shape"]
        title = f"{dictionary}, {loss}, {n_rows:,} × {n_atoms:,}"
        norm = f"critical / {ratio}" if ratio else "0"
        own = describe(ours) if ours else ""
        rows.append([title, norm, f"{l2_strength:g}", own, *_fastest_peer(ours, contenders)])
    return rows


def _fastest_peer(ours: Record | None, peers: dict[str, Record]) -> tuple[str, str, str]:
    """Name and seconds of the peer that reached the goal first, and their ratio to ours."""
    least = min(map(least_seconds, peers.values()), default=math.inf)
    if math.isinf(least):
        return ("none", "", "")
    fastest = min(peers, key=lambda name: (seconds_to_goal(peers[name]), least_seconds(peers[name])))
    seconds = seconds_to_goal(peers[fastest])
    is_bound = least < seconds  # no peer got there, or one that was cut off might have been faster
    if ours is None or ours["outcome"] != "reached":
        ratio = ""
    else:
        ratio = f"{'≥ ' if is_bound else ''}{least / seconds_to_goal(ours):.2g} ×"
    return ("none", f"> {least:.0f} s", ratio) if math.isinf(seconds) else (fastest, describe(peers[fastest]), ratio)


def describe_path(records: Sequence[Record]) -> list[str]:
    """One sentence for each path measured."""
    newest = latest(records)
    sentences = []
    for (dictionary, loss, l2_strength, ratio, name), record in newest.items():
        single = newest.get((dictionary, loss, l2_strength, ratio, OURS))
        if name == OUR_PATH and single and {record["outcome"], single["outcome"]} == {"reached"}:
            seconds = seconds_to_goal(record)
            cost = seconds / seconds_to_goal(single)
            judged = verdict(f"{cost:.1f} single solves", f"fewer than {PATH_GOAL:g}", cost < PATH_GOAL)
            sentences.append(
                f"{dictionary}, {loss}: {name} strengths down to critical / {ratio} takes {seconds:.2f} s, {judged}."
            )
    return sentences


def render_markdown(records: Sequence[Record], picture: str) -> str:
    """The section of the results page."""
    parts = ["## Convex solvers"]
    if own := select(records, "l1"):
        parts += [METHOD.strip(), describe_setting(own)]
        for title, rows in tabulate(own):
            parts += [f"### {title}", markdown_table(rows)]
        parts += describe_path(own)
        parts.append(f"![Certified gap against time at critical / {PICTURED_RATIO}]({picture})")
    if own := select(records, "elastic-net"):
        parts += ["### Elastic nets", ELASTIC_METHOD.strip(), describe_setting(own)]
        parts.append(markdown_table(tabulate_elastic(own)))
    return "\n\n".join(parts).replace("[bold]", "**").replace("[/bold]", "**")


def describe_setting(records: Sequence[Record]) -> str:
    """Machine and versions of the newest record."""
    versions = ", ".join(f"{name} {number}" for name, number in records[-1]["versions"].items())
    return f"{describe_machine(records[-1]['machine'])}. {versions}."


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is the header."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines.insert(1, "|---" + "|---:" * (len(rows[0]) - 1) + "|")
    return "\n".join(lines)


def write_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Put the section of a benchmark where it was on the page, or at its end."""
    page = path.read_text() if path.exists() else "# Benchmark results\n"
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before.rstrip()}\n\n{begin}\n{text}\n{end}\n\n{after.lstrip()}".rstrip() + "\n")


COLOURS = {
    "cvxsnn": "black",
    "scikit-learn": "tab:orange",
    "celer": "tab:green",
    "skglm": "tab:blue",
    "adelie": "tab:purple",
    "Clarabel": "tab:red",
    "HiGHS": "tab:brown",
}
"""One for each package; its variants differ in their markers."""

MARKERS = {"x (dual)": "D", "(Gram)": "s", "(dual)": "s", "LARS": "*", "liblinear": "^", "simplex": "v", "saga": "o"}


def draw(records: Sequence[Record], path: Path = PICTURE) -> None:
    """Draw certified gaps against seconds, a panel for each problem."""
    newest = {key: record for key, record in latest(records).items() if key[3] == PICTURED_RATIO}
    problems = list(dict.fromkeys(key[:2] for key in newest))
    if not problems:
        return
    n_columns = min(3, len(problems))
    n_rows = math.ceil(len(problems) / n_columns)
    figure, grid = plt.subplots(
        n_rows,
        n_columns,
        figsize=(4.2 * n_columns, 3.2 * n_rows + 1.2),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for axes in grid.flat[len(problems) :]:
        axes.set_axis_off()
    for axes, problem in zip(grid.flat, problems, strict=False):
        here = [record for key, record in newest.items() if key[:2] == problem and key[4] != OUR_PATH]
        for record in here:
            draw_contender(axes, record)
        axes.axhline(GOAL, color="0.6", linewidth=0.8, linestyle="--")
        axes.set(xscale="log", yscale="log", ylim=(0.3 * SMALLEST_PICTURED_GAP, 3))
        decades = [math.log10(seconds) for seconds in axes.get_xlim()]
        axes.set_xlim(10.0 ** math.floor(decades[0]), 10.0 ** math.ceil(decades[1]))
        n_rows, n_atoms = here[0]["shape"]
        axes.set(title=f"{', '.join(problem)}, {n_rows:,} × {n_atoms:,}", xlabel="seconds")
    for axes in grid[:, 0]:
        axes.set_ylabel("certified relative gap")
    handles = {text: line for axes in grid.flat for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = [name for name in CONTENDERS if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_contender(axes: Axes, record: Record) -> None:
    """All fits; of ours what it knew on the way and, starred, the certificate. An arrow ends what the limit cut off."""
    name = record["contender"]
    misses = [fit for fit in record["fits"] if fit["relative_gap"] > GOAL]
    reached = sorted((fit for fit in record["fits"] if fit["relative_gap"] <= GOAL), key=lambda fit: fit["seconds"])
    fits = [*misses, *reached[:1]]
    points = [(fit["seconds"], fit["relative_gap"]) for fit in fits]
    colour = next(colour for package, colour in COLOURS.items() if name.startswith(package))
    marker = next((marker for word, marker in MARKERS.items() if word in name), ".")
    style = {"linewidth": 1, "markersize": 5}
    if name == OURS and reached:
        axes.plot(*_columns(points[-1:]), "*", color=colour, markersize=14, zorder=3)
        points = [*map(tuple, reached[0]["history"]), points[-1]]
        style = {"linewidth": 2, "zorder": 3}
    axes.plot(*_columns(points), marker=marker, color=colour, label=name, **style)
    if record["outcome"] == "limit":
        end = (least_seconds(record), min(best_gap(record), 1.0))
        axes.plot(*_columns([*points[-1:], end]), ":", color=colour, linewidth=1)
        axes.plot(*_columns([end]), ">", color=colour, fillstyle="none")


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [seconds for seconds, _ in points], [max(gap, SMALLEST_PICTURED_GAP) for _, gap in points]


def render() -> None:
    """Print all tables; write the section of the results page and the picture."""
    records = read_records()
    if not records:
        console.print(f"Solvers: no records in {RECORDS}.")
        return
    goal = f"Seconds to a certified relative gap of {GOAL:g}"
    own = select(records, "l1")
    tables = [(f"{goal}: {title}", rows) for title, rows in tabulate(own)]
    if elastic := select(records, "elastic-net"):
        tables.append((f"{goal}: elastic nets", tabulate_elastic(elastic)))
    for title, (header, *rows) in tables:
        table = make_table(title, *header)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for sentence in describe_path(own):
        console.print(sentence)
    draw(own)
    write_section("solvers", render_markdown(records, Path("..", PICTURE.relative_to(ROOT)).as_posix()))
