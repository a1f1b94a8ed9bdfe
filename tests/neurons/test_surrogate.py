import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers import draw_layer, draw_stack
from tolerances import FINITE_DIFFERENCE, ROUNDING

from cvxsnn import LIFLayer, ThresholdLayer, gaussian_witnesses, roll_out
from cvxsnn.neurons import surrogate
from cvxsnn.neurons.exact import snap_inputs
from cvxsnn.neurons.registry import make_trainable
from cvxsnn.neurons.surrogate import SURROGATES
from cvxsnn.neurons.taps import lift, read_taps
from cvxsnn.witnesses import Normal, Uniform

DYNAMICS = frozenset({"decay", "threshold", "bias"})
SPREAD = {"decay": Uniform(0, 1), "bias": Normal(0, 0.3), "threshold": Uniform(0, 2), "initial_membrane": Normal(0, 1)}

ANTIDERIVATIVES = {
    "sigmoid": torch.sigmoid,
    "fast_sigmoid": lambda u: u / (1 + u.abs()),
    "arctan": lambda u: torch.atan(0.5 * math.pi * u) / (0.5 * math.pi),
}


def draw_layers(neuron="lif", hidden=(7,), n_subnetworks=2, dtype=torch.float64, seed=0):
    spread = SPREAD if neuron == "lif" else {"bias": SPREAD["bias"]}
    return gaussian_witnesses(4, hidden, n_subnetworks, neuron=neuron, seed=seed, dtype=dtype, **spread).layers


