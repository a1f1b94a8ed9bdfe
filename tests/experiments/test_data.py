"""The experiments' files against the paper that they copy their numbers from."""

import json
import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from cvxsnn.data.tasks import make_task
from cvxsnn.experiments.experiment import RunConfig
from cvxsnn.experiments.files import all_runs, check_configurations, check_keys, experiment_names, load_experiment
from cvxsnn.experiments.ridge import METHOD as RIDGE
from cvxsnn.experiments.ridge import RidgeSettings
from cvxsnn.experiments.run import make_settings, ridge_settings
from cvxsnn.fitting import METHODS, Settings

PAPER = Path(__file__).parents[3] / "shared" / "paper" / "paper.tex"
NAMES = experiment_names()
BEYOND = ("beyond", "trained", "trained-addition", "records", "records-ablation", "records-neurons")
PAPERS = [name for name in NAMES if name not in BEYOND]
FIGURES = ["lambda-carry-base2", "lambda-carry-base3", "lambda-carry-base5"]

# P_rec and P_last, totals over all subnetworks; for addition the paper has them, for the rest the authors' scripts.
TOTAL_WIDTHS = {"addition": (256, 512), "first_last_xor": (500, 1000), "mnist_seq": (512, 1024)}


def paper_text():
    if not PAPER.exists():
        pytest.skip("the paper's source is not here")
    return PAPER.read_text(encoding="utf-8")


def paper_numbers(label):
    """The numbers in the bodies of a table's ``tabular``s, one list for each of them, one list a row."""
    text = paper_text()
    table = next(found for found in re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S) if label in found)
    return [
        [row for line in body.split(r"\\") if (row := numbers_in(line))]
        for body in re.findall(r"\\begin\{tabular\}.*?\\midrule(.*?)\\bottomrule", table, re.S)
    ]


def numbers_in(line):
    """The entries of one line of a table that are numbers, whatever their typesetting."""
    line = re.sub(r"\\textcolor\{\w+\}|\\textbf|\\!|[{}$]", "", line)
    line = re.sub(r"\\times10\^", "e", line)
    entries = [entry.split("\n")[-1].strip() for entry in line.split("&")]
    return [float(entry) for entry in entries if re.fullmatch(r"[\d.]+(e-?\d+)?", entry)]


def numbers_of(name):
    return [cell.paper for cell in load_experiment(name).cells if not is_extra(cell)]


def is_extra(cell):
    """Whether the paper does not have the cell's column: it repeats one that it has, wider or by one method only."""
    return "twice as wide" in cell.column or "sampled witnesses only" in cell.column or "with delays" in cell.column


def file_of(name):
    folder = resources.files("cvxsnn.experiments") / "data"
    (file,) = (file for file in folder.iterdir() if re.fullmatch(rf"\d\d-{name}\.toml", file.name))
    return tomllib.loads(file.read_text(encoding="utf-8"))


def configs_of(name, scale="paper"):
    return list(load_experiment(name, scale).runs().values())


def makes_settings(config):
    if config.method == RIDGE:
        return isinstance(ridge_settings(config)[1], RidgeSettings)
    return isinstance(make_settings(config), Settings)


def depth_of(row):
    found = re.search(r"L = (\d+)", row)
    return int(found[1]) if found else 3


def test_there_is_a_file_for_every_table_and_figure_in_the_order_of_the_paper():
    assert NAMES == [
        "duality-gap",
        "main-table",
        "addition-ood",
        "xor-depth",
        "xor-timestep",
        "mnist-depth",
        "mnist-timestep",
        "training-size",
        "lambda-carry-base2",
        "lambda-carry-base3",
        "lambda-carry-base5",
        "direct-addition",
        "beyond",
        "trained",
        "trained-addition",
        "records",
        "records-ablation",
        "records-neurons",
    ]


@pytest.mark.parametrize("scale", ["paper", "smoke"])
@pytest.mark.parametrize("name", NAMES)
def test_a_file_loads_at_either_scale_and_no_two_cells_share_a_place(name, scale):
    experiment = load_experiment(name, scale)
    places = [(cell.row, cell.column) for cell in experiment.cells]
    assert len(set(places)) == len(places) > 0
    assert experiment.title
    assert experiment.description
    assert all(method in (*METHODS, RIDGE) for cell in experiment.cells for method in cell.methods)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_has_no_key_that_nothing_reads(name):
    parts = {"task", "family", "objective", "surrogate", "convex"}
    data = file_of(name)
    optional = {"axis", "digits", "tolerance", "compared_with"}
    assert data.keys() <= {"title", "kind", "quantity", "description", "defaults", "smoke", "cell"} | optional
    assert data["defaults"].keys() <= parts | {"seeds", "methods", "metric"}
    afresh = {f"replace_{part}" for part in parts}
    assert data["smoke"].keys() <= parts | afresh | {"seeds", "every", "only"}
    for cell in data["cell"]:
        assert cell.keys() <= parts | afresh | {"row", "column", "metric", "paper", "methods", "seeds", "note"}


