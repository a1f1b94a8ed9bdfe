"""Each stage of training, called alone."""

from itertools import product

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
import cvxsnn.training.stages
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


NET = {"penalty": "elastic-net"}


@pytest.mark.parametrize(
    "settings",
    [
        ConvexSettings(0.01),
        ConvexSettings([0.3, 0.01]),
        ConvexSettings(n_strengths=3),
        ConvexSettings(0.01, l2_strength=0.1, **NET),
        ConvexSettings([0.1, 0.01], l2_strength=[0.1, 0.0], **NET),
        ConvexSettings(n_strengths=2, **NET),
    ],
)
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


def pairs_of(path):
    return [(solution.problem.l1_strength, solution.problem.l2_strength) for solution in path]


@pytest.fixture
def paths(monkeypatch):
    """The paths that convex stages have solved."""
    found = []
    solve_path = cvxsnn.training.stages.solve_path

    def spy(*args, **options):
        found.append(solve_path(*args, **options))
        return found[-1]

    monkeypatch.setattr(cvxsnn.training.stages, "solve_path", spy)
    return found


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
def test_an_elastic_net_takes_the_pair_of_strengths_that_validates_best(penalty):
    norm, quadratic = [0.05, 0.01, 0.0], [0.3, 0.003]
    scores = {}

    def score(network):
        return -abs(float(network.weight.detach().abs().sum()) - 1.0)  # neither end of a path is the best

    for pair in product(norm, quadratic):
        settings = ConvexSettings(pair[0], l2_strength=pair[1], penalty=penalty)
        fixed = convex_stage(WITNESSES, Split(SPLIT.data, score), LOGISTIC, settings)
        assert (fixed.problem.l1_strength, fixed.problem.l2_strength) == pair
        assert (fixed.problem.penalty.name, fixed.has_converged) == (penalty, True)
        scores[pair] = score(cs.reconstruct(fixed))
    settings = ConvexSettings(norm, l2_strength=quadratic, penalty=penalty)
    best = convex_stage(WITNESSES, Split(SPLIT.data, score), LOGISTIC, settings)
    expected = max(scores, key=scores.get)
    assert (best.problem.l1_strength, best.problem.l2_strength) == expected
    assert expected not in ((0.05, 0.3), (0.0, 0.003))


def test_of_equal_scores_the_larger_norm_wins_and_then_the_larger_quadratic():
    largest = convex_stage(WITNESSES, SPLIT, LOGISTIC, ConvexSettings(0.02, l2_strength=0.3, **NET))
    size = float(largest.coef.abs().sum())

    def score(network):
        """Return the same for all but the network of the largest strengths."""
        return abs(float(network.weight.detach().abs().sum()) - size) > 1e-3 * size

    settings = ConvexSettings([0.01, 0.02], l2_strength=[0.1, 0.3, 0.2], **NET)
    best = convex_stage(WITNESSES, Split(SPLIT.data, score), LOGISTIC, settings)
    assert (best.problem.l1_strength, best.problem.l2_strength) == (0.02, 0.2)


def test_auto_tries_ridge_and_then_a_path_with_quadratics_up_to_the_best_of_ridge(paths):
    convex_stage(WITNESSES, SPLIT, LOGISTIC, ConvexSettings(**NET))
    ridge, net = paths
    assert [pair[0] for pair in pairs_of(ridge)] == [0.0] * 10
    best = max(ridge, key=lambda own: (SPLIT.score(cs.reconstruct(own)), own.problem.l2_strength)).problem.l2_strength
    norm, quadratic = (sorted({pair[place] for pair in pairs_of(net)}) for place in (0, 1))
    assert (len(norm), len(net)) == (8, 8 * len(quadratic))
    assert 1 <= len(quadratic) <= 3
    assert quadratic[-1] == best
    critical = net[0].problem.critical_strength
    assert norm[-1] == pytest.approx(critical, rel=ROUNDING)
    assert norm[0] == pytest.approx(1e-3 * critical, rel=ROUNDING)
    assert all(solution.has_converged for solution in (*ridge, *net))


