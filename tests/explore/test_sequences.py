"""Single sequences: what the network does on them, step by step."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from explore.models_to_explore import (
    LABELS,
    SEQUENCES,
    fitted_regressor,
    list_classifier,
    ridge_classifier,
    sparse_classifier,
    view,
)
from small_models import sums

from cvxsnn.explore import sequences
from cvxsnn.explore.sequences import settled_step
from cvxsnn.neurons import roll_out


@pytest.fixture(scope="module")
def model():
    return ridge_classifier()


@pytest.fixture(scope="module")
def found(model):
    return view(model)


def test_the_evidence_of_the_last_step_is_the_answer(model, found):
    scores = model.decision_function(SEQUENCES)
    for shown in found.sequences[:10]:
        np.testing.assert_allclose(shown.evidence[-1], scores[shown.sample], rtol=1e-5, atol=1e-6)
        assert found.columns[int(shown.predicted)] == model.predict(SEQUENCES[[shown.sample]])[0]
        assert found.columns[int(shown.truth)] == LABELS[shown.sample]
        assert shown.confidence == pytest.approx(model.predict_proba(SEQUENCES[[shown.sample]]).max())


def test_spikes_are_those_of_a_roll_out(model, found):
    shown = found.sequences[3]
    spikes = roll_out(model.network_.layers, model.as_sequences(SEQUENCES[[shown.sample]]), "all")[0]
    own = found.neurons.number[shown.neurons]
    assert shown.spikes.tolist() == spikes[:, torch.tensor(own, dtype=torch.int64)].int().tolist()
    assert ((shown.membranes >= 0) == shown.spikes[:, : shown.membranes.shape[1]].astype(bool)).all()


def test_pushes_add_up_to_the_lead_over_the_rival(model, found):
    """With all neurons shown, the sum of the pushes is the lead minus that of an average sequence."""
    features = model.network_.features(model.as_sequences(SEQUENCES)).numpy()
    mean = features.mean(0) @ model.network_.weight.detach().numpy()
    scores = model.decision_function(SEQUENCES) - model.network_.intercept.detach().numpy()
    shown = found.sequences[0]
    lead = scores[shown.sample] - mean
    answer = int(shown.predicted)
    numbers = found.neurons.number[shown.neurons].tolist()
    place = model.network_.neurons.numpy().tolist().index(numbers[0])
    weight = model.network_.weight.detach().numpy()[place]
    push = (features[shown.sample, place] - features[:, place].mean()) * (weight[answer] - weight[shown.rival])
    assert shown.push[0] == pytest.approx(push, rel=1e-4)
    assert abs(shown.push).tolist() == sorted(abs(shown.push).tolist(), reverse=True)
    assert lead[answer] - lead[shown.rival] >= shown.push[shown.push < 0].sum()


@pytest.mark.parametrize(("decisions", "step"), [([1, 1, 1], 1), ([0, 1, 1], 2), ([1, 0, 1], 3), ([0], 1)])
def test_an_answer_is_settled_when_it_does_not_change_any_more(decisions, step):
    assert settled_step(np.array(decisions)) == step


def test_mistakes_and_every_class_are_shown(found):
    wrong = [shown for shown in found.sequences if shown.truth != shown.predicted]
    samples = {shown.sample for shown in found.sequences}
    assert {shown.truth for shown in found.sequences} == {0, 1, 2}
    assert set(found.quality.hardest) <= samples
    n_mistakes = sum(cell.count for cell in found.quality.cells if cell.truth != cell.predicted)
    assert len(wrong) >= min(n_mistakes, 12)


def test_inputs_run_from_the_lowest_to_the_highest_value(found):
    shown = found.sequences[0]
    own = SEQUENCES[shown.sample]
    low, high = np.quantile(SEQUENCES, [0.002, 0.998])
    np.testing.assert_allclose(shown.inputs / 255, np.clip((own - low) / (high - low), 0, 1), atol=0.51 / 255)


def test_long_sequences_and_many_features_are_binned(model, monkeypatch):
    monkeypatch.setattr(sequences, "LIMITS", replace(sequences.LIMITS, steps=4, features=2))
    plain, binned = view(model).sequences[0], None
    monkeypatch.undo()
    plain, binned = view(model).sequences[0], plain
    assert binned.bin == 2
    assert binned.inputs.shape == (3, 2)
    assert binned.spikes.tolist() == plain.spikes.reshape(3, 2, -1).sum(1).tolist()
    np.testing.assert_array_equal(binned.evidence, plain.evidence[1::2])
    np.testing.assert_array_equal(binned.membranes, plain.membranes.reshape(3, 2, -1).max(1))
    assert binned.settled == plain.settled


def test_sequences_of_unequal_length_end_where_they_end():
    model, lists, labels = list_classifier()
    found = view(model, lists, labels)
    scores = model.decision_function(lists)
    for shown in found.sequences:
        assert shown.n_steps == len(shown.inputs) == len(lists[shown.sample])
        assert shown.evidence[-1, 1] - shown.evidence[-1, 0] == pytest.approx(scores[shown.sample], rel=1e-4, abs=1e-5)


def test_regressors_and_neurons_without_membranes_are_shown():
    shown = view(fitted_regressor(), SEQUENCES, sums(SEQUENCES)).sequences[0]
    assert shown.settled is None
    assert shown.evidence.shape == (6, 1)
    assert view(sparse_classifier(witnesses={"neuron": "threshold"})).sequences[0].membranes is None