@pytest.mark.parametrize("name", NAMES)
def test_seeds_are_the_papers(name):
    assert all(list(cell.configs) == [0, 1, 2] for cell in load_experiment(name).cells if cell.methods != (RIDGE,))


def test_numbers_of_the_duality_gap_table_are_the_papers():
    (rows,) = paper_numbers("tab:duality_gap")
    cells = load_experiment("duality-gap").cells
    assert [cell.row for cell in cells[::2]] == [f"K = {row[0]:g}" for row in rows]
    assert [cell.paper for cell in cells[::2]] == pytest.approx([row[1] / 100 for row in rows], rel=1e-12)
    assert [cell.paper for cell in cells[1::2]] == [row[4] for row in rows]


@pytest.mark.parametrize(
    ("name", "label", "part", "n_columns"),
    [
        ("main-table", "tab:main}", 0, 2),
        ("addition-ood", "tab:ood_methods", 0, 4),
        ("xor-depth", "tab:abl_xor", 0, 2),
        ("xor-timestep", "tab:abl_xor", 1, 2),
        ("mnist-depth", "tab:mnist_ablation", 0, 2),
        ("mnist-timestep", "tab:mnist_ablation", 1, 2),
        ("training-size", "tab:abl_ntrain", 0, 4),
    ],
)
def test_numbers_of_a_table_are_the_papers_row_by_row(name, label, part, n_columns):
    rows = paper_numbers(label)[part]
    assert numbers_of(name) == [number for row in rows for number in row[-n_columns:]]
    headed = [row[0] for row in rows if len(row) > n_columns]
    if headed:  # rows that begin with a number: the depth, the time steps, the size
        names = list(dict.fromkeys(cell.row for cell in load_experiment(name).cells))
        assert [float(row.split("=")[1]) for row in names] == headed


def test_rows_of_the_main_table_and_of_longer_sums_stand_in_the_papers_order():
    text = paper_text()
    rows = list(dict.fromkeys(cell.row for cell in load_experiment("main-table").cells))
    printed = re.findall(r"\\textsc\{([^}]+)\}(?:\\textsubscript\{Base-(\d)\})?\s*& \$T=(\d+)\$", text)
    for row, (task, base, n_steps) in zip(rows, printed, strict=True):
        assert f"{task} base {base}".lower() in row if base else task in row
        assert row.endswith(f"T = {n_steps}")
    methods = list(dict.fromkeys(cell.row for cell in load_experiment("addition-ood").cells))
    assert methods == [f"base {base}, {method}" for base in (3, 5) for method in ("SG", "SG-SG", "CVX", "SG-CVX")]


def test_figures_sweep_the_papers_carry_weights_and_have_no_numbers():
    listed = re.search(r"lambda_\{\\mathrm\{carry\}\}\s*\\in\s*\\\{([\d.,]+)\\\}", paper_text())
    weights = [float(weight) for weight in listed[1].split(",")]
    for name in FIGURES:
        experiment = load_experiment(name)
        assert experiment.kind == "figure"
        assert set(numbers_of(name)) == {None}
        for row in {cell.row for cell in experiment.cells}:
            curve = [cell for cell in experiment.cells if cell.row == row]
            assert [float(cell.column) for cell in curve] == weights
            assert [cell.configs[0][0].objective["head_weights"]["carry"] for cell in curve] == weights


def test_sizes_of_addition_are_the_papers():
    text = paper_text()
    found = re.search(r"L=(\d+).*?P_\{\\mathrm\{rec\}\}=(\d+).*?P_\{\\mathrm\{last\}\}=(\d+).*?K=(\d+)", text)
    assert tuple(map(int, found.groups())) == (3, *TOTAL_WIDTHS["addition"], 2)
    for config in configs_of("addition-ood"):
        for argument, pattern in {
            "n_train": r"n_\{\\mathrm\{train,pre\}\}=(\d+)",
            "n_val": r"n_\{\\mathrm\{val,pre\}\}=(\d+)",
            "n_test": r"n_\{\\mathrm\{test\}\}=(\d+)",
            "n_test_ood": r"n_\{\\mathrm\{test,ood\}\}=(\d+)",
            "n_digits": r"n_\{\\mathrm\{digits\}\}=(\d+)",
        }.items():
            assert config.task[argument] == int(re.search(pattern, text)[1])


@pytest.mark.parametrize("name", PAPERS)
def test_subnetworks_share_out_the_papers_widths_at_the_depth_that_the_row_states(name):
    for cell in load_experiment(name).cells:
        for config in (own for own in cell.configs[0] if own.method != RIDGE):
            k, hidden = config.family["n_subnetworks"], config.family["hidden"]
            recurrent, last = (128, 512) if "duality-gap" in name else TOTAL_WIDTHS[config.task["name"]]
            total = [recurrent] * (depth_of(cell.row) - 2) + [last]
            factor = 2 if "twice as wide" in cell.column else 1
            assert [k * width for width in hidden] == [width * factor for width in total]


