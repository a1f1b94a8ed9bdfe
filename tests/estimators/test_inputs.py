"""What may be passed as X: rows, arrays, lists and tables, in several layouts."""

import numpy as np
import pandas
import pytest
import torch
from estimators.samples import FITTED, LABELS, LISTS, SEQUENCES, assert_close
from sklearn.model_selection import cross_val_score
from small_models import assert_one_sentence, classes_of, classifier, make_sequences, regressor, sums

from cvxsnn import InvalidInputError, SequenceImputer, load, save
from cvxsnn.data import Sequences, sequences_from_table
from cvxsnn.estimators.inputs import is_tabular, read_inputs


def quick(**options):
    return classifier(decay=0.8, **options)


NAMES = ["x", "y", "z"]
FRAMES = [pandas.DataFrame(sequence, columns=NAMES) for sequence in LISTS]
TARGETS = classes_of(LISTS)
MODEL = quick().fit(FRAMES, TARGETS)


@pytest.mark.parametrize(
    ("data", "tabular"),
    [
        (np.ones((2, 3)), True),
        (np.ones((2, 3, 4)), False),
        (torch.ones(2, 3), True),
        (torch.ones(2, 3, 4), False),
        ([[1.0, 2.0], [3.0, 4.0]], True),
        ([[[1.0], [2.0]], [[3.0]]], False),
        ([np.ones((2, 3)), np.ones((1, 3))], False),
        ((torch.ones(2, 3), torch.ones(1, 3)), False),
        ([np.ones(3), np.ones(3)], True),
        (np.ones((2, 3)).astype(object), True),
        (np.ones((2, 3, 4)).astype(object), False),
        ([], True),
        ("text", True),
        (["some", "text"], True),
        (None, True),
        (3.0, True),
    ],
    ids=repr,
)
def test_rows_and_sequences_are_told_apart(data, tabular):
    assert is_tabular(data) is tabular


def test_tables_of_pandas_are_rows_with_names():
    rows = make_sequences(40)[:, 0]
    table, labels = (
        pandas.DataFrame(rows, columns=["x", "y", "z"]),
        pandas.Series(classes_of(rows)).map(["n", "y"].__getitem__),
    )
    model = quick().fit(table, labels)
    assert model.feature_names_in_.tolist() == ["x", "y", "z"]
    assert np.array_equal(model.predict(table), quick().fit(rows, labels.to_numpy()).predict(rows))


def read(data, **options):
    """Return what a new estimator reads in fit."""
    return read_inputs(classifier(**options), data, reset=True)


def assert_same(found, expected):
    np.testing.assert_array_equal(found.inputs, expected.inputs)
    assert (found.lengths is None) == (expected.lengths is None)
    if found.lengths is not None:
        np.testing.assert_array_equal(found.lengths, expected.lengths)


# Tables, one per sequence.


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        pandas.Series,
        lambda frames: {f"s{n}": frame for n, frame in enumerate(frames)},
        lambda frames: pandas.Series(frames).to_numpy(),
    ],
    ids=["list", "tuple", "Series", "dict", "array of objects"],
)
def test_tables_come_in_any_container(kind):
    assert_same(read(kind(FRAMES)), Sequences.from_raw(LISTS))


