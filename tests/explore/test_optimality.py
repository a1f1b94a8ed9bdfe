"""What is proven, on the way to it, and at other strengths."""

import math
from dataclasses import replace

import numpy as np
import pytest
from explore.models_to_explore import (
    LABELS,
    OTHER,
    OTHER_LABELS,
    SEQUENCES,
    ridge_classifier,
    sparse_classifier,
    view,
)
from small_models import BRIEF

from cvxsnn import SpikingClassifier
from cvxsnn.core.errors import BudgetError
from cvxsnn.core.formatting import round_down
from cvxsnn.explore import optimality
from cvxsnn.explore.limits import LIMITS


@pytest.fixture(scope="module", autouse=True)
def short_paths():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimality, "LIMITS", replace(LIMITS, strengths=5))
        yield


@pytest.fixture(scope="module")
def model():
    return sparse_classifier(loss="logistic", hidden=(32,), l1_strength=0.01)


@pytest.fixture(scope="module")
def found(model):
    return view(model, OTHER, OTHER_LABELS, (SEQUENCES, LABELS), max_seconds=60)


def test_the_sentences_say_what_is_proven_and_what_is_not(model, found):
    told = found.optimality
    assert told.certificate == model.certificate_
    assert "the sampled hidden neurons" in told.proven
    assert f"give less than {round_down(told.certificate.dual, 6):.6g}" in told.proven
    assert "not trained on" in told.not_proven
    assert "other hidden neurons" in told.not_proven


def test_objective_and_bound_close_around_the_optimum(model, found):
    moments = found.optimality.moments
    optimum = model.certificate_
    assert [moment.iterations for moment in moments] == [0, *LIMITS.iterations[: len(moments) - 1]]
    assert len(moments) > 2
    for moment in moments:
        assert moment.dual <= optimum.primal
        assert moment.primal >= optimum.dual
    assert moments[0].primal == pytest.approx(3 * (math.log(3) - 2 / 3 * math.log(2)))  # of three classes by chance
    assert moments[-1].primal - moments[-1].dual <= 1e-6 * moments[-1].primal


def test_other_data_show_the_certificate_alone_and_say_so(model):
    alone = view(model, OTHER, OTHER_LABELS, max_seconds=60)
    assert alone.optimality.certificate == model.certificate_
    assert alone.optimality.moments == alone.path.points == []
    assert "training data are not available" in alone.optimality.source
    assert "training data are not available" in alone.path.note


def test_the_path_has_optima_of_the_same_neurons(model, found):
    """Each point is what the recipe on the page trains."""
    path = found.path
    strengths = [point.l1_strength for point in path.points]
    assert strengths == sorted(strengths, reverse=True)
    assert [point.n_neurons for point in path.points if point.is_own] == [model.network_.n_active]
    assert path.points[0].n_neurons < path.points[-1].n_neurons
    point = path.points[len(path.points) // 2]
    again = SpikingClassifier(
        witnesses=model.proof_.witnesses,
        readout=found.readout,
        loss=path.loss,
        penalty=path.penalty,
        l1_strength=point.l1_strength,
    ).fit(SEQUENCES, LABELS)
    assert again.certificate_.relative_gap <= 1e-6
    assert again.score(OTHER, OTHER_LABELS) == pytest.approx(point.score, abs=1 / 60 + 1e-9)
    assert again.network_.n_active == pytest.approx(point.n_neurons, abs=3)
    assert point.relative_gap <= LIMITS.path_tolerance


def test_own_point_has_the_score_and_energy_of_the_model(model, found):
    own = next(point for point in found.path.points if point.is_own)
    assert own.score == model.score(OTHER, OTHER_LABELS)
    assert own.synaptic == pytest.approx(found.costs.synaptic, rel=0.05)
    assert own.l1_strength == 0.01


def test_ridge_is_the_end_of_a_path_of_sparser_read_outs():
    found = view(ridge_classifier(), max_seconds=60)
    assert found.path.points[-1].is_own
    assert found.path.points[-1].l1_strength == 0
    assert found.path.points[-1].l2_strength > 0
    assert found.path.points[1].n_neurons < found.path.points[-1].n_neurons


def test_a_read_out_that_takes_one_step_is_approached_in_small_ones():
    model = ridge_classifier()
    found = view(model, max_seconds=60).optimality
    assert len(found.moments) > 3
    assert "takes a single step" in found.source
    optimum = model.certificate_
    for moment in found.moments:
        assert moment.dual <= optimum.primal
        assert moment.primal >= optimum.dual
    gaps = [moment.primal - moment.dual for moment in found.moments]
    assert gaps[-1] < 0.01 * gaps[0]


def test_a_path_that_does_not_fit_ends_early_and_says_so(model, monkeypatch):
    solve, calls = optimality.solve, []

    def small(problem, *args, **kwargs):
        calls.append(problem.l1_strength)
        if problem.l1_strength != model.proof_.l1_strength and len(calls) > 3:
            raise BudgetError("expected less")
        return solve(problem, *args, **kwargs)

    monkeypatch.setattr(optimality, "solve", small)
    monkeypatch.setattr(optimality, "LIMITS", replace(optimality.LIMITS, iterations=(1,)))
    path = view(model, max_seconds=60).path
    assert len(path.points) == 3  # two of the path, after one solve for the certificates, and the model itself
    assert "has 2 of 5 strengths" in path.note


def test_a_path_does_not_begin_what_takes_longer_than_its_time(monkeypatch):
    monkeypatch.setattr(optimality, "LIMITS", replace(optimality.LIMITS, dense_rate=1.0))
    path = view(ridge_classifier(), max_seconds=60).path
    assert 1 < len(path.points) < 6  # the strengths at which few neurons are active, and the model itself
    assert path.points[-1].is_own
    assert "weaker ones need more" in path.note


def test_without_time_nothing_is_solved_again(model, monkeypatch):
    monkeypatch.setattr(optimality, "solve", None)
    found = view(model)
    assert found.optimality.moments == found.path.points == []
    assert "no time" in found.optimality.source
    assert "no time" in found.path.note


def test_gradient_descent_proves_nothing():
    trained = SpikingClassifier("sg", hidden=(16,), surrogate=BRIEF, random_state=0).fit(SEQUENCES, LABELS)
    found = view(trained)
    assert found.optimality.certificate is None
    assert found.optimality.proven.startswith("Nothing is proven")
    assert found.path.points == []
    assert np.isfinite(found.costs.synaptic)
