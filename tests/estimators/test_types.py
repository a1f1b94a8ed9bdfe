"""Data of every type: read as the numbers that they are, or refused in one sentence."""

import datetime
import re

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from small_models import assert_one_sentence, classes_of, classifier, make_sequences, regressor, sums

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.core.errors import InvalidTypeError
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.estimators.inputs import feature_scale, warn_of_giants

SEQUENCES = make_sequences(24).astype(np.float16).astype(np.float64)
LABELS, TARGETS = classes_of(SEQUENCES), sums(SEQUENCES)
QUICK = {"witnesses": {"decay": 0.8}}
MASKED = np.ma.array(SEQUENCES, mask=SEQUENCES > 1)
TIMES = (1000 * SEQUENCES).astype("datetime64[s]")
CLASSIFIER = classifier(**QUICK).fit(SEQUENCES, LABELS)
REGRESSOR = regressor(**QUICK).fit(SEQUENCES, TARGETS)
PAIR = regressor(**QUICK).fit(SEQUENCES, np.column_stack((TARGETS, -TARGETS)))


def fit_x(inputs, **options):
    return classifier(**QUICK, **options).fit(inputs, LABELS)


def fit_y(y, **options):
    return classifier(**QUICK, **options).fit(SEQUENCES, y)


SAME = {
    "bfloat16": lambda: fit_x(torch.tensor(np.round(SEQUENCES)).to(torch.bfloat16)),
    "list of bfloat16": lambda: fit_x(list(torch.tensor(np.round(SEQUENCES)).to(torch.bfloat16))),
    "float8": lambda: fit_x(torch.tensor(np.round(SEQUENCES)).to(torch.float8_e4m3fn)),
    "a gradient": lambda: fit_x(torch.tensor(np.round(SEQUENCES), requires_grad=True)),
    "nothing masked": lambda: fit_x(np.ma.array(np.round(SEQUENCES))),
    "other bytes": lambda: fit_x(np.round(SEQUENCES).astype(">f8")),
    "reversed twice": lambda: fit_x(np.round(SEQUENCES)[::-1].copy()[::-1]),
}


@pytest.mark.parametrize("name", SAME)
def test_types_without_numpys_support_give_the_same_model(name):
    expected = fit_x(np.round(SEQUENCES)).decision_function(np.round(SEQUENCES))
    np.testing.assert_array_equal(SAME[name]().decision_function(np.round(SEQUENCES)), expected)


class Labelled:
    """An array with names of its axes, as xarray has them."""

    def __init__(self, values):
        self.values, self.ndim, self.shape, self.dtype = values, values.ndim, values.shape, values.dtype

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


def test_arrays_of_other_libraries_are_sequences():
    model = fit_x(Labelled(SEQUENCES))
    expected = fit_x(SEQUENCES).decision_function(SEQUENCES)
    np.testing.assert_array_equal(model.decision_function(Labelled(SEQUENCES)), expected)
    scaled = cs.SequenceScaler().fit(Labelled(SEQUENCES)).transform(Labelled(SEQUENCES))
    np.testing.assert_array_equal(scaled, cs.SequenceScaler().fit_transform(SEQUENCES))


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (pandas.Series([1, 2] * 12, dtype="Int64"), "i"),
        (pandas.array([1, 2] * 12, dtype="UInt8"), "i"),
        (pandas.Series([2**60, 2**60 + 1] * 12, dtype="Int64"), "i"),
        (pandas.Series([True, False] * 12, dtype="boolean"), "b"),
        (pandas.DataFrame({"y": pandas.array([True, False] * 12, dtype="boolean")})["y"], "b"),
        (pandas.Series([1.0, 2.0] * 12, dtype="Float64"), "f"),
        (pandas.Series(["a", "b"] * 12, dtype="string"), "U"),
        (pandas.Series([3, 4] * 12, dtype="category"), "i"),
        (pandas.Series([3, 4] * 12, dtype="int64[pyarrow]"), "i"),
    ],
)
def test_labels_of_pandas_keep_their_type(tmp_path, labels, kind):
    model = fit_y(labels)
    assert (model.classes_.dtype.kind, model.classes_.tolist()) == (kind, sorted({*labels}))
    assert model.predict(SEQUENCES).dtype == model.classes_.dtype
    assert model.score(SEQUENCES, labels) == model.score(SEQUENCES, np.array(labels.tolist()))
    cs.save(model, tmp_path / "model")
    assert cs.load(tmp_path / "model").classes_.tolist() == model.classes_.tolist()