def test_extra_columns_repeat_the_papers_numbers():
    cells = {(cell.row, cell.column): cell for cell in load_experiment("training-size").cells}
    extra = [cell for cell in cells.values() if is_extra(cell)]
    assert len(extra) == 10
    for cell in extra:
        own = cells[cell.row, cell.column.replace(" twice as wide", "")]
        assert (cell.paper, cell.metric, cell.methods) == (own.paper, own.metric, own.methods)
        assert {**cell.configs[0][0].as_dict(), "family": None} == {**own.configs[0][0].as_dict(), "family": None}


@pytest.mark.parametrize("name", ["mnist-depth", "mnist-timestep"])
def test_columns_of_sampled_witnesses_repeat_the_papers_numbers(name):
    cells = {(cell.row, cell.column): cell for cell in load_experiment(name).cells}
    extra = [cell for cell in cells.values() if is_extra(cell) and cell.methods != (RIDGE,)]
    assert {cell.row for cell in extra} == {row for row, _ in cells}
    for cell in extra:
        own = cells[cell.row, "CVX"]
        assert (cell.paper, cell.metric, cell.methods) == (own.paper, own.metric, ("cvx",))
        assert {**cell.configs[0][0].as_dict(), "convex": None, "method": None} == {
            **own.configs[0][0].as_dict(),
            "convex": None,
            "method": None,
        }


@pytest.mark.parametrize("name", PAPERS)
def test_deep_networks_try_a_wider_surrogate_too(name):
    for config in (own for own in configs_of(name) if own.method != RIDGE):
        assert ("steepness" in config.surrogate) == (len(config.family["hidden"]) + 1 >= 10)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_passes_the_checks_of_files_and_its_configurations_make_settings(name):
    check_keys(file_of(name), name)
    check_configurations(load_experiment(name), name)
    for config in configs_of(name):
        assert makes_settings(config)


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_configuration_is_small_needs_no_file_and_makes_a_task_that_has_its_metric(name):
    for cell in load_experiment(name, "smoke").cells:
        assert list(cell.configs) == [0]
        for config in cell.configs[0]:
            assert config.task["name"] != "mnist_seq"
            assert makes_settings(config)
            task = make_task(**config.task, seed=config.seed)
            assert task.train.n_samples <= (1000 if task.name == "digits_seq" else 256)
            own = {"sequence"} if task.feedback is not None else set()
            assert cell.metric in {"test", "val", "gap", *task.ood, *own}


@pytest.mark.parametrize("name", NAMES)
def test_a_smoke_run_has_every_column_and_every_method(name):
    whole, small = load_experiment(name), load_experiment(name, "smoke")
    assert {cell.column for cell in small.cells} == {cell.column for cell in whole.cells}
    assert {run.method for run in small.runs().values()} == {run.method for run in whole.runs().values()}


@pytest.mark.parametrize("scale", ["paper", "smoke"])
def test_a_runs_id_survives_its_record(scale):
    runs = all_runs(NAMES, scale)
    for run_id, config in runs.items():
        stored = json.loads(json.dumps(config.as_dict(), sort_keys=True))
        assert RunConfig(**dict(reversed(stored.items()))).id == run_id
    assert all_runs(NAMES, scale).keys() == runs.keys()


def test_cells_of_equal_settings_share_their_runs_across_files():
    def ids(name, row):
        cells = [cell for cell in load_experiment(name).cells if cell.row == row and not is_extra(cell)]
        runs = [c for cell in cells for configs in cell.configs.values() for c in configs]
        return {c.id for c in runs if c.method in ("cvx", "sg")}

    def carry_weight_one(name):
        cells = [cell for cell in load_experiment(name).cells if cell.column == "1"]
        return {c.id for cell in cells for configs in cell.configs.values() for c in configs}

    assert ids("xor-depth", "L = 3") == ids("xor-timestep", "T = 6")
    for depth in (3, 10):
        assert ids("xor-depth", f"L = {depth}") == ids("main-table", f"L = {depth}, first-last-XOR, T = 6")
        assert ids("mnist-depth", f"L = {depth}") == ids("main-table", f"L = {depth}, MNIST-Seq, T = 2")
    assert ids("xor-timestep", "T = 14") == ids("main-table", "L = 3, first-last-XOR, T = 14")
    assert ids("training-size", "n_train = 2304") == ids("main-table", "L = 3, addition base 2, T = 6")
    main = load_experiment("main-table").runs().keys()
    assert load_experiment("addition-ood").runs().keys() <= main
    assert all(carry_weight_one(name) <= main for name in FIGURES)
