import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cli.commands import run, succeed
from sklearn.pipeline import make_pipeline
from small_models import classes_of, classifier, make_sequences
from tolerances import FLOAT64_SUM

from cvxsnn import EarlyClassifier, SequenceScaler, load, save
from cvxsnn.exchange import from_nir

nir = pytest.importorskip("nir", reason="nir is not installed: pip install 'cvxsnn[nir]'")

SEQUENCES = make_sequences()


@pytest.fixture(autouse=True)
def in_a_folder_with_a_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(classifier().fit(SEQUENCES, classes_of(SEQUENCES)), "model")


def fail(complaint, *arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 1, outcome.output
    assert isinstance(outcome.exception, SystemExit)
    assert re.search(complaint, outcome.stderr), outcome.stderr
    assert len(outcome.stderr.strip().splitlines()) == 1
    assert not Path("out.nir").exists()


def test_a_model_is_written_as_a_graph_that_gives_its_scores():
    exported = succeed("export", "model", "--to", "nir", "-o", "out.nir")
    assert re.fullmatch(r"saved: out\.nir, exact graph of \d+ nodes, dt 0\.0001 s; .*\n", exported.stdout)
    metadata = nir.read("out.nir").metadata
    inputs = torch.tensor((SEQUENCES - metadata["input_mean"]) / metadata["input_scale"])
    scores = from_nir("out.nir")(inputs).detach().numpy()[:, 0]
    np.testing.assert_allclose(scores, load("model").decision_function(SEQUENCES), rtol=0, atol=FLOAT64_SUM)


def test_a_bare_network_is_exported_as_it_is():
    save(load("model").network_, "network")
    assert succeed("export", "network", "-o", "out.nir", "--dt", 0.001).stdout.strip().endswith("dt 0.001 s")
    assert nir.read("out.nir").metadata["dt"] == 0.001
    assert "input_mean" not in nir.read("out.nir").metadata


@pytest.mark.filterwarnings("always::cvxsnn.core.errors.LossyExchangeWarning")  # the command prints it
def test_a_lossy_graph_is_written_with_a_warning_only_when_asked_for():
    save(classifier(decay=0.9, threshold=1.0).fit(SEQUENCES, classes_of(SEQUENCES)), "model")
    exported = succeed("export", "model", "-o", "out.nir", "--lossy")
    assert "lossy graph" in exported.stdout
    assert "reset to zero instead of by subtraction" in exported.stderr
    assert "reset to zero" in nir.read("out.nir").metadata["lossy"]


def test_what_cannot_be_written_is_refused_in_one_sentence():
    assert run("export", "model", "--to", "snntorch", "-o", "out.nir").exit_code == 2
    assert not Path("out.nir").exists()
    fail("expected a file in an existing folder", "export", "model", "-o", "nowhere/out.nir")
    save(classifier(neuron="threshold").fit(SEQUENCES, classes_of(SEQUENCES)), "model")
    fail("expected LIF neurons, got ThresholdLayer", "export", "model", "-o", "out.nir")


def test_an_absent_library_is_asked_for_in_one_sentence(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "nir"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nir", None)
    fail(r'pip install "cvxsnn\[nir\]"', "export", "model", "-o", "out.nir")


def test_the_network_of_a_pipeline_is_exported_with_a_note_about_the_other_steps():
    pipeline = make_pipeline(SequenceScaler("common"), classifier()).fit(SEQUENCES, classes_of(SEQUENCES))
    save(pipeline, "pipeline")
    exported = succeed("export", "pipeline", "-o", "out.nir")
    assert "X is what the pipeline's other steps return: SequenceScaler" in exported.stdout
    metadata = nir.read("out.nir").metadata
    inputs = (pipeline[0].transform(SEQUENCES) - metadata["input_mean"]) / metadata["input_scale"]
    scores = from_nir("out.nir")(torch.tensor(inputs)).detach().numpy()[:, 0]
    np.testing.assert_allclose(scores, pipeline.decision_function(SEQUENCES), rtol=0, atol=FLOAT64_SUM)


def test_c_source_is_written_with_its_header_and_earlier_ones_are_replaced():
    np.savez("data.npz", X=SEQUENCES, y=classes_of(SEQUENCES))
    for options in ((), ("--data", "data.npz"), ("--data", "data.npz", "--integers")):
        exported = succeed("export", "model", "--to", "c", "-o", "small.c", *options)
        assert exported.stdout == "saved: small.c and small.h\n"
        assert ("double" in Path("small.h").read_text()) == ("--integers" not in options)
    save(classifier(windows=2).fit(SEQUENCES, classes_of(SEQUENCES)), "model")
    succeed("export", "model", "--to", "c", "-o", "small.c", "--steps", 4)
    assert "#define SMALL_STEPS 4" in Path("small.h").read_text()


def test_an_onnx_graph_is_written_and_an_earlier_one_is_replaced():
    pytest.importorskip("onnx", reason="onnx is not installed: pip install 'cvxsnn[onnx]'")
    save(classifier(windows=2).fit(SEQUENCES, classes_of(SEQUENCES)), "model")
    for _ in range(2):
        assert succeed("export", "model", "--to", "onnx", "-o", "out.onnx", "--steps", 4).stdout == "saved: out.onnx\n"
    Path("mine.onnx").write_bytes(bytes(100))
    fail("an earlier one of the same kind for the graph", "export", "model", "--to", "onnx", "-o", "mine.onnx")
    early = EarlyClassifier(classifier(), fractions=(0.5,)).fit(SEQUENCES, classes_of(SEQUENCES))
    save(early, "early")
    fail("got an EarlyClassifier", "export", "early", "-o", "out.nir")
    fail("expected --lossy with --to nir", "export", "model", "--to", "onnx", "-o", "new.onnx", "--lossy")
    fail(
        "expected --integers and --data with --to c", "export", "model", "--to", "onnx", "-o", "new.onnx", "--integers"
    )
    fail("expected --steps with --to c or --to onnx", "export", "model", "-o", "out.nir", "--steps", 4)
    assert not Path("new.onnx").exists()


def test_options_and_files_that_do_not_fit_the_format_are_refused():
    fail("expected --lossy with --to nir", "export", "model", "--to", "c", "-o", "out.c", "--lossy")
    fail("expected the data of the fit for --integers", "export", "model", "--to", "c", "-o", "out.c", "--integers")
    fail("expected --integers and --data with --to c", "export", "model", "-o", "out.nir", "--integers")
    fail("expected a name that ends in .c for the source", "export", "model", "--to", "c", "-o", "out.nir")
    fail("expected a name that ends in .nir or has no ending", "export", "model", "-o", "out.c")
    Path("mine.h").write_text("int mine;\n")
    fail("an earlier one of the same kind for the header", "export", "model", "--to", "c", "-o", "mine.c")
    assert not Path("mine.c").exists()