@pytest.mark.parametrize("value", [0.0, 3.0, 0.1, -1e300, 1e-300])
@pytest.mark.parametrize("shape", [(24, 4, 2), (24, 2)])
def test_constant_inputs_give_the_model_of_no_inputs(value, shape):
    inputs = np.full(shape, value)
    for options in (QUICK, {"n_neurons": 20}):
        model = cs.SpikingClassifier(random_state=0, verbose=False, **options).fit(inputs, [0, 1, 1] * 8)
        assert model.predict(inputs).tolist() == [1] * 24
    mean = cs.SpikingRegressor(random_state=0, verbose=False, **QUICK).fit(inputs, TARGETS).predict(inputs)
    np.testing.assert_allclose(mean, TARGETS.mean(), rtol=1e-6)


def test_targets_and_weights_may_be_tensors_of_bfloat16_or_have_gradients():
    weight = np.resize([0.5, 1.0, 2.0], 24)
    expected = classifier(**QUICK).fit(SEQUENCES, LABELS, weight).decision_function(SEQUENCES)
    labels, tensor = torch.tensor(LABELS).to(torch.bfloat16), torch.tensor(weight).to(torch.bfloat16)
    found = classifier(**QUICK).fit(SEQUENCES, labels, tensor).decision_function(SEQUENCES)
    np.testing.assert_array_equal(found, expected)
    with_gradient = regressor(**QUICK).fit(SEQUENCES, torch.tensor(TARGETS, requires_grad=True))
    np.testing.assert_array_equal(with_gradient.predict(SEQUENCES), REGRESSOR.predict(SEQUENCES))


