import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence
from tolerances import SAMPLE_SD, WEIGHT_GRID

from cvxsnn import gaussian_witnesses, roll_out
from cvxsnn.core.errors import BudgetError, InvalidInputError
from cvxsnn.neurons.exact import snap_weights
from cvxsnn.witnesses import (
    Constant,
    LogUniform,
    Normal,
    Provenance,
    Uniform,
    delayed_witnesses,
    mixed_witnesses,
    regenerate,
)
from cvxsnn.witnesses.settings import as_distribution

SPREAD = {
    "decay": Uniform(0.2, 0.8),
    "threshold": LogUniform(0.1, 1),
    "bias": Normal(0, 0.5),
    "gain": Uniform(1, 3),
    "initial_membrane": -1.0,
}


def draw(**changes):
    return gaussian_witnesses(**{"n_features": 3, "hidden": (8, 6), "n_subnetworks": 2, "seed": 4, **changes})


def differing(first, second):
    """Names of the tensors, with their layer, in which two sets of witnesses differ."""
    return {
        (depth, name)
        for depth, (one, other) in enumerate(zip(first.layers, second.layers, strict=True), 1)
        for name, value in one.tensors().items()
        if not torch.equal(value, other.tensors()[name])
    }


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_the_same_seed_gives_the_same_witnesses_and_another_others(neuron):
    assert differing(draw(neuron=neuron, **SPREAD), draw(neuron=neuron, **SPREAD)) == set()
    moved = {name for _, name in differing(draw(neuron=neuron), draw(neuron=neuron, seed=5))}
    assert moved == ({"weight"} if neuron == "lif" else {"weight", "recurrent_weight"})


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_a_recipe_written_as_json_draws_the_same_witnesses_again(neuron):
    witnesses = draw(neuron=neuron, **SPREAD)
    recipe = json.loads(json.dumps(dict(witnesses.provenance.recipe)))
    again = regenerate(Provenance("sampled", recipe))
    assert differing(witnesses, again) == set()
    assert again.provenance == witnesses.provenance


def test_a_recipe_draws_in_another_type_where_asked():
    assert (
        differing(draw(dtype=torch.float64, **SPREAD), regenerate(draw(**SPREAD).provenance, dtype=torch.float64))
        == set()
    )


@pytest.mark.parametrize("name", ["bias", "decay", "threshold", "initial_membrane"])
def test_a_parameter_moves_nothing_but_itself(name):
    assert differing(draw(), draw(**{name: SPREAD[name]})) == {(1, name), (2, name)}


def test_no_two_weight_matrices_are_the_same_draw():
    layers = draw(n_features=8, hidden=(8, 8), neuron="threshold").layers
    matrices = [matrix for layer in layers for matrix in (*layer.weight, *layer.recurrent_weight)]
    assert len({tuple(matrix.sign().flatten().tolist()) for matrix in matrices}) == len(matrices) == 8


def test_a_layer_does_not_move_with_the_width_above_it():
    (lower, _), (same, _) = draw(**SPREAD).layers, draw(hidden=(8, 50), **SPREAD).layers
    for name, value in lower.tensors().items():
        assert torch.equal(same.tensors()[name], value)


@pytest.mark.parametrize("name", ["decay", "threshold"])
def test_parameters_stay_within_their_bounds_and_differ_between_neurons(name):
    for layer in draw(**SPREAD).layers:
        values = layer.tensors()[name].double()
        # float32 may round an end outwards, by less than the distance to the next float32.
        assert bool((values >= np.float32(SPREAD[name].low)).all())
        assert bool((values <= np.float32(SPREAD[name].high)).all())
        assert values.unique().numel() == values.numel()


def test_weights_have_the_variance_of_the_paper():
    lower, upper = draw(n_features=50, hidden=(200, 300)).layers
    (recurrent,) = draw(n_features=50, hidden=(150,), neuron="threshold").layers
    for weight, fan_in in ((lower.weight, 50), (upper.weight, 200), (recurrent.recurrent_weight, 150)):
        assert weight.std().item() * fan_in**0.5 == pytest.approx(1, rel=SAMPLE_SD)


