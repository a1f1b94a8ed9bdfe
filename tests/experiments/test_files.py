"""Experiment files of one's own load like the package's, and errors are one sentence with the file and the key."""

import re
from pathlib import Path

import pytest
from small_models import assert_one_sentence

from cvxsnn.core.errors import CvxsnnError
from cvxsnn.experiments.files import all_runs, experiment_names, load_experiment
from cvxsnn.experiments.run import execute, make_settings
from cvxsnn.witnesses import Uniform

MINE = """
title = "Mine"

[[cell]]
row = "XOR"
column = "CVX"
task = { n_steps = 3 }

[[cell]]
row = "digits"
column = "CVX"
replace_task = { name = "digits_seq", n_steps = 4 }
objective = { loss = "softmax", readout = "mean" }

[defaults]
seeds = [0, 1]
task = { name = "first_last_xor", n_train = 24, n_val = 12, n_test = 12 }
family = { hidden = [6, 8], decay = 0.9 }
objective = { loss = "hinge" }
convex = { n_strengths = 3 }

[smoke]
family = { hidden = [8] }
"""


def write(tmp_path, text=MINE):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_file_of_ones_own_is_loaded_at_both_scales(tmp_path):
    path = write(tmp_path)
    whole, small = load_experiment(path), load_experiment(path, "smoke")
    assert (whole.name, whole.title, whole.reference) == ("mine", "Mine", path)
    assert [config.task["name"] for config in whole.runs().values()] == ["first_last_xor"] * 2 + ["digits_seq"] * 2
    assert [config.family["hidden"] for config in small.runs().values()] == [[8], [8]]
    assert len(all_runs([path, "duality-gap"], "smoke")) == 5


DELAYED = """family = { hidden = [6], geometry = "scattered", fan_in = "all", quantiles = [0.05, 0.95], max_delay = 2,
  decay = { distribution = "uniform", low = 0.0, high = 0.9 } }""".replace("\n", " ")


def test_a_family_with_delays_is_read_and_run(tmp_path):
    text = MINE.replace("family = { hidden = [6, 8], decay = 0.9 }", DELAYED)
    experiment = load_experiment(write(tmp_path, text))
    config = next(iter(experiment.runs().values()))
    family = make_settings(config).family
    assert family["quantiles"] == (0.05, 0.95)
    assert family["fan_in"] is None
    assert family["decay"] == Uniform(0.0, 0.9)
    assert execute(config)["status"] == "done"
    without = text.replace("quantiles = [0.05, 0.95]", 'quantiles = "none"')
    config = next(iter(load_experiment(write(tmp_path, without)).runs().values()))
    assert make_settings(config).family["quantiles"] is None


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (
            'geometry = "scattered"',
            "gain = 1.0",
            r"among hidden, .* in .*mine\.toml, .*, table family, got 'quantiles'",
        ),
        ("quantiles", "quantile", r"among hidden, .*quantiles, .* in .*mine\.toml, .*, table family, got 'quantile'"),
        ("hidden = [6], ", "", r"expected a key 'hidden' in .*mine\.toml, .*, table family, found none"),
    ],
)
def test_errors_in_a_family_with_delays_are_one_sentence(tmp_path, old, new, complaint):
    text = MINE.replace("family = { hidden = [6, 8], decay = 0.9 }", DELAYED.replace(old, new))
    with pytest.raises(CvxsnnError, match=complaint) as caught:
        load_experiment(write(tmp_path, text))
    assert_one_sentence(caught.value)


def test_the_example_of_the_documentation_is_a_file_that_loads(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(load_experiment(write(tmp_path, example)).runs()) == 6


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('title = "Mine"', "", r"expected a key 'title' in .*mine\.toml, found none"),
        (
            'title = "Mine"',
            'title = "Mine"\nbudget = 3',
            r"among title, .* in .*mine\.toml, got 'budget'",
        ),
        ('title = "Mine"', 'title = "Mine"\nkind = "poem"', r"expected kind 'table' or 'figure' in .*, got 'poem'"),
        ("decay = 0.9", "decay = 1979-05-27", r"numbers, text, .* key 'decay', got '1979-05-27'"),
        ("n_steps = 3", "n_steps = [07:32:00]", r"numbers, text, lists and tables in .*mine\.toml, .*, got '07:32:00'"),
        ('row = "XOR"', "", r"expected a key 'row' in .*mine\.toml, cell 1, found none"),
        ('row = "XOR"', 'row = "XOR"\nseed = 3', r"in .*mine\.toml, cell 1, got 'seed'"),
        ("seeds = [0, 1]", "seeds = 3", r"expected 'seeds' to be a list in .*mine\.toml, \[defaults\], got 3"),
        ('objective = { loss = "hinge" }', "objective = 3", r"expected 'objective' to be a table in .*, got 3"),
        ('objective = { loss = "hinge" }', "", r"expected a key 'loss' in .*mine\.toml, cell 'XOR', 'CVX', found none"),
        (
            '"first_last_xor"',
            '"sums"',
            r"expected task to be one of 'addition', .*, got 'sums' \(in .*mine\.toml, cell 'XOR'",
        ),
        ('name = "first_last_xor", ', "", r"expected a key 'name' in .*mine\.toml, .*, table task, found none"),
        ("n_steps = 3", "n_step = 3", r"expected arguments of first_last_xor among .*, got 'n_step' \(in .*mine\.toml"),
        ("task = { n_steps = 3 }", "", r"expected an argument 'n_steps' of first_last_xor, got none \(in .*mine\.toml"),
        (
            "decay = 0.9",
            "decays = 0.9",
            r"among hidden, .* in .*mine\.toml, .*, table family, got 'decays'",
        ),
        ("hidden = [6, 8], ", "", r"expected a key 'hidden' in .*mine\.toml, .*, table family, found none"),
        ("n_strengths = 3", "n_strength = 3", r"in .*mine\.toml, .*, table convex, got 'n_strength'"),
        ("n_strengths = 3", "l2_strength = 0.1", r"l2_strength=0 for the penalty 'l1', got 0.1.* \(in .*mine\.toml"),
        ("n_strengths = 3", "n_strengths = 0", r"expected n_strengths to be a positive .* \(in .*mine\.toml"),
        ("[defaults]", '[defaults]\nmethods = ["magic"]', r"expected a method among .* in .*mine\.toml, .*got 'magic'"),
        ("[defaults]", "[defaults]\nsurrogate = { epoch = 3 }", r"in .*mine\.toml, .*, table surrogate, got 'epoch'"),
        ("[[cell]]", "[[cell", r"expected .*mine\.toml to be a TOML file that can be read, got: "),
    ],
)
def test_errors_in_a_file_are_one_sentence_with_the_file_and_the_key(tmp_path, old, new, complaint):
    assert old in MINE
    with pytest.raises(CvxsnnError, match=complaint) as caught:
        load_experiment(write(tmp_path, MINE.replace(old, new, 1)))
    assert_one_sentence(caught.value)


def test_a_file_without_cells_or_that_does_not_exist_is_one_sentence(tmp_path):
    with pytest.raises(CvxsnnError, match="expected 'cell' to be a list of at least one table"):
        load_experiment(write(tmp_path, 'title = "Mine"\ncell = []'))
    with pytest.raises(CvxsnnError, match=r"expected an experiment at .*nothing\.toml, found no such file"):
        load_experiment(str(tmp_path / "nothing.toml"))
    with pytest.raises(CvxsnnError, match=r"expected an experiment among duality-gap, .* or a .toml file, got 'mine'"):
        load_experiment("mine")
    assert "main-table" in experiment_names()
