"""Pipelines of transformers in model files."""

import numpy as np
import pytest
import torch
from estimators.test_files import change, drop, put, remove
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from small_models import assert_one_sentence, classes_of, classifier, make_lists, make_sequences, regressor, sums

from cvxsnn import InvalidInputError, SequenceImputer, SequenceResampler, SequenceScaler, load, save
from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError

SEQUENCES = make_sequences()
GAPS = np.where(SEQUENCES > 1.5, np.nan, SEQUENCES)
LABELS = np.array(["low", "middle", "high"])[classes_of(SEQUENCES, 3)]


def all_steps(model, **scaling):
    return [
        ("fill", SequenceImputer("forward")),
        ("scale", SequenceScaler(**scaling)),
        ("resample", SequenceResampler(5)),
        ("model", model),
    ]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    model = Pipeline(all_steps(classifier(neuron="threshold", hidden=(8,)), floor=0.1)).fit(GAPS, LABELS)
    save(model, path)
    return model, path


def test_a_pipeline_comes_back_the_same(saved):
    model, path = saved
    found = load(path)
    assert type(found) is Pipeline
    assert [(name, type(step)) for name, step in found.steps] == [(name, type(step)) for name, step in model.steps]
    assert [step.get_params() for _, step in found.steps] == [step.get_params() for _, step in model.steps]
    np.testing.assert_array_equal(found[:-1].transform(GAPS), model[:-1].transform(GAPS))
    np.testing.assert_array_equal(found.predict(GAPS), model.predict(GAPS))
    np.testing.assert_array_equal(found.predict_proba(GAPS), model.predict_proba(GAPS))
    assert found.score(GAPS, LABELS) == model.score(GAPS, LABELS)
    assert found[-1].certificate_ == model[-1].certificate_
    np.testing.assert_array_equal(found.fit(GAPS, LABELS).predict(GAPS), model.predict(GAPS))


def test_pipelines_of_unequal_sequences_frames_and_odd_parameters_come_back(tmp_path):
    lists = make_lists()
    model = make_pipeline(
        SequenceImputer("constant", fill_value=np.float64(2)),
        SequenceResampler(factor=np.float32(1.5)),
        SequenceScaler("common", per_sequence=True, floor=1),
        regressor(witnesses="gaussian"),
    ).fit(lists, sums(lists))
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(lists), model.predict(lists))


def test_names_of_columns_come_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frames = [pandas.DataFrame(part, columns=["a", "b", "c"]) for part in GAPS]
    save(make_pipeline(SequenceImputer(), classifier(witnesses="gaussian")).fit(frames, LABELS), tmp_path / "model")
    found = load(tmp_path / "model")
    assert found.predict(frames).shape == (48,)
    with pytest.raises(InvalidInputError, match="as in fit"):
        found.predict([frame[["c", "b", "a"]] for frame in frames])


def test_a_pipeline_of_a_model_alone_may_have_rows(tmp_path):
    rows = SEQUENCES[:, 0]
    model = make_pipeline(classifier(witnesses="gaussian")).fit(rows, LABELS)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(rows), model.predict(rows))


class Other(SequenceScaler):
    """A subclass may compute something else."""


