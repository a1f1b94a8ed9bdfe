"""The list of neurons: what they read, when they are active, and how many of them matter."""

from dataclasses import replace

import numpy as np
import pytest
from explore.models_to_explore import (
    LABELS,
    SEQUENCES,
    list_classifier,
    ridge_classifier,
    sparse_classifier,
    view,
)

from cvxsnn.explore import neurons
from cvxsnn.plots.model_plots import receptive_field


@pytest.fixture(scope="module")
def model():
    return ridge_classifier()


@pytest.fixture(scope="module")
def found(model):
    return view(model)


def test_neurons_are_listed_by_how_much_the_evidence_varies_with_them(model, found):
    listed = found.neurons
    features = model.network_.features(model.as_sequences(SEQUENCES)).numpy()
    weight = model.network_.weight.detach().numpy()
    importance = features.std(0) * np.linalg.norm(weight - weight.mean(1, keepdims=True), axis=1)
    order = np.argsort(-importance, kind="stable")
    assert listed.number.tolist() == model.network_.neurons.numpy()[order].tolist()
    np.testing.assert_allclose(listed.importance, importance[order] / importance.max(), rtol=1e-4)
    np.testing.assert_allclose(listed.weight, weight[order], rtol=1e-6)
    assert listed.n_read == model.network_.n_active
    assert listed.n_sampled == 60


def test_rates_are_means_over_the_sequences_of_a_class(model, found):
    features = model.network_.features(model.as_sequences(SEQUENCES)).numpy()
    place = model.network_.neurons.numpy().tolist().index(found.neurons.number[5])
    expected = [features[name == LABELS, place].mean() for name in found.groups]
    np.testing.assert_allclose(found.neurons.rate[5] / 255, expected, atol=0.5 / 255 + 1e-9)


def test_exciting_sequences_are_those_on_which_a_neuron_is_most_active(model, found):
    features = model.network_.features(model.as_sequences(SEQUENCES)).numpy()
    numbers = model.network_.neurons.numpy().tolist()
    for row in (0, 7):
        own = features[:, numbers.index(found.neurons.number[row])]
        assert own[found.neurons.exciting[row]].tolist() == np.sort(own)[::-1][:3].tolist()


def test_fields_are_the_weights_of_the_neurons(model, found):
    fields, layer = found.neurons.fields, model.network_.layers[-1]
    assert fields.n_delays == layer.max_delay + 1
    for row in range(6):
        drawn = np.zeros((fields.n_delays, fields.n_inputs))
        for source, delay, weight in zip(fields.source[row], fields.delay[row], fields.weight[row], strict=True):
            drawn[delay * (weight != 0), source] += weight / 127 * fields.scale[row]
        expected = receptive_field(layer, int(found.neurons.number[row]))
        np.testing.assert_allclose(drawn, expected, atol=fields.scale[row] / 127)


def test_a_layer_without_delays_has_one_weight_per_input():
    model = sparse_classifier()
    fields = view(model).neurons.fields
    assert fields.source is None
    assert fields.weight.shape[1] == fields.n_inputs == 3


def test_all_neurons_agree_with_themselves_and_few_with_fewer(found):
    listed = found.neurons
    assert listed.sizes[-1] == listed.n_read
    assert listed.agreement[-1] == 1.0
    assert listed.agreement[0] < 0.95
    place = listed.sizes.index(listed.n_enough)
    assert listed.agreement[place] >= 0.95 > listed.agreement[place - 1]


def test_agreement_is_that_of_the_first_neurons_alone(model, found):
    listed = found.neurons
    features = model.network_.features(model.as_sequences(SEQUENCES)).numpy()
    numbers = model.network_.neurons.numpy().tolist()
    size = listed.sizes[len(listed.sizes) // 2]
    kept = [numbers.index(number) for number in listed.number[:size]]
    replaced = np.tile(features.mean(0), (len(features), 1))
    replaced[:, kept] = features[:, kept]
    scores = replaced @ model.network_.weight.detach().numpy() + model.network_.intercept.detach().numpy()
    same = (scores.argmax(1) == model.decision_function(SEQUENCES).argmax(1)).mean()
    assert listed.agreement[len(listed.sizes) // 2] == pytest.approx(same)


def test_a_neuron_that_is_read_in_two_windows_is_listed_once():
    model, lists, labels = list_classifier()
    listed = view(model, lists, labels).neurons
    assert listed.n_read == model.network_.n_active < len(model.network_.neurons)
    assert len(set(listed.number.tolist())) == listed.n_listed == listed.n_read


def test_a_large_network_is_summarised(model, monkeypatch):
    small = replace(neurons.LIMITS, listed=10, field_bytes=200, activity_rows=30)
    monkeypatch.setattr(neurons, "LIMITS", small)
    listed = view(model).neurons
    assert listed.n_listed == len(listed.number) == 10
    assert listed.n_read == model.network_.n_active
    assert listed.n_samples == 30
    assert 1 <= len(listed.fields.weight) < 10
