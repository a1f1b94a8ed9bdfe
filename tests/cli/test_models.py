import os
import re
from pathlib import Path

import numpy as np
import pytest
from cli.commands import fail, run, succeed
from sklearn.pipeline import make_pipeline
from small_models import CONVEX_METHODS, OTHER_METHODS, classes_of, classifier, make_lists, make_sequences, sums
from tolerances import REFITTED, ROUNDING

from cvxsnn import SequenceImputer, SequenceScaler, SpikingClassifier, SpikingRegressor, load, save

SEQUENCES = make_sequences()
LABELS = np.array(["low", "middle", "high"])[classes_of(SEQUENCES, 3)]
QUICK = ["--hidden", "24", "--strength", "0.003", "--epochs", "2"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", X=SEQUENCES, y=LABELS)


@pytest.mark.parametrize("method", CONVEX_METHODS)
def test_a_certified_model_is_fitted_predicts_and_is_certified_again(method):
    fitted = succeed("fit", "data.npz", "-o", "model", "--method", method, *QUICK)
    assert re.search(r"accuracy on the training data: [01]\.\d{4}", fitted.stdout)
    assert re.search(r"certificate: objective \S+, proven within \S+ \(relative \S+\) of the optimum", fitted.stdout)
    assert "saved: model" in fitted.stdout
    predicted = succeed("predict", "model", "data.npz")
    assert predicted.stdout.split() == load("model").predict(SEQUENCES).tolist()
    assert re.search(r"score against y: [01]\.\d{4}", predicted.stderr)
    certified = succeed("certify", "model", "data.npz")
    found, saved = re.findall(r"(?:found now|as saved):\s+objective (\S+),", certified.stdout)
    assert found == saved
    assert "proven: no other read-out" in certified.stdout
    assert "not proven: anything about other neurons" in certified.stdout


def test_a_mixture_is_fitted_with_few_neurons():
    fitted = succeed("fit", "data.npz", "-o", "model", "--neurons", 60, "--sparsity", 12, "--seconds", 0)
    assert "12 neurons read → 3" in fitted.stdout
    assert load("model").sparsity == 12
    fail("sparsity", "fit", "data.npz", "-o", "new", "--sparsity", "some")
    fail("n_neurons", "fit", "data.npz", "-o", "new", "--neurons", "some")


@pytest.mark.parametrize(
    ("witnesses", "options"),
    [
        ("delayed", ["--decay", 0.5]),
        ("search", ["--decay", 0.5, "--threshold", 0.5]),
        ("gaussian", ["--trials", 2]),
    ],
)
def test_options_that_would_be_ignored_are_refused(witnesses, options):
    complaint = f"{' and '.join(options[::2])} without --witnesses {witnesses}, .*: drop one or the other"
    fail(complaint, "fit", "data.npz", "-o", "new", "--witnesses", witnesses, *options)


@pytest.mark.parametrize("witnesses", ["auto", "gaussian"])
def test_neurons_have_the_decay_that_an_option_gives(witnesses):
    succeed("fit", "data.npz", "-o", "model", "--witnesses", witnesses, "--decay", 0.5, *QUICK)
    assert set(load("model").network_.layers[0].decay.ravel().tolist()) == {0.5}


def test_a_model_reads_windows_of_time():
    fitted = succeed("fit", "data.npz", "-o", "model", "--windows", 2, *QUICK)
    assert "windows of neurons read → 3, windows-2" in fitted.stdout.replace("\n", "")  # lines may be wrapped
    assert load("model").network_.readout == "windows-2"
    assert "proven: no other read-out" in succeed("certify", "model", "data.npz").stdout


@pytest.mark.parametrize("method", OTHER_METHODS)
def test_a_model_without_proof_is_fitted_and_predicts_and_cannot_be_certified(method):
    fitted = succeed("fit", "data.npz", "-o", "model", "--method", method, *QUICK)
    assert f"certificate: none, method {method} proves nothing" in fitted.stdout
    assert len(succeed("predict", "model", "data.npz").stdout.split()) == 48
    fail(f"got method='{method}': only cvx, sg-cvx, varpro prove anything", "certify", "model", "data.npz")


def test_a_regressor_is_fitted_predicts_and_is_certified_again():
    np.savez("numbers.npz", X=SEQUENCES, y=sums(SEQUENCES))
    options = ["--regress", *QUICK, "--hidden", "128"]
    assert "R² on the training data: 0.9" in succeed("fit", "numbers.npz", "-o", "model", *options).stdout
    assert isinstance(load("model"), SpikingRegressor)
    predicted = [float(line) for line in succeed("predict", "model", "numbers.npz").stdout.split()]
    np.testing.assert_allclose(predicted, load("model").predict(SEQUENCES), rtol=0, atol=ROUNDING)
    succeed("certify", "model", "numbers.npz")


def test_lengths_weights_and_rows_are_read_from_the_file():
    sequences = make_lists()
    padded = np.full((48, 6, 3), 99.0)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    lengths, weight = [len(sequence) for sequence in sequences], np.linspace(0.1, 2, 48)
    labels = classes_of(sequences)
    np.savez("ragged.npz", X=padded, y=labels, lengths=lengths, sample_weight=weight)
    succeed("fit", "ragged.npz", "-o", "model", *QUICK)
    expected = classifier().fit(sequences, labels, sample_weight=weight)
    scores = load("model").decision_function(sequences)
    np.testing.assert_allclose(scores, expected.decision_function(sequences), rtol=REFITTED, atol=REFITTED)
    succeed("certify", "model", "ragged.npz")
    np.savez("rows.npz", X=SEQUENCES[:, 0], y=LABELS)
    succeed("fit", "rows.npz", "-o", "rows", *QUICK)
    succeed("certify", "rows", "rows.npz")


def test_options_reach_the_model():
    options = ["--hidden", "6,24", "--subnetworks", 2, "--neuron", "threshold", "--readout", "last", "--loss", "hinge"]
    succeed("fit", "data.npz", "-o", "model", *options, "--threshold", 0.5, "--strength", 0.01, "--seed", 7)
    succeed("fit", "data.npz", "-o", "other", "--hidden", "24", "--decay", 0.25, "--epochs", 3)
    found = load("model").get_params() | {"surrogate": None}
    family = {"n_subnetworks": 2, "neuron": "threshold", "threshold": 0.5}
    given = {"hidden": (6, 24), "witnesses": family, "readout": "last", "loss": "hinge"}
    assert found.items() >= (given | {"l1_strength": 0.01, "random_state": 7}).items()
    other = load("other").get_params()
    assert other.items() >= {"witnesses": {"decay": 0.25}, "l1_strength": "auto"}.items()
    assert load("other").surrogate.epochs == 3


@pytest.mark.parametrize("strength", ["0.003", "0"])
def test_an_elastic_net_is_fitted_predicts_and_is_certified_again(strength):
    net = ["--penalty", "elastic-net", "--strength", strength, "--l2-strength", "0.01", "--decay", "0.8"]
    succeed("fit", "data.npz", "-o", "model", "--hidden", "24", *net)
    model = load("model")
    assert (model.penalty, model.l1_strength, model.l2_strength) == ("elastic-net", float(strength), 0.01)
    assert (model.proof_.l1_strength, model.proof_.l2_strength) == (float(strength), 0.01)
    assert succeed("predict", "model", "data.npz").stdout.split() == model.predict(SEQUENCES).tolist()
    certified = succeed("certify", "model", "data.npz").stdout
    found, saved = re.findall(r"(?:found now|as saved):\s+objective (\S+),", certified)
    assert found == saved
    assert "neurons with equal spikes on these data count as one" in certified
    succeed("fit", "data.npz", "-o", "plain", *QUICK)
    assert "count as one" not in succeed("certify", "plain", "data.npz").stdout


def test_an_elastic_net_chooses_its_strengths_unless_they_are_given():
    succeed("fit", "data.npz", "-o", "model", "--hidden", "12", "--decay", "0.8", "--penalty", "elastic-net")
    model = load("model")
    assert (model.l1_strength, model.l2_strength) == ("auto", "auto")
    assert model.proof_.l2_strength > 0


@pytest.mark.parametrize("labels", [LABELS, LABELS.astype(object), classes_of(SEQUENCES)], ids=["str", "object", "int"])
def test_predictions_are_written_to_a_file(labels):
    model = classifier().fit(SEQUENCES, labels)
    save(model, "model")
    np.savez("new.npz", X=SEQUENCES[:5])
    outcome = succeed("predict", "model", "new.npz", "-o", "predicted.npz")
    assert outcome.stdout.strip() == "saved: predicted.npz"
    assert "score" not in outcome.stderr
    with np.load("predicted.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["y"], model.predict(SEQUENCES[:5]))


def test_other_data_do_not_certify():
    succeed("fit", "data.npz", "-o", "model", *QUICK)
    np.savez("other.npz", X=make_sequences(seed=1), y=LABELS)
    np.savez("fewer.npz", X=SEQUENCES[:-1], y=LABELS[:-1])
    np.savez("shuffled.npz", X=SEQUENCES, y=LABELS[::-1])
    for data in ("other.npz", "fewer.npz", "shuffled.npz"):
        outcome = run("certify", "model", data)
        assert outcome.exit_code == 2, outcome.output
        assert "the objectives differ: these are not the data that the model was trained on" in outcome.stdout
        assert "proven:" not in outcome.stdout


def test_a_network_for_a_chip_is_fitted_and_written():
    np.savez("counts.npz", X=(SEQUENCES > 0).astype(int), y=LABELS)
    succeed("fit", "counts.npz", "-o", "model", "--target", "xylo-audio2", "--neurons", "20")
    assert load("model").target == "xylo-audio2"
    succeed("export", "model", "--to", "xylo", "-o", "chip.npz")


def test_names_in_brackets_are_shown_as_they_are():
    assert "saved: [bold]" in succeed("fit", "data.npz", "-o", "[bold]", *QUICK).stdout
    fail(r"found nothing", "predict", "[red]", "data.npz")


BAD_FITS = {
    "no data": (["missing.npz", "-o", "new"], "expected a data file at missing.npz, found nothing"),
    "no arrays": (["bare.npz", "-o", "new"], r"expected arrays X and y in bare.npz, got \['a'\]"),
    "objects": (["objects.npz", "-o", "new"], "of numbers or strings, but objects.npz is something else"),
    "text": (["text.npz", "-o", "new"], "expected a NumPy archive"),
    "NaN": (["nan.npz", "-o", "new"], "finite sequences"),
    "NaN in rows": (["nan_rows.npz", "-o", "new"], "expected finite rows, got NaN"),
    "one class": (["one.npz", "-o", "new"], "at least two classes"),
    "strings to regress": (["data.npz", "-o", "new", "--regress"], "expected targets to be real numbers"),
    "hidden": (["data.npz", "-o", "new", "--hidden", "many"], "expected widths such as 256,512, got 'many'"),
    "no hidden": (["data.npz", "-o", "new", "--hidden", ""], "expected widths such as 256,512, got ''"),
    "zero hidden": (["data.npz", "-o", "new", "--hidden", "8,0"], "positive integer, got 0"),
    "strength": (["data.npz", "-o", "new", "--strength", "strong"], "expected l1_strength, .* got 'strong'"),
    "second strength": (
        ["data.npz", "-o", "new", "--penalty", "elastic-net", "--l2-strength", "strong"],
        "expected l2_strength, unless it is a number, to be one of 'auto', got 'strong'",
    ),
    "second strength below zero": (
        ["data.npz", "-o", "new", "--penalty", "elastic-net", "--l2-strength", "-1"],
        "l2_strength to be a finite number, zero or above, got -1",
    ),
    "second strength of the L1 norm": (
        ["data.npz", "-o", "new", "--l2-strength", "0.1", "--penalty", "l1"],
        "l2_strength=0 for the penalty 'l1', got 0.1: use penalty='elastic-net'",
    ),
    "no strength": (
        ["data.npz", "-o", "new", "--penalty", "elastic-net", "--strength", "0", "--l2-strength", "0"],
        "got zero for both",
    ),
    "penalty": (["data.npz", "-o", "new", "--penalty", "l2"], "expected penalty to be one of 'l1', 'group'"),
    "strength of zero": (["data.npz", "-o", "new", "--strength", "0"], "finite number above zero"),
    "method": (["data.npz", "-o", "new", "--method", "magic"], "expected method to be one of"),
    "loss": (["data.npz", "-o", "new", "--loss", "magic"], "expected loss to be one of"),
    "neuron": (["data.npz", "-o", "new", "--neuron", "magic"], "expected neuron to be one of"),
    "readout": (["data.npz", "-o", "new", "--readout", "all"], "expected readout to be 'mean', 'last' or"),
    "windows of one step": (
        ["data.npz", "-o", "new", "--readout", "last", "--windows", "2"],
        "expected readout='mean'",
    ),
    "too many windows": (["data.npz", "-o", "new", "--windows", "5"], "expected at most 4 windows"),
    "sparsity": (
        ["data.npz", "-o", "new", "--sparsity", "many"],
        "expected sparsity, unless it is a number, to be one of 'accuracy', 'few', got 'many'",
    ),
    "no counts for a chip": (["data.npz", "-o", "new", "--target", "xylo-imu"], "expected counts of spikes"),
    "a chip that is unknown": (["data.npz", "-o", "new", "--target", "xylo"], "expected target to be one of 'loihi'"),
    "gradients for a chip": (
        ["data.npz", "-o", "new", "--target", "loihi", "--method", "sg", "--hidden", "8,9"],
        r"for target='loihi', got method='sg' and hidden=\(8, 9\): leave that out",
    ),
    "neurons that the chip lacks": (
        ["counts.npz", "-o", "new", "--target", "loihi", "--decay", "0.9"],
        "got lif neurons: fit an estimator with target='loihi' and witnesses='auto'",
    ),
    "decay": (["data.npz", "-o", "new", "--decay", "2"], "expected decay between 0 and 1"),
    "no folder": (["data.npz", "-o", "missing/new"], "expected a file in an existing folder .* make the folder first"),
    "a folder": (["data.npz", "-o", "."], "expected a file in an existing folder"),
}


@pytest.mark.parametrize("case", BAD_FITS)
def test_what_cannot_be_fitted_is_one_sentence_and_writes_nothing(case):
    np.savez("bare.npz", a=SEQUENCES)
    np.savez("objects.npz", X=np.array([{}, {}], dtype=object), y=[0, 1])
    np.savez("nan.npz", X=SEQUENCES * np.nan, y=LABELS)
    np.savez("nan_rows.npz", X=SEQUENCES[:, 0] * np.nan, y=LABELS)
    np.savez("one.npz", X=SEQUENCES, y=np.zeros(48))
    np.savez("counts.npz", X=(SEQUENCES > 0).astype(int), y=LABELS)
    with open("text.npz", "w") as file:
        file.write("1,2,3")
    arguments, complaint = BAD_FITS[case]
    fail(complaint, "fit", *arguments)


@pytest.mark.parametrize("arguments", [["--epochs", "0"], ["--subnetworks", "0"], ["--seed", "-1"], ["--decay", "x"]])
def test_options_out_of_range_are_refused_by_the_command(arguments):
    outcome = run("fit", "data.npz", "-o", "new", *arguments)
    assert outcome.exit_code == 2
    assert "Traceback" not in outcome.output
    assert not os.path.exists("new")


def test_a_refused_fit_leaves_the_old_model():
    succeed("fit", "data.npz", "-o", "model", *QUICK)
    fail("finite number above zero", "fit", "data.npz", "-o", "model", "--strength", "-1")


def test_models_that_cannot_be_used_are_one_sentence():
    model = classifier().fit(SEQUENCES, LABELS)
    save(model, "model")
    save(model.network_, "network")
    np.savez("narrow.npz", X=SEQUENCES[:, :, :2], y=LABELS)
    np.savez("names.npz", X=SEQUENCES, y=np.arange(48) % 5)
    np.savez("no_labels.npz", X=SEQUENCES)
    for command in ("predict", "certify"):
        fail("expected a model file at missing, found nothing", command, "missing", "data.npz")
        fail("truncated or damaged", command, "data.npz", "data.npz")
        fail("expected a fitted classifier or regressor in network, got a bare network", command, "network", "data.npz")
        fail("expected a data file at missing.npz", command, "model", "missing.npz")
        fail("expected sequences with 3 features as in fit", command, "model", "narrow.npz")
    fail("unknown labels", "certify", "model", "names.npz")
    fail("expected arrays X and y", "certify", "model", "no_labels.npz")
    fail("make the folder first", "predict", "model", "no_labels.npz", "-o", "missing/y.npz")


@pytest.mark.parametrize("moment", ["training", "saving"])
def test_an_interruption_leaves_the_old_model(monkeypatch, moment):
    succeed("fit", "data.npz", "-o", "model", *QUICK)

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    if moment == "training":
        monkeypatch.setattr(SpikingClassifier, "fit", interrupt)
    else:
        monkeypatch.setattr(os, "replace", interrupt)
    fail("interrupted; nothing was overwritten", "fit", "data.npz", "-o", "model", *QUICK, status=130)


def test_a_full_disk_leaves_the_old_model(monkeypatch):
    succeed("fit", "data.npz", "-o", "model", *QUICK)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    fail("No space left on device; nothing was changed", "fit", "data.npz", "-o", "model", *QUICK)


@pytest.mark.parametrize("command", ["fit", "predict", "certify"])
@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"y": LABELS.astype(bytes)}, "expected an array y of numbers or text, .* got .S6 of shape"),
        ({"y": np.zeros(len(LABELS), [("a", float)])}, "expected an array y of numbers or text"),
        ({"y": np.array(1)}, r"expected an array y of numbers or text, .* got int64 of shape \(\)"),
        ({"X": np.zeros(SEQUENCES.shape, [("a", float)])}, "expected an array X of numbers"),
        ({"X": SEQUENCES.astype(complex)}, "expected an array X of numbers"),
        ({"X": np.zeros(SEQUENCES.shape, "datetime64[s]")}, "expected an array X of numbers"),
        ({"y": np.array([])}, r"expected an array y of numbers or text, .* of shape \(0,\)"),
        ({"X": np.zeros((0, 4, 3))}, r"expected an array X of numbers .* of shape \(0, 4, 3\)"),
        ({"X": np.array(1.0)}, r"expected an array X of numbers .* of shape \(\)"),
        ({"sample_weight": LABELS}, "expected an array sample_weight of numbers"),
    ],
)
def test_arrays_of_other_kinds_are_one_sentence(command, arrays, complaint):
    save(classifier().fit(SEQUENCES, LABELS), "model")
    np.savez("other.npz", **({"X": SEQUENCES, "y": LABELS} | arrays))
    options = {"fit": ["-o", "new", *QUICK]}.get(command, [])
    outcome = fail(complaint, command, *([] if command == "fit" else ["model"]), "other.npz", *options)
    assert not outcome.stdout  # also where predictions could be printed