REFUSED = {
    "another transformer": (
        lambda: make_pipeline(FunctionTransformer(), classifier(witnesses="gaussian")),
        "got FunctionTransformer as step",
    ),
    "a subclass": (
        lambda: make_pipeline(Other(), classifier(witnesses="gaussian")),
        "got Other as step 'other': a file knows no others",
    ),
    "no transformer": (
        lambda: Pipeline([("none", "passthrough"), ("model", classifier(witnesses="gaussian"))]),
        "got 'passthrough' as step",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_steps_are_refused_in_one_sentence(tmp_path, case):
    make, complaint = REFUSED[case]
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        save(make().fit(SEQUENCES, LABELS), tmp_path / "model")
    assert_one_sentence(caught.value)
    assert not (tmp_path / "model").exists()


def test_pipelines_that_are_not_fitted_or_have_no_model_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="a fitted SpikingClassifier, got one that is not: call fit first"):
        save(make_pipeline(SequenceScaler(), classifier(witnesses="gaussian")), tmp_path / "model")
    with pytest.raises(InvalidInputError, match="a fitted SequenceScaler, got one that is not: call fit first"):
        save(
            make_pipeline(SequenceScaler(), classifier(witnesses="gaussian").fit(SEQUENCES, LABELS)), tmp_path / "model"
        )
    with pytest.raises(InvalidInputError, match="a pipeline with one at its end, got SequenceScaler"):
        save(make_pipeline(SequenceImputer(), SequenceScaler()).fit(SEQUENCES), tmp_path / "model")


MEAN, SPREAD = "steps.1.mean_", "steps.1.scale_"
TAMPERED = {
    "no steps": remove("steps"),
    "steps are text": change("steps", to="scaler"),
    "steps are numbers": change("steps", to=[1, 2]),
    "no model": remove("model"),
    "a pipeline in a pipeline": change("model", "class", to="pipeline"),
    "a network at the end": change("model", "class", to="network"),
    "rows at the end": change("model", "is_sequential", to=False),
    "unknown transformer": change("steps", 0, "class", to="os.system"),
    "transformer is a list": change("steps", 0, "class", to=["imputer"]),
    "another transformer": change("steps", 0, "class", to="scaler"),
    "unknown parameter": change("steps", 0, "parameters", "surprise", to=1),
    "parameters are a list": change("steps", 0, "parameters", to=[1]),
    "unknown strategy": change("steps", 0, "parameters", "strategy", to="exec"),
    "fill value is NaN": change("steps", 0, "parameters", "fill_value", to=float("nan")),
    "fill value is text": change("steps", 0, "parameters", "fill_value", to="0"),
    "floor is negative": change("steps", 1, "parameters", "floor", to=-1),
    "per sequence is text": change("steps", 1, "parameters", "per_sequence", to="no"),
    "steps of fractions": change("steps", 2, "parameters", "n_steps", to=2.5),
    "steps and a factor": change("steps", 2, "parameters", "factor", to=2.0),
    "other features": change("steps", 0, "n_features", to=2),
    "features are text": change("steps", 2, "n_features", to="3"),
    "no features": remove("steps", 2, "n_features"),
    "names are missing": change("steps", 2, "feature_names", to=["a"]),
    "names are numbers": change("steps", 2, "feature_names", to=[1, 2, 3]),
    "names are text": change("steps", 2, "feature_names", to="abc"),
    "name is a number": change("steps", 0, "name", to=3),
    "name of the model is a list": change("name", to=["model"]),
    "two equal names": change("steps", 0, "name", to="model"),
    "no mean": drop(MEAN),
    "mean of other shape": put(MEAN, torch.zeros(3, 1, dtype=torch.float64)),
    "mean of fewer features": put(MEAN, torch.zeros(2, dtype=torch.float64)),
    "mean of other type": put(MEAN, torch.zeros(3)),
    "mean of integers": put(MEAN, torch.zeros(3, dtype=torch.int64)),
    "mean with NaN": put(MEAN, torch.tensor([0.0, float("nan"), 0.0], dtype=torch.float64)),
    "fill with NaN": put("steps.0.statistics_", torch.full((3,), float("nan"), dtype=torch.float64)),
    "spread is infinite": put(SPREAD, torch.full((3,), float("inf"), dtype=torch.float64)),
    "spread is zero": put(SPREAD, torch.zeros(3, dtype=torch.float64)),
    "spread is negative": put(SPREAD, torch.full((3,), -1.0, dtype=torch.float64)),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_an_altered_file_is_refused_in_one_sentence(tmp_path, saved, case):
    tensors, header = storage.read_tensors(saved[1], "model")
    TAMPERED[case](tensors, header)
    path = tmp_path / "tampered"
    storage.write_tensors(path, "model", tensors, header)
    with pytest.raises(DataFileError, match="does not fit together") as caught:
        load(path)
    assert_one_sentence(caught.value)
    assert str(path) in str(caught.value)
