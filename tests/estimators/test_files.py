import json
import os
import pickle
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layers import draw_layer, draw_stack
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.pipeline import make_pipeline
from small_models import (
    CONVEX_METHODS,
    OTHER_METHODS,
    assert_close_certificates,
    assert_one_sentence,
    classes_of,
    classifier,
    make_lists,
    make_sequences,
    regressor,
    sums,
)
from tolerances import ROUNDING

from cvxsnn import (
    InvalidInputError,
    LIFLayer,
    SequenceScaler,
    SpikingClassifier,
    SpikingNetwork,
    SpikingRegressor,
    WitnessSet,
    gaussian_witnesses,
    load,
    save,
)
from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError
from cvxsnn.estimators import model_parts
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.network import OutputHead
from cvxsnn.witnesses import LogUniform, Normal, Provenance, Uniform

SEQUENCES = make_sequences()
LISTS = make_lists()
LABELS = classes_of(SEQUENCES)
NAMES = np.array(["low", "middle", "high"])[classes_of(SEQUENCES, 3)]


def round_trip(model, folder):
    save(model, folder / "model.cvxsnn")
    return load(folder / "model.cvxsnn")


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING)


def assert_same_network(found, network, inputs):
    assert torch.equal(found.features(inputs), network.features(inputs))
    torch.testing.assert_close(found(inputs), network(inputs), rtol=0, atol=ROUNDING)
    assert (found.heads, found.readout, found.hidden) == (network.heads, network.readout, network.hidden)
    for own, others in zip(found.layers, network.layers, strict=True):
        assert type(own) is type(others)
        assert own.weight_bits == others.weight_bits
        for name, value in others.tensors().items():
            assert torch.equal(own.tensors()[name], value)
            assert own.tensors()[name].dtype == value.dtype


def assert_same_estimator(found, model, data, targets):
    assert type(found) is type(model)
    assert found.get_params() == model.get_params()
    assert found.n_features_in_ == model.n_features_in_
    assert (found.certificate_ is None) == (model.certificate_ is None)
    predicted = model.predict(data)
    compare = np.testing.assert_array_equal if isinstance(model, SpikingClassifier) else assert_close
    compare(found.predict(data), predicted)
    assert found.predict(data).dtype == predicted.dtype
    if isinstance(model, SpikingClassifier):
        assert_close(found.decision_function(data), model.decision_function(data))
        np.testing.assert_array_equal(found.classes_, model.classes_)
    if model.certificate_ is not None:
        assert_close_certificates(found.certificate_, model.certificate_)
        assert_close_certificates(found.certify(data, targets), model.certify(data, targets))


def test_widths_may_be_an_array(tmp_path):
    model = classifier(hidden=np.array([6, 4])).fit(SEQUENCES, LABELS)
    save(model, tmp_path / "model")
    assert load(tmp_path / "model").hidden == (6, 4)