REFUSED = {
    "masked values": (lambda: fit_x(MASKED), "sequences without masked values, got some"),
    "masked values in a list": (lambda: fit_x(list(MASKED)), "sequence [0-9]+ without masked values"),
    "masked rows": (lambda: fit_x(MASKED[:, 0]), "X without masked values"),
    "masked labels": (lambda: fit_y(np.ma.array(LABELS, mask=LABELS > 0)), "labels without masked values, got some"),
    "masked targets": (
        lambda: regressor(**QUICK).fit(SEQUENCES, np.ma.array(TARGETS, mask=TARGETS > 0)),
        "targets without masked values",
    ),
    "masked weights": (
        lambda: CLASSIFIER.certify(SEQUENCES, LABELS, np.ma.array(np.ones(24), mask=LABELS > 0)),
        "sample_weight without masked values",
    ),
    "masked values to predict": (lambda: CLASSIFIER.predict(MASKED), "sequences without masked values"),
    "masked values to transform": (lambda: cs.SequenceScaler().fit(MASKED), "sequences without masked values"),
    "masked values in windows": (lambda: cs.make_windows(MASKED[:, 0], 3), "sequences without masked values"),
    "masked values for a network": (lambda: CLASSIFIER.network_(MASKED), "inputs without masked values"),
    "masked values of a problem": (
        lambda: cs.ConvexProblem(np.eye(24), np.ma.array(TARGETS, mask=TARGETS > 0)),
        "targets without masked values",
    ),
    "masked weights of a training set": (
        lambda: TrainingSet(SEQUENCES, {"y": TARGETS}, np.ma.array(np.ones(24), mask=LABELS > 0)),
        "sample_weight without masked values",
    ),
    "masked weights of rows": (
        lambda: cs.ConvexProblem(np.eye(24), TARGETS, "squared", row_weight=np.ma.array(np.ones(24), mask=LABELS > 0)),
        "row_weight without masked values",
    ),
    "times": (lambda: fit_x(TIMES), "sequences to be real numbers, got times"),
    "times in a list": (lambda: fit_x(list(TIMES)), "sequence 0 to be real numbers, got times"),
    "times in rows": (lambda: fit_x(TIMES[:, 0]), r"X to be real numbers, got datetime64\[s\]"),
    "times as targets": (lambda: regressor().fit(SEQUENCES, TIMES[:, 0, 0]), "targets to be real numbers, got times"),
    "times as weights": (
        lambda: regressor().fit(SEQUENCES, TARGETS, np.ones(24, dtype="timedelta64[s]")),
        "sample_weight to be real numbers, got differences of times",
    ),
    "times in tables to transform": (
        lambda: cs.SequenceScaler().fit([pandas.DataFrame({"when": [pandas.Timestamp("2024-01-31")]})]),
        "sequence 0 to be numbers",
    ),
    "times of the standard library": (
        lambda: regressor().fit(SEQUENCES, [datetime.datetime(2024, 1, 31)] * 24),
        "targets to be numbers",
    ),
    "text in a list": (lambda: fit_x([own.astype(str) for own in SEQUENCES]), "real numbers, got text"),
    "complex numbers in a list": (lambda: fit_x([own + 1j for own in SEQUENCES]), "real numbers, got complex"),
    "complex numbers for a network": (lambda: CLASSIFIER.network_(torch.tensor(SEQUENCES + 1j)), "real numbers"),
    "large integers": (lambda: regressor().fit(SEQUENCES, [10**400] * 24), "targets to be numbers"),
    "a sparse tensor": (lambda: fit_x(torch.tensor(SEQUENCES).to_sparse()), "a dense tensor of numbers"),
    "a tensor without values": (lambda: fit_x(torch.tensor(SEQUENCES).to("meta")), "got one without values"),
    "records": (lambda: regressor().fit(SEQUENCES, np.zeros(24, dtype=[("a", float)])), "got records"),
    "labels of two types": (lambda: fit_y(["a", 1] * 12), "labels of one type, got int and str"),
    "objects of two types": (
        lambda: fit_y(np.array(["a", 1] * 12, dtype=object)),
        "labels of one type, got int and str",
    ),
    "missing labels": (lambda: fit_y(["a", None] * 12), "a label for every sample, got None for sample 1"),
    "missing numbers": (lambda: fit_y(np.array([1.0, np.nan] * 12)), "a label for every sample, got nan for sample 1"),
    "missing text": (lambda: fit_y(["a", float("nan")] * 12), "a label for every sample, got nan for sample 1"),
    "missing integers of pandas": (
        lambda: fit_y(pandas.array([1, 2, None] * 8, dtype="Int64")),
        "a label for every sample, got <NA> for sample 2",
    ),
    "missing booleans of pandas": (
        lambda: fit_y(pandas.Series([True, None] * 12, dtype="boolean")),
        "a label for every sample, got <NA> for sample 1",
    ),
    "missing categories": (
        lambda: fit_y(pandas.Series(["a", None] * 12, dtype="category")),
        "a label for every sample, got nan for sample 1",
    ),
    "four axes": (lambda: fit_x(SEQUENCES[..., None]), r"join the axes of a step, .* X.reshape\(\*X.shape\[:2\], -1\)"),
    "four axes to transform": (lambda: cs.SequenceScaler().fit(SEQUENCES[..., None]), "for rows of features use"),
    "a Series of lists": (
        lambda: fit_x(pandas.Series(SEQUENCES[:, :, 0].tolist())),
        r"got Series of lists of \d+ numbers: pass np.stack",
    ),
    "lists of unequal lengths": (
        lambda: fit_x([own[: 2 + number % 2, 0].tolist() for number, own in enumerate(SEQUENCES)]),
        "got list of lists of 2 to 3 numbers: pass np.stack",
    ),
    "columns of one name": (
        lambda: fit_x(pandas.DataFrame(SEQUENCES[:, 0, :2], columns=["a", "a"])),
        "columns with different names, got 'a' more than once",
    ),
    "columns of one name in sequences": (
        lambda: fit_x([pandas.DataFrame(own[:, :2], columns=["a", "a"]) for own in SEQUENCES]),
        "columns with different names, got 'a' more than once",
    ),
    "columns of one name of pyarrow": (
        lambda: fit_x(pyarrow.Table.from_arrays(list(map(pyarrow.array, SEQUENCES[:, 0, :2].T)), names=["a", "a"])),
        "columns with different names, got 'a' more than once",
    ),
    "bytes as labels": (lambda: fit_y([b"a", b"b"] * 12), "numbers or strings, got bytes"),
    "times as labels": (lambda: fit_y(TIMES[:, 0, 0]), r"numbers or strings, got datetime64\[s\]"),
    "days as labels": (lambda: fit_y([datetime.date(2024, 1, 1 + k % 2) for k in range(24)]), "strings, got date"),
    "large labels": (lambda: fit_y([10**30, 10**31] * 12), "numbers or strings, got object"),
    "no labels": (lambda: fit_y([]), "one label per sample, got none"),
    "one label": (lambda: fit_y(3), r"1d array, got an array of shape \(\)"),
    "a generator": (lambda: fit_x(iter(SEQUENCES)), "Expected sequence or array-like, got"),
    "weights of no numbers": (lambda: classifier().fit(SEQUENCES, LABELS, ["a"] * 24), "real numbers, got text"),
    "weights of two axes": (
        lambda: classifier().fit(SEQUENCES, LABELS, np.ones((24, 2))),
        "one sample_weight for each",
    ),
    "another number of outputs": (
        lambda: REGRESSOR.certify(SEQUENCES, np.ones((24, 3))),
        "as many axes as in fit",
    ),
    "fewer outputs": (lambda: PAIR.certify(SEQUENCES, TARGETS), "as many axes as in fit"),
    "more outputs": (
        lambda: PAIR.certify(SEQUENCES, np.ones((24, 3))),
        "targets for 2 outputs, as in training, got 3 outputs",
    ),
}


