"""Each stage of training, called alone."""

import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.training import (
    ConvexSettings,
    GradientPlan,
    Settings,
    Split,
    SurrogateSettings,
    TaskScore,
    convex_stage,
    draw_witnesses,
    gradient_stage,
    ridge_stage,
    train_task,
)
from cvxsnn.training.surrogate.settings import initial_network

XOR = cs.tasks.first_last_xor(3, n_train=24, n_val=16, n_test=4)
SPLIT = Split(TrainingSet.of(XOR.train), TaskScore(XOR, XOR.val))
LOGISTIC = Objective("logistic")
FAMILY = {"hidden": (6, 8), "n_subnetworks": 2}
CANDIDATES = [SurrogateSettings(epochs=2, batch_size=20, learning_rate=rate) for rate in (1e-3, 0.1)]
WITNESSES = draw_witnesses(SPLIT.data, FAMILY, 0)


def assert_same_network(one, other):
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.intercept, other.intercept)
    for layer, own in zip(one.layers, other.layers, strict=True):
        assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())


@pytest.mark.parametrize("settings", [ConvexSettings(0.01), ConvexSettings([0.3, 0.01]), ConvexSettings(n_strengths=3)])
def test_a_convex_stage_alone_is_the_method_of_that_stage(settings):
    solution = convex_stage(WITNESSES, SPLIT, LOGISTIC, settings)
    trained = train_task("cvx", XOR, Settings(LOGISTIC, FAMILY, settings))
    assert torch.equal(solution.coef, trained.solution.coef)
    assert solution.certificate == trained.certificate


def test_a_convex_stage_of_pairs_takes_the_strength_whose_pair_is_largest():
    strengths = [0.3, 0.05, 0.01]
    pairs = {}

    def score(network):
        """Return the same accuracy for all, and the number of neurons read."""
        return (1.0, len(network.neurons))

    for strength in strengths:
        pairs[strength] = score(cs.reconstruct(convex_stage(WITNESSES, SPLIT, LOGISTIC, ConvexSettings(strength))))
    best = convex_stage(WITNESSES, Split(SPLIT.data, score), LOGISTIC, ConvexSettings(strengths))
    assert best.problem.l1_strength == max(pairs, key=lambda strength: (pairs[strength], strength))
    assert len(set(pairs.values())) > 1


def test_a_gradient_stage_alone_is_the_method_of_that_stage():
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    calls = []
    run = gradient_stage(
        GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES), lambda done, total: calls.append((done, total))
    )
    trained = train_task("sg", XOR, Settings(LOGISTIC, FAMILY, surrogate=CANDIDATES))
    assert_same_network(run.network, trained.network)
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_gradient_stage_averages_as_many_networks_as_asked_for():
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    run = gradient_stage(GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES, n_networks=3, family=FAMILY))
    trained = train_task("sg", XOR, Settings(LOGISTIC, FAMILY, surrogate=CANDIDATES, n_networks=3))
    assert run.network.n_subnetworks == 6
    assert_same_network(run.network, trained.network)


def test_the_files_of_a_gradient_stage_are_named_after_its_checkpoint(tmp_path):
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    file = tmp_path / "stage.safetensors"
    gradient_stage(GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES, 2, FAMILY, checkpoint=file))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["stage-1.safetensors", "stage-network-1.safetensors", "stage.safetensors"]


def test_a_ridge_stage_alone_scores_as_well_as_any_strength_that_it_tries():
    network = ridge_stage(WITNESSES, SPLIT, LOGISTIC)
    features = network.features(SPLIT.data.sequences)
    torch.testing.assert_close(
        network(SPLIT.data.sequences), features @ network.weight + network.intercept, rtol=ROUNDING, atol=ROUNDING
    )
    assert SPLIT.score(network) >= 0.5


def test_witnesses_are_drawn_for_the_features_of_the_data_or_taken_as_they_are():
    assert (WITNESSES.n_features, WITNESSES.hidden, WITNESSES.n_subnetworks) == (2, (6, 8), 2)
    given = cs.gaussian_witnesses(2, (3,))
    assert torch.equal(draw_witnesses(SPLIT.data, given, 5).layers[0].weight, given.layers[0].weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1_strength": "large"}, "l1_strength to be one of 'auto', got 'large'"),
        ({"l1_strength": 0.0}, "l1_strength to be a finite number above zero"),
        ({"l1_strength": float("inf")}, "l1_strength to be a finite number above zero"),
        ({"l1_strength": []}, "at least one strength, got none"),
        ({"n_strengths": 0}, "n_strengths to be a positive integer, got 0"),
        ({"penalty": "l3"}, r"penalty to be one of 'l1', 'group'.*, got 'l3'"),
    ],
)
def test_programs_that_mean_nothing_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        ConvexSettings(**options)
    assert "\n" not in str(caught.value)