@given(
    hidden=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    n_features=st.integers(1, 3),
    n_subnetworks=st.integers(1, 3),
    neuron=st.sampled_from(["lif", "threshold"]),
    readout=st.sampled_from(["last", "all", "mean"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    n_outputs=st.integers(1, 3),
    data=st.data(),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_network_of_any_shape_comes_back_to_the_bit(
    tmp_path, hidden, n_features, n_subnetworks, neuron, readout, dtype, n_outputs, data
):
    layers = gaussian_witnesses(n_features, hidden, n_subnetworks, neuron=neuron, dtype=dtype, bias=Normal(0, 1)).layers
    n_neurons = n_subnetworks * hidden[-1]
    neurons = data.draw(st.lists(st.integers(0, n_neurons - 1), max_size=n_neurons))
    weight = torch.randn(len(neurons), n_outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    heads = [OutputHead("label", "squared", 0, n_outputs)]
    network = SpikingNetwork(layers, weight, heads, torch.ones(n_outputs), torch.tensor(neurons).long(), readout)
    assert_same_network(round_trip(network, tmp_path), network, make_sequences(4, 3, n_features))


def test_unusual_layers_come_back_too(tmp_path):
    layer = LIFLayer(torch.randn(1, 3, 4), tie="gt", weight_bits=20, initial_membrane=-0.5, initial_spikes=1.0)
    heads = [OutputHead("sum", "softmax", 0, 2), OutputHead("carry", "logistic", 2, 3)]
    network = SpikingNetwork([layer], torch.randn(4, 3), heads)
    found = round_trip(network, tmp_path)
    assert found.layers[0].tie == "gt"
    assert_same_network(found, network, SEQUENCES)


def delayed_network():
    return SpikingNetwork(draw_stack(0), torch.randn(12, 1), [OutputHead("label", "hinge", 0, 1)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_delays_come_back_to_the_bit(tmp_path, dtype):
    network = delayed_network().to(dtype)
    found = round_trip(network, tmp_path)
    assert_same_network(found, network, SEQUENCES)
    assert [layer.settings() for layer in found.layers] == [layer.settings() for layer in network.layers]
    for own, others in zip(found.layers, network.layers, strict=True):
        assert own.tensors().keys() == others.tensors().keys()


def test_an_estimator_over_witnesses_with_delays_comes_back_the_same(tmp_path):
    witnesses = WitnessSet((draw_layer(0, width=20),), Provenance("pretrained"))
    model = classifier(witnesses=witnesses).fit(SEQUENCES, NAMES)
    assert model.network_.layers[0].max_delay > 0
    found = round_trip(model, tmp_path)
    assert_same_estimator(found.set_params(witnesses=witnesses), model, SEQUENCES, NAMES)
    assert_same_network(found.network_, model.network_, SEQUENCES)
    assert_same_network(pickle.loads(pickle.dumps(model)).network_, model.network_, SEQUENCES)


@pytest.mark.parametrize("method", [*CONVEX_METHODS, *OTHER_METHODS])
def test_a_classifier_of_any_method_comes_back_the_same(tmp_path, method):
    model = classifier(method).fit(SEQUENCES, NAMES)
    found = round_trip(model, tmp_path)
    assert_same_estimator(found, model, SEQUENCES, NAMES)
    assert_close(found.predict_proba(SEQUENCES), model.predict_proba(SEQUENCES))
    assert found.certificate_ == model.certificate_  # it was stored, not computed again
    assert_same_network(found.network_, model.network_, SEQUENCES)


@pytest.mark.parametrize(
    "parameters",
    [
        {"decay": Uniform(0.1, 0.9), "threshold": LogUniform(0.5, 2.0), "bias": Normal(0.1, 0.3), "gain": 2.0},
        {"neuron": "threshold", "hidden": (6, 24), "n_subnetworks": 2},
        {"loss": "hinge"},
        {"loss": "squared"},
        {"penalty": "group", "intercept": False, "readout": "last"},
        {"l1_strength": "auto"},
        {"penalty": "elastic-net", "l2_strength": 0.01},
        {"penalty": "elastic-net", "l1_strength": 0.0, "l2_strength": 0.01},
        {"penalty": "group-elastic-net", "l2_strength": 0.01},
        {"surrogate": None},
        {"surrogate": SurrogateSettings(epochs=3, patience=1, schedule="constant")},
        {"surrogate": SurrogateSettings(epochs=np.int64(3), dropout=np.float32(0.1), train_bias=np.False_)},
        {"hidden": 24, "random_state": 7, "standardize": False},
    ],
    ids=str,
)
def test_parameters_and_proof_come_back_the_same(tmp_path, parameters):
    model = classifier(**parameters).fit(SEQUENCES, NAMES)
    assert_same_estimator(round_trip(model, tmp_path), model, SEQUENCES, NAMES)


@pytest.mark.parametrize(
    "values",
    [("no", "yes"), (False, True), (-3, 5), (1.0, 2.5e3), np.array(["a", "b"], dtype=object), np.uint8([1, 255])],
    ids=repr,
)
def test_labels_of_any_type_come_back_the_same(tmp_path, values):
    labels = np.asarray(values)[LABELS]
    model = classifier().fit(SEQUENCES, labels)
    assert_same_estimator(round_trip(model, tmp_path), model, SEQUENCES, labels)


def test_regressors_come_back_the_same(tmp_path):
    for targets in (sums(SEQUENCES), np.stack([sums(SEQUENCES), SEQUENCES[:, 0, 0]], axis=1)):
        model = regressor(penalty="group").fit(SEQUENCES, targets)
        assert_same_estimator(round_trip(model, tmp_path), model, SEQUENCES, targets)


def test_models_of_rows_and_of_unequal_sequences_come_back_the_same(tmp_path):
    for data in (SEQUENCES[:, 0], LISTS):
        model = classifier(l1_strength="auto").fit(data, classes_of(data))
        assert_same_estimator(round_trip(model, tmp_path), model, data, classes_of(data))


def test_names_of_columns_come_back(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(SEQUENCES[:, 0], columns=["a", "b", "c"])
    found = round_trip(classifier().fit(frame, classes_of(SEQUENCES[:, 0])), tmp_path)
    assert found.predict(frame).shape == (48,)
    with pytest.raises(ValueError, match="feature names"):
        found.predict(frame[["b", "a", "c"]])


@pytest.mark.parametrize("change", ["type", "layers"])
def test_witnesses_that_their_recipe_does_not_give_come_back_as_they_were(tmp_path, change):
    sequences = make_sequences()
    labels = classes_of(sequences)
    sampled = gaussian_witnesses(sequences.shape[2], (12,), bias=Normal(0.0, 0.5))
    (layer,) = sampled.layers
    moved = replace(sampled, layers=(layer.with_tensors({"bias": layer.bias + 0.5}),))
    witnesses = sampled.to(dtype=torch.float64) if change == "type" else moved
    model = SpikingClassifier(witnesses=witnesses, l1_strength=0.01).fit(sequences, labels)
    save(model, tmp_path / "model")
    for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert (again.predict(sequences) == model.predict(sequences)).all()
        assert again.certify(sequences, labels) == model.certify(sequences, labels)


def test_a_random_state_is_not_kept(tmp_path):
    model = classifier(random_state=np.random.RandomState(3)).fit(SEQUENCES, LABELS)
    found = round_trip(model, tmp_path)
    assert found.random_state is None
    np.testing.assert_array_equal(found.predict(SEQUENCES), model.predict(SEQUENCES))


def test_a_loaded_model_can_be_saved_and_fitted_again(tmp_path):
    model = classifier().fit(SEQUENCES, NAMES)
    first = round_trip(model, tmp_path)
    tensors, header = storage.read_tensors(tmp_path / "model.cvxsnn", "model")
    assert_same_estimator(round_trip(first, tmp_path), model, SEQUENCES, NAMES)
    tensors_again, header_again = storage.read_tensors(tmp_path / "model.cvxsnn", "model")
    assert header_again == header
    assert tensors_again.keys() == tensors.keys()
    assert all(torch.equal(tensors_again[name], value) for name, value in tensors.items())
    again = first.fit(SEQUENCES, NAMES)
    gap = max(again.certificate_.gap, model.certificate_.gap)
    assert abs(again.certificate_.primal - model.certificate_.primal) <= gap + ROUNDING


@pytest.mark.parametrize("kind", [SpikingClassifier, SpikingRegressor])
def test_an_unfitted_estimator_is_refused(tmp_path, kind):
    with pytest.raises(InvalidInputError, match=f"a fitted {kind.__name__}, got one that is not: call fit first"):
        save(kind(), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(
        InvalidInputError, match="a network, a spiking estimator or a pipeline with one at its end, got dict"
    ):
        save({}, tmp_path / "model")


# Files that are not what they should be.


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small model's file, with a proof over sampled witnesses."""
    path = tmp_path_factory.mktemp("saved") / "model.cvxsnn"
    save(classifier(neuron="threshold", hidden=(4,)).fit(SEQUENCES, NAMES), path)
    return path.read_bytes()


def assert_refused(path, complaint="expected"):
    """Refused in one sentence, at once, and without memory for what the file pretends to hold."""
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with pytest.raises(DataFileError, match=complaint) as caught:
        load(path)
    assert_one_sentence(caught.value)
    assert str(path) in str(caught.value)
    assert time.perf_counter() - begin < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_truncated_file_is_refused(tmp_path, saved):
    path = tmp_path / "model"
    for length in [0, 1, 7, 8, 9, *np.linspace(10, len(saved) - 1, 50).astype(int)]:
        path.write_bytes(saved[:length])
        assert_refused(path, "truncated or damaged")


def test_a_file_with_more_at_its_end_is_refused(tmp_path, saved):
    path = tmp_path / "model"
    path.write_bytes(saved + b"\0")
    assert_refused(path)


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_any_flipped_bit_is_found(tmp_path, saved, flip):
    path = tmp_path / "model"
    header = 8 + int.from_bytes(saved[:8], "little")
    for place in [
        *range(9),
        *np.linspace(9, header, 40).astype(int),
        *np.linspace(header, len(saved) - 1, 12).astype(int),
    ]:
        damaged = bytearray(saved)
        damaged[place] ^= flip
        path.write_bytes(bytes(damaged))
        assert_refused(path)


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (os.environ["CVXSNN_TRAP"],)


def test_other_files_are_refused_and_nothing_in_them_is_run(tmp_path, monkeypatch, saved):
    monkeypatch.setenv("CVXSNN_TRAP", str(tmp_path / "sprung"))
    path = tmp_path / "other"
    path.write_bytes(pickle.dumps(Trap()))
    assert_refused(path, "truncated or damaged")
    torch.save({"trap": Trap()}, path)
    assert_refused(path, "truncated or damaged")
    assert not (tmp_path / "sprung").exists()
    path.write_text("This is no model.\n" * 100)
    assert_refused(path, "truncated or damaged")
    save_file({"weight": torch.ones(3)}, path)
    assert_refused(path, "another safetensors file")
    storage.write_tensors(path, "checkpoint", {}, {})
    assert_refused(path, "expected a model file, got a checkpoint file")
    assert_refused(tmp_path, "found a folder")
    assert_refused(tmp_path / "missing", "found nothing")


def parts(saved, folder):
    (folder / "whole").write_bytes(saved)
    with safe_open(folder / "whole", framework="pt") as file:
        metadata = dict(file.metadata())
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    return tensors, json.loads(metadata["header"])


def test_a_newer_file_says_to_update(tmp_path, monkeypatch, saved):
    tensors, header = parts(saved, tmp_path)
    monkeypatch.setattr(storage, "LIMITS", storage.Limits(version=2))
    storage.write_tensors(tmp_path / "newer", "model", tensors, header)
    monkeypatch.undo()
    assert_refused(tmp_path / "newer", "version 1 or older, got version 2: update cvxsnn")


def change(*keys, to):
    def apply(tensors, header):
        place = header
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return apply


def remove(*keys):
    def apply(tensors, header):
        place = header
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return apply


def put(name, value):
    return lambda tensors, header: tensors.update({name: value})


def drop(name):
    return lambda tensors, header: tensors.pop(name)


def wide_layer_without_recurrence(tensors, header):
    tensors["network.0.weight"] = torch.ones(1, 3, 200_000)
    for name in [name for name in tensors if name.startswith("network.0.") and name != "network.0.weight"]:
        del tensors[name]


def halve(tensors, start):
    tensors.update({name: value.half() for name, value in tensors.items() if name.startswith(start)})


def enlarge(header, **sizes):
    header["proof"]["witnesses"]["recipe"].update(sizes)


EMPTY_HEAD = {"name": "none", "loss": "squared", "start": 0, "stop": 0}
TWINS = [{"name": "label", "loss": "softmax", "start": start, "stop": start + 1} for start in range(3)]
LARGE_RECIPE = {"n_features": 3, "hidden": [10**6], "n_subnetworks": 1, "neuron": "lif", "seed": 0, "dtype": "float32"}
SMALL_RECIPE = LARGE_RECIPE | {"hidden": [4]}
DEEP_RECIPE = LARGE_RECIPE | {"hidden": [1] * 10_000}
RECIPE = ("proof", "witnesses", "recipe")
TAMPERED = {
    "no class": remove("class"),
    "unknown class": change("class", to="os.system"),
    "class is a list": change("class", to=["classifier"]),
    "no network": remove("network"),
    "network is a number": change("network", to=3),
    "no layers": change("network", "layers", to=[]),
    "unknown neuron": change("network", "layers", 0, "neuron", to="builtins.exec"),
    "unknown layer setting": change("network", "layers", 0, "surprise", to=1),
    "absurd weight bits": change("network", "layers", 0, "weight_bits", to=10**9),
    "heads are missing": change("network", "heads", to=[]),
    "heads are text": change("network", "heads", to="softmax"),
    "head too wide": change("network", "heads", 0, "stop", to=10**12),
    "unknown readout": change("network", "readout", to="everything"),
    "parameters are a list": change("parameters", to=[1, 2]),
    "unknown parameter": change("parameters", "surprise", to=1),
    "unknown distribution": change("parameters", "decay", to={"distribution": "os.system", "value": 1}),
    "unknown surrogate setting": change("parameters", "surrogate", to={"surrogate": {"command": "ls"}}),
    "no labels": remove("classes"),
    "labels of another kind": change("classes", "kind", to="V8"),
    "labels of no kind": change("classes", "kind", to="surprise"),
    "labels of absurd width": change("classes", "kind", to="<U500000000"),
    "fewer labels than outputs": change("classes", "values", to=["low"]),
    "more labels than outputs": change("classes", "values", to=list("abcdefgh")),
    "no weight": drop("weight"),
    "no intercept": drop("intercept"),
    "weight of other shape": put("weight", torch.ones(3, 3, 3)),
    "weight of absurd shape": put("weight", torch.ones(0, 2**40)),
    "intercept of other shape": put("intercept", torch.ones(7)),
    "neurons out of range": put("neurons", torch.tensor([10**6])),
    "negative neurons": put("neurons", torch.tensor([-1])),
    "layer with NaN": put("network.0.bias", torch.tensor(float("nan"))),
    "layer of other shape": put("network.0.weight", torch.ones(1, 3)),
    "recurrence of other shape": put("network.0.recurrent_weight", torch.ones(1, 2, 3)),
    "a wide layer without its recurrence": wide_layer_without_recurrence,
    "no scale": drop("scale.mean"),
    "scale of other shape": put("scale.spread", torch.ones(2)),
    "no dual point": drop("proof.dual_point"),
    "no recipe": remove(*RECIPE),
    "recipe is text": change(*RECIPE, to="rm"),
    "recipe of absurd width": change(*RECIPE, "hidden", to=[10**7]),
    "recipe of absurd depth": change(*RECIPE, "hidden", to=[10**5, 10**5]),
    "recipe of absurd subnetworks": change(*RECIPE, "n_subnetworks", to=10**12),
    "recipe of absurd features": change(*RECIPE, "n_features", to=10**15),
    "recipe of endless features": change(*RECIPE, "n_features", to=float("inf")),
    "recipe of negative width": change(*RECIPE, "hidden", to=[-4]),
    "recipe of fractions": change(*RECIPE, "hidden", to=[2.5]),
    "recipe of text": change(*RECIPE, "hidden", to="abc"),
    "recipe with another seed": change(*RECIPE, "seed", to=12345),
    "recipe with an absurd seed": change(*RECIPE, "seed", to=-1),
    "recipe with no such type": change(*RECIPE, "dtype", to="surprise"),
    "recipe with a function for a type": change(*RECIPE, "dtype", to="load"),
    "recipe with something to call": change(*RECIPE, "surprise", to="os.system"),
    "unknown witnesses": change("proof", "witnesses", to={"kind": "magic", "layers": []}),
    "no witnesses": change("proof", "witnesses", to={"kind": "pretrained", "layers": []}),
    "unknown loss": change("proof", "objective", "loss", to=[{"name": "surprise"}]),
    "no certificate": remove("proof", "certificate"),
    "strength is text": change("proof", "l1_strength", to="strong"),
    "strength is negative": change("proof", "l1_strength", to=-1.0),
    "second strength is text": change("proof", "l2_strength", to="strong"),
    "second strength is a list": change("proof", "l2_strength", to=[0.1]),
    "second strength without a quadratic": change("proof", "l2_strength", to=0.1),
    "neurons of fractions": put("neurons", torch.tensor([0.0, 1.5])),
    "neurons of truths": put("neurons", torch.tensor([True, False])),
    "neurons in a table": put("neurons", torch.zeros(2, 1, dtype=torch.int64)),
    "bounds of heads are text": change("network", "heads", 0, "stop", to="3"),
    "bounds of heads are fractions": change("network", "heads", 0, "stop", to=3.0),
    "bounds of heads are truths": change("network", "heads", 0, "start", to=False),
    "head without outputs": lambda tensors, header: header["network"]["heads"].insert(0, EMPTY_HEAD),
    "heads of one name": lambda tensors, header: header["network"].update(heads=TWINS),
    "name of a head is a number": change("network", "heads", 0, "name", to=1),
    "windows without end": change("network", "readout", to="windows-9999999999"),
    "an estimator that reads all steps": change("network", "readout", to="all"),
    "weight with NaN": lambda tensors, header: tensors["weight"].fill_(torch.nan),
    "endless weight": lambda tensors, header: tensors["weight"].fill_(torch.inf),
    "intercept with NaN": lambda tensors, header: tensors["intercept"].fill_(torch.nan),
    "layer of half precision": lambda tensors, header: halve(tensors, "network.0."),
    "layer of complex numbers": put("network.0.bias", torch.zeros(1, 4, dtype=torch.complex64)),
    "weight bits are a fraction": change("network", "layers", 0, "weight_bits", to=15.5),
    "scale of zero": lambda tensors, header: tensors["scale.spread"].zero_(),
    "scale below zero": lambda tensors, header: tensors["scale.spread"].neg_(),
    "scale with NaN": lambda tensors, header: tensors["scale.mean"].fill_(torch.nan),
    "scale of other type": lambda tensors, header: halve(tensors, "scale."),
    "sequential is text": change("is_sequential", to="yes"),
    "labels twice": change("classes", "values", to=["high", "high", "low"]),
    "labels in disorder": change("classes", "values", to=["middle", "low", "high"]),
    "labels of lists": change("classes", "values", to=[["a"], ["b"], ["c"]]),
    "labels of all sorts": lambda tensors, header: header.update(classes={"kind": "O", "values": [1, "a", "b"]}),
    "labels of NaN": lambda tensors, header: header.update(classes={"kind": "<f8", "values": [1, 2, float("nan")]}),
    "labels of a table's kind": change("classes", "kind", to="(1000000000,)f8"),
    "names of features are numbers": change("feature_names", to=[1, 2, 3]),
    "names of features twice": change("feature_names", to=["a", "a", "b"]),
    "too few names of features": change("feature_names", to=["a", "b"]),
    "loss of absurdly many classes": change(
        "proof", "objective", "loss", to=[{"name": "softmax", "n_classes": 10**12}]
    ),
    "loss of fractional classes": change("proof", "objective", "loss", to=[{"name": "softmax", "n_classes": 2.5}]),
    "intercept is text": change("proof", "has_intercept", to="no"),
    "support of fractions": lambda tensors, header: tensors.update({"proof.support": tensors["proof.support"] + 0.5}),
    "support out of range": lambda tensors, header: tensors["proof.support"].add_(10**6),
    "negative support": lambda tensors, header: tensors["proof.support"].sub_(10**6),
    "coefficients with NaN": lambda tensors, header: tensors["proof.coef"].fill_(torch.nan),
    "coefficients of other shape": put("proof.coef", torch.zeros(1, 1, dtype=torch.float64)),
    "intercept of a proof of other shape": put("proof.intercept", torch.zeros(7, dtype=torch.float64)),
    "dual point with NaN": lambda tensors, header: tensors["proof.dual_point"].fill_(torch.nan),
    "dual point of other shape": put("proof.dual_point", torch.zeros(48, dtype=torch.float64)),
    "certificate of NaN": change("proof", "certificate", "primal", to=float("nan")),
    "certificate of text": change("proof", "certificate", "dual", to="0"),
    "certificate of everything": change("proof", "certificate", "scope", to="everything"),
    "certificate that contradicts itself": change("proof", "certificate", "dual", to=1e9),
    "certificate of no witnesses": change("proof", "certificate", "n_witnesses", to=0),
    "recipe of another neuron": change(*RECIPE, "neuron", to="lif"),
    "recipe with fewer neurons": change(*RECIPE, "hidden", to=[1]),
    "recipe with another layer": change(*RECIPE, "hidden", to=[4, 4]),
    "recipe with other features": change(*RECIPE, "n_features", to=4),
    "recipe of many features and neurons": lambda tensors, header: enlarge(header, n_features=23_000, hidden=[23_000]),
    "recipe of many subnetworks and layers": lambda t, header: enlarge(header, n_subnetworks=2**20, hidden=[1] * 500),
    "recipe of many neurons": change(*RECIPE, "hidden", to=[23_000]),
    "recipe of many copies": change(*RECIPE, "subnetworks", to=[0] * 500_000),
    "recipe with a subnetwork too many": change(*RECIPE, "subnetworks", to=[1]),
    "recipe with a place": change(*RECIPE, "device", to="meta"),
    "witnesses of many neurons as a parameter": change("parameters", "witnesses", to={"recipe": LARGE_RECIPE}),
    "witnesses in a family": change("parameters", "witnesses", to={"family": {"hidden": {"recipe": SMALL_RECIPE}}}),
    "witnesses in a list of a family": change(
        "parameters", "witnesses", to={"family": {"a": [{"recipe": SMALL_RECIPE}]}}
    ),
    "surrogate settings in a family": change("parameters", "witnesses", to={"family": {"a": {"surrogate": {}}}}),
    "class weights of text": change("parameters", "class_weight", to={"class_weight": [["low", "heavy"]]}),
    "witnesses of many layers as a parameter": change("parameters", "witnesses", to={"recipe": DEEP_RECIPE}),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_file_that_was_altered_with_its_checksum_is_refused(tmp_path, saved, case):
    tensors, header = parts(saved, tmp_path)
    TAMPERED[case](tensors, header)
    storage.write_tensors(tmp_path / "tampered", "model", tensors, header)
    assert_refused(tmp_path / "tampered", "does not fit together")


TAPS = ("network", "layers", 1)
SHAPE = (2, 5, 5)
TAMPERED_TAPS = {
    "source out of range": put("network.1.source", torch.full(SHAPE, 4)),
    "negative source": put("network.1.source", torch.full(SHAPE, -1)),
    "source of other shape": put("network.1.source", torch.zeros(2, 5, 4)),
    "source of fractions": put("network.1.source", torch.full(SHAPE, 0.5)),
    "source of truths": put("network.1.source", torch.zeros(SHAPE, dtype=torch.bool)),
    "source of absurd size": put("network.1.source", torch.full(SHAPE, 2**40)),
    "negative delay": put("network.1.delay", torch.full(SHAPE, -1)),
    "endless delay": put("network.1.delay", torch.full(SHAPE, float("inf"))),
    "absurd delay": put("network.1.delay", torch.full(SHAPE, 2**21)),
    "no source": drop("network.1.source"),
    "no delay": drop("network.1.delay"),
    "no number of sources": remove(*TAPS, "n_sources"),
    "fewer sources": change(*TAPS, "n_sources", to=3),
    "more sources than neurons below": change(*TAPS, "n_sources", to=5),
    "absurd number of sources": change(*TAPS, "n_sources", to=10**15),
    "sources are text": change(*TAPS, "n_sources", to="4"),
    "sources are a truth": change(*TAPS, "n_sources", to=True),
    "sources of a layer without taps": change("network", "layers", 0, "n_sources", to=3),
}


@pytest.mark.parametrize("case", TAMPERED_TAPS)
def test_a_file_whose_taps_were_altered_is_refused(tmp_path, case):
    save(delayed_network(), tmp_path / "model")
    tensors, header = storage.read_tensors(tmp_path / "model", "model")
    assert tensors["network.1.source"].shape == SHAPE
    TAMPERED_TAPS[case](tensors, header)
    storage.write_tensors(tmp_path / "tampered", "model", tensors, header)
    assert_refused(tmp_path / "tampered", "does not fit together")


def test_the_scale_of_probabilities_comes_back_and_is_checked(tmp_path):
    model = SpikingClassifier(n_neurons=20, random_state=0).fit(SEQUENCES, NAMES)
    found = round_trip(model, tmp_path)
    assert np.array_equal(found.predict_proba(SEQUENCES), model.predict_proba(SEQUENCES))
    assert not np.allclose(model.predict_proba(SEQUENCES), 1 / len(model.classes_), atol=0.1)
    save(model, tmp_path / "whole")
    tensors, header = storage.read_tensors(tmp_path / "whole", "model")
    for number, wrong in enumerate((0.0, -1.0, "1", True, [1.0])):
        storage.write_tensors(tmp_path / f"wrong-{number}", "model", tensors, {**header, "probability_scale": wrong})
        assert_refused(tmp_path / f"wrong-{number}", "probability_scale above zero")


def test_both_strengths_of_an_elastic_net_come_back(tmp_path):
    model = classifier(penalty="elastic-net", l2_strength="auto").fit(SEQUENCES, NAMES)
    found = round_trip(model, tmp_path)
    assert found.proof_.penalty.name == "elastic-net"
    assert found.proof_.l1_strength == 0.003
    assert found.proof_.l2_strength == model.proof_.l2_strength > 0


def test_large_samples_are_stored_and_not_drawn_again(tmp_path, monkeypatch):
    model = classifier(neuron="threshold", hidden=(30,)).fit(SEQUENCES, NAMES)
    save(model, tmp_path / "recipe")
    monkeypatch.setattr(model_parts, "LIMITS", model_parts.Limits(drawn=30 * (3 + 30 + 10) + 10_000 - 1))
    save(model, tmp_path / "layers")
    header = storage.read_tensors(tmp_path / "layers", "model")[1]
    assert "recipe" not in header["proof"]["witnesses"]
    assert_same_estimator(load(tmp_path / "layers", max_drawn=1), model, SEQUENCES, NAMES)
    with pytest.raises(DataFileError, match="draws at most 11,289 numbers, got one that draws 11,290: pass max_drawn"):
        load(tmp_path / "recipe", max_drawn=11_289)
    assert_same_estimator(load(tmp_path / "recipe", max_drawn=11_290), model, SEQUENCES, NAMES)


def test_two_saves_of_one_model_are_equal_in_bytes(tmp_path):
    model = classifier().fit(SEQUENCES, NAMES)
    for number in range(5):
        save(model, tmp_path / str(number))
    save(load(tmp_path / "0"), tmp_path / "loaded")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_a_layer_is_never_filled_in(tmp_path, saved):
    tensors, header = parts(saved, tmp_path)
    del tensors["network.0.recurrent_weight"]
    storage.write_tensors(tmp_path / "tampered", "model", tensors, header)
    assert_refused(tmp_path / "tampered", "every parameter of layer 0, got no recurrent_weight")


def test_a_failed_save_leaves_the_old_model(tmp_path, monkeypatch):
    path = tmp_path / "model"
    model = classifier().fit(SEQUENCES, NAMES)
    save(model, path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DataFileError, match="No space left on device; nothing was changed"):
        save(classifier().fit(SEQUENCES, LABELS), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model"]
    assert_same_estimator(load(path), model, SEQUENCES, NAMES)


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(DataFileError, match=r"write .*missing/model, got: No such file"):
        save(classifier().fit(SEQUENCES, LABELS), Path(tmp_path / "missing" / "model"))


class OwnClassifier(SpikingClassifier):
    """Predicts something else."""

    def predict(self, X):  # noqa: N803 - as scikit-learn calls it
        return super().predict(X)[::-1]


class OwnNetwork(SpikingNetwork):
    """Computes something else."""

    def forward(self, inputs):
        return -super().forward(inputs)


def test_subclasses_with_code_of_their_own_are_refused(tmp_path):
    network = classifier().fit(SEQUENCES, classes_of(SEQUENCES, 2)).network_
    own = OwnClassifier(**classifier().get_params()).fit(SEQUENCES, classes_of(SEQUENCES, 2))
    other = OwnNetwork(network.layers, network.weight, network.heads, neurons=network.neurons, readout=network.readout)
    for model in (own, other, make_pipeline(SequenceScaler(), own).fit(SEQUENCES, classes_of(SEQUENCES, 2))):
        with pytest.raises(
            InvalidInputError, match=r"got Own.*, a subclass with code that a file cannot hold"
        ) as caught:
            save(model, tmp_path / "model")
        assert_one_sentence(caught.value)
    assert not list(tmp_path.iterdir())
