"""A model knows the data that it was fitted to, and says what differs if it is certified on others."""

import pickle

import numpy as np
import pytest
from small_models import classes_of, classifier, make_lists, make_sequences, regressor, sums

import cvxsnn as cs
from cvxsnn.core.errors import DataFileError, OtherDataWarning
from cvxsnn.core.storage import read_tensors, write_tensors
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.data.sequences import DataFingerprint
from cvxsnn.exchange import quantise_estimator

X = make_sequences(40)
Y = classes_of(X, 3)
WEIGHT = np.random.default_rng(0).choice([0.5, 1.0, 2.0], 40)
QUICK = {"witnesses": "gaussian", "decay": 0.75}
MODEL = classifier(**QUICK).fit(X, Y, WEIGHT)

OTHERS = {
    "fewer": ((X[:30], Y[:30], WEIGHT[:30]), r"the number of samples \(30 instead of 40\) differ"),
    "other inputs": ((X + 0.1, Y, WEIGHT), r"\(inputs differ\)"),
    "one other input": (
        (X + (np.arange(480).reshape(X.shape) == 7), Y, WEIGHT),
        r"not the training data \(inputs differ\)",
    ),
    "other labels": ((X, Y[::-1].copy(), WEIGHT), r"\(targets differ\)"),
    "other weights": ((X, Y), r"\(sample weights differ\)"),
    "both": ((X * 2, np.roll(Y, 1), WEIGHT), "inputs and targets differ"),
    "another order": ((X[::-1], Y[::-1], WEIGHT[::-1]), "the order of the samples differ"),
}


def twins(tmp_path):
    cs.save(MODEL, tmp_path / "model")
    return MODEL, cs.load(tmp_path / "model"), pickle.loads(pickle.dumps(MODEL))


@pytest.mark.parametrize("name", OTHERS)
def test_other_data_are_warned_of_with_what_differs(name, tmp_path):
    data, complaint = OTHERS[name]
    for model in twins(tmp_path):
        with pytest.warns(OtherDataWarning, match=complaint) as caught:
            model.certify(*data)
        assert caught[0].filename == __file__


def test_the_same_data_in_another_form_are_the_same(tmp_path):
    for model in twins(tmp_path):
        for data in ((X, Y, 7 * WEIGHT), (list(X), Y.tolist(), WEIGHT), (X + 0.0, Y, 2.0**-40 * WEIGHT)):
            assert model.certify(*data).primal == pytest.approx(MODEL.certificate_.primal, rel=1e-12)
    rows = np.vstack((X, X[:1])), np.append(Y, 0), np.append(WEIGHT, 0.0)
    assert MODEL.certify(*rows).primal == pytest.approx(MODEL.certificate_.primal, rel=1e-12)
    plain = classifier(**QUICK).fit(X, Y)
    plain.certify(X, Y, np.full(40, 3.0))


def test_padding_does_not_count_but_lengths_do():
    lists = make_lists()
    y = sums(lists)
    regressor(**QUICK).fit(lists, y).certify([own.tolist() for own in lists], y)
    lengths = np.array([len(own) for own in lists])
    padded = np.zeros((48, 6, 3))
    for row, own in zip(padded, lists, strict=True):
        row[: len(own)] = own
    longer = np.concatenate((padded, np.ones((48, 2, 3))), axis=1)
    one, same = (DataFingerprint.of(TrainingSet(Sequences(own, lengths), {"y": y})) for own in (padded, longer))
    assert not one.differences(same)
    other = DataFingerprint.of(TrainingSet(Sequences(padded, np.minimum(lengths + 1, 6)), {"y": y}))
    assert one.differences(other) == ["inputs"]


def test_other_stages_warn_too():
    with pytest.warns(OtherDataWarning, match="inputs differ"):
        MODEL.certify_complete(X + 1, Y, WEIGHT, max_seconds=0.2)
    with pytest.warns(OtherDataWarning, match="inputs differ"):
        quantise_estimator(MODEL, X + 1, Y, sample_weight=WEIGHT)


@pytest.mark.parametrize("change", [{"n_samples": "x"}, {"inputs": 3}, {"weights": None}, {"other": 1}])
def test_a_damaged_fingerprint_is_refused(change, tmp_path):
    cs.save(MODEL, tmp_path / "model")
    tensors, header = read_tensors(tmp_path / "model", "model")
    changed = {**header, "training_data": {**header["training_data"], **change}}
    write_tensors(tmp_path / "bad", "model", tensors, changed)
    with pytest.raises(DataFileError, match="does not fit together"):
        cs.load(tmp_path / "bad")
