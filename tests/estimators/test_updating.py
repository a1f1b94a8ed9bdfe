"""Updates: the same optimum as a solve over all rows at once, proven, from what the model keeps of the old rows."""

import pickle
import warnings

import numpy as np
import pytest
import small_models
import torch
from small_models import assert_close_certificates, assert_one_sentence, classes_of, make_lists, make_sequences

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError, OtherDataWarning

OLD, NEW, LATER = slice(0, 30), slice(30, 42), slice(42, 48)


def make_data(n_steps=4):
    sequences = make_sequences(n_steps=n_steps)
    return sequences, classes_of(sequences, 3)


def updated(model, inputs, y, parts=(OLD, NEW, LATER), sample_weight=None):
    for part in parts:
        weight = None if sample_weight is None else sample_weight[part]
        model.partial_fit(inputs[part], y[part], sample_weight=weight)
    return model


def certified(model, inputs, y, sample_weight=None):
    """What the proof of a model says about all of the data, from the sequences themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", OtherDataWarning)
        return model.certify(inputs, y, sample_weight)


@pytest.mark.parametrize("readout", ["last", "mean", "windows-2", "mean+burst", None])
@pytest.mark.parametrize("n_neurons", [4, 200])
def test_an_update_is_the_optimum_over_old_and_new_rows(readout, n_neurons):
    inputs, y = make_data(n_steps=12)
    model = updated(SpikingClassifier(n_neurons=n_neurons, readout=readout, random_state=0), inputs, y)
    found = certified(model, inputs, y)
    assert_close_certificates(model.certificate_, found)
    assert found.relative_gap <= model.tol
    assert [stage.name for stage in model.history_][-2:] == ["update", "update"]


def test_columns_that_differ_only_on_new_rows_become_two_atoms():
    inputs, y = make_data()
    inputs = np.where(np.arange(48)[:, None, None] < 30, 0.1 * inputs, inputs)  # calm samples first
    model = updated(
        SpikingClassifier(n_neurons=300, readout="last", standardize=False, random_state=0), inputs, y, [OLD]
    )
    few = model._kept.dictionary.n_atoms
    model.update(inputs[NEW], y[NEW]).update(inputs[LATER], y[LATER])
    assert model._kept.dictionary.n_atoms > few
    assert_close_certificates(model.certificate_, certified(model, inputs, y))
    products = model._kept.dictionary.row_gram()
    torch.testing.assert_close(model._kept.products, products, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("readout", ["mean", "mean+burst"])
def test_sequences_of_other_lengths_can_be_added(readout):
    inputs = make_lists()
    y = small_models.sums(inputs)
    model = SpikingRegressor(n_neurons=50, readout=readout, random_state=0)
    model.partial_fit([x[:3] for x in inputs[:30]], y[:30]).update(inputs[30:], y[30:])
    assert_close_certificates(model.certificate_, certified(model, [x[:3] for x in inputs[:30]] + inputs[30:], y))


@pytest.mark.parametrize("n_neurons", [4, 200])
def test_weights_of_all_calls_have_one_unit(n_neurons):
    inputs, y = make_data()
    weight = np.where(np.arange(48) < 30, 0.5, 4.0)
    weight[[3, 35]] = 0
    model = SpikingClassifier(n_neurons=n_neurons, readout="mean", class_weight={1: 3.0}, random_state=0)
    updated(model, inputs, y, sample_weight=weight)
    assert_close_certificates(model.certificate_, certified(model, inputs, y, weight))


def test_an_update_of_a_loaded_model_is_the_same(tmp_path):
    inputs, y = make_data(n_steps=12)
    for number, settings in enumerate([{}, {"readout": "last"}, {"readout": "windows-2"}, {"n_neurons": 4}]):
        model = SpikingClassifier(**{"n_neurons": 60, "random_state": 0} | settings).partial_fit(inputs[OLD], y[OLD])
        save(model, tmp_path / f"{number}.safetensors")
        loaded = load(tmp_path / f"{number}.safetensors")
        copied = pickle.loads(pickle.dumps(model))
        for other in (model, loaded, copied):
            other.partial_fit(inputs[NEW], y[NEW])
        for other in (loaded, copied):
            np.testing.assert_allclose(other.decision_function(inputs), model.decision_function(inputs), atol=1e-9)
            assert_close_certificates(other.certificate_, model.certificate_)
        save(model, tmp_path / f"{number}.safetensors")
        again = load(tmp_path / f"{number}.safetensors")
        together = np.r_[OLD, NEW]
        assert_close_certificates(certified(again, inputs[together], y[together]), model.certificate_)


@pytest.mark.parametrize(
    ("settings", "name"), [({"n_neurons": 2}, "n_blocks"), ({"n_neurons": 60, "readout": "mean+burst"}, "n_steps")]
)
@pytest.mark.parametrize("count", [0, 2**53, 10**20])
def test_a_file_with_an_absurd_count_is_refused(settings, name, count, tmp_path):
    inputs, y = (np.tile(part.T, 4).T for part in make_data())
    save(SpikingClassifier(**settings, random_state=0).partial_fit(inputs, y), tmp_path / "model")
    tensors, header = storage.read_tensors(tmp_path / "model", "model")
    assert name in header["kept"]
    header["kept"][name] = count
    storage.write_tensors(tmp_path / "model", "model", tensors, header)
    with pytest.raises(DataFileError, match=name) as caught:
        load(tmp_path / "model")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("settings", [{}, {"intercept": False}])
@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
def test_a_file_shifts_only_targets_of_classes_with_an_intercept(kind, settings, tmp_path):
    inputs, y = make_data()
    save(kind(n_neurons=20, random_state=0, **settings).partial_fit(inputs, y), tmp_path / "model")
    tensors, header = storage.read_tensors(tmp_path / "model", "model")
    header["proof"]["objective"]["loss"] = [{"name": "squared", "shift": [1.0] * tensors["weight"].shape[1]}]
    storage.write_tensors(tmp_path / "model", "model", tensors, header)
    if kind is SpikingClassifier and not settings:
        assert "shifted by" in str(load(tmp_path / "model").summary())
        return
    with pytest.raises(DataFileError, match="shifted targets of a classifier") as caught:
        load(tmp_path / "model")
    assert_one_sentence(caught.value)


def test_only_partial_fit_keeps_anything(tmp_path):
    inputs, y = make_data()
    model = SpikingClassifier(n_neurons=50, random_state=0).fit(inputs, y)
    with pytest.raises(InvalidInputError, match="call partial_fit, in place of fit") as caught:
        model.update(inputs, y)
    assert_one_sentence(caught.value)
    assert model._kept is None
    kept = SpikingClassifier(n_neurons=50, random_state=0).partial_fit(inputs, y)
    assert kept.fit(inputs, y)._kept is None
    assert not hasattr(kept, "partial_fit")


def test_the_first_call_is_a_fit():
    inputs, y = make_data()
    one = SpikingClassifier(n_neurons=50, random_state=0).partial_fit(inputs, y)
    other = SpikingClassifier(n_neurons=50, random_state=0).fit(inputs, y)
    np.testing.assert_array_equal(one.decision_function(inputs), other.decision_function(inputs))


def test_few_neurons_are_not_trained_for_another_loss(tmp_path):
    inputs = np.random.default_rng(0).normal(size=(160, 10, 2))
    y = np.digitize(inputs[:, :, 0].sum(1), [-1, 1])
    model = SpikingClassifier(n_neurons=40, sparsity=12, random_state=0)
    assert "projection" in [stage.name for stage in model.fit(inputs[:120], y[:120]).history_]
    model = SpikingClassifier(n_neurons=40, sparsity=12, random_state=0).partial_fit(inputs[:120], y[:120])
    model.update(inputs[120:], y[120:])
    assert_close_certificates(model.certificate_, certified(model, inputs, y))
    save(model, tmp_path / "model")
    assert_close_certificates(certified(load(tmp_path / "model"), inputs, y), model.certificate_)


def test_classes_may_come_later():
    inputs, y = make_data()
    early = np.flatnonzero(y < 2)
    model = SpikingClassifier(n_neurons=80, random_state=0).partial_fit(inputs[early], y[early], classes=[0, 1, 2])
    model.partial_fit(inputs, y, classes=[2, 1, 0])
    assert {*model.predict(inputs)} == {0, 1, 2}


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (lambda m, inputs, y: m.partial_fit(inputs, y).update(inputs, y + 1), "unknown labels"),
        (lambda m, inputs, y: m.partial_fit(inputs, y, classes=[0, 1]), "unknown labels"),
        (
            lambda m, inputs, y: m.partial_fit(inputs, y).partial_fit(inputs, y, classes=[0, 1]),
            "expected the classes of the first",
        ),
        (lambda m, inputs, y: m.set_params(penalty="l1").fit(inputs, y).update(inputs, y), "ridge alone, which more"),
    ],
)
def test_what_cannot_be_updated_is_refused_in_a_sentence(calls, message):
    inputs, y = make_data()
    model = SpikingClassifier(n_neurons=30, random_state=0)
    with pytest.raises(InvalidInputError, match=message) as caught:
        calls(model, inputs, y)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    "settings",
    [{"loss": "softmax"}, {"penalty": "l1"}, {"method": "sg"}, {"class_weight": "balanced"}, {"l1_strength": 0.1}],
)
def test_partial_fit_exists_only_for_least_squares(settings):
    model = SpikingClassifier(**settings)
    assert not hasattr(model, "partial_fit")
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        _ = model.partial_fit
    assert_one_sentence(caught.value.__cause__)
    assert hasattr(SpikingClassifier(loss="squared", penalty="elastic-net", l1_strength=0), "partial_fit")
    assert hasattr(SpikingRegressor(penalty="elastic-net", l1_strength=0), "partial_fit")


def test_a_refused_update_leaves_the_model_as_it_was():
    inputs, y = make_data()
    model = SpikingClassifier(n_neurons=30, random_state=0).partial_fit(inputs, y)
    before = dict(vars(model))
    with pytest.raises(InvalidInputError):
        model.update(inputs, y + 1)
    assert vars(model) == before


def test_another_readout_is_not_updated_with_old_rows():
    inputs, y = make_data()
    model = SpikingClassifier(n_neurons=30, random_state=0).partial_fit(inputs, y)
    with pytest.raises(InvalidInputError, match="keeps what it needs"):
        model.with_readout(model.network_, model.proof_).update(inputs, y)


def test_warm_start_solves_for_the_readout_of_the_same_neurons():
    inputs, y = make_data()
    model = SpikingClassifier(n_neurons=60, warm_start=True).fit(inputs[OLD], y[OLD])
    witnesses, strength = model.proof_.witnesses, model.proof_.l2_strength
    assert model.fit(inputs, y) is model
    assert model.proof_.witnesses is witnesses
    assert model.proof_.l2_strength == strength
    assert_close_certificates(model.certificate_, certified(model, inputs, y))
    with pytest.raises(InvalidInputError, match="unknown labels"):
        model.fit(inputs, y + 1)
    with pytest.raises(InvalidInputError, match="group"):
        model.fit(inputs, y, groups=np.zeros(len(y)))
    model.set_params(warm_start=False).fit(inputs, y + 1)
    assert model.classes_.tolist() == [1, 2, 3]


def test_warm_start_takes_strengths_that_are_numbers():
    inputs, y = make_data()
    model = small_models.classifier(loss="softmax", l1_strength=0.01, warm_start=True).fit(inputs, y)
    model.set_params(l1_strength=0.02).fit(inputs, y)
    assert model.proof_.l1_strength == 0.02
    assert model.certificate_.relative_gap <= model.tol


def test_warm_start_of_a_model_without_a_proof_is_refused():
    inputs, y = make_data()
    model = small_models.classifier("sg", warm_start=True).fit(inputs, y)
    with pytest.raises(InvalidInputError, match="optimum of a convex program"):
        model.fit(inputs, y)