def test_gain_multiplies_all_weights_of_a_neuron():
    (plain,), (doubled,) = draw(hidden=(8,)).layers, draw(hidden=(8,), gain=2.0).layers
    assert torch.equal(doubled.weight, 2 * plain.weight)
    (plain,), (spread,) = (draw(hidden=(8,), neuron="threshold", gain=gain).layers for gain in (1.0, Uniform(1, 3)))
    ratio = (spread.weight / plain.weight).mean(1)
    recurrent_ratio = (spread.recurrent_weight / plain.recurrent_weight).mean(1)
    assert bool(((ratio > 0.99) & (ratio < 3.01)).all())
    torch.testing.assert_close(ratio, recurrent_ratio, rtol=0.01, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_tensor_has_the_type_asked_for_and_weights_lie_on_the_grid(dtype):
    witnesses = draw(dtype=dtype, **SPREAD)
    assert witnesses.dtype == dtype
    for layer in witnesses.layers:
        assert {value.dtype for value in layer.tensors().values()} == {dtype}
        assert torch.equal(layer.weight, snap_weights(layer.weight))


def test_only_a_sample_can_be_drawn_again():
    with pytest.raises(InvalidInputError, match="sampled witnesses, got pretrained ones: only a sample has a seed"):
        regenerate(replace(draw().provenance, kind="pretrained"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_features": 0}, "n_features to be a positive integer, got 0"),
        ({"hidden": (8, 0)}, "hidden to be a positive integer, got 0"),
        ({"hidden": (8, -1)}, "hidden to be a positive integer, got -1"),
        ({"hidden": (8.5,)}, "hidden to be a positive integer, got 8.5"),
        ({"hidden": ()}, r"hidden to list the layers' widths, got \(\): pass for example \(256,\)"),
        ({"hidden": 8}, "hidden to list the layers' widths, got 8"),
        ({"n_subnetworks": 0}, "n_subnetworks to be a positive integer, got 0"),
        ({"neuron": "relu"}, r"neuron to be one of 'lif', 'threshold'.*, got 'relu'"),
        ({"decay": 1.5}, "decay between 0 and 1, got values from 1.5 to 1.5"),
        ({"decay": Uniform(-0.5, 0)}, "decay between 0 and 1"),
        ({"bias": "large"}, "bias to be a number or a distribution"),
        ({"seed": -1}, "seed to be a non-negative integer"),
    ],
)
def test_arguments_that_make_no_witnesses_are_refused_in_one_sentence(changes, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        draw(**changes)
    assert "\n" not in str(caught.value)


def test_neurons_of_small_fan_in_read_so_many_others_and_weights_keep_their_variance():
    witnesses = gaussian_witnesses(3, (40, 300), 2, fan_in=4, seed=1)
    first, second = witnesses.layers
    assert bool((first.weight != 0).all())
    assert bool(((second.weight != 0).sum(1) == 4).all())
    assert float(second.weight[second.weight != 0].var()) == pytest.approx(1 / 4, rel=0.1)
    chosen = (second.weight[0] != 0).int()
    assert len({tuple(column.tolist()) for column in chosen.T}) > 290  # each neuron draws its own


def test_fan_in_moves_no_other_draw_and_is_drawn_again_from_the_recipe():
    dense, sparse = (gaussian_witnesses(3, (40, 30), fan_in=fan_in, seed=1) for fan_in in (None, 4))
    assert torch.equal(dense.layers[0].weight, sparse.layers[0].weight)
    kept = sparse.layers[1].weight != 0
    ratio = (sparse.layers[1].weight / dense.layers[1].weight)[kept]
    assert ratio.numpy() == pytest.approx((40 / 4) ** 0.5, rel=1e-2)
    again = regenerate(sparse.provenance)
    assert torch.equal(again.layers[1].weight, sparse.layers[1].weight)
    assert "fan_in" not in dense.provenance.recipe


def test_a_fan_in_of_all_neurons_or_more_is_the_dense_layer():
    dense = gaussian_witnesses(3, (10, 5), seed=1)
    for fan_in in (10, 99):
        assert torch.equal(
            gaussian_witnesses(3, (10, 5), fan_in=fan_in, seed=1).layers[1].weight, dense.layers[1].weight
        )
    with pytest.raises(InvalidInputError, match="fan_in"):
        gaussian_witnesses(3, (10, 5), fan_in=0)


def draw_numbers(distribution, n=10_000):
    return distribution.sample(np.random.default_rng(0), (n,))


@pytest.mark.parametrize("distribution", [Uniform(-2, 3), Uniform(1, 1), LogUniform(1e-3, 1), LogUniform(0.1, 0.1)])
def test_draws_stay_within_the_bounds(distribution):
    draws = draw_numbers(distribution)
    assert draws.min() >= distribution.low
    assert draws.max() <= distribution.high


def test_uniform_draws_fill_the_interval_evenly():
    counts, _ = np.histogram(draw_numbers(Uniform(-2, 3)), bins=5, range=(-2, 3))
    assert counts.min() > 1800


def test_log_uniform_draws_fill_the_decades_evenly():
    counts, _ = np.histogram(np.log10(draw_numbers(LogUniform(1e-3, 1e2))), bins=5, range=(-3, 2))
    assert counts.min() > 1800


def test_normal_draws_have_the_mean_and_spread_asked_for():
    standardised = (draw_numbers(Normal(3, 0.5)) - 3) / 0.5
    # 68.3 % of a Gaussian lies within one standard deviation, 95.4 % within two.
    assert abs(standardised.mean()) < 0.05
    assert 0.66 < (abs(standardised) < 1).mean() < 0.70
    assert 0.94 < (abs(standardised) < 2).mean() < 0.97


def test_a_constant_is_always_the_same():
    assert (draw_numbers(Constant(0.3)) == 0.3).all()


@pytest.mark.parametrize("number", [2, 0.5, np.float32(0.5), np.int64(2)])
def test_a_number_means_a_constant(number):
    assert as_distribution("decay", number) == Constant(float(number))


@pytest.mark.parametrize("high", [1, 1.0, np.float32(1), np.int64(1)])
def test_a_description_is_plain_json(high):
    described = json.loads(json.dumps(LogUniform(0.5, high).describe()))
    assert described == {"distribution": "loguniform", "low": 0.5, "high": 1.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1, 0), "low <= high, got low=1 and high=0"),
        (lambda: LogUniform(1, 0.5), "low <= high"),
        (lambda: LogUniform(0, 1), "start above zero, got low=0"),
        (lambda: Normal(0, -1), "non-negative standard deviation, got sd=-1"),
        (lambda: Normal(np.nan, 1), "finite mean, got nan"),
        (lambda: Constant(np.inf), "finite value, got inf"),
        (lambda: Uniform(0, np.inf), "finite high, got inf"),
        (lambda: as_distribution("decay", "0.9"), r"decay to be a number or a distribution such as .* got '0.9'"),
        (lambda: as_distribution("decay", True), "decay to be a number or a distribution"),
    ],
)
def test_distributions_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


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
BITS = torch.tensor(np.random.default_rng(0).integers(0, 2, (60, 5, 3))).float()