@pytest.mark.parametrize("name", ["x" * 300, "data.npz/model", "\udcff\n", " \x1b[31m"])
def test_paths_that_cannot_be_used_are_one_sentence(name):
    save(classifier().fit(SEQUENCES, LABELS), "model")
    fail("expected", "fit", name, "-o", "new", *QUICK)
    fail("expected", "predict", name, "data.npz")
    fail("expected", "predict", "model", name)
    fail("expected", "predict", "model", f"{name}.csv")
    if len(name) > 10:
        complaint = "File name too long|make the folder first"
        fail(complaint, "fit", "data.npz", "-o", name, *QUICK)
        fail(complaint, "predict", "model", "data.npz", "-o", f"{name}.npz")
        fail(complaint, "export", "model", "-o", name)
    else:
        assert "saved" in succeed("export", "model", "-o", name).stdout
        assert Path(name).is_file()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("Unable to allocate 8 GiB"), "Unable to allocate 8 GiB"),
        (MemoryError(), "MemoryError"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory"),
            "DefaultCPUAllocator",
        ),
        (RuntimeError("std::bad_alloc"), "std::bad_alloc"),
    ],
)
def test_a_full_memory_is_one_sentence(monkeypatch, error, words):
    def full(*_, **__):
        raise error

    monkeypatch.setattr(SpikingClassifier, "fit", full)
    fail(f"expected the work to fit into memory, got: {words}", "fit", "data.npz", "-o", "new")
    assert not Path("new").exists()