@pytest.mark.filterwarnings("ignore:this is not the training data")
@pytest.mark.parametrize("name", REFUSED)
def test_other_types_are_refused_in_one_sentence(name):
    call, complaint = REFUSED[name]
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        call()
    assert_one_sentence(caught.value)


ODD = ("x", -1, np.nan, [], object(), np.array([1, 2]), b"x")
OPTIONAL = {
    "hidden",
    "max_seconds",
    "readout",
    "loss",
    "sparsity",
    "surrogate",
    "class_weight",
    "random_state",
    "layout",
    "target",
}


@pytest.mark.parametrize("options", [{}, QUICK], ids=["mixed", "gaussian"])
@pytest.mark.parametrize("name", sorted(classifier().get_params()))
def test_odd_parameters_are_refused_in_one_sentence(name, options):
    for value in ODD if name in OPTIONAL | {"layout"} else (*ODD, None):
        if name == "hidden" and isinstance(value, np.ndarray):
            continue
        with pytest.raises(InvalidInputError) as caught:
            classifier(**{**options, name: value}).fit(SEQUENCES, LABELS)
        assert_one_sentence(caught.value)


@pytest.mark.parametrize("device", ["meta", "mps", "xpu", "cuda:99", 10**30])
def test_devices_that_compute_nothing_here_are_refused(device):
    with pytest.raises(InvalidInputError, match=r"expected (a device such as|a machine with|one of .*) .*") as caught:
        fit_x(SEQUENCES, device=device)
    assert_one_sentence(caught.value)


