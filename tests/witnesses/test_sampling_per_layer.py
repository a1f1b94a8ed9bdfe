"""Gaussian witnesses whose parameters differ between layers, and balanced ones."""

import json

import numpy as np
import pytest
import torch
from tolerances import WEIGHT_GRID

from cvxsnn import gaussian_witnesses, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.witnesses import Constant, LogUniform, Normal, Provenance, Uniform, regenerate

PARAMETERS = ("decay", "threshold", "bias", "initial_membrane")
LAYERED = {
    "decay": [Uniform(0.2, 0.4), 0.5, Uniform(0.6, 0.8)],
    "threshold": [1.0, LogUniform(0.1, 0.2), 2.0],
    "bias": [Normal(0, 0.5), 0.25, -0.25],
    "gain": [0.5, Uniform(1, 3), 2.0],
    "initial_membrane": [-1.0, 0.0, Normal(0, 1)],
    "balance": [0.0, 0.5, Uniform(0, 1)],
    "fan_in": [2, None, 4],
}
BITS = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (60, 5, 3))).float()


def draw(**changes):
    return gaussian_witnesses(**{"n_features": 3, "hidden": (8, 10, 6), "n_subnetworks": 2, "seed": 4, **changes})


def are_equal(one, other):
    return all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


@pytest.mark.parametrize("name", ["gain", *PARAMETERS, "balance"])
def test_a_layer_has_the_parameter_that_is_named_for_it(name):
    mixed = draw(**{name: LAYERED[name]})
    for depth in range(3):
        uniform = draw(**{name: LAYERED[name][depth]})
        assert are_equal(mixed.layers[depth], uniform.layers[depth])
    assert not all(are_equal(*pair) for pair in zip(mixed.layers, draw().layers, strict=True))


@pytest.mark.parametrize("name", ["gain", *PARAMETERS, "balance"])
def test_the_same_for_each_layer_is_the_same_for_all(name):
    value = LAYERED[name][1]
    single, listed = draw(**{name: value}), draw(**{name: [value] * 3})
    assert all(are_equal(*pair) for pair in zip(single.layers, listed.layers, strict=True))
    assert single.provenance == listed.provenance


def test_each_layer_reads_as_many_as_its_fan_in_says():
    counts = [(layer.weight != 0).sum(1) for layer in draw(fan_in=[2, None, 4]).layers]
    assert [set(count.flatten().tolist()) for count in counts] == [{2}, {8}, {4}]
    single, listed = draw(fan_in=4), draw(fan_in=[None, 4, 4])
    assert all(are_equal(*pair) for pair in zip(single.layers, listed.layers, strict=True))
    assert bool((single.layers[0].weight != 0).all())


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_a_recipe_written_as_json_draws_the_same_layers_again(neuron):
    witnesses = draw(neuron=neuron, **LAYERED)
    recipe = json.loads(json.dumps(dict(witnesses.provenance.recipe)))
    again = regenerate(Provenance("sampled", recipe))
    assert all(are_equal(*pair) for pair in zip(witnesses.layers, again.layers, strict=True))
    assert again.provenance == witnesses.provenance


def test_a_recipe_of_some_subnetworks_draws_those_again():
    some = draw(**LAYERED).take(torch.tensor([1]))
    again = regenerate(some.provenance)
    assert all(are_equal(*pair) for pair in zip(some.layers, again.layers, strict=True))


def test_a_balance_of_zero_is_none():
    plain, balanced = draw(), draw(balance=[0.0, Constant(0.0), 0])
    assert balanced.provenance == plain.provenance
    assert "balance" not in plain.provenance.recipe
    assert all(are_equal(*pair) for pair in zip(plain.layers, balanced.layers, strict=True))


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("balance", [0.5, -1.0, Uniform(0, 1)], ids=str)
def test_balance_takes_its_share_of_the_weights_from_the_bias_and_changes_nothing_else(neuron, balance):
    spread = {"bias": Normal(0, 0.5), "gain": Uniform(1, 3), "neuron": neuron}
    for plain, balanced in zip(draw(**spread).layers, draw(balance=balance, **spread).layers, strict=True):
        for name, value in plain.tensors().items():
            assert torch.equal(value, balanced.tensors()[name]) == (name != "bias")
        share = (plain.bias - balanced.bias) / plain.weight.sum(1)
        low, high = (balance.low, balance.high) if isinstance(balance, Uniform) else (balance, balance)
        # The bias has the weights as they were drawn, which are then rounded to their grid.
        slack = plain.weight.shape[1] * WEIGHT_GRID * plain.weight.abs().amax(1) / plain.weight.sum(1).abs()
        assert bool(((share >= low - slack) & (share <= high + slack)).all())


def test_balanced_neurons_that_forget_fire_for_just_one_of_two_opposite_inputs():
    (layer,) = gaussian_witnesses(3, (400,), decay=0.0, threshold=0.0, balance=0.5, seed=1).layers
    spikes, opposite = roll_out([layer], BITS, "all"), roll_out([layer], 1 - BITS, "all")
    assert bool((spikes ^ opposite).all())


def test_balanced_neurons_of_fan_in_one_relay_or_negate_the_neuron_that_they_read():
    relay = {"decay": [0.9, 0.0], "threshold": [1.0, 0.0], "balance": [0.0, 0.5], "fan_in": [None, 1]}
    witnesses = gaussian_witnesses(3, (20, 200), seed=1, **relay)
    lower, upper = witnesses.layers
    below, above = roll_out([lower], BITS, "all"), roll_out(witnesses.layers, BITS, "all")
    read = (upper.weight[0] != 0).int().argmax(0)
    assert torch.equal(above, below[:, :, read] ^ (upper.weight[0].sum(0) < 0))
    assert set(read.tolist()) == set(range(20))
    assert 0.4 < float((upper.weight[0].sum(0) < 0).double().mean()) < 0.6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decay": [0.5, 0.5]}, "one decay for each of 3 layers, got 2"),
        ({"balance": [0.5] * 4}, "one balance for each of 3 layers, got 4"),
        ({"fan_in": [1, 2]}, "one fan_in for each of 3 layers, got 2"),
        ({"fan_in": [1, 0, 2]}, "fan_in to be a positive integer, got 0"),
        ({"fan_in": [1, 2.5, 2]}, "fan_in to be a positive integer, got 2.5"),
        ({"gain": [1.0, "large", 1.0]}, "gain to be a number or a distribution"),
        ({"gain": "111"}, "gain to be a number or a distribution .*, got '111'"),
        ({"decay": [0.5, 1.5, 0.5]}, "decay between 0 and 1, got values from 1.5 to 1.5"),
    ],
)
def test_lists_that_do_not_fit_the_layers_are_refused_in_one_sentence(changes, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        draw(**changes)
    assert "\n" not in str(caught.value)