@pytest.mark.parametrize(
    ("options", "norm", "quadratic"),
    [
        ({"l1_strength": 0.0}, {0.0}, 10),
        ({"l1_strength": 0.02}, {0.02}, 10),
        ({"l2_strength": 0.1, "n_strengths": 12}, 13, {0.1}),
        ({"l2_strength": 0.0, "n_strengths": 3}, 3, {0.0}),
        ({"l2_strength": [0.1, 0.2], "n_strengths": 3}, 4, {0.1, 0.2}),
        ({"l2_strength": [0.1, 0.0], "n_strengths": 3}, 3, {0.1, 0.0}),
    ],
)
def test_what_is_given_is_not_chosen(paths, options, norm, quadratic):
    convex_stage(WITNESSES, SPLIT, LOGISTIC, ConvexSettings(**NET, **options))
    for place, expected in enumerate((norm, quadratic)):
        found = {pair[place] for pair in pairs_of(paths[0])}
        assert (len(found) if isinstance(expected, int) else found) == expected


def test_a_pool_is_never_tried_with_ridge():
    """Prices tell nothing at a strength of zero, where every witness is read."""
    split = Split(SPLIT.data, lambda network: float(network.weight.detach().abs().sum()))  # the weaker the better
    settings = ConvexSettings(l2_strength=0.1, n_strengths=2, pool=32, **NET)
    best = convex_stage(WITNESSES, split, LOGISTIC, settings, family=FAMILY)
    assert best.certificate.scope == "pool"
    assert best.problem.l1_strength > 0


def test_without_its_quadratic_an_elastic_net_is_its_norm():
    plain = convex_stage(WITNESSES, SPLIT, LOGISTIC, ConvexSettings(n_strengths=4))
    for l2_strength in (0.0, [0.0]):
        net = convex_stage(WITNESSES, SPLIT, LOGISTIC, ConvexSettings(n_strengths=4, l2_strength=l2_strength, **NET))
        assert net.problem.l1_strength == pytest.approx(plain.problem.l1_strength, rel=ROUNDING)
        gap = net.certificate.gap + plain.certificate.gap + ROUNDING
        assert net.certificate.primal == pytest.approx(plain.certificate.primal, abs=gap)


def test_a_program_is_fixed_if_nothing_is_left_to_choose():
    assert ConvexSettings(0.1).is_fixed
    assert ConvexSettings(0.1, l2_strength=0.0).is_fixed
    assert ConvexSettings(0.0, l2_strength=1, **NET).is_fixed
    assert not ConvexSettings(0.1, **NET).is_fixed
    assert not ConvexSettings(0.1, l2_strength=[0.1], **NET).is_fixed
    assert not ConvexSettings(l2_strength=0.1, **NET).is_fixed


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
        ({"smallest_ratio": 1.0}, "smallest_ratio between 0 and 1, got 1.0"),
        ({"l1_strength": True}, "l1_strength to be a finite number above zero, got True"),
        ({"l1_strength": None}, "l1_strength to be a number, a list of numbers, or 'auto', got None"),
        ({"l1_strength": [0.1, "auto"]}, "l1_strength to be a number, a list of numbers, or 'auto'"),
        ({"l2_strength": 0.1}, "l2_strength=0 for the penalty 'l1', got 0.1: use penalty='elastic-net'"),
        ({"l2_strength": [0.0, 0.1], "penalty": "group"}, "l2_strength=0 for the penalty 'group', got 0.1"),
        ({"l2_strength": "large", **NET}, "l2_strength to be one of 'auto', got 'large'"),
        ({"l2_strength": -0.1, **NET}, "l2_strength to be a finite number, zero or above, got -0.1"),
        ({"l2_strength": float("nan"), **NET}, "l2_strength to be a finite number, zero or above, got nan"),
        ({"l2_strength": [], **NET}, "at least one strength, got none: pass l2_strength='auto'"),
        ({"l2_strength": np.ones(2), **NET}, "l2_strength to be a number, a list of numbers, or 'auto'"),
        ({"l1_strength": -0.1, **NET}, "l1_strength to be a finite number, zero or above, got -0.1"),
        ({"l1_strength": 0, "l2_strength": 0, **NET}, "above zero, got zero for both"),
        ({"l1_strength": [0.1, 0], "l2_strength": [0.1, 0], **NET}, "above zero, got zero for both"),
        ({"l1_strength": [0.1, 0.0], "pool": 8, **NET}, "l1_strength above zero for an optimum over a pool"),
        ({"penalty": "l3"}, r"penalty to be one of 'l1', 'group'.*, got 'l3'"),
    ],
)
def test_programs_that_mean_nothing_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        ConvexSettings(**options)
    assert "\n" not in str(caught.value)