def test_errors_about_types_are_type_errors_too():
    with pytest.raises(InvalidTypeError):
        fit_x(None)
    assert issubclass(InvalidTypeError, TypeError)


@pytest.mark.parametrize("factor", [2.0**-1060, 2.0**-500, 2.0**500, 2.0**1020])
def test_the_scale_of_inputs_does_not_matter(factor):
    near = feature_scale(Sequences(SEQUENCES), None)
    far = feature_scale(Sequences(SEQUENCES * factor), None)
    for own, other in zip(near, far, strict=True):
        np.testing.assert_allclose(other, own * factor, rtol=1e-3 if factor < 1e-300 else 0)
    assert (fit_x(SEQUENCES * factor).predict(SEQUENCES * factor) == CLASSIFIER.predict(SEQUENCES)).mean() > 0.9
    scaled = cs.SequenceScaler().fit_transform(SEQUENCES * factor)
    np.testing.assert_allclose(scaled, cs.SequenceScaler().fit_transform(SEQUENCES), atol=1e-2)


def test_inputs_at_the_end_of_the_range_are_standardised():
    X = np.where(SEQUENCES > 0, 1.7e308, -1.7e308)
    signs = np.where(SEQUENCES > 0, 1.0, -1.0)
    np.testing.assert_array_equal(fit_x(X).decision_function(X), fit_x(signs).decision_function(signs))
    gaps = X.copy()
    gaps[0, 0] = np.nan
    assert np.isfinite(cs.SequenceImputer("mean").fit_transform(gaps)).all()


@pytest.mark.parametrize("value", [1e308, -1e5])
@pytest.mark.parametrize("is_table", [True, False])
def test_one_value_that_dwarfs_the_others_is_named(value, is_table):
    rows = SEQUENCES[:, 0].copy()
    rows[5, 1] = value
    table = pandas.DataFrame(rows, columns=["a", "b", "c"]) if is_table else rows
    column = "'b'" if is_table else "1"
    with pytest.warns(
        UserWarning, match=re.escape(f"{value:.6g} in column {column} dwarfs the other values")
    ) as caught:
        classifier(**QUICK).fit(table, LABELS)
    assert len(caught) == 1
    weight = np.ones(24)
    weight[5] = 0
    classifier(**QUICK).fit(table, LABELS, weight)  # does not count


@pytest.mark.parametrize("tail", ["standard_cauchy", "lognormal", "rare", "counts", "growth"])
def test_heavy_tails_dwarf_nothing(tail):
    generator = np.random.default_rng(0)
    values = {
        "standard_cauchy": lambda: generator.standard_cauchy((5000, 2)),
        "lognormal": lambda: generator.lognormal(sigma=2.5, size=(5000, 2)),
        "rare": lambda: 1.0 * (np.arange(10000) == 77).reshape(5000, 2),
        "counts": lambda: np.floor(generator.pareto(1, (5000, 2))),
        "growth": lambda: np.exp(np.linspace(0, 100, 200)).reshape(100, 2),
    }[tail]()
    sequences = Sequences(values.reshape(len(values), 1, 2))
    warn_of_giants(sequences, feature_scale(sequences, None)[1], None)


def test_more_classes_than_different_columns_are_fitted():
    X, y = np.full((12, 2, 1), 3.0), np.arange(12) % 4
    assert set(cs.SpikingClassifier(n_neurons=8, random_state=0).fit(X, y).predict(X)) <= {*range(4)}


def test_labels_that_are_objects_are_saved(tmp_path):
    labels = np.array([3, 5] * 12, dtype=object)
    model = classifier().fit(SEQUENCES, labels)
    cs.save(model, tmp_path / "model")
    assert (cs.load(tmp_path / "model").predict(SEQUENCES) == model.predict(SEQUENCES)).all()
    assert set(model.predict(SEQUENCES)) <= {3, 5}
