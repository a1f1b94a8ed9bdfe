"""Useless neurons, layer by layer, and what an answer costs."""

import pytest
from explore.models_to_explore import LABELS, SEQUENCES, list_classifier, sparse_classifier, view

from cvxsnn import SpikingClassifier, build_dictionary
from cvxsnn.network.energy import count_operations
from cvxsnn.network.summary import summarise


@pytest.fixture(scope="module")
def model():
    family = {"hidden": (12, 40), "witnesses": {"decay": 0.9, "threshold": 1.0}, "l1_strength": 0.01}
    return SpikingClassifier(**family, random_state=0).fit(SEQUENCES, LABELS)


def test_every_layer_is_judged_on_what_its_neurons_do(model):
    found = view(model).health
    assert [layer.layer for layer in found.layers] == [1, 2]
    assert [layer.n_neurons for layer in found.layers] == [12, 40]
    data = model.as_sequences(SEQUENCES)
    expected = build_dictionary(model.proof_.witnesses, data, model.network_.readout).health()
    last = found.layers[-1]
    assert last.shares["dead"] == expected.n_dead / 40
    assert last.shares["saturated"] == expected.n_saturated / 40
    assert last.density == expected.density
    for layer in found.layers:
        assert sum(layer.shares[kind] for kind in ("dead", "saturated", "duplicate", "distinct")) == pytest.approx(1)


def test_sequences_of_unequal_length_are_judged_too():
    model, lists, labels = list_classifier()
    assert len(view(model, lists, labels).health.layers) == 1


def test_costs_are_those_that_the_library_counts():
    model = sparse_classifier()
    found = view(model).costs
    expected = count_operations(model.network_, model.as_sequences(SEQUENCES))
    assert found.n_samples == len(SEQUENCES)
    assert found.synaptic == expected.synaptic_per_sample
    assert found.spikes == expected.total.n_spikes / len(SEQUENCES)
    assert found.targets[0]["energy"] == expected.energy()
    assert found.targets[0]["dense"] == expected.dense_energy()
    parts = summarise(model.network_)
    assert found.n_bytes == parts.n_bytes
    n_weights = sum(layer.n_weights for layer in parts.layers)
    assert found.targets[0]["n_bytes"] - found.targets[2]["n_bytes"] == 3 * n_weights  # 32 bits against 8
    assert [group["name"] for group in found.groups] == model.classes_.tolist()
    own = model.as_sequences(SEQUENCES[LABELS == "low"][:24])
    low = next(group for group in found.groups if group["name"] == "low")
    assert low["synaptic"] == count_operations(model.network_, own).synaptic_per_sample
