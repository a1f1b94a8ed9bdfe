"""Models that only predict: the answers of the estimator, without scikit-learn."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import small_models
from sklearn.pipeline import make_pipeline
from small_models import assert_one_sentence, classes_of, make_lists, make_sequences, sums

from cvxsnn import InvalidInputError, SequenceScaler, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.core.errors import DataFileError


def saved(model, folder):
    save(model, folder / "model.safetensors")
    return load(folder / "model.safetensors", predict_only=True)


@pytest.mark.parametrize("loss", [None, "softmax", "logistic"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_classifier_gives_the_same_answers(loss, n_classes, tmp_path):
    sequences = make_sequences()
    labels = np.array(["a", "b", "c"])[classes_of(sequences, n_classes)]
    model = SpikingClassifier(n_neurons=40, loss=loss, random_state=0).fit(sequences, labels)
    predictor = saved(model, tmp_path)
    for name in ("predict", "decision_function", "predict_proba"):
        np.testing.assert_array_equal(getattr(predictor, name)(sequences), getattr(model, name)(sequences))
    assert not hasattr(predictor, "fit")


@pytest.mark.parametrize("layout", [None, "channels-first"])
def test_a_regressor_gives_the_same_answers(layout, tmp_path):
    sequences = make_sequences()
    inputs = sequences if layout is None else sequences.transpose(0, 2, 1)
    model = SpikingRegressor(n_neurons=40, layout=layout, random_state=0).fit(inputs, sums(sequences))
    np.testing.assert_array_equal(saved(model, tmp_path).predict(inputs), model.predict(inputs))


def test_lists_and_tables_are_read_as_by_the_estimator(tmp_path):
    lists = make_lists()
    model = SpikingRegressor(n_neurons=40, random_state=0).fit(lists, sums(lists))
    np.testing.assert_array_equal(saved(model, tmp_path).predict(lists), model.predict(lists))
    tables = [pd.DataFrame(part, columns=["x", "y", "z"]) for part in lists]
    model = SpikingRegressor(n_neurons=40, random_state=0).fit(tables, sums(lists))
    predictor = saved(model, tmp_path)
    np.testing.assert_array_equal(predictor.predict(tables), model.predict(tables))
    with pytest.raises(InvalidInputError, match="expected the columns of fit"):
        predictor.predict([table[["y", "x", "z"]] for table in tables])


def test_rows_are_checked(tmp_path):
    rows = make_sequences()[:, 0]
    frame = pd.DataFrame(rows, columns=["x", "y", "z"])
    model = SpikingRegressor(n_neurons=40, random_state=0).fit(frame, rows.sum(1))
    predictor = saved(model, tmp_path)
    np.testing.assert_array_equal(predictor.predict(frame), model.predict(frame))
    for wrong, message in (
        (rows[:, :2], "rows of 3 features"),
        (frame[["y", "x", "z"]], "columns of fit"),
        (np.full_like(rows, np.nan), "finite"),
    ):
        with pytest.raises(InvalidInputError, match=message) as caught:
            predictor.predict(wrong)
        assert_one_sentence(caught.value)


def test_probabilities_that_were_not_calibrated_are_refused(tmp_path):
    sequences = make_sequences()
    model = small_models.classifier(loss="hinge").fit(sequences, classes_of(sequences))
    with pytest.raises(InvalidInputError, match="calibrated probabilities"):
        saved(model, tmp_path).predict_proba(sequences)


def test_a_pipeline_is_refused(tmp_path):
    sequences = make_sequences()
    pipeline = make_pipeline(SequenceScaler(), SpikingRegressor(n_neurons=8)).fit(sequences, sums(sequences))
    with pytest.raises(DataFileError, match="load it whole"):
        saved(pipeline, tmp_path)


def test_a_process_that_predicts_imports_no_scikit_learn(tmp_path):
    sequences = make_sequences(n_steps=12)
    save(SpikingClassifier(n_neurons=40).fit(sequences, classes_of(sequences)), tmp_path / "model.safetensors")
    script = (
        "import sys, numpy\nfrom cvxsnn import load\n"
        f"model = load({str(tmp_path / 'model.safetensors')!r}, predict_only=True)\n"
        "model.predict(numpy.ones((1, 12, 3)))\n"
        "print([name for name in ('sklearn', 'pandas', 'rich', 'scipy.stats') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_predict_only_is_true_or_false(tmp_path):
    with pytest.raises(InvalidInputError, match="predict_only to be True or False, got 'yes'"):
        load(tmp_path / "model", predict_only="yes")