def draw_inputs(n_samples=9, n_steps=6, seed=1):
    return torch.randn(n_samples, n_steps, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def time_major(inputs):
    return snap_inputs(inputs).transpose(0, 1)


def spike_through(membrane, slope, tie="ge"):
    """The spike as the forward value, ``slope`` as the derivative, by plain autograd."""
    value = (membrane >= 0 if tie == "ge" else membrane > 0).to(membrane)
    straight = slope(membrane).detach() * membrane
    return value + (straight - straight.detach())


def naive_lif(parameters, block, slope, tie="ge", initial_spikes=0.0):
    """The recursion step by step, differentiated by autograd; what a spike subtracts is held constant."""
    drive = torch.einsum("tnf,kfi->ktni", block, parameters["weight"]) + parameters["bias"][:, None, None]
    membrane = parameters["initial_membrane"][:, None].expand_as(drive[:, 0])
    spikes, steps = torch.full_like(drive[:, 0], initial_spikes), []
    for t in range(drive.shape[1]):
        reset = parameters["threshold"][:, None] * spikes.detach()
        membrane = drive[:, t] + parameters["decay"][:, None] * membrane - reset
        spikes = spike_through(membrane, slope, tie)
        steps.append(spikes)
    return torch.stack(steps, dim=1)


def naive_threshold(parameters, block, slope):
    drive = torch.einsum("tnf,kfi->ktni", block, parameters["weight"]) + parameters["bias"][:, None, None]
    spikes, steps = torch.zeros_like(drive[:, 0]), []
    for t in range(drive.shape[1]):
        spikes = spike_through(drive[:, t] + spikes @ parameters["recurrent_weight"], slope)
        steps.append(spikes)
    return torch.stack(steps, dim=1)


def gradients(spikes, parameters):
    weights = torch.randn(spikes.shape, generator=torch.Generator().manual_seed(2), dtype=spikes.dtype)
    return torch.autograd.grad((weights * spikes).sum(), parameters)


def assert_trained_alike(layer, naive, surrogate, steepness, n_steps):
    trainable = make_trainable(layer, surrogate, steepness, DYNAMICS)
    block = time_major(draw_inputs(n_steps=n_steps)).requires_grad_()
    trained = {name: value for name, value in trainable.named_parameters() if value.requires_grad}
    fast = trainable(block)
    slow = naive(dict(trainable.named_parameters()), block, lambda u: SURROGATES[surrogate](steepness * u))
    assert torch.equal(fast, slow)
    wanted = [block, *trained.values()]
    for name, found, expected in zip(
        ["inputs", *trained], gradients(fast, wanted), gradients(slow, wanted), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("n_steps", "steepness"), [(1, 1.0), (2, 5.0), (9, 2.5)])
def test_the_backward_pass_by_hand_is_autograd_through_the_recursion(surrogate, steepness, n_steps):
    assert_trained_alike(draw_layers()[0], naive_lif, surrogate, steepness, n_steps)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("n_steps", [1, 5])
def test_threshold_neurons_are_differentiated_through_their_recurrence(surrogate, n_steps):
    assert_trained_alike(draw_layers("threshold")[0], naive_threshold, surrogate, 1.5, n_steps)


def test_initial_spikes_count_in_the_gradient_of_the_threshold():
    layer = draw_layers()[0].with_tensors({"initial_spikes": torch.ones(2, 7)})
    assert_trained_alike(layer, lambda *given: naive_lif(*given, initial_spikes=1.0), "arctan", 1.0, 3)


def test_ties_that_do_not_fire_stay_silent_in_training():
    layer = LIFLayer(torch.zeros(1, 4, 1, dtype=torch.float64), decay=0.5, threshold=1.0, tie="gt")
    assert_trained_alike(layer, lambda *given: naive_lif(*given, tie="gt"), "arctan", 1.0, 3)
    assert not make_trainable(layer, "arctan", 1.0, DYNAMICS)(time_major(draw_inputs())).any()


def test_only_what_is_asked_for_is_trained():
    layer = draw_layers()[0]
    for dynamics in (frozenset(), frozenset({"decay"}), frozenset({"threshold", "bias"})):
        trainable = make_trainable(layer, "arctan", 1.0, dynamics)
        trained = {name for name, value in trainable.named_parameters() if value.requires_grad}
        assert trained == {"weight", *dynamics}
        trainable(time_major(draw_inputs())).sum().backward()
        assert {name for name, value in trainable.named_parameters() if value.grad is not None} == trained


def test_recurrent_weights_are_trained_with_the_weights():
    trainable = make_trainable(draw_layers("threshold")[0], "arctan", 1.0, frozenset())
    trained = {name for name, value in trainable.named_parameters() if value.requires_grad}
    assert trained == {"weight", "recurrent_weight"}


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["lif", "threshold"]),
    st.sampled_from([(5,), (6, 4), (3, 5, 4)]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_spikes_in_training_are_those_of_the_roll_out(seed, neuron, hidden, dtype):
    layers, inputs = draw_layers(neuron, hidden, dtype=dtype, seed=seed), draw_inputs(seed=seed)
    if dtype == torch.float32:
        inputs = inputs.round()  # so that plain products are exact
    block = time_major(inputs).to(dtype)
    for layer in layers:
        block = make_trainable(layer, "arctan", 1.0, DYNAMICS)(block)
    assert torch.equal(block.permute(2, 1, 0, 3).flatten(-2) == 1, roll_out(layers, inputs, "all"))


@given(st.sampled_from(list(SURROGATES)), st.floats(0, 50))
def test_a_surrogate_derivative_is_even_and_falls_off_from_its_peak(name, size):
    derivative = SURROGATES[name]
    peak, value, further = derivative(torch.tensor([0.0, size, 1.1 * size], dtype=torch.float64))
    assert derivative(torch.tensor(-size, dtype=torch.float64)) == pytest.approx(float(value), rel=ROUNDING)
    allowance = 1 + ROUNDING
    assert 0 < further <= value * allowance <= peak * allowance**2


@pytest.mark.parametrize("name", SURROGATES)
def test_a_surrogate_derivative_is_that_of_its_function(name):
    u, step = torch.linspace(-3, 3, 31, dtype=torch.float64) + 0.01, 1e-5
    function = ANTIDERIVATIVES[name]
    slope = (function(u + step) - function(u - step)) / (2 * step)
    torch.testing.assert_close(SURROGATES[name](u), slope, rtol=0, atol=FINITE_DIFFERENCE)


@pytest.mark.parametrize("steepness", [0.5, 1.0, 4.0])
def test_steepness_divides_the_width_of_the_surrogate(steepness):
    layer = LIFLayer(torch.ones(1, 1, 1, dtype=torch.float64), bias=0.25, decay=0.0, threshold=0.0)
    trainable = make_trainable(layer, "fast_sigmoid", steepness, DYNAMICS)
    trainable(torch.zeros(1, 1, 1, dtype=torch.float64)).sum().backward()
    assert float(trainable.bias.grad) == pytest.approx(1 / (1 + 0.25 * steepness) ** 2, rel=ROUNDING)


def test_each_subnetwork_has_its_own_steepness():
    layer, block = draw_layers()[0], time_major(draw_inputs())
    steepness = torch.tensor([0.5, 4.0], dtype=torch.float64)
    together = make_trainable(layer, "arctan", steepness, DYNAMICS)
    found = gradients(together(block), [together.weight])[0]
    for k in range(2):
        alone = make_trainable(layer, "arctan", float(steepness[k]), DYNAMICS)
        torch.testing.assert_close(found[k], gradients(alone(block), [alone.weight])[0][k], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("n_sources", "delay", "reads_taps"), [(5, 3, True), (3, 0, True), (2, 0, False), (1, 1, False)]
)
def test_few_taps_among_many_delayed_inputs_are_read_one_by_one(monkeypatch, n_sources, delay, reads_taps):
    calls = []
    monkeypatch.setattr(surrogate, "read_taps", lambda *given: calls.append(given) or read_taps(*given))
    places = torch.zeros(1, 1, 2, dtype=torch.int32)
    layer = LIFLayer(torch.ones(1, 1, 2), source=places, delay=places + delay, n_sources=n_sources)
    make_trainable(layer, "arctan", 1.0, DYNAMICS)(torch.zeros(4, 3, n_sources))
    assert bool(calls) == reads_taps


def test_projection_brings_decays_and_thresholds_back_into_their_range():
    trainable = make_trainable(draw_layers()[0], "arctan", 1.0, DYNAMICS)
    weight, values = trainable.weight.detach().clone(), torch.linspace(-1, 2, 14).view(2, 7)
    with torch.no_grad():
        trainable.decay.copy_(values)
        trainable.threshold.copy_(values)
    trainable.project()
    assert torch.equal(trainable.decay, values.clamp(0, 1).double())
    assert torch.equal(trainable.threshold, values.clamp(min=0).double())
    assert torch.equal(trainable.weight, weight)
    assert 0 <= trainable.freeze().decay.min() <= trainable.freeze().decay.max() <= 1


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_freezing_gives_the_layer_back(neuron):
    layer = draw_layers(neuron)[0]
    frozen = make_trainable(layer, "arctan", 1.0, DYNAMICS).freeze()
    assert type(frozen) is type(layer)
    assert frozen.tensors().keys() == layer.tensors().keys()
    assert all(torch.equal(value, layer.tensors()[name]) for name, value in frozen.tensors().items())


def lifted_layer(layer):
    """The layer without delays that reads lifted inputs, with the value of those that each tap reads."""
    max_delay = int(layer.delay.max())
    place = (max_delay - layer.delay.long()) * layer.n_inputs + layer.source
    weight = torch.zeros(layer.n_subnetworks, (max_delay + 1) * layer.n_inputs, layer.width, dtype=torch.float64)
    weight.scatter_add_(1, place, layer.weight)
    without = {"source": None, "delay": None, "n_sources": None}
    return replace(layer, weight=weight, weight_bits=32, **without), place, max_delay


@given(st.integers(0, 10**6), st.sampled_from(["lif", "threshold"]), st.sampled_from(["ge", "gt"]))
def test_gradients_through_delays_are_those_of_a_dense_layer_on_lifted_inputs(seed, neuron, tie):
    # So few taps that one of weight zero may have the longest delay.
    layer = draw_layer(seed, n_taps=2, width=2, n_inputs=4, max_delay=9, dtype=torch.float64, tie=tie)
    if neuron == "threshold":
        taps = {"source": layer.source, "delay": layer.delay, "n_sources": 4}
        layer = ThresholdLayer(layer.weight, bias=layer.bias, recurrent_weight=torch.randn(2, 2, 2).double(), **taps)
    dense, place, max_delay = lifted_layer(layer)
    block = time_major(draw_inputs(seed=seed)).requires_grad_()
    own, other = (make_trainable(each, "arctan", 2.0, DYNAMICS) for each in (layer, dense))
    spikes, expected = own(block), other(lift(block, max_delay))
    assert torch.equal(spikes, expected)
    found = dict(zip(["inputs", *trained(own)], gradients(spikes, [block, *trained(own).values()]), strict=True))
    wanted = dict(zip(["inputs", *trained(other)], gradients(expected, [block, *trained(other).values()]), strict=True))
    wanted["weight"] = wanted["weight"].gather(1, place) * (layer.weight != 0)  # a tap of weight zero is none
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        torch.testing.assert_close(value, wanted[name], rtol=ROUNDING, atol=ROUNDING, msg=lambda m, n=name: f"{n}: {m}")


def trained(trainable):
    return {name: value for name, value in trainable.named_parameters() if value.requires_grad}


@given(st.integers(0, 10**6))
def test_spikes_in_training_with_delays_are_those_of_the_roll_out(seed):
    layers, inputs = draw_stack(seed, torch.float64), draw_inputs(seed=seed)[:, :, :3]
    block = time_major(inputs)
    for layer in layers:
        block = make_trainable(layer, "arctan", 1.0, DYNAMICS)(block)
    assert torch.equal(block.permute(2, 1, 0, 3).flatten(-2) == 1, roll_out(layers, inputs, "all"))


def test_delays_stay_as_they_are():
    layer = draw_layer(0, dtype=torch.float64)
    trainable = make_trainable(layer, "arctan", 1.0, DYNAMICS).float()
    assert trained(trainable).keys() == {"weight", *DYNAMICS}
    assert trainable.delay.dtype == trainable.source.dtype == torch.int32
    with torch.no_grad():
        trainable.weight.mul_(2)
    frozen = trainable.freeze()
    assert torch.equal(frozen.source, layer.source)
    assert torch.equal(frozen.delay, layer.delay)
    assert (frozen.n_sources, frozen.n_taps) == (3, 5)
    torch.testing.assert_close(frozen.weight, 2 * layer.weight.float())