def test_the_commands_are_listed():
    shown = run("--help").stdout
    assert all(command in shown for command in ("demo", "fit", "predict", "explain", "certify"))


def test_a_pipeline_predicts_from_data_with_gaps_and_is_certified_again():
    gaps = np.where(SEQUENCES > 1.5, np.nan, SEQUENCES)
    np.savez("gaps.npz", X=gaps, y=LABELS)
    model = make_pipeline(SequenceImputer(), SequenceScaler(), classifier()).fit(gaps, LABELS)
    save(model, "pipeline")
    predicted = succeed("predict", "pipeline", "gaps.npz")
    assert predicted.stdout.split() == model.predict(gaps).tolist()
    assert f"score against y: {model.score(gaps, LABELS):.4f}" in predicted.stderr
    assert "proven: no other read-out" in succeed("certify", "pipeline", "gaps.npz").stdout
    save(classifier().fit(SEQUENCES, LABELS), "model")
    fail("fill the gaps with SequenceImputer first", "predict", "model", "gaps.npz")


def test_an_answer_is_explained_and_drawn():
    model = make_pipeline(SequenceScaler(), classifier()).fit(SEQUENCES, LABELS)
    save(model, "pipeline")
    for _ in range(2):  # its own figure may be replaced
        shown = succeed("explain", "pipeline", "data.npz", "--sample", "3", "-o", "figure.png").stdout
        assert shown == f"{model[-1].explain(model[:-1].transform(SEQUENCES[3:4]))[0]}\nsaved: figure.png\n"
    Path("photo.png").write_bytes(b"\x89PNG of a friend")
    fail("got photo.png, which holds something else", "explain", "pipeline", "data.npz", "-o", "photo.png")
    count = len(SEQUENCES)
    fail(f"expected a --sample below {count}, got {count}", "explain", "pipeline", "data.npz", "--sample", str(count))
