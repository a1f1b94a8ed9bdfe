"""Spikes of other libraries against ours: equal, every one of them, in float64."""

from dataclasses import replace

import pytest
import torch
from exchange.cases import (
    CASES,
    COARSE_CASES,
    EXPORTS,
    IMPORTS,
    LIBRARIES,
    N_FEATURES,
    STOCK,
    WIDTH,
    as_network,
    assert_same_spikes,
    delayed_network,
    draw_inputs,
    draw_real_inputs,
    draw_tied_network,
    draw_weight,
    make_stock_snntorch,
    make_stock_spikingjelly,
    neuron,
    run_stock,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from networks import CASES as NETWORKS
from networks import draw_inputs as draw_small_inputs
from tolerances import FLOAT64_SUM
from torch import nn

from cvxsnn import LIFLayer, SpikingNetwork, WitnessSet, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.exchange import from_nir, from_snntorch, from_spikingjelly, to_nir, to_norse, to_snntorch, to_spikingjelly
from cvxsnn.exchange.merging import merge_subnetworks

INPUTS = draw_inputs()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_our_network_runs_in_another_library_spike_for_spike(library, case):
    network = case.network()
    assert_same_spikes(network, EXPORTS[library](network), case.inputs())


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_stock_layer_runs_in_ours_spike_for_spike(library, decay):
    model = STOCK[library](decay)
    witnesses = IMPORTS[library](model, weight_bits=32)
    assert isinstance(witnesses, WitnessSet)
    inputs = draw_inputs(gain=1.0 if library == "snntorch" else round(1 / (1 - decay)))  # others scale by 1 − decay
    spikes = roll_out(witnesses.layers, inputs, "all")
    assert 0.02 < spikes.double().mean() < 0.98
    assert int((spikes != run_stock(library, model, inputs)).sum()) == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_strong_drive_is_reset_by_subtraction_in_a_stock_layer_too(library):
    model, inputs = STOCK[library](0.9, 0.75), draw_inputs(gain=8.0)
    layers = IMPORTS[library](model, weight_bits=32).layers
    assert int((roll_out(layers, inputs, "all") != run_stock(library, model, inputs)).sum()) == 0


@pytest.mark.parametrize("tie", ["ge", "gt"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_exact_ties_are_decided_alike(library, tie):
    network = draw_tied_network(tie)
    assert_same_spikes(network, EXPORTS[library](network), INPUTS)


def test_the_ties_compared_do_occur():
    eager, strict = (roll_out(draw_tied_network(tie).layers, INPUTS, "all") for tie in ("ge", "gt"))
    assert int((eager != strict).sum()) > 1000


@pytest.mark.parametrize("tie", ["ge", "gt"])
def test_ties_of_a_stock_layer_are_decided_alike(tie):
    fire = {"ge": lambda membrane: (membrane >= 0).to(membrane.dtype), "gt": None}[tie]
    model = make_stock_snntorch(0.5, spike_grad=fire)
    with torch.no_grad():
        model[0].weight.copy_(draw_tied_network(tie).layers[0].weight[0].T)
        model[0].bias.zero_()
    witnesses = from_snntorch(model)
    assert witnesses.layers[0].tie == tie
    assert int((roll_out(witnesses.layers, INPUTS, "all") != run_stock("snntorch", model, INPUTS)).sum()) == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_exported_network_comes_back_with_its_spikes_and_scores(library):
    network = CASES["odd threshold"].network()
    back = IMPORTS[library](EXPORTS[library](network), weight_bits=32)
    assert isinstance(back, SpikingNetwork)
    assert (back.heads, back.readout) == (network.heads, network.readout)
    assert torch.equal(back.features(INPUTS), network.features(INPUTS))
    torch.testing.assert_close(back(INPUTS), network(INPUTS), rtol=0, atol=FLOAT64_SUM)


ROUND_TRIPS = {name: (EXPORTS[name], IMPORTS[name]) for name in LIBRARIES} | {"nir": (to_nir, from_nir)}


@pytest.mark.parametrize("library", ROUND_TRIPS)
@given(case=COARSE_CASES)
@settings(max_examples=25)
def test_any_network_comes_back_with_every_tie_decided_as_before(library, case):
    network, inputs = case.network(), case.inputs()
    export, load = ROUND_TRIPS[library]
    try:
        exported = export(network)
    except InvalidInputError:
        assume(False)
    back, merged = load(exported), merge_subnetworks(network, library)
    assert torch.equal(roll_out(back.layers, inputs, "all"), roll_out(network.layers, inputs, "all"))
    assert torch.equal(back(inputs), network(inputs))
    for own, other in zip(back.layers, merged.layers, strict=True):
        assert own.tie == other.tie
        names = ("bias", "decay", "threshold", "initial_membrane", "initial_spikes")
        if library != "nir":  # whose taps are grouped by their delays
            assert own.weight_bits == other.weight_bits
            names = other.tensors()
        for name in names:
            assert own.tensors()[name].dtype == network.layers[0].tensors()[name].dtype
            assert torch.equal(own.tensors()[name].double(), other.tensors()[name].double())


@given(case=COARSE_CASES.filter(lambda case: case.decay != 0.9))  # so that membranes are exact in any library
@settings(max_examples=20)
@pytest.mark.parametrize("library", ["snntorch", "norse"])
def test_a_layer_that_was_changed_comes_back_with_its_ties(library, case):
    network, inputs = case.network().double(), case.inputs()
    try:
        peer = EXPORTS[library](network)
    except InvalidInputError:
        assume(False)
    with torch.no_grad():
        next(module for module in peer.layers if isinstance(module, nn.Linear)).bias[0] += 0.25
        changed = peer.spikes(inputs)
    assert torch.equal(roll_out(IMPORTS[library](peer).layers, inputs, "all"), changed.bool())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_read_out_that_was_trained_further_leaves_the_neurons_as_they_were(library):
    network = as_network([LIFLayer(draw_weight(width=20).float(), decay=0.9, threshold=0.3)], "mean")
    peer = EXPORTS[library](network)
    with torch.no_grad():
        peer.output.weight += 1.0
    back = IMPORTS[library](peer)
    assert back.layers[0].weight.dtype == torch.float32
    assert torch.equal(back.features(INPUTS), network.features(INPUTS))
    assert torch.equal(back.weight, network.weight + 1.0)
    assert IMPORTS[library](peer, dtype=torch.float64).layers[0].weight.dtype == torch.float64


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_parallel_deep_subnetworks_become_one_wide_network_with_the_same_scores(library, readout):
    lower = LIFLayer(draw_weight(width=9, n_subnetworks=3), decay=0.8, initial_membrane=-0.5)
    upper = LIFLayer(draw_weight(9, 7, seed=2, n_subnetworks=3), bias=0.1, decay=0.5)
    network = as_network([lower, upper], readout, neurons=torch.tensor([20, 3, 11]))
    peer = EXPORTS[library](network)
    assert [module.weight.shape for module in peer.layers[::2]] == [(27, N_FEATURES), (21, 27)]
    with torch.no_grad():
        torch.testing.assert_close(peer(INPUTS), network(INPUTS), rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("library", LIBRARIES)
def test_windows_of_time_are_read_and_come_back(library):
    layers = [LIFLayer(draw_weight(width=9, n_subnetworks=3), decay=0.8, threshold=0.5)]
    network = as_network(layers, "windows-7", neurons=torch.tensor([20, 3, 3]), windows_read=torch.tensor([6, 0, 2]))
    peer = EXPORTS[library](network)
    back = IMPORTS[library](peer, weight_bits=32)
    assert back.readout == "windows-7"
    assert INPUTS.shape[1] % 7
    with torch.no_grad():
        torch.testing.assert_close(peer(INPUTS), network(INPUTS), rtol=0, atol=FLOAT64_SUM)
        torch.testing.assert_close(back(INPUTS), network(INPUTS), rtol=0, atol=FLOAT64_SUM)
    peer(INPUTS).sum().backward()
    assert peer.layers[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_time_comes_first_where_it_is_asked_for(library):
    network = CASES["decay 0.9"].network()
    ours, theirs = EXPORTS[library](network), EXPORTS[library](network, time_first=True)
    with torch.no_grad():
        assert torch.equal(theirs(INPUTS.transpose(0, 1)).transpose(0, 1), ours(INPUTS))


@pytest.mark.parametrize("library", LIBRARIES)
def test_real_inputs_are_read_on_our_grid(library):
    network = CASES["decay 0.9"].network()
    assert_same_spikes(network, EXPORTS[library](network), draw_real_inputs())


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_exported_network_forgets_between_calls_and_can_be_trained(library):
    network = as_network([LIFLayer(draw_weight(width=20), decay=0.9)], "mean")
    peer = EXPORTS[library](network)
    first = peer(INPUTS)
    assert torch.equal(peer(INPUTS), first)
    first.square().sum().backward()
    assert peer.output.weight.grad.abs().sum() > 0
    assert peer.layers[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_network_in_float32_keeps_its_type(library):
    network = as_network([LIFLayer(draw_weight(width=20), decay=0.9, threshold=0.3)], "mean").float()
    peer = EXPORTS[library](network, dtype=torch.float32)
    assert peer(INPUTS).dtype == torch.float32
    moved = EXPORTS[library](network).float()
    assert moved(INPUTS).dtype == torch.float32


@given(case=NETWORKS.filter(lambda case: case.neuron == "lif"), tie=st.sampled_from(["ge", "gt"]))
@settings(max_examples=20)
def test_any_lif_neurons_keep_their_spikes_in_snntorch_and_nir(case, tie):
    layers = [layer.to(dtype=torch.float64) for layer in case.witnesses().layers]
    network = as_network([replace(layer, tie=tie) for layer in layers])
    inputs = draw_small_inputs(8, 9, case.seed)
    expected = network.features(inputs)
    assert torch.equal(to_snntorch(network).spikes(inputs), expected)
    assert torch.equal(from_nir(to_nir(network)).features(inputs), expected)


@given(case=NETWORKS.filter(lambda case: case.neuron == "lif"))
@settings(max_examples=20)
def test_neurons_that_leak_keep_their_spikes_in_norse(case):
    layers = [layer.to(dtype=torch.float64) for layer in case.witnesses().layers]
    network = as_network([layer.with_tensors({"decay": layer.decay.clamp(0.01, 0.99)}) for layer in layers])
    inputs = draw_small_inputs(8, 9, case.seed)
    assert torch.equal(to_norse(network).spikes(inputs), network.features(inputs))


@given(case=NETWORKS.filter(lambda case: case.neuron == "lif"), decay=st.floats(0.01, 1))
@settings(max_examples=20)
def test_neurons_of_one_decay_keep_their_spikes_in_spikingjelly(case, decay):
    layers = [layer.to(dtype=torch.float64) for layer in case.witnesses().layers]
    changes = [{"decay": torch.tensor(decay), "threshold": layer.threshold.clamp(min=0.01)} for layer in layers]
    network = as_network([layer.with_tensors(own) for layer, own in zip(layers, changes, strict=True)])
    inputs = draw_small_inputs(8, 9, case.seed)
    assert torch.equal(to_spikingjelly(network).spikes(inputs), network.features(inputs))


@pytest.mark.parametrize(
    ("library", "decay"), [("spikingjelly", 0.5), ("norse", 0.5), ("norse", 0.0), ("snntorch", 0.0)]
)
def test_neurons_without_reset_keep_their_spikes(library, decay):
    network = as_network([LIFLayer(draw_weight(), bias=-0.5, decay=decay, threshold=0.0)])
    assert_same_spikes(network, EXPORTS[library](network), INPUTS)


def test_an_exchange_draws_no_random_numbers():
    before = torch.get_rng_state()
    for exchange in (*EXPORTS.values(), to_nir):
        exchange(CASES["decay 0.9"].network())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("decay", "kind"), [(1.0, "IFNode"), (0.5, "LIFNode")])
def test_spikingjelly_scales_thresholds_and_integrates_without_leak(decay, kind):
    layer = LIFLayer(draw_weight(), decay=decay, threshold=torch.linspace(0.2, 3, WIDTH), initial_membrane=-0.3)
    network = as_network([layer])
    peer = to_spikingjelly(network)
    assert type(peer.layers[1]).__name__ == kind
    assert_same_spikes(network, peer, INPUTS)
    back = from_spikingjelly(peer, weight_bits=32)
    assert torch.equal(back.features(INPUTS), network.features(INPUTS))


@pytest.mark.parametrize("decay_input", [True, False])
def test_spikingjelly_may_scale_its_inputs_by_tau_or_not(decay_input):
    model = make_stock_spikingjelly(0.75, decay_input=decay_input)
    layers = from_spikingjelly(model, weight_bits=32).layers
    assert torch.equal(roll_out(layers, INPUTS, "all"), run_stock("spikingjelly", model, INPUTS))


def test_a_stack_may_come_in_containers_in_a_list_or_with_layers_that_do_nothing():
    model = make_stock_snntorch(sizes=(N_FEATURES, 8, 6))
    nested = nn.ModuleDict({"first": nn.Sequential(nn.Flatten(), *model[:2]), "then": nn.ModuleList(model[2:])})
    for form in (list(model), nested, [*model[:2], nn.Dropout(0.5), *model[2:]]):
        assert from_snntorch(form).hidden == (8, 6)


@pytest.mark.parametrize(("n_outputs", "loss"), [(1, "logistic"), (3, "softmax")])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_last_linear_layer_is_the_read_out(library, n_outputs, loss):
    model = STOCK[library](sizes=(N_FEATURES, 8))
    output = nn.Linear(8, n_outputs).double()
    network = IMPORTS[library]([*model, output], readout="mean", weight_bits=32)
    assert (network.readout, network.heads[0].loss, network.n_outputs) == ("mean", loss, n_outputs)
    with torch.no_grad():
        expected = output(run_stock(library, model, INPUTS).double().mean(1))
        torch.testing.assert_close(network(INPUTS), expected, rtol=0, atol=FLOAT64_SUM)
    assert network.predict(INPUTS)["label"].shape == (len(INPUTS),)


def test_wide_first_layers_leave_room_for_real_inputs():
    model = make_stock_snntorch(sizes=(784, 5))
    first = from_snntorch(model).layers[0]
    assert 20 <= first.weight_bits <= 28
    roll_out([first], 16 * torch.rand(2, 3, 784))
    assert from_snntorch(make_stock_snntorch(sizes=(4, 5, 6))).layers[1].weight_bits == 32


def test_spikingjelly_neurons_may_be_wrapped_in_their_library_s_modules():
    model = nn.Sequential(nn.Linear(N_FEATURES, 4), neuron.IFNode(v_reset=None, step_mode="m")).double()
    assert from_spikingjelly(model).layers[0].decay.unique().tolist() == [1.0]


@pytest.mark.parametrize("readout", ["last", "mean", "all"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_delays_are_exchanged_spike_for_spike(library, readout):
    network = delayed_network(readout, neurons=torch.tensor([7, 0, 3]))
    peer = EXPORTS[library](network)
    assert [type(module).__name__ for module in peer.layers][::3] == ["DelayLine", "DelayLine"]
    assert [(line.n_inputs, line.max_delay) for line in peer.layers[::3]] == [(N_FEATURES, 4), (16, 6)]
    for inputs in (INPUTS, draw_real_inputs()):
        assert_same_spikes(network, peer, inputs)
        with torch.no_grad():
            torch.testing.assert_close(peer(inputs), network(inputs), rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_exported_network_with_delays_comes_back_with_its_spikes_and_scores(library):
    network = delayed_network()
    back = IMPORTS[library](EXPORTS[library](network))
    assert [layer.max_delay for layer in back.layers] == [4, 6]
    assert [layer.n_inputs for layer in back.layers] == [N_FEATURES, 16]
    # Taps of one source and delay are one, and those of weight zero are none.
    assert all(own.n_taps <= other.n_taps for own, other in zip(back.layers, network.layers, strict=True))
    with torch.no_grad():
        torch.testing.assert_close(back(INPUTS), network(INPUTS), rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_exported_network_with_delays_can_be_trained(library):
    peer = EXPORTS[library](delayed_network("mean"), dtype=torch.float32)
    peer(INPUTS).square().sum().backward()
    assert peer.layers[1].weight.grad.abs().sum() > 0


def test_merged_taps_read_their_own_subnetwork():
    network = delayed_network()
    merged = merge_subnetworks(network, "NIR")
    assert [layer.weight.shape for layer in merged.layers] == [(1, 30, 16), (1, 20, 10)]
    assert torch.equal(roll_out(merged.layers, INPUTS, "all"), roll_out(network.layers, INPUTS, "all"))
