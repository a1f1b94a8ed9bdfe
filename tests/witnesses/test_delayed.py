"""Sampling witnesses with delays: where taps are, what they weigh, and how often neurons fire."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive import tap_drive
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, delayed_witnesses, roll_out
from cvxsnn.data import Sequences
from cvxsnn.neurons.exact import snap_inputs
from cvxsnn.neurons.tap_kernel import integrate_taps
from cvxsnn.witnesses import Uniform
from cvxsnn.witnesses.tap_sampling import Calibration

N_STEPS, N_FEATURES = 12, 6
INPUTS = np.random.default_rng(0).normal(size=(40, N_STEPS, N_FEATURES))
LENGTHS = np.random.default_rng(1).integers(3, N_STEPS + 1, size=40)
UNEQUAL = Sequences(torch.tensor(INPUTS), LENGTHS)
GEOMETRIES = ["scattered", "box", "dilated"]
WEIGHTS = ["gaussian", "centred", "two-valued", "differences"]


def draw(inputs=INPUTS, hidden=(30,), n_subnetworks=1, **family):
    return delayed_witnesses(inputs, hidden, n_subnetworks, **{"fan_in": 5, **family})


def taps(layer):
    """Source, delay and weight of the taps, (n_neurons, n_taps) each."""
    return [getattr(layer, name).transpose(1, 2).flatten(0, 1).numpy() for name in ("source", "delay", "weight")]


def are_equal(one, other):
    return all(
        torch.equal(value, theirs.tensors()[name])
        for own, theirs in zip(one.layers, other.layers, strict=True)
        for name, value in own.tensors().items()
    )


def undriven(layer, values):
    """Membranes (n_samples, n_steps, width) of a layer of one subnetwork that never fires and has no bias."""
    membrane, steps = np.zeros((len(values), layer.width)), []
    for t in range(values.shape[1]):
        membrane = layer.decay[0].double().numpy() * membrane + tap_drive(layer, 0, values, t)
        steps.append(membrane)
    return np.stack(steps, axis=1)


def exact(inputs):
    return snap_inputs(torch.as_tensor(inputs)).numpy()


# Where taps are.


@given(
    st.sampled_from(GEOMETRIES),
    st.integers(1, 80) | st.none(),
    st.integers(0, N_STEPS - 1) | st.none(),
    st.integers(0, 99),
)
def test_taps_are_distinct_within_bounds_and_as_many_as_asked_for(geometry, fan_in, max_delay, seed):
    layer = draw(geometry=geometry, fan_in=fan_in, max_delay=max_delay, quantiles=None, seed=seed).layers[0]
    source, delay, _ = taps(layer)
    reach = N_STEPS - 1 if max_delay is None else max_delay
    assert source.min() >= 0
    assert source.max() < N_FEATURES
    assert delay.min() >= 0
    assert delay.max() <= reach
    n_places = {
        "scattered": (reach + 1) * N_FEATURES,
        "box": min(8, reach + 1) * N_FEATURES,
        "dilated": reach + 1,
    }[geometry]
    wanted = {"dilated": 9}.get(geometry, n_places) if fan_in is None else fan_in
    assert layer.n_taps == min(wanted, n_places)
    assert all(len(set(zip(*one, strict=True))) == layer.n_taps for one in zip(source, delay, strict=True))


@pytest.mark.parametrize("fan_in", [1, 7, 35, 36, 37, 71, 72])
def test_scattered_taps_are_anywhere_with_equal_probability(fan_in):
    source, delay, _ = taps(draw(hidden=(4000,), fan_in=fan_in, quantiles=None).layers[0])
    counts = np.bincount((delay * N_FEATURES + source).ravel(), minlength=N_STEPS * N_FEATURES)
    share = fan_in / (N_STEPS * N_FEATURES)
    assert abs(counts / 4000 - share).max() <= 5 * np.sqrt(share * (1 - share) / 4000)


@pytest.mark.parametrize("box", [None, (3, 2), (1, 6), (20, 1)])
def test_a_box_is_a_window_of_delays_and_neighbouring_inputs(box):
    source, delay, _ = taps(draw(hidden=(300,), geometry="box", fan_in=None, box=box).layers[0])
    height, width = np.minimum((8, 8) if box is None else box, (N_STEPS, N_FEATURES))
    assert (np.ptp(delay, axis=1) == height - 1).all()
    assert (np.ptp(source, axis=1) == width - 1).all()
    assert set(delay.min(axis=1)) == set(range(N_STEPS - height + 1))
    assert set(source.min(axis=1)) == set(range(N_FEATURES - width + 1))


def test_a_box_in_a_grid_of_features_stays_in_it():
    source, delay, _ = taps(
        draw(hidden=(200,), geometry="box", fan_in=None, box=(4, 1, 2), feature_shape=(2, 3)).layers[0]
    )
    row, column = np.divmod(source, 3)
    assert (np.ptp(delay, axis=1) == 3).all()
    assert (np.ptp(row, axis=1) == 0).all()
    assert (np.ptp(column, axis=1) == 1).all()
    assert source.shape[1] == 8
    assert set(row.ravel()) == {0, 1}
    assert set(column.ravel()) == {0, 1, 2}


def test_a_box_with_a_period_is_a_patch_of_steps():
    source, delay, _ = taps(
        draw(hidden=(300,), geometry="box", fan_in=None, box=(2, 2, 1), period=3, max_delay=10).layers[0]
    )
    row, column = np.divmod(delay, 3)
    assert delay.shape[1] == 4
    assert (np.ptp(row, axis=1) == 1).all()
    assert (np.ptp(column, axis=1) == 1).all()
    assert (np.ptp(source, axis=1) == 0).all()
    assert set(row.ravel()) == {0, 1, 2}  # whole periods only
    assert set(column.ravel()) == set(range(3))
    assert set(source.ravel()) == set(range(N_FEATURES))


def test_a_period_belongs_to_the_first_layer_and_is_remembered():
    witnesses = draw(hidden=(9, 50), geometry="box", fan_in=None, box=(1, 2, 1), period=4)
    assert [layer.n_taps for layer in witnesses.layers] == [2, 64]
    assert witnesses.provenance.recipe["period"] == 4


def test_only_the_first_layer_has_the_grid_and_the_box_of_the_inputs():
    witnesses = draw(hidden=(9, 50), geometry="box", fan_in=None, box=(2, 2, 2), feature_shape=(2, 3))
    assert [layer.n_taps for layer in witnesses.layers] == [8, 64]


@pytest.mark.parametrize("max_delay", [None, 2, 5, 11])
def test_dilated_taps_are_on_one_input_at_equal_distances(max_delay):
    source, delay, _ = taps(
        draw(hidden=(300,), geometry="dilated", fan_in=4, max_delay=max_delay, quantiles=None).layers[0]
    )
    assert (source == source[:, :1]).all()
    assert set(source[:, 0]) == set(range(N_FEATURES))
    step = delay[:, 1]
    assert (delay == step[:, None] * np.arange(delay.shape[1])).all()
    assert step.min() == 1
    # Log-uniform up to the largest: short ones are as frequent as all longer ones together, or more.
    reach = 11 if max_delay is None else max_delay
    assert step.max() <= max(1, reach // (delay.shape[1] - 1))
    assert max_delay is not None or (step > 1).mean() > 0.2


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("max_delay", [None, 1, 6])
def test_first_differences_read_each_tap_and_the_step_before_it(geometry, max_delay):
    layer = draw(geometry=geometry, max_delay=max_delay, differenced=True).layers[0]
    source, delay, weight = taps(layer)
    half = layer.n_taps // 2
    assert (source[:, :half] == source[:, half:]).all()
    assert (delay[:, :half] + 1 == delay[:, half:]).all()
    assert (weight[:, :half] == -weight[:, half:]).all()
    assert delay.max() <= (N_STEPS - 1 if max_delay is None else max_delay)


# What taps weigh.


@pytest.mark.parametrize("fan_in", [1, 4, 9, 25])
def test_two_valued_weights_are_minus_one_and_for_a_third_of_the_taps_two(fan_in):
    _, _, weight = taps(draw(weights="two-valued", fan_in=fan_in).layers[0])
    assert set(np.unique(weight)) <= {-1.0, 2.0}
    assert ((weight == 2).sum(axis=1) == max(1, round(fan_in / 3))).all()
    assert len(np.unique(weight, axis=0)) > 1 or fan_in == 1


def test_centred_weights_sum_to_zero_up_to_their_grid():
    _, _, weight = taps(draw(weights="centred", fan_in=25, hidden=(200,)).layers[0])
    assert abs(weight.sum(axis=1)).max() < 25 * 2.0**-13 * abs(weight).max()
    assert weight.std() == pytest.approx(1 / 5, rel=0.1)


def test_gaussian_weights_have_the_variance_of_one_drive():
    _, _, weight = taps(draw(fan_in=16, hidden=(500,)).layers[0])
    assert weight.std() == pytest.approx(1 / 4, rel=0.05)
    assert weight.mean() == pytest.approx(0.0, abs=0.01)


def windows(source, delay, values, lengths, is_differenced):
    """What the taps of one neuron read, (n_samples, n_steps, n_taps), with NaN after the end."""
    read = np.zeros((*values.shape[:2], len(source)))
    for k, (feature, late) in enumerate(zip(source, delay, strict=True)):
        for t in range(values.shape[1]):
            for sign, when in ((1, t - late), (-1, t - late - 1))[: 1 + is_differenced]:
                read[:, t, k] += sign * values[:, when, feature] if when >= 0 else 0.0
    read[np.arange(values.shape[1]) >= np.asarray(lengths)[:, None]] = np.nan
    return read


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("is_differenced", [False, True])
def test_weights_from_data_are_differences_of_what_the_taps_read(geometry, is_differenced):
    few = Sequences(UNEQUAL.inputs[:15], UNEQUAL.lengths[:15])
    family = {"weights": "differences", "geometry": geometry, "differenced": is_differenced, "max_delay": 4}
    layer = draw(few, (12,), **family).layers[0]
    source, delay, weight = (own[:, : layer.n_taps // (1 + is_differenced)] for own in taps(layer))
    n_differences = 0
    for neuron in range(12):
        read = windows(source[neuron], delay[neuron], exact(few.inputs), few.lengths, is_differenced)
        difference = (read[:, None] - read[None]).reshape(-1, source.shape[1])
        norm = np.linalg.norm(difference, axis=1, keepdims=True)
        unit = difference[(norm > 0)[:, 0]] / norm[(norm > 0)[:, 0]]
        n_differences += np.nanmin(abs(unit - weight[neuron]).max(axis=1)) < 2.0**-14
    # Two random windows may be the same, or before the start: such a neuron has Gaussian weights.
    assert n_differences >= 8


def test_windows_that_do_not_differ_give_gaussian_weights():
    inputs = np.ones((10, 4, 3))
    inputs[0, 0, 0] = 2.0
    _, _, weight = taps(draw(inputs, weights="differences", hidden=(50,), max_delay=2).layers[0])
    assert np.linalg.norm(weight, axis=1) == pytest.approx(np.ones(50), abs=1e-3)


def test_upper_layers_have_weights_from_the_spikes_of_their_own_subnetwork():
    witnesses = draw(INPUTS[:10], (5, 6), 3, weights="differences", fan_in=None)
    source, delay, weight = taps(witnesses.layers[1])
    spikes = roll_out(witnesses.layers[:1], INPUTS[:10], "all").double().numpy()
    n_differences = 0
    for neuron in range(18):
        own = spikes[:, :, 5 * (neuron // 6) :][:, :, :5]
        read = windows(source[neuron], delay[neuron], own, [N_STEPS] * 10, False)
        difference = (read[:, None] - read[None]).reshape(-1, source.shape[1])
        difference = difference[difference.any(axis=1)]
        unit = difference / np.linalg.norm(difference, axis=1, keepdims=True)
        n_differences += abs(unit - weight[neuron]).max(axis=1).min() < 2.0**-14
    assert n_differences >= 12


# How often neurons fire.


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("decay", [0.0, 0.5, Uniform(0.0, 1.0)])
@pytest.mark.parametrize("quantile", [0.0, 0.3, 0.9, 1.0])
def test_neurons_fire_in_the_promised_share_of_steps(geometry, weights, decay, quantile):
    witnesses = draw(
        geometry=geometry, weights=weights, decay=decay, quantiles=(quantile, quantile), dtype=torch.float64
    )
    rate = roll_out(witnesses.layers, INPUTS, "all").double().mean((0, 1)).numpy()
    n_places = 40 * N_STEPS
    rank = min(int(quantile * n_places), n_places - 1)
    # Where a leak rounds, the one membrane that is the level itself may stay a bit below it.
    rounding = (1.0 if isinstance(decay, Uniform) else 0.0) / n_places + 1e-9
    assert (rate >= 1 - rank / n_places - rounding).all()
    # Equal membranes at the level, most of them zero before the first taps read anything, fire together.
    membrane = undriven(witnesses.layers[0], exact(INPUTS)).reshape(-1, 30)
    level = np.sort(membrane, axis=0)[rank]
    n_ties = (abs(membrane - level) < 1e-9).sum(axis=0)
    assert (abs(rate - (membrane >= level - 1e-9).mean(axis=0)) <= rounding * n_ties).all()


@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("inputs", [INPUTS, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_levels_are_exact_quantiles_of_a_plain_loop(decay, inputs, dtype):
    layer = draw(inputs, decay=decay, dtype=dtype).layers[0]
    sequences = Sequences.of(inputs)
    membrane = undriven(layer, exact(sequences.inputs))
    inside = np.ones((40, N_STEPS), dtype=bool) if sequences.lengths is None else sequences.is_inside().numpy()
    level = -layer.initial_membrane[0].double().numpy()
    seen = membrane[inside]
    # A level is one of the membranes, and a leak is towards it.
    rounding = 1e-12 if dtype == torch.float64 else 1e-6
    assert abs(seen - level).min(axis=0).max() <= rounding * (1 + abs(level).max())
    torch.testing.assert_close(layer.bias, (1 - layer.decay) * layer.initial_membrane, rtol=1e-6, atol=1e-6)
    share = (seen >= level - 10 * rounding).mean(axis=0)
    assert share.min() >= 0.05 - 1 / len(seen)
    assert share.max() <= 0.95 + 2 / len(seen) + (seen == 0).mean()
    # Measured from its level, a membrane is what the layer has: it fires where this is not below zero.
    is_clear = abs(membrane - level) > 1e-4
    spikes = roll_out([layer], sequences, "all").numpy()
    assert (spikes == (membrane >= level))[is_clear & inside[:, :, None]].all()


def test_padding_does_not_matter():
    padded = UNEQUAL.inputs.clone()
    padded[~UNEQUAL.is_inside()] = -17.0
    for family in ({}, {"weights": "differences"}, {"hidden": (8, 9)}):
        one, other = draw(UNEQUAL, **family), draw(Sequences(padded, LENGTHS), **family)
        assert are_equal(one, other)
        assert one.provenance == other.provenance


def test_a_reset_is_in_units_of_the_membrane_s_spread():
    witnesses = draw(threshold=0.5, decay=0.5, dtype=torch.float64)
    spread = undriven(witnesses.layers[0], exact(INPUTS)).std(axis=(0, 1))
    assert witnesses.layers[0].threshold[0].numpy() == pytest.approx(0.5 * spread, rel=1e-9)


def test_without_quantiles_biases_are_drawn_and_values_do_not_matter():
    family = {"quantiles": None, "bias": Uniform(0.25, 0.75), "threshold": 1.0}
    one, other = draw(**family), draw(np.zeros((1, N_STEPS, N_FEATURES)), **family)
    assert are_equal(one, other)
    assert 0.25 <= float(one.layers[0].bias.min()) < 0.3
    assert float(one.layers[0].bias.max()) <= 0.75
    assert not bool(one.layers[0].initial_membrane.any())
    assert bool((one.layers[0].threshold == 1).all())


@pytest.mark.parametrize("n_subnetworks", [1, 3])
def test_upper_layers_fire_in_the_promised_share_of_steps_too(n_subnetworks):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(100, 30, 4))
    witnesses = draw(inputs, (40, 50), n_subnetworks, fan_in=(9, 20), quantiles=(0.5, 0.5), max_delay=(8, 3))
    assert witnesses.hidden == (40, 50)
    assert [layer.max_delay for layer in witnesses.layers] == [8, 3]
    rate = roll_out(witnesses.layers, inputs, "all").double().mean((0, 1))
    assert float(rate.mean()) == pytest.approx(0.5, abs=0.05)


def test_threshold_neurons_have_no_membrane_to_keep():
    witnesses = draw(neuron="threshold", quantiles=(0.25, 0.25))
    assert float(roll_out(witnesses.layers, INPUTS, "all").double().mean()) == pytest.approx(0.75, abs=0.05)
    with pytest.raises(InvalidInputError, match="decay 0 and threshold 0 for threshold neurons"):
        draw(neuron="threshold", decay=0.5)


# The draw.


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("weights", WEIGHTS)
def test_the_seed_decides_and_nothing_else(geometry, weights):
    family = {"geometry": geometry, "weights": weights, "hidden": (20, 10), "n_subnetworks": 2}
    first = draw(**family)
    draw(seed=5, **family)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1 + n_threads)
    try:
        assert are_equal(first, draw(torch.tensor(INPUTS), **family))
    finally:
        torch.set_num_threads(n_threads)
    other = draw(seed=1, **family)
    assert not torch.equal(first.layers[0].delay, other.layers[0].delay)
    assert not torch.equal(first.layers[0].bias, other.layers[0].bias)


def test_large_draws_on_several_threads_in_blocks_are_the_same(monkeypatch):
    inputs = np.random.default_rng(0).normal(size=(300, 40, 3))
    family = {"hidden": (100, 60), "n_subnetworks": 3, "fan_in": 25, "decay": 0.5}
    first = draw(inputs, **family)
    monkeypatch.setattr("cvxsnn.witnesses.tap_sampling.TapSampler.block_bytes", 8 * 1024 * 100)
    monkeypatch.setattr("cvxsnn.neurons.tap_kernel._MIN_WORK", 1)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert are_equal(first, draw(inputs, **family))
    finally:
        torch.set_num_threads(n_threads)


@pytest.mark.parametrize("steps", ["all", "last"])
@pytest.mark.parametrize("decay", [0.0, 0.75, Uniform(0.0, 1.0)])
def test_thresholds_cost_the_steps_that_are_looked_at_and_no_padding(monkeypatch, decay, steps):
    rng, looked = np.random.default_rng(0), []
    lengths = np.array([1] * 20 + [700, 500, 6, 7])
    inputs = rng.normal(size=(len(lengths), 700, 2))
    family = {"decay": decay, "steps": steps, "quantiles": (0.2, 0.8)}

    def integrate(table, values, own, places):
        looked.append(values[:, 0].numel() if own.any() else len(places))
        return integrate_taps(table, values, own, places)

    monkeypatch.setattr("cvxsnn.neurons.tap_kernel.integrate_taps", integrate)
    layer = draw(Sequences(inputs, lengths), **family).layers[0]
    assert sum(looked) <= (1024 if decay == 0.0 else 1.25 * lengths.sum())
    whole = [undriven(layer, exact(own[None, :n]))[0] for own, n in zip(inputs, lengths, strict=True)]
    values = np.concatenate([own[-1:] for own in whole] if steps == "last" else whole)
    level = -layer.initial_membrane[0].numpy()
    assert np.abs(values - level).min(axis=0).max() < 1e-6 * (1 + np.abs(level).max())


def test_double_precision_changes_no_tap():
    single, double = draw(), draw(dtype=torch.float64)
    assert double.dtype == torch.float64
    assert all(np.array_equal(*pair) for pair in zip(taps(single.layers[0]), taps(double.layers[0]), strict=True))
    torch.testing.assert_close(single.layers[0].bias.double(), double.layers[0].bias, rtol=1e-6, atol=1e-7)
    many = [draw(hidden=(4000,), quantiles=None, dtype=dtype).layers[0] for dtype in (torch.float32, torch.float64)]
    assert torch.equal(many[0].weight.double(), many[1].weight)


def test_calibration_sequences_are_a_seeded_subset_in_their_order():
    sequences = Sequences(torch.arange(50.0)[:, None, None].expand(-1, 2, 1).clone())
    chosen = Calibration.of(sequences, 10, 3).sequences.inputs[:, 0, 0].tolist()
    assert len(set(chosen)) == 10
    assert chosen == sorted(chosen)
    assert chosen == Calibration.of(sequences, 10, 3).sequences.inputs[:, 0, 0].tolist()
    assert chosen != Calibration.of(sequences, 10, 4).sequences.inputs[:, 0, 0].tolist()
    assert len(Calibration.of(sequences, 50, 3).sequences) == 50


def test_only_calibration_sequences_are_looked_at():
    chosen = Calibration.of(Sequences(torch.tensor(INPUTS)), 10, 0).sequences.inputs.numpy()
    others = INPUTS.copy()
    others[[not any(np.array_equal(exact(own), one) for one in chosen) for own in INPUTS]] = 99.0
    assert are_equal(draw(n_calibration=10), draw(others, n_calibration=10))
    assert not are_equal(draw(n_calibration=10), draw(n_calibration=11))


def test_digests_tell_sequences_apart_but_not_their_zeros():
    values = torch.tensor([[[0.0], [1.0], [2.0]], [[3.0], [4.0], [0.0]]])
    digest = Calibration(Sequences(values)).digest
    negative = values.clone()
    negative[0, 0] = -0.0
    assert Calibration(Sequences(negative)).digest == digest
    others = [values + 1, values[:, :2], values[:1], values.flip(0), values.view(3, 2, 1)]
    digests = {
        digest,
        *(Calibration(Sequences(own)).digest for own in others),
        Calibration(Sequences(values, [3, 2])).digest,
    }
    assert len(digests) == 7


# What is refused.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_delay": N_STEPS}, "max_delay below the 12 steps of the training sequences, got 12"),
        ({"max_delay": -1}, "max_delay to be a whole number of steps from 0, got -1"),
        ({"max_delay": 2.5}, "max_delay to be a whole number of steps from 0, got 2.5"),
        ({"max_delay": True}, "max_delay to be a whole number of steps from 0, got True"),
        ({"max_delay": (1, 2)}, "expected max_delay for each of 1 layer, got 2"),
        ({"differenced": True, "max_delay": 0}, "max_delay of at least 1 for first differences"),
        ({"geometry": "ring"}, "geometry to be one of 'scattered', 'box', 'dilated', 'correlated', got 'ring'"),
        ({"weights": "zero"}, "weights to be one of 'gaussian', 'centred', 'two-valued', 'differences', got 'zero'"),
        ({"weights": "centred", "fan_in": 1}, "at least 2 taps for centred weights, which sum to zero, got 1"),
        ({"fan_in": 0}, "fan_in to be a positive integer, got 0"),
        ({"fan_in": 1.5}, "fan_in to be a positive integer, got 1.5"),
        ({"feature_shape": (2, 2)}, r"rows and columns of 6 features, got \(2, 2\)"),
        ({"period": 0}, "period to be a positive"),
        ({"geometry": "box", "period": 5, "max_delay": 3}, "a period of at most 4 steps"),
        ({"box": (2, 2), "period": 5}, "box to be positive numbers of periods, steps and features"),
        ({"feature_shape": (6,)}, r"rows and columns of 6 features, got \(6,\)"),
        ({"feature_shape": 6}, "rows and columns of 6 features, got 6"),
        ({"feature_shape": (-2, -3)}, r"rows and columns of 6 features, got \(-2, -3\)"),
        ({"box": (2, 2, 2)}, r"box to be positive numbers of delays and features, got \(2, 2, 2\)"),
        ({"box": (2, 0)}, r"box to be positive numbers of delays and features, got \(2, 0\)"),
        ({"box": (2.5, 2)}, r"box to be positive numbers of delays and features, got \(2.5, 2\)"),
        ({"box": 8}, "box to be positive numbers of delays and features, got 8"),
        ({"box": (2, 2), "feature_shape": (2, 3)}, "box to be positive numbers of delays, rows and columns"),
        ({"quantiles": (0.9, 0.1)}, r"two quantiles between 0 and 1 in increasing order, got \(0.9, 0.1\)"),
        ({"quantiles": (0.5, 1.5)}, "two quantiles between 0 and 1"),
        ({"quantiles": (-0.1, 0.5)}, "two quantiles between 0 and 1"),
        ({"quantiles": (0.5,)}, "two quantiles between 0 and 1"),
        ({"quantiles": 0.5}, "two quantiles between 0 and 1"),
        ({"quantiles": ("a", "b")}, "two quantiles between 0 and 1"),
        ({"quantiles": (float("nan"), 0.5)}, "two quantiles between 0 and 1"),
        ({"quantiles": ((0.1, 0.9), (0.1, 0.9))}, "expected quantiles for each of 1 layer, got 2"),
        ({"quantiles": ((0.9, 0.1),)}, r"two quantiles between 0 and 1 in increasing order, got \(0.9, 0.1\)"),
        ({"neighbours": 0}, "neighbours to be a positive integer, got 0"),
        ({"steps": "first"}, "steps to be one of 'all', 'last', got 'first'"),
        ({"hidden": (3, 3), "geometry": "correlated"}, "correlated taps in the first layer only"),
        ({"hidden": (3, 3), "box": (None, (2, 2, 2))}, "box to be positive numbers of delays and features"),
        ({"hidden": (3, 3), "period": (2, 2, 2)}, "expected period for each of 2 layers, got 3"),
        ({"bias": 0.5}, "no bias beside quantiles"),
        ({"decay": "fast"}, "decay to be a number or a distribution"),
        ({"neuron": "smart"}, "neuron to be one of 'lif', 'threshold', 'lateral', .*, got 'smart'"),
        ({"hidden": ()}, "hidden to list the layers' widths"),
        ({"hidden": 5}, "hidden to list the layers' widths, got 5"),
        ({"hidden": (0,)}, "hidden to be a positive integer, got 0"),
        ({"n_subnetworks": 0}, "n_subnetworks to be a positive integer, got 0"),
        ({"n_calibration": 0}, "n_calibration to be a positive integer, got 0"),
        ({"seed": -1}, "seed to be a non-negative integer"),
        ({"inputs": INPUTS[:1]}, "at least 2 training sequences that vary .*, got 1 sequence"),
        ({"inputs": np.ones((5, 4, 3))}, "at least 2 training sequences that vary .*, got a constant"),
        ({"inputs": 1e300 * INPUTS}, "sums fit into 53 bits, .*: scale the inputs down by"),
        ({"inputs": np.ones((5, 4))}, "n_samples, n_steps, n_features"),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_one_sentence(change, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        draw(**change)
    assert_one_sentence(caught.value)


def test_padding_is_no_variation():
    inputs = torch.zeros(5, 4, 3)
    inputs[:, 2:] = 1.0
    with pytest.raises(InvalidInputError, match="got a constant"):
        draw(Sequences(inputs, [2, 2, 1, 2, 2]))
    draw(Sequences(inputs, [2, 2, 1, 2, 3]))


# Taps at correlated places, and the last step.


def groups_of_places(n_samples=300, n_steps=8, n_groups=4):
    """Sequences of one feature whose steps belong to groups, those of one group nearly equal; and the groups."""
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(n_groups), n_steps // n_groups))
    causes = rng.normal(size=(n_samples, n_groups))
    return (causes[:, group] + 0.1 * rng.normal(size=(n_samples, n_steps)))[:, :, None], group


@pytest.mark.parametrize("fan_in", [None, 1, 2])
def test_correlated_taps_read_places_of_one_group(fan_in):
    inputs, group = groups_of_places()
    layer = draw(inputs, (200,), geometry="correlated", fan_in=fan_in, neighbours=2, steps="last").layers[0]
    _, delay, _ = taps(layer)
    assert delay.shape[1] == (fan_in or 2)
    read = group[len(group) - 1 - delay]
    assert (read == read[:, :1]).all()
    assert set(delay.ravel()) == set(range(len(group)))


def test_correlated_taps_do_not_read_what_is_constant():
    inputs, _ = groups_of_places()
    inputs[:, 3] = 5.0
    layer = draw(inputs, (200,), geometry="correlated", fan_in=None, neighbours=99, steps="last").layers[0]
    assert layer.n_taps == 7
    assert 8 - 1 - 3 not in layer.delay
    with pytest.raises(InvalidInputError, match="sequences that vary where correlated taps read"):
        draw(
            np.concatenate((inputs, np.ones_like(inputs)), axis=1),
            (5,),
            geometry="correlated",
            steps="last",
            max_delay=3,
        )


def test_correlations_of_all_steps_are_between_delays():
    """White noise read twice, three steps apart: a tap and its neighbour are three delays apart, whatever the step."""
    noise = np.random.default_rng(0).normal(size=(2000, 30))
    inputs = (noise[:, 3:] + noise[:, :-3])[:, :, None]
    layer = draw(inputs, (100,), geometry="correlated", fan_in=2, max_delay=8, n_calibration=2000).layers[0]
    _, delay, _ = taps(layer)
    assert set(np.abs(np.diff(delay, axis=1)).ravel()) == {3}


@pytest.mark.parametrize("decay", [0.0, 0.7])
@pytest.mark.parametrize("sequences", [INPUTS, UNEQUAL])
def test_quantiles_of_the_last_step_are_the_firing_rate_there(decay, sequences):
    witnesses = draw(sequences, (50,), steps="last", quantiles=(0.75, 0.75), decay=decay)
    rate = roll_out(witnesses.layers, sequences, "last").double().mean(0)
    assert rate.sub(0.25).abs().max() <= 0.026  # one of 40 sequences


def test_differences_of_the_last_step_are_those_of_two_sequences():
    layer = draw(UNEQUAL, (20,), steps="last", weights="differences", fan_in=4, max_delay=2).layers[0]
    source, delay, weight = taps(layer)
    values = exact(INPUTS)
    for neuron in range(20):
        when = LENGTHS[:, None] - 1 - delay[neuron]
        read = np.where(when >= 0, values[np.arange(40)[:, None], np.maximum(when, 0), source[neuron]], 0.0)
        differences = (read[:, None] - read).reshape(-1, 4)
        norm = np.linalg.norm(differences, axis=1)
        cosine = differences @ weight[neuron] / np.maximum(norm, 1e-9) / np.linalg.norm(weight[neuron])
        assert cosine.max() > 1 - 1e-6


# A range, a box and a period of its own for each layer.


def test_each_layer_has_its_own_range_of_quantiles():
    witnesses = draw(hidden=(40, 40), quantiles=((0.9, 0.9), (0.5, 0.5)), decay=0.5)
    below = roll_out(witnesses.layers[:1], INPUTS, "all").double().mean()
    above = roll_out(witnesses.layers, INPUTS, "all").double().mean()
    assert below < 0.2 < 0.4 < above
    assert witnesses.provenance.recipe["quantiles"] == [[0.9, 0.9], [0.5, 0.5]]


def test_each_layer_has_its_own_box_and_period():
    family = {"geometry": "box", "fan_in": None, "max_delay": 11}
    witnesses = draw(hidden=(9, 50), box=((2, 3), (2, 2, 4)), period=(None, 4), **family)
    first, second = (taps(layer) for layer in witnesses.layers)
    assert (np.ptp(first[1], axis=1) == 1).all()
    assert (np.ptp(first[0], axis=1) == 2).all()
    row, column = np.divmod(second[1], 4)
    assert (np.ptp(row, axis=1) == 1).all()
    assert (np.ptp(column, axis=1) == 1).all()
    assert (np.ptp(second[0], axis=1) == 3).all()
