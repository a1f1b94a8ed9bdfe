"""The examples run, and leave behind what they say."""

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cvxsnn
from cvxsnn import SpikingClassifier, save
from cvxsnn.core.errors import CvxsnnError
from cvxsnn.data.tasks.spoken_digits import read_recordings

EXAMPLES = Path(__file__).parents[1] / "examples"
READOUTS = {"snntorch_readout.py": "snntorch", "spikingjelly_readout.py": "spikingjelly", "norse_readout.py": "norse"}
QUICK = {
    "delays.py": ["--quick", "--output", "delays.png"],
    "enumeration_time.py": ["--patterns", "300", "--output", "enumeration-time.png"],
    "forecasting.py": ["--quick", "--output", "forecasting.png"],
    "global_optimum.py": ["--quick", "--output", "."],
    "messy_table.py": ["--quick", "--output", "."],
    "model_page.py": ["--quick", "--output", "digits.html"],
    "neurobench_row.py": ["--quick"],
    "plots.py": ["--quick", "--output", "."],
    "speech_in_c.py": ["--quick", "--output", "."],
    "spoken_digits.py": ["--quick", "--output", "."],
    **{name: ["--quick", "--output", "."] for name in READOUTS},
}
"""Arguments that make an example small."""


def run_example(name, tmp_path, *arguments, ignoring=(), env=None):
    """Run an example in a folder of its own, where warnings are errors."""
    warnings = [option for message in ("error", *ignoring) for option in ("-W", message)]
    command = [sys.executable, *warnings, str(EXAMPLES / name), *arguments]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False, env=env)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_every_example_has_a_quick_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(QUICK)


def test_a_messy_table_becomes_a_model_that_predicts(tmp_path):
    printed = run_example("messy_table.py", tmp_path, *QUICK["messy_table.py"])
    assert float(re.search(r"other motors: (\S+)", printed)[1]) > 0.7
    assert re.search(r"Proven: no other weights for these \d+ hidden neurons", printed)
    assert {"motors.csv", "motors.safetensors", "messy_table.png"} <= {path.name for path in tmp_path.iterdir()}


def test_global_optima_are_proven_saved_and_checked(tmp_path):
    printed = run_example("global_optimum.py", tmp_path, *QUICK["global_optimum.py"])
    assert printed.count("boxes cover all neurons of the family") == 2
    gaps = [float(gap) for gap in re.findall(r"relative gap: +(\S+)", printed)]
    assert len(gaps) == 2
    assert max(gaps) <= 1e-3
    assert printed.count("the model file has this objective") == 2
    files = {f"{name}{end}" for name in ("iris", "breast_cancer") for end in ("-proof.json", ".safetensors")}
    assert files <= {path.name for path in tmp_path.iterdir()}


def test_a_page_about_a_model_is_written(tmp_path):
    printed = run_example("model_page.py", tmp_path, *QUICK["model_page.py"])
    assert float(re.search(r"accuracy (\S+) on 300", printed)[1]) > 0.8
    assert "Digits: a look inside" in (tmp_path / "digits.html").read_text()


def test_every_plot_is_drawn_and_shown_in_its_page(tmp_path):
    run_example("plots.py", tmp_path, *QUICK["plots.py"])
    page = (EXAMPLES.parent / "docs" / "explore.md").read_text()
    for name in cvxsnn.plots.__all__:
        picture = f"{name.replace('_', '-')}.png"
        assert (tmp_path / picture).stat().st_size > 0
        assert f"(images/{picture})" in page
        assert f"{name}(" in page


def test_enumeration_time_draws_its_picture(tmp_path):
    run_example("enumeration_time.py", tmp_path, *QUICK["enumeration_time.py"])
    assert (tmp_path / "enumeration-time.png").stat().st_size > 0


def test_delays_make_long_sequences_easier_and_are_drawn(tmp_path):
    printed = run_example("delays.py", tmp_path, *QUICK["delays.py"])
    longest = next(line for line in printed.splitlines() if line.startswith(" 8 steps"))
    without, with_delays = map(float, re.findall(r"0\.\d+|1\.0+", longest))
    assert without < with_delays
    assert "proven within" in printed
    assert (tmp_path / "delays.png").stat().st_size > 0


