"""Model files that version 0.1.0 wrote are read, with the same answers and the same certificates."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small_models import classes_of, make_sequences
from tolerances import CERTIFIED_AGAIN, ROUNDING

from cvxsnn import load, save
from cvxsnn.core.storage import read_tensors, write_tensors

FOLDER = Path(__file__).parent / "files_of_0_1_0"
ANSWERS = json.loads((FOLDER / "answers.json").read_text())
SEQUENCES = make_sequences()
LABELS = np.array(["low", "middle", "high"])[classes_of(SEQUENCES, 3)]


@pytest.mark.parametrize("name", ["few", "gaussian", "gradients", "mixed", "search"])
def test_a_classifier_answers_and_is_certified_as_before(name, tmp_path):
    save(load(FOLDER / f"{name}.safetensors"), tmp_path / "again")
    for model in (load(FOLDER / f"{name}.safetensors"), load(tmp_path / "again")):
        scores = model.decision_function(SEQUENCES[:4])
        np.testing.assert_allclose(scores, ANSWERS[name], rtol=0, atol=ROUNDING)
        primal, dual, scope = ANSWERS[f"{name} certificate"]
        again = model.certify(SEQUENCES, LABELS)
        assert again.primal == pytest.approx(primal, rel=CERTIFIED_AGAIN)
        assert again.dual == pytest.approx(dual, rel=CERTIFIED_AGAIN)
        assert again.scope == scope == model.certificate_.scope


def test_a_pipeline_and_a_network_answer_as_before():
    predicted = load(FOLDER / "pipeline.safetensors").predict(SEQUENCES[:4])
    np.testing.assert_allclose(predicted, ANSWERS["pipeline"], rtol=0, atol=ROUNDING)
    with torch.no_grad():
        scores = load(FOLDER / "network.safetensors")(SEQUENCES[:4])
    np.testing.assert_allclose(scores, ANSWERS["network"], rtol=0, atol=ROUNDING)


def test_parameters_that_are_gone_become_a_family_and_a_readout(tmp_path):
    tensors, header = read_tensors(FOLDER / "mixed.safetensors", "model")
    gone = {"decay": 0.9, "n_subnetworks": 2, "windows": 3, "n_trials": 7, "n_jobs": 2, "validation_fraction": 0.1}
    write_tensors(tmp_path / "model", "model", tensors, header | {"parameters": header["parameters"] | gone})
    model = load(tmp_path / "model")
    assert model.witnesses == {"decay": 0.9, "n_subnetworks": 2}
    assert model.readout == "windows-3"
