"""The reservoir baseline."""

from itertools import product

import numpy as np
import pytest
import torch
from tolerances import NUMERICAL_SUPREMUM

import cvxsnn as cs
from cvxsnn import InvalidInputError, LIFLayer, WitnessSet, gaussian_witnesses
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.fitting import Program, Split, ridge_stage
from cvxsnn.fitting.reservoir import GRID, branching_ratio, tune_reservoir
from cvxsnn.witnesses import Provenance


def repeater(n_neurons=1):
    """Neurons that fire where their input is 1."""
    layer = LIFLayer(torch.eye(n_neurons)[None], bias=-0.5, decay=0.0, threshold=0.0)
    return WitnessSet((layer,), Provenance("pretrained"))


def draw_data(n_samples=30, n_steps=6, n_outputs=1, lengths=None, **options):
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(n_samples, n_steps, 3)))
    return TrainingSet(Sequences(inputs, lengths), {"label": rng.normal(size=(n_samples, n_outputs))}, **options)


@pytest.mark.parametrize(
    ("spikes", "ratio"),
    [
        ([[1, 1, 0, 1]], 2 / 2),
        ([[1, 1, 1, 0]], 2 / 3),
        ([[0, 0, 0, 1]], 0.0),
        ([[0, 0, 0, 0]], 0.0),
        ([[1, 0, 1, 1], [0, 1, 1, 1]], (2 + 3) / (2 + 2)),
    ],
)
def test_the_branching_ratio_is_spikes_per_spike_of_the_step_before(spikes, ratio):
    assert branching_ratio(repeater(), Sequences(torch.tensor(spikes)[:, :, None].float())) == pytest.approx(ratio)


def test_the_branching_ratio_counts_the_neurons_of_the_last_layer():
    spikes = torch.tensor([[[1, 0], [1, 1], [0, 1]]]).float()
    assert branching_ratio(repeater(2), Sequences(spikes)) == pytest.approx((2 + 1) / (1 + 2))


def test_the_branching_ratio_ends_with_each_sequence():
    spikes, lengths = torch.tensor([[1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]]), torch.tensor([4, 2, 1])
    assert branching_ratio(repeater(), Sequences(spikes[:, :, None].float(), lengths)) == pytest.approx(
        (2 + 1) / (2 + 1)
    )


def test_one_step_has_no_branching_ratio():
    with pytest.raises(InvalidInputError, match="at least two steps to tune a reservoir, got one step"):
        branching_ratio(repeater(), Sequences(torch.ones(2, 1, 1)))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("lengths", [None, torch.arange(30) % 6 + 1], ids=["equal", "unequal"])
def test_a_tuned_reservoir_is_the_one_of_the_grid_closest_to_one(seed, lengths):
    witnesses, data = gaussian_witnesses(3, (12, 15), 2, seed=seed), draw_data(lengths=lengths)
    tuned = tune_reservoir(witnesses, data)

    def distance(candidate):
        return abs(branching_ratio(candidate, data.sequences) - 1)

    distances = {}
    for decay, threshold, scale in product(GRID.decays, GRID.thresholds, GRID.input_scales):
        first, second = (
            LIFLayer(layer.weight * factor, bias=layer.bias, decay=decay, threshold=threshold)
            for layer, factor in zip(witnesses.layers, (scale, 1.0), strict=True)
        )
        distances[decay, threshold, scale] = distance(WitnessSet((first, second), Provenance("pretrained")))
    assert len(set(distances.values())) > 10
    assert distance(tuned) == min(distances.values())
    recipe = tuned.provenance.recipe["reservoir"]
    chosen = recipe["decay"], recipe["threshold"], recipe["input_scale"]
    assert distances[chosen] == distance(tuned)
    for layer in tuned.layers:
        assert torch.equal(layer.decay, torch.full_like(layer.decay, chosen[0]))
        assert torch.equal(layer.threshold, torch.full_like(layer.threshold, chosen[1]))
    assert torch.equal(tuned.layers[0].weight, witnesses.layers[0].weight * chosen[2])
    assert torch.equal(tuned.layers[1].weight, witnesses.layers[1].weight)


def test_padding_has_no_part_in_tuning():
    lengths = torch.arange(30) % 6 + 1
    data = draw_data(lengths=lengths)
    outside = torch.arange(6) >= lengths[:, None]
    changed = TrainingSet(Sequences(torch.where(outside[:, :, None], 9.0, data.inputs), lengths), data.targets)
    witnesses = gaussian_witnesses(3, (15,), 2)
    one, other = (tune_reservoir(witnesses, given).provenance.recipe for given in (data, changed))
    assert one == other


def test_threshold_neurons_make_no_reservoir():
    with pytest.raises(InvalidInputError, match="LIF neurons for a reservoir, got threshold neurons"):
        tune_reservoir(gaussian_witnesses(3, (5,), neuron="threshold"), draw_data())


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_ridge_solves_the_normal_equations(readout, n_outputs, weighted):
    weight = torch.arange(30, dtype=torch.float64) if weighted else None
    data = draw_data(n_outputs=n_outputs, sample_weight=weight)
    if readout == "all":
        targets = np.random.default_rng(1).normal(size=(30, 6, n_outputs))
        data = TrainingSet(data.inputs, {"label": targets}, weight)
    witnesses = gaussian_witnesses(3, (9,), 2)
    network = ridge_stage(witnesses, Split(data, lambda own: 0.0), Program(Objective("squared", readout)))
    X = network.features(data.inputs).reshape(len(data) * (6 if readout == "all" else 1), -1).detach().numpy()
    y = data.targets["label"].reshape(len(X), n_outputs)
    omega = np.repeat(np.ones(30) if weight is None else weight.numpy(), len(X) // 30)
    omega = omega / omega.sum()
    # min ½ Σ ω (y − Xw − b)² + ½ r |w|², the intercept free; equal columns share their weight in any way
    X_mean, y_mean = omega @ X, omega @ y
    distinct = np.unique(X, axis=1)
    distinct = distinct - omega @ distinct
    strength = 1e3 * np.trace(distinct.T @ (omega[:, None] * distinct)) / len(X)  # of equals the strongest wins
    gram = distinct.T @ (omega[:, None] * distinct) + strength * np.eye(distinct.shape[1])
    fitted = distinct @ np.linalg.solve(gram, distinct.T @ (omega[:, None] * y)) + y_mean
    coef, intercept = network.weight.detach().numpy(), network.intercept.detach().numpy()
    np.testing.assert_allclose(X @ coef + intercept, fitted, rtol=0, atol=NUMERICAL_SUPREMUM)
    np.testing.assert_allclose(intercept, y_mean - X_mean @ coef, rtol=0, atol=NUMERICAL_SUPREMUM)


def test_ridge_tells_classes_apart():
    task = cs.tasks.first_last_xor(2, n_train=40, n_val=40, n_test=8)

    def score(network):
        return float((network.predict(task.val.inputs)["label"] == task.val.targets).mean())

    split = Split(TrainingSet.of(task.train), score)
    assert score(ridge_stage(gaussian_witnesses(2, (40,)), split, Program(Objective("logistic")))) == 1.0
