"""Spikes against snnTorch's ``Leaky``, in float64, where both agree to the last spike.

With the membrane measured from the threshold, V = U + U_thr, snnTorch's neuron is ours with the drive
``I = W x + b − (1 − decay) · threshold``, started at rest: ``U⁰ = −threshold``.
"""

import warnings

import pytest
import torch

from cvxsnn import LIFLayer, roll_out

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed: pip install snntorch")

N_BLANK = 4


def draw_inputs(gain=1.0):
    """Random spikes after a few blank frames."""
    inputs = torch.rand(16, 64, 12, generator=torch.Generator().manual_seed(0)) < 0.3
    inputs[:, :N_BLANK] = False
    return gain * inputs.double()


def draw_layer(decay, threshold=1.0, **parameters):
    weight = torch.randn(1, 12, 50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rest = -torch.as_tensor(threshold)
    return LIFLayer(weight, decay=decay, threshold=threshold, initial_membrane=rest, **parameters)


def draw_tied_layer(tie):
    """Whole weights and decay ½: sums are exact, and a bias of −½ makes V = 1, the threshold, a frequent value."""
    weight = torch.randint(-2, 3, (1, 12, 50), generator=torch.Generator().manual_seed(2)).double()
    return LIFLayer(weight, bias=-0.5, decay=0.5, initial_membrane=-1.0, tie=tie)


def leaky_spikes(layer, inputs):
    """Spikes (n_samples, n_steps, width) of snnTorch's neuron in place of ``layer``."""
    decay, threshold = layer.decay[0], layer.threshold[0]
    fire = {"ge": lambda membrane: (membrane >= 0).to(membrane.dtype), "gt": None}[layer.tie]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        neuron = snntorch.Leaky(beta=decay, threshold=threshold, spike_grad=fire, reset_mechanism="subtract")
    bias = layer.bias[0] + (1 - decay) * threshold
    membrane, spikes = torch.zeros(len(inputs), layer.width, dtype=torch.float64), []
    for t in range(inputs.shape[1]):
        fired, membrane = neuron(inputs[:, t] @ layer.weight[0] + bias, membrane)
        spikes.append(fired != 0)
    return torch.stack(spikes, dim=1)


def assert_spikes_agree(layer, inputs):
    spikes = roll_out([layer], inputs, "all")
    assert 0.02 < spikes.double().mean() < 0.98
    assert torch.equal(spikes, leaky_spikes(layer, inputs))


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_our_layer_runs_in_snntorch_spike_for_spike(decay):
    assert_spikes_agree(draw_layer(decay), draw_inputs())


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_an_ordinary_snntorch_layer_runs_in_ours_spike_for_spike(decay):
    leak_of_threshold = 1 - torch.tensor(decay, dtype=torch.float64)
    assert_spikes_agree(draw_layer(decay, bias=-leak_of_threshold, tie="gt"), draw_inputs())


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_a_strong_drive_is_reset_by_subtraction_in_both(decay):
    layer, inputs = draw_layer(decay, threshold=0.75), draw_inputs(gain=8.0)
    assert ((inputs @ layer.weight[0]) > 2 * 0.75).double().mean() > 0.2
    assert_spikes_agree(layer, inputs)


def test_every_neuron_may_have_its_own_decay_and_threshold():
    assert_spikes_agree(draw_layer(torch.linspace(0, 1, 50), torch.linspace(0.1, 3, 50)), draw_inputs())


@pytest.mark.parametrize("tie", ["ge", "gt"])
def test_exact_ties_are_decided_alike(tie):
    assert_spikes_agree(draw_tied_layer(tie), draw_inputs())


def test_the_ties_compared_do_occur():
    eager, strict = (roll_out([draw_tied_layer(tie)], draw_inputs(), "all") for tie in ("ge", "gt"))
    assert int((eager != strict).sum()) > 100
