"""What an estimator tells of its training."""

import numpy as np
import pytest
from small_models import classes_of, classifier, make_sequences, regressor, sums

from cvxsnn.estimators.history import StageSummary
from cvxsnn.fitting import SurrogateSettings

SEQUENCES = make_sequences()
LABELS = classes_of(SEQUENCES)


@pytest.mark.parametrize("method", ["cvx", "cvx-sg", "sg-cvx", "r"])
def test_a_history_prints_as_a_table_of_its_stages(method):
    history = classifier(method).fit(SEQUENCES, LABELS).history_
    lines = str(history).splitlines()
    assert lines[0].split() == ["stage", "score", "seconds", "neurons"]
    assert [line.split()[0] for line in lines[1:]] == [stage.name for stage in history]


def test_a_history_is_a_sequence_of_stages():
    history = classifier("cvx", n_trials=4).fit(SEQUENCES, LABELS).history_
    assert len(history) == 2
    assert [stage.name for stage in history] == ["tuning", "convex"]
    assert history[-1] is history[1]
    assert history[:1] == (history[0],)
    assert all(isinstance(stage, StageSummary) for stage in history)


def test_a_search_leaves_the_family_that_it_found():
    model = classifier("cvx", n_trials=4).fit(SEQUENCES, LABELS)
    stage = model.history_[0]
    assert stage.n_trials >= 4
    assert stage.n_neurons == 24
    assert stage.family["hidden"][-1] == 24
    assert stage.readout == model.network_.readout


def test_a_convex_stage_leaves_its_certificate_strength_and_gaps():
    stage = classifier("cvx", n_trials=4).fit(SEQUENCES, LABELS).history_[-1]
    assert (stage.l1_strength, stage.l2_strength) == (0.003, 0.0)
    assert stage.gaps[-1] >= 0
    assert stage.certificate.relative_gap <= 1e-6
    assert 0 < stage.n_neurons <= 24


def test_a_convex_stage_leaves_both_strengths_of_an_elastic_net():
    stage = classifier(penalty="elastic-net", l2_strength=0.01, decay=0.9).fit(SEQUENCES, LABELS).history_[-1]
    assert (stage.l1_strength, stage.l2_strength) == (0.003, 0.01)
    gradient = classifier("sg").fit(SEQUENCES, LABELS).history_[-1]
    assert gradient.l1_strength is gradient.l2_strength is None


def test_a_gradient_stage_leaves_losses_and_scores_of_its_epochs():
    stage = regressor("sg", surrogate=SurrogateSettings(epochs=3)).fit(SEQUENCES, sums(SEQUENCES)).history_[0]
    assert np.isfinite(stage.losses).all()
    assert (len(stage.losses), len(stage.scores)) == (3, 4)
    assert stage.score == max(stage.scores)


def test_the_score_of_a_classifier_is_accuracy_before_loss():
    accuracy, minus_loss = classifier("sg").fit(SEQUENCES, LABELS).history_[0].score
    assert 0 <= accuracy <= 1
    assert minus_loss < 0
