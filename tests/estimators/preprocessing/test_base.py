"""What all transformers of sequences accept, return and refuse."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from small_models import assert_one_sentence, classes_of, classifier, make_lists, make_sequences, regressor, sums

from cvxsnn import InvalidInputError, SequenceImputer, SequenceResampler, SequenceScaler

SEQUENCES = make_sequences()
LISTS = make_lists()
LABELS = classes_of(SEQUENCES)
TRANSFORMERS = [
    SequenceScaler(),
    SequenceScaler("common", per_sequence=True, floor=0.1),
    SequenceImputer(),
    SequenceImputer("forward"),
    SequenceResampler(3),
    SequenceResampler(factor=1.5),
]
each = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=str)


@each
def test_arrays_tensors_and_lists_come_back_as_such_with_equal_values(transformer):
    array = clone(transformer).fit_transform(SEQUENCES)
    tensor = clone(transformer).fit_transform(torch.tensor(SEQUENCES))
    arrays = clone(transformer).fit_transform(list(SEQUENCES))
    tensors = clone(transformer).fit_transform([torch.tensor(part) for part in SEQUENCES])
    nested = clone(transformer).fit_transform(SEQUENCES.tolist())
    assert isinstance(array, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert all(isinstance(part, np.ndarray) for part in arrays)
    assert all(isinstance(part, torch.Tensor) for part in tensors)
    for other in (tensor, arrays, tensors, nested):
        np.testing.assert_array_equal(np.stack([np.asarray(part) for part in other]), array)


@each
def test_inputs_are_left_as_they_are(transformer):
    for data in (SEQUENCES, LISTS):
        before = [part.copy() for part in data]
        gaps = [np.where(part > 1, np.nan, part) for part in data]
        given = gaps if isinstance(transformer, SequenceImputer) else data
        copies = [part.copy() for part in given]
        clone(transformer).fit_transform(given)
        assert all(np.array_equal(own, other) for own, other in zip(data, before, strict=True))
        assert all(np.array_equal(own, other, equal_nan=True) for own, other in zip(given, copies, strict=True))


@each
def test_a_sequence_is_transformed_alike_alone_and_among_others(transformer):
    fitted = clone(transformer).fit(LISTS)
    together = fitted.transform(LISTS)
    for part, expected in zip(LISTS, together, strict=True):
        np.testing.assert_array_equal(fitted.transform([part])[0], expected)


@each
def test_clones_parameters_and_pickles(transformer):
    fitted = clone(transformer).fit(SEQUENCES)
    assert clone(fitted).get_params() == transformer.get_params()
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.transform(SEQUENCES), fitted.transform(SEQUENCES))
    with pytest.raises(NotFittedError):
        clone(fitted).transform(SEQUENCES)


def test_frames_keep_their_columns_and_their_index():
    pandas = pytest.importorskip("pandas")
    index = pandas.date_range("2024-01-01", periods=4)
    # A table of pandas 2 is a view of its array.
    frames = [pandas.DataFrame(part.copy(), columns=["a", "b", "c"], index=index) for part in SEQUENCES]
    frames[0].iloc[1, 2] = None
    imputer = SequenceImputer().fit(frames)
    filled = imputer.transform(frames)
    assert filled[0].index.equals(index)
    assert filled[0].columns.tolist() == imputer.feature_names_in_.tolist() == ["a", "b", "c"]
    assert filled[0].iloc[1, 2] == pytest.approx((SEQUENCES[0, 0, 2] + SEQUENCES[0, 2, 2]) / 2)
    longer = SequenceResampler(7).fit_transform(filled)
    assert longer[0].shape == (7, 3)
    assert longer[0].columns.tolist() == ["a", "b", "c"]
    with pytest.raises(InvalidInputError, match=r"columns \['a', 'b', 'c'\] as in fit, got \['b', 'a', 'c'\]"):
        imputer.transform([frame[["b", "a", "c"]] for frame in frames])
    with pytest.raises(InvalidInputError, match="same columns in every DataFrame"):
        imputer.fit([frames[0], frames[1][["b", "a", "c"]]])
    assert not hasattr(imputer.fit(SEQUENCES), "feature_names_in_")


def test_missing_values_of_pandas_are_gaps():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64")})
    assert SequenceImputer().fit_transform([frame])[0]["a"].tolist() == [1.0, 2.0, 3.0]


SPOILED = SEQUENCES.copy()
SPOILED[3, 1, 2] = np.inf
GAPS = np.where(SEQUENCES > 1.5, np.nan, SEQUENCES)
BAD = {
    "rows": (lambda: SEQUENCES[:, 0], "for rows of features use the transformers of scikit-learn"),
    "one sequence": (lambda: SEQUENCES[0], "expected sequences, as one array"),
    "nothing": (lambda: [], "expected sequences, as one array"),
    "text": (lambda: "text", "expected sequences, as one array"),
    "four axes": (lambda: SEQUENCES[None], "expected sequences, as one array"),
    "strings": (lambda: SEQUENCES.astype(str), "real numbers"),
    "complex": (lambda: SEQUENCES * 1j, "real numbers"),
    "no steps": (lambda: SEQUENCES[:, :0], "non-empty"),
    "an empty sequence": (lambda: [SEQUENCES[0], SEQUENCES[0, :0]], "none in sequence 1"),
    "features that differ": (lambda: [SEQUENCES[0], SEQUENCES[0, :, :2]], "same number of features"),
    "infinite": (lambda: SPOILED, "infinite values: replace or drop"),
    "infinite in a list": (lambda: list(SPOILED), "infinite values: replace or drop"),
}


@each
@pytest.mark.parametrize("case", BAD)
def test_what_is_no_sequence_is_one_sentence(transformer, case):
    data, complaint = BAD[case]
    fitted = clone(transformer).fit(SEQUENCES)
    for call in (clone(transformer).fit, fitted.transform):
        with pytest.raises(InvalidInputError, match=complaint) as caught:
            call(data())
        assert_one_sentence(caught.value)


@each
def test_another_number_of_features_is_refused(transformer):
    with pytest.raises(InvalidInputError, match="with 3 features as in fit, got 2 features"):
        clone(transformer).fit(SEQUENCES).transform(SEQUENCES[:, :, :2])


@pytest.mark.parametrize("transformer", [SequenceScaler(), SequenceResampler(3)], ids=str)
def test_gaps_are_refused_where_they_cannot_be_filled(transformer):
    with pytest.raises(InvalidInputError, match="got NaN: fill the gaps with SequenceImputer first"):
        clone(transformer).fit(GAPS)


BAD_PARAMETERS = [
    SequenceScaler("columns"),
    SequenceScaler(per_sequence="yes"),
    SequenceScaler(floor=-0.1),
    SequenceScaler(floor=np.nan),
    SequenceScaler(floor="small"),
    SequenceImputer("spline"),
    SequenceImputer("constant", fill_value=np.nan),
    SequenceImputer("constant", fill_value=None),
    SequenceResampler(),
    SequenceResampler(4, factor=2.0),
    SequenceResampler(0),
    SequenceResampler(2.5),
    SequenceResampler(True),
    SequenceResampler(factor=0.0),
    SequenceResampler(factor=np.inf),
]


@pytest.mark.parametrize("transformer", BAD_PARAMETERS, ids=str)
def test_bad_parameters_are_one_sentence(transformer):
    with pytest.raises(InvalidInputError, match="expected") as caught:
        transformer.fit(SEQUENCES)
    assert_one_sentence(caught.value)
    fitted = clone(transformer).set_params(**TRANSFORMERS_OF[type(transformer)]).fit(SEQUENCES)
    with pytest.raises(InvalidInputError, match="expected"):
        fitted.set_params(**transformer.get_params()).transform(SEQUENCES)


TRANSFORMERS_OF = {
    SequenceScaler: SequenceScaler().get_params(),
    SequenceImputer: SequenceImputer().get_params(),
    SequenceResampler: SequenceResampler(3).get_params(),
}


# With the estimators.


def test_a_spiking_estimator_asks_for_an_imputer_and_works_behind_one():
    for gaps in (GAPS, list(GAPS)):
        with pytest.raises(InvalidInputError, match="fill the gaps with SequenceImputer first") as caught:
            classifier(witnesses="gaussian").fit(gaps, LABELS)
        assert_one_sentence(caught.value)
    model = make_pipeline(SequenceImputer(), SequenceScaler(), classifier(witnesses="gaussian", standardize=False)).fit(
        GAPS, LABELS
    )
    assert model.score(GAPS, LABELS) > 0.7
    assert model[-1].input_scale_[1].tolist() == [1.0, 1.0, 1.0]


def test_a_pipeline_of_unequal_sequences_can_be_searched_and_validated():
    steps = [
        ("impute", SequenceImputer()),
        ("resample", SequenceResampler(4)),
        ("model", regressor(witnesses="gaussian")),
    ]
    targets = sums(LISTS)
    search = GridSearchCV(Pipeline(steps), {"resample__n_steps": [2, 4]}, cv=2).fit(LISTS, targets)
    assert search.best_estimator_.predict(LISTS).shape == (48,)
    assert len(cross_val_score(Pipeline(steps), LISTS, targets, cv=2)) == 2
