import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import NEURONS, Case
from small_models import assert_one_sentence, classifier
from torch import nn

from cvxsnn import InvalidInputError, reconstruct
from cvxsnn.exchange import quantise, quantise_readout
from cvxsnn.exchange.rounding import DECAY_GRID, MEMBRANE_GRID, round_weights
from cvxsnn.neurons.exact import snap_weights

BITS = (8, 4, 2)


def weights_of(layer):
    return torch.cat([value for name, value in layer.tensors().items() if name.endswith("weight")], dim=1)


@given(bits=st.integers(2, 9), spread=st.sampled_from([0.0, 1.0, 3.0]), seed=st.integers(0, 2**16))
def test_rounded_weights_are_signed_integers_of_their_bits_times_a_power_of_two(bits, spread, seed):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(2, 30, 4, generator=generator) * torch.exp(spread * torch.randn(2, 1, 4, generator=generator))
    rounded, unit = round_weights(weight, bits)
    assert bool((torch.frexp(unit).mantissa == 0.5).all())
    integers = rounded / unit
    assert torch.equal(integers, integers.round())
    assert float(integers.abs().max()) <= 2 ** (bits - 1) - 1
    assert max(len(column.unique()) for column in integers.movedim(1, -1).reshape(-1, 30)) <= 2**bits
    assert torch.equal(round_weights(rounded, bits)[0], rounded)
    assert torch.equal(snap_weights(rounded, bits), rounded)  # so a layer of these bits leaves them alone


@given(bits=st.integers(2, 6), seed=st.integers(0, 2**16))
def test_no_other_power_of_two_has_a_smaller_squared_error(bits, seed):
    weight = torch.randn(1, 12, 1, generator=torch.Generator().manual_seed(seed)).double()
    error = float((round_weights(weight, bits)[0] - weight).square().sum())
    largest = 2 ** (bits - 1) - 1
    for power in range(-12, 4):
        unit = 2.0**power
        other = (weight / unit).round().clamp(-largest, largest) * unit
        assert error <= float((other - weight).square().sum())


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("max_delay", [None, 300])
def test_a_quantised_neuron_counts_in_units_of_its_own(neuron, bits, max_delay):
    for layer in quantise(Case(neuron, max_delay=max_delay).witnesses(), bits).layers:
        assert layer.weight_bits == bits
        _, unit = round_weights(weights_of(layer), bits)
        for name in ("bias", "threshold", "initial_membrane"):
            levels = layer.tensors().get(name, torch.zeros(1)) / (MEMBRANE_GRID * unit[:, 0])
            assert torch.equal(levels, levels.round())
        levels = layer.tensors().get("decay", torch.zeros(1)) / DECAY_GRID
        assert torch.equal(levels, levels.round())


@pytest.mark.parametrize("neuron", NEURONS)
def test_quantising_leaves_sources_and_delays_alone(neuron):
    witnesses = Case(neuron, max_delay=300).witnesses()
    for before, after in zip(witnesses.layers, quantise(witnesses, 2).layers, strict=True):
        assert not torch.equal(before.weight, after.weight)
        assert torch.equal(before.source, after.source)
        assert torch.equal(before.delay, after.delay)
        rounded, _ = round_weights(weights_of(before), 2)
        assert torch.equal(weights_of(after), rounded)


@pytest.mark.parametrize("neuron", NEURONS)
def test_quantising_twice_changes_nothing(neuron):
    once = quantise(Case(neuron).witnesses(), 4)
    for before, after in zip(once.layers, quantise(once, 4).layers, strict=True):
        for name, value in before.tensors().items():
            assert torch.equal(value, after.tensors()[name])


def test_output_weights_take_few_values_for_each_output():
    network = reconstruct(Case(n_outputs=2, ratio=0.1).solve())
    for bits in BITS:
        rounded = quantise_readout(network, bits)
        assert all(len(column.unique()) <= 2**bits for column in rounded.weight.detach().T)
        assert all(a.weight is b.weight for a, b in zip(rounded.layers, network.layers, strict=True))


@pytest.mark.parametrize("bits", [1, 17, 4.0, True])
def test_bits_that_no_integer_has_are_refused(bits):
    with pytest.raises(InvalidInputError, match="from 2 to 16"):
        quantise(Case().witnesses(), bits)


@pytest.mark.parametrize("call", [quantise, quantise_readout])
@pytest.mark.parametrize(
    "stranger",
    [nn.Sequential(nn.Linear(2, 2)), classifier(), torch.ones(2, 2), None],
    ids=lambda own: type(own).__name__,
)
def test_what_is_no_network_is_refused_in_one_sentence(call, stranger):
    with pytest.raises(
        InvalidInputError, match=f"the network_ of a fitted estimator, got {type(stranger).__name__}"
    ) as caught:
        call(stranger)
    assert_one_sentence(caught.value)