def draw_three_layers(**changes):
    return gaussian_witnesses(**{"n_features": 3, "hidden": (8, 10, 6), "n_subnetworks": 2, "seed": 4, **changes})


def are_equal_layers(one, other):
    return all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


@pytest.mark.parametrize("name", ["gain", *PARAMETERS, "balance"])
def test_a_layer_has_the_parameter_that_is_named_for_it(name):
    mixed = draw_three_layers(**{name: LAYERED[name]})
    for depth in range(3):
        uniform = draw_three_layers(**{name: LAYERED[name][depth]})
        assert are_equal_layers(mixed.layers[depth], uniform.layers[depth])
    assert not all(are_equal_layers(*pair) for pair in zip(mixed.layers, draw_three_layers().layers, strict=True))


@pytest.mark.parametrize("name", ["gain", *PARAMETERS, "balance"])
def test_the_same_for_each_layer_is_the_same_for_all(name):
    value = LAYERED[name][1]
    single, listed = draw_three_layers(**{name: value}), draw_three_layers(**{name: [value] * 3})
    assert all(are_equal_layers(*pair) for pair in zip(single.layers, listed.layers, strict=True))
    assert single.provenance == listed.provenance


def test_each_layer_reads_as_many_as_its_fan_in_says():
    counts = [(layer.weight != 0).sum(1) for layer in draw_three_layers(fan_in=[2, None, 4]).layers]
    assert [set(count.flatten().tolist()) for count in counts] == [{2}, {8}, {4}]
    single, listed = draw_three_layers(fan_in=4), draw_three_layers(fan_in=[None, 4, 4])
    assert all(are_equal_layers(*pair) for pair in zip(single.layers, listed.layers, strict=True))
    assert bool((single.layers[0].weight != 0).all())


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_a_recipe_written_as_json_draws_the_same_layers_again(neuron):
    witnesses = draw_three_layers(neuron=neuron, **LAYERED)
    recipe = json.loads(json.dumps(dict(witnesses.provenance.recipe)))
    again = regenerate(Provenance("sampled", recipe))
    assert all(are_equal_layers(*pair) for pair in zip(witnesses.layers, again.layers, strict=True))
    assert again.provenance == witnesses.provenance


