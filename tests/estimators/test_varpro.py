"""Estimators whose read-out is optimal while their hidden neurons are trained."""

import numpy as np
import pytest
import torch
from small_models import make_sequences, sums
from tolerances import CERTIFIED_AGAIN

from cvxsnn import SpikingClassifier, SpikingRegressor
from cvxsnn.fitting import SurrogateSettings

SEQUENCES = make_sequences(n_samples=60, n_steps=10)
LABELS = np.digitize(sums(SEQUENCES), [-4, 4])
BRIEF = SurrogateSettings(epochs=3, batch_size=16)


def fit(kind, y, sequences=SEQUENCES, hidden=(12,), **options):
    return kind("varpro", hidden, **{"surrogate": BRIEF, "random_state": 0, **options}).fit(sequences, y)


@pytest.mark.parametrize("hidden", [(12,), (8, 6)])
@pytest.mark.parametrize(
    ("kind", "y", "loss"), [(SpikingClassifier, LABELS, "softmax"), (SpikingRegressor, sums(SEQUENCES), "squared")]
)
def test_the_certificate_is_that_of_the_network_that_answers(kind, y, loss, hidden):
    model = fit(kind, y, hidden=hidden)
    certificate, proof = model.certificate_, model.proof_
    assert certificate.relative_gap <= 1e-6
    assert model.certify(SEQUENCES, y).primal == pytest.approx(certificate.primal, rel=CERTIFIED_AGAIN)
    with torch.no_grad():
        outputs = model.network_(model.as_sequences(SEQUENCES))
    if loss == "softmax":
        value = torch.nn.functional.cross_entropy(outputs, torch.tensor(y))
    else:
        value = 0.5 * (outputs[:, 0] - torch.tensor(y)).square().mean()
    objective = float(value.detach()) + 0.5 * proof.l2_strength * float(
        model.network_.weight.detach().double().square().sum()
    )
    assert proof.l1_strength == 0 < proof.l2_strength
    assert objective == pytest.approx(certificate.primal, rel=1e-6)


@pytest.mark.parametrize(("shape", "n_delays", "n_taps"), [((30, 1), 30, 30), ((90, 2), 32, 64), ((20, 100), 12, 1020)])
def test_neurons_read_the_latest_steps_of_all_features_or_of_neighbours_among_many(shape, n_delays, n_taps):
    inputs = np.random.default_rng(0).standard_normal((30, *shape))
    (layer,) = fit(SpikingClassifier, LABELS[:30], sequences=inputs, hidden=(4,)).network_.layers
    assert (layer.max_delay + 1, layer.n_taps) == (n_delays, n_taps)


def test_neurons_are_trained_again_on_all_samples():
    model = fit(SpikingClassifier, LABELS)
    data = model.training_set(SEQUENCES, LABELS)
    kept, _ = model._divide(data, seed=0)
    assert len(model.proof_.dual_point) == len(data) > len(kept)
    trained = fit(SpikingClassifier, LABELS[kept], sequences=SEQUENCES[kept])
    assert not torch.equal(trained.network_.layers[0].weight, model.network_.layers[0].weight)


def test_the_penalty_is_ridge_unless_told_otherwise():
    assert fit(SpikingClassifier, LABELS, l2_strength=0.1).proof_.l2_strength == 0.1
    model = fit(SpikingClassifier, LABELS, l1_strength=0.01)
    assert (model.proof_.penalty.name, model.proof_.l1_strength) == ("l1", 0.01)


def test_without_time_there_is_one_epoch_and_a_certificate():
    model = fit(SpikingClassifier, LABELS, max_seconds=0)
    assert [stage.name for stage in model.history_] == ["projection", "convex"]
    assert len(model.history_[0].scores) == 2
    assert model.certificate_.relative_gap <= 1e-6