def test_a_model_of_tables_is_that_of_their_values_and_knows_the_names(tmp_path):
    plain = quick().fit(LISTS, TARGETS)
    assert_close(MODEL.decision_function(FRAMES), plain.decision_function(LISTS))
    assert MODEL.feature_names_in_.tolist() == NAMES
    assert not hasattr(plain, "feature_names_in_")
    save(MODEL, tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.feature_names_in_.tolist() == NAMES
    with pytest.raises(InvalidInputError, match="the columns of fit"):
        again.predict([frame[["z", "x", "y"]] for frame in FRAMES])
    assert cross_val_score(regressor(decay=0.8), FRAMES, sums(LISTS), cv=2).shape == (2,)


def test_tables_in_a_dict_may_have_gaps_that_an_imputer_fills_and_samples_that_do_not_count():
    tables = dict(zip("abcdefgh", changed(3, with_nan)[:8], strict=True))
    filled = SequenceImputer().fit_transform(tables)
    assert [frame.columns.tolist() for frame in filled] == [NAMES] * 8
    model = quick().fit(dict(zip(tables, filled, strict=True)), TARGETS[:8], sample_weight=[0.0, *[1.0] * 7])
    assert_close(model.decision_function(filled), quick().fit(filled[1:], TARGETS[1:8]).decision_function(filled))


def test_names_are_forgotten_by_a_fit_without():
    model = quick().fit(FRAMES, TARGETS).fit(LISTS, TARGETS)
    assert not hasattr(model, "feature_names_in_")


def test_numbers_as_names_are_no_names():
    model = classifier()
    read_inputs(model, [frame.set_axis(range(3), axis=1) for frame in FRAMES], reset=True)
    assert not hasattr(model, "feature_names_in_")


def test_names_on_one_side_only_are_warned_of_as_scikit_learn_does():
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        MODEL.predict(LISTS)
    with pytest.warns(UserWarning, match="has feature names, but"):
        FITTED.predict(FRAMES)


def changed(number, change):
    return [change(frame) if n == number else frame for n, frame in enumerate(FRAMES)]


def with_nan(frame):
    return frame.assign(y=np.where(frame.index == 0, np.nan, frame["y"]))


REFUSED = {
    "other order": (
        lambda: MODEL.predict([frame[["y", "x", "z"]] for frame in FRAMES]),
        "expected the columns of fit, 'x', 'y', 'z', got 'y', 'x', 'z': select the columns model",
    ),
    "another name": (
        lambda: MODEL.predict([frame.rename(columns={"y": "w"}) for frame in FRAMES]),
        "got 'x', 'w', 'z': select",
    ),
    "one more": (lambda: MODEL.predict([frame.assign(w=1.0) for frame in FRAMES]), "got 'x', 'y', 'z', 'w': select"),
    "one less": (lambda: MODEL.predict([frame[["x", "y"]] for frame in FRAMES]), "got 'x', 'y': select"),
    "orders that differ": (
        lambda: read(changed(2, lambda frame: frame[["z", "y", "x"]])),
        "the columns of sequence 0, 'x', 'y', 'z', in every sequence, got 'z', 'y', 'x' in sequence 2",
    ),
    "columns that differ": (
        lambda: read(dict(zip("abcd", changed(1, lambda frame: frame[["x"]])[:4], strict=True))),
        "the columns of sequence 'a', .* got 'x' in sequence 'b'",
    ),
    "text": (
        lambda: read(changed(3, lambda frame: frame.assign(y="high"))),
        "expected numbers in column 'y', got 'high' in sequence 3",
    ),
    "text in rows": (lambda: read(FRAMES[0].assign(y="high")), "expected numbers in column 'y', got 'high' in row 0"),
    "a gap": (lambda: read(changed(3, with_nan)), "in column 'y' of sequence 3, got NaN: .* SequenceImputer"),
    "a gap in a prediction": (lambda: MODEL.predict(changed(3, with_nan)), "in column 'y' of sequence 3"),
    "a gap in an array": (lambda: read([*LISTS, LISTS[0] * np.nan]), "got NaN: fill the gaps with SequenceImputer"),
    "tables and arrays": (lambda: read([FRAMES[0], LISTS[1]]), "a list of tables or a list of arrays, got both"),
    "names of two types": (
        lambda: read([frame.rename(columns={"x": 0}) for frame in FRAMES]),
        "expected names of columns that are all strings",
    ),
    "one table": (lambda: MODEL.predict(FRAMES[0]), r"got rows of features: pass an array .* \[x\] for a single one"),
    "one array": (
        lambda: FITTED.predict(SEQUENCES[0]),
        r"got rows of features: pass an array .* \[x\] for a single one",
    ),
    "one list": (lambda: FITTED.predict(SEQUENCES[0].tolist()), "got rows of features: pass an array"),
    "layout of tables": (lambda: read(FRAMES, layout="channels-first"), "got tables, whose columns are the features"),
    "layout of rows": (lambda: read(SEQUENCES[:, 0], layout="channels-first"), r"got rows: pass X\[:, None, :\]"),
    "no layout": (lambda: read(SEQUENCES, layout="time-first"), "expected layout to be one of 'channels-last'"),
    "channels first": (
        lambda: read([sequence.T for sequence in LISTS]),
        r"got 3 rows and from \d to \d columns: .* layout='channels-first'",
    ),
    "one channel": (lambda: read(np.zeros((4, 1, 30))), "got a single step of 30 features each: .*'channels-first'"),
    "a list of one channel": (lambda: read([np.zeros((1, 30))] * 4), "got a single step of 30 features each"),
    "swapped": (
        lambda: FITTED.predict(SEQUENCES.swapaxes(1, 2)),
        "expected sequences with 3 features as in fit, got sequences with 4 features and up to 3 steps",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_misread_is_refused_in_one_sentence(case):
    call, message = REFUSED[case]
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert_one_sentence(caught.value)


# Long tables.

LONG = pandas.concat([frame.assign(case_id=n, time=range(len(frame))) for n, frame in enumerate(FRAMES)])


def test_a_long_table_with_a_target_per_sequence_is_refused_with_what_to_do():
    message = rf"each of {len(LONG)} samples, got {len(FRAMES)}.* one row per step, pass .*sequences_from_table\(X, id="
    with pytest.raises(InvalidInputError, match=message) as caught:
        quick().fit(LONG, TARGETS)
    assert_one_sentence(caught.value)
    assert_same(read(sequences_from_table(LONG, id="case_id").X), Sequences.from_raw(LISTS))


# Layouts.


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list, lambda data: data.astype(object)])
def test_channels_may_come_first(kind):
    assert_same(read(kind(SEQUENCES.swapaxes(1, 2)), layout="channels-first"), Sequences.from_raw(SEQUENCES))
    assert_same(read([x.T for x in LISTS], layout="channels-first"), Sequences.from_raw(LISTS))


def test_a_model_keeps_its_layout():
    model = quick(layout="channels-first").fit(SEQUENCES.swapaxes(1, 2), LABELS)
    plain = quick().fit(SEQUENCES, LABELS)
    assert_close(model.decision_function(SEQUENCES.swapaxes(1, 2)), plain.decision_function(SEQUENCES))


def test_a_single_step_is_read_if_it_is_meant_or_small_or_predicted():
    one = np.zeros((4, 1, 30))
    assert read(one, layout="channels-last").n_features == 30
    assert read(one, layout="channels-first").n_steps == 30
    assert read(one[:, :, :9]).n_features == 9
    assert read([pandas.DataFrame(x) for x in one]).n_features == 30
    model = classifier()
    read_inputs(model, np.zeros((4, 5, 30)), reset=True)
    assert read_inputs(model, one, reset=False).n_steps == 1