def test_a_recipe_of_some_subnetworks_draws_those_again():
    some = draw_three_layers(**LAYERED).take(torch.tensor([1]))
    again = regenerate(some.provenance)
    assert all(are_equal_layers(*pair) for pair in zip(some.layers, again.layers, strict=True))


def test_a_balance_of_zero_is_none():
    plain, balanced = draw_three_layers(), draw_three_layers(balance=[0.0, Constant(0.0), 0])
    assert balanced.provenance == plain.provenance
    assert "balance" not in plain.provenance.recipe
    assert all(are_equal_layers(*pair) for pair in zip(plain.layers, balanced.layers, strict=True))


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("balance", [0.5, -1.0, Uniform(0, 1)], ids=str)
def test_balance_takes_its_share_of_the_weights_from_the_bias_and_changes_nothing_else(neuron, balance):
    spread = {"bias": Normal(0, 0.5), "gain": Uniform(1, 3), "neuron": neuron}
    for plain, balanced in zip(
        draw_three_layers(**spread).layers, draw_three_layers(balance=balance, **spread).layers, strict=True
    ):
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
        ({"decay": [0.5, 0.5]}, "expected decay for each of 3 layers, got 2"),
        ({"balance": [0.5] * 4}, "expected balance for each of 3 layers, got 4"),
        ({"fan_in": [1, 2]}, "expected fan_in for each of 3 layers, got 2"),
        ({"fan_in": [1, 0, 2]}, "fan_in to be a positive integer, got 0"),
        ({"fan_in": [1, 2.5, 2]}, "fan_in to be a positive integer, got 2.5"),
        ({"gain": [1.0, "large", 1.0]}, "gain to be a number or a distribution"),
        ({"gain": "111"}, "gain to be a number or a distribution .*, got '111'"),
        ({"decay": [0.5, 1.5, 0.5]}, "decay between 0 and 1, got values from 1.5 to 1.5"),
    ],
)
def test_lists_that_do_not_fit_the_layers_are_refused_in_one_sentence(changes, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        draw_three_layers(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("width", [10**9, 10**19, 10**31, 10**400])
def test_more_neurons_than_memory_holds_are_refused_at_once(width):
    inputs = np.random.default_rng(0).normal(size=(8, 5, 3))
    for draw in (
        lambda: gaussian_witnesses(300, (width,)),
        lambda: gaussian_witnesses(300, (2,), width),
        lambda: delayed_witnesses(inputs, (width * 10,)),
        lambda: mixed_witnesses(inputs, width * 1000),
    ):
        with pytest.raises(BudgetError, match=r"to fit into the memory of cpu, but it needs .* use fewer") as caught:
            draw()
        assert_one_sentence(caught.value)