def test_forecasts_are_better_than_those_of_linear_models_and_are_drawn(tmp_path):
    printed = run_example("forecasting.py", tmp_path, *QUICK["forecasting.py"])
    last = {line[:24].strip(): float(line.split()[-1]) for line in printed.splitlines()[1:5]}
    assert last["spiking network"] < last["linear autoregression"] < last["persistence"]
    assert "proven within" in printed
    assert (tmp_path / "forecasting.png").stat().st_size > 0


def test_spoken_digits_saves_a_model(tmp_path):
    try:
        read_recordings()
    except CvxsnnError as error:
        pytest.skip(f"no recordings: {error}")
    assert "proven within" in run_example("spoken_digits.py", tmp_path, *QUICK["spoken_digits.py"])
    assert (tmp_path / "network.safetensors").stat().st_size > 0


def test_a_program_in_c_hears_from_a_pipe_what_python_hears(tmp_path):
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler: install gcc")
    printed = run_example("speech_in_c.py", tmp_path, *QUICK["speech_in_c.py"])
    assert float(re.search(r"accuracy of 64 neurons: (\S+)", printed)[1]) > 0.6
    n_equal, n_answers = map(int, re.search(r"those of Python: (\d+) of (\d+), on 10 recordings", printed).groups())
    assert n_equal == n_answers > 200
    assert (tmp_path / "answers.png").stat().st_size > 0
    # The program reads any raw sound: whole steps are answered, and the rest of one is not.
    answers = subprocess.run([tmp_path / "listen"], input=bytes(2 * 400), capture_output=True, check=True)
    assert len(answers.stdout.split()) == 2


def test_without_a_compiler_the_program_is_written_and_not_run(tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path)}
    printed = run_example("speech_in_c.py", tmp_path, *QUICK["speech_in_c.py"], env=environment)
    assert "written and not run, since there is no C compiler" in printed
    assert {"listen.c", "tables.h", "words.c", "words.h"} <= {path.name for path in tmp_path.iterdir()}


needs_neurobench = pytest.mark.skipif(
    importlib.util.find_spec("neurobench") is None,
    reason="neurobench is not installed: pip install 'cvxsnn[neurobench]'",
)


@needs_neurobench
def test_neurobench_measures_a_forecast(tmp_path):
    printed = run_example("neurobench_row.py", tmp_path, *QUICK["neurobench_row.py"])
    assert "proven within" in printed
    *_, header, row = printed.splitlines()
    assert header.split()[:2] == ["task", "SMAPE"]
    assert 0 < float(row.split("series")[1].split()[0]) < 50


@needs_neurobench
def test_neurobench_measures_a_saved_model(tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 5, 2))
    y = np.where(X[:, :, 0].sum(1) > 0, "up", "down")
    model = SpikingClassifier(hidden=(32,), l1_strength=0.01, random_state=0).fit(X, y)
    save(model, tmp_path / "model.safetensors")
    np.savez(tmp_path / "data.npz", X=X, y=y)
    saved_row = runpy.run_path(str(EXAMPLES / "neurobench_row.py"))["saved_row"]
    row = saved_row(tmp_path / "model.safetensors", tmp_path / "data.npz", "sums", 16)
    assert (row.task, row.metric) == ("sums", "ClassificationAccuracy")
    assert row.score == pytest.approx(model.score(X, y))


@pytest.mark.parametrize("name", READOUTS)
def test_read_outs_of_other_libraries_are_certified_and_better_on_their_own_data(name, tmp_path):
    if importlib.util.find_spec(READOUTS[name]) is None:
        pytest.skip(f"{READOUTS[name]} is not installed")
    # Norse compiles functions with torch.jit when it is imported.
    printed = run_example(name, tmp_path, *QUICK[name], ignoring=["ignore::DeprecationWarning"])
    assert "proven within" in printed
    before, after = next(line.split()[1:] for line in printed.splitlines() if line.startswith("loss"))
    assert float(after) <= float(before)
    assert (tmp_path / "weights.pt").stat().st_size > 0


@pytest.mark.parametrize(("name", "library"), [*READOUTS.items(), ("neurobench_row.py", "neurobench")])
def test_a_missing_library_is_named_with_its_remedy(name, library, tmp_path):
    run = "import runpy; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    block = f"import sys; sys.modules[{library!r}] = None; {run}"
    command = [sys.executable, "-c", block, str(EXAMPLES / name)]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 1
    assert finished.stderr.strip().endswith(f'pip install "cvxsnn[{library}]"')
    assert len(finished.stderr.strip().splitlines()) == 1
