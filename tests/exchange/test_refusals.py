"""What cannot be exact is refused, in one sentence that says why."""

import importlib
import subprocess
import sys

import pytest
import torch
from exchange.cases import (
    EXPORTS,
    IMPORTS,
    LIBRARIES,
    N_FEATURES,
    STOCK,
    as_network,
    draw_inputs,
    draw_weight,
    make_stock_norse,
    make_stock_snntorch,
    make_stock_spikingjelly,
    neuron,
    norse_cell,
    norse_reset,
    snntorch,
)
from small_models import assert_one_sentence, classifier
from torch import nn

from cvxsnn import InvalidInputError, LIFLayer, SpikingNetwork, ThresholdLayer
from cvxsnn.core.errors import BudgetError, MissingLibraryError
from cvxsnn.core.libraries import import_library
from cvxsnn.exchange import from_norse, from_snntorch, from_spikingjelly, to_nir, to_norse, to_snntorch, to_spikingjelly
from cvxsnn.exchange.merging import DelayLine, without_delays
from cvxsnn.neurons import NEURON_MODELS, NeuronModel, register_neuron

SIZES = (N_FEATURES, 6)


def refuse(complaint, call, *arguments, **settings):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        call(*arguments, **settings)
    assert_one_sentence(caught.value)


def one_layer(width=6, **parameters):
    return as_network([LIFLayer(draw_weight(width=width), **parameters)])


@pytest.mark.parametrize("mechanism", ["zero", "none"])
def test_snntorch_neurons_that_do_not_subtract_are_refused(mechanism):
    model = make_stock_snntorch(sizes=SIZES, reset_mechanism=mechanism)
    refuse(f"expected reset_mechanism='subtract', got '{mechanism}'", from_snntorch, model)


@pytest.mark.parametrize("settings", [{"reset_delay": False}, {"state_quant": lambda membrane: membrane.round()}])
def test_snntorch_neurons_that_subtract_otherwise_are_refused(settings):
    refuse("expected Leaky neurons with reset_delay=True", from_snntorch, make_stock_snntorch(sizes=SIZES, **settings))


def test_snntorch_spikes_of_another_size_are_refused():
    refuse("graded_spikes_factor", from_snntorch, make_stock_snntorch(sizes=SIZES, graded_spikes_factor=0.5))


def test_spikes_that_are_no_step_are_refused():
    refuse("a step from 0 to 1", from_snntorch, make_stock_snntorch(sizes=SIZES, spike_grad=torch.sigmoid))


@pytest.mark.parametrize(
    "other", [lambda: snntorch.Synaptic(0.9, 0.8), lambda: snntorch.RLeaky(0.9, linear_features=6)]
)
def test_other_snntorch_neurons_are_refused(other):
    refuse("expected Leaky, got", from_snntorch, [nn.Linear(*SIZES), other()])


def test_spikingjelly_neurons_that_reset_to_a_value_are_refused():
    model = make_stock_spikingjelly(sizes=SIZES, v_reset=0.0)
    refuse("expected soft reset, v_reset=None, got a hard reset to 0", from_spikingjelly, model)


def test_other_spikingjelly_neurons_are_refused():
    model = [nn.Linear(*SIZES), neuron.ParametricLIFNode(v_reset=None)]
    refuse("expected LIFNode or IFNode, got ParametricLIFNode", from_spikingjelly, model)


def test_norse_neurons_that_reset_to_a_value_are_refused():
    refuse("expected reset_method=reset_subtract", from_norse, make_stock_norse(reset_method=norse_reset.reset_value))


def test_norse_neurons_faster_than_their_step_are_refused():
    refuse("expected dt / tau between 0 and 1, got values from 2 to 2", from_norse, make_stock_norse(decay=-1.0))


def test_other_norse_neurons_are_refused():
    cell = import_library("norse.torch.module.lif", "norse").LIFCell()
    refuse("expected LIFBoxCell, got LIFCell", from_norse, [nn.Linear(*SIZES), cell])


@pytest.mark.parametrize(
    "model",
    [
        [],
        [nn.Linear(*SIZES)],
        [nn.Conv2d(1, 1, 3), snntorch.Leaky(0.9)],
        [snntorch.Leaky(0.9), nn.Linear(6, 6), snntorch.Leaky(0.9)],
        [nn.Linear(*SIZES), nn.BatchNorm1d(6), snntorch.Leaky(0.9)],
        [nn.Linear(*SIZES), nn.Linear(6, 6), snntorch.Leaky(0.9), nn.Linear(6, 2)],
        [nn.Linear(*SIZES), snntorch.Leaky(0.9), nn.Linear(6, 6), norse_cell.LIFBoxCell()],
    ],
)
def test_what_is_no_stack_of_linear_layers_and_neurons_is_refused(model):
    refuse("expected linear layers and snnTorch.* neurons in turn", from_snntorch, model)


@pytest.mark.parametrize("load", [from_snntorch, from_spikingjelly, from_norse])
@pytest.mark.parametrize(("stranger", "name"), [(None, "NoneType"), ("model.pt", "str"), ([1, 2], "int")])
def test_what_is_no_module_is_refused(load, stranger, name):
    refuse(f"expected a torch.nn.Module or a sequence of them, got {name}", load, stranger)


def test_bits_that_no_layer_has_are_refused():
    refuse(
        "expected weight_bits between 2 and 32, got 0", from_snntorch, make_stock_snntorch(sizes=SIZES), weight_bits=0
    )


@pytest.mark.parametrize("export", [*EXPORTS.values(), to_nir])
def test_threshold_neurons_stay_at_home(export):
    refuse("expected LIF neurons, got ThresholdLayer as layer 1", export, as_network([ThresholdLayer(draw_weight())]))


@pytest.mark.parametrize("export", [*EXPORTS.values(), to_nir])
def test_an_unknown_neuron_model_stays_at_home_also_if_it_is_derived_from_lif(export):
    class Resonator(LIFLayer):
        """Another equation."""

    layers = [Resonator(draw_weight(), decay=0.5)]
    refuse(r"expected a registered neuron \('lif', .*\), got Resonator", as_network, layers)
    register_neuron(NeuronModel("resonator", Resonator, sampled=("decay", "threshold")))
    try:
        network = as_network(layers)
        refuse("expected LIF neurons, got Resonator as layer 1: .* cannot represent them", export, network)
    finally:
        NEURON_MODELS.unregister("resonator")


@pytest.mark.parametrize("export", [*EXPORTS.values(), to_nir])
@pytest.mark.parametrize("stranger", [nn.Linear(2, 2), classifier(), None], ids=lambda own: type(own).__name__)
def test_what_is_no_network_of_ours_is_refused(export, stranger):
    refuse(f"expected a SpikingNetwork, got {type(stranger).__name__}", export, stranger)


class Negated(SpikingNetwork):
    """A network that computes something else."""

    def forward(self, inputs):
        return -super().forward(inputs)


@pytest.mark.parametrize("export", [*EXPORTS.values(), to_nir])
def test_a_subclass_of_our_network_is_refused(export):
    network = one_layer()
    own = Negated(network.layers, network.weight, network.heads)
    refuse("expected a SpikingNetwork, got Negated", export, own)


class Doubling(nn.Linear):
    """A linear layer with a forward of its own."""

    def forward(self, x):
        return super().forward(2 * x)


class Halving(nn.Identity):
    """Does something, unlike its base."""

    def forward(self, x):
        return x / 2


@pytest.mark.parametrize("library", LIBRARIES)
def test_linear_layers_that_may_compute_something_else_are_refused(library):
    read, neurons = IMPORTS[library], STOCK[library](sizes=SIZES)[1]
    first, last = nn.Linear(*SIZES), nn.Linear(6, 2)
    refuse("got Doubling with a forward of its own", read, [Doubling(*SIZES), neurons])
    refuse("got Doubling with a forward of its own", read, [first, neurons, Doubling(6, 2)], readout="mean")
    refuse("neurons in turn, got Linear, Halving", read, [first, Halving(), neurons])
    refuse("weights are computed", read, [nn.utils.parametrizations.weight_norm(nn.Linear(*SIZES)), neurons])
    assert read([first, neurons, nn.Identity(), last], readout="mean").readout == "mean"
    for module in (first, neurons):
        hook = module.register_forward_pre_hook(lambda module, given: 2 * given[0])
        refuse("without forward hooks", read, [first, neurons])
        hook.remove()


@pytest.mark.parametrize("library", LIBRARIES)
def test_how_a_last_layer_reads_the_spikes_is_asked_for(library):
    model = [*STOCK[library](sizes=SIZES), nn.Linear(6, 2)]
    refuse("expected readout= to say how the last linear layer reads the spikes", IMPORTS[library], model)
    assert IMPORTS[library](model, readout="last").readout == "last"


@pytest.mark.parametrize("export", [to_norse, to_spikingjelly])
def test_a_reset_that_would_be_forgotten_is_refused(export):
    refuse("expected decays above 0", export, one_layer(decay=0.0))


def test_norse_needs_a_leak():
    refuse("expected decays below 1 in layer 1", to_norse, one_layer(decay=torch.tensor([0.5, 1.0] * 3)))


def test_spikingjelly_has_one_threshold_a_layer():
    refuse("all positive or all the same", to_spikingjelly, one_layer(threshold=torch.tensor([0.0, 1.0] * 3)))


def test_spikingjelly_needs_some_memory():
    refuse("must be above 1", to_spikingjelly, one_layer(decay=0.0, threshold=0.0))


def test_spikingjelly_has_one_decay_a_layer():
    network = one_layer(decay=torch.tensor([0.4, 0.6] * 3))
    refuse("expected one decay for all neurons of layer 1, got 0.4 to 0.6", to_spikingjelly, network)


def test_initial_spikes_that_no_membrane_gives_are_refused_by_snntorch_and_kept_by_nir():
    network = one_layer(threshold=-1.0, initial_spikes=1.0, initial_membrane=-0.5, bias=-3.0)
    refuse("expected initial spikes that follow from a membrane", to_snntorch, network)
    to_nir(network)


def test_block_matrices_that_would_fill_the_memory_are_refused():
    lower = LIFLayer(torch.ones(600, 1, 200))
    with pytest.raises(BudgetError, match="rebuild the network with form='compact'"):
        to_snntorch(as_network([lower, LIFLayer(torch.ones(600, 200, 4))]))


@pytest.mark.parametrize("export", [*EXPORTS.values(), to_nir])
def test_matrices_of_long_delays_that_would_fill_the_memory_are_refused(export):
    taps = {"source": torch.zeros(1, 1, 4), "delay": torch.full((1, 1, 4), 2**20), "n_sources": 1000}
    with pytest.raises(BudgetError, match="delays up to 1048576 need 4,194,308,000"):
        export(as_network([LIFLayer(torch.ones(1, 1, 4), decay=0.5, **taps)]))


def test_taps_of_one_value_whose_sums_no_layer_can_hold_are_refused():
    weight = torch.tensor([[[2 - 2.0**-30], [2 - 2.0**-29]]], dtype=torch.float64)
    layer = LIFLayer(weight, source=torch.zeros(1, 2, 1), delay=torch.zeros(1, 2, 1), n_sources=2, weight_bits=32)
    assert torch.equal(layer.weight, weight)
    refuse("expected taps whose sums fit into 32 bits", without_delays, layer)


@pytest.mark.parametrize("place", [1, 2])
def test_a_delay_line_that_no_linear_layer_reads_is_refused(place):
    modules = [nn.Linear(*SIZES), snntorch.Leaky(0.9), nn.Linear(6, 2)]
    modules.insert(place, DelayLine(6, 2))
    refuse("expected linear layers and snnTorch neurons in turn", from_snntorch, modules)


def test_a_delay_line_for_weights_of_another_size_is_refused():
    modules = [DelayLine(5, 2), nn.Linear(*SIZES), snntorch.Leaky(0.9)]
    refuse("expected weights for whole steps of 5 inputs, got 12 weights", from_snntorch, modules)


@pytest.mark.parametrize(("library", "export"), [*EXPORTS.items(), ("nir", to_nir)])
def test_a_library_that_is_not_installed_is_asked_for_in_one_sentence(library, export, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingLibraryError, match=rf'pip install "cvxsnn\[{library}\]"') as caught:
        export(one_layer(decay=0.5))
    assert_one_sentence(caught.value)


def test_aeon_that_is_not_installed_is_asked_for_in_one_sentence(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "aeon" or name == "cvxsnn.exchange.aeon"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aeon", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "cvxsnn\[aeon\]"') as caught:
        importlib.import_module("cvxsnn.exchange.aeon")
    assert_one_sentence(caught.value)


def test_no_library_is_imported_before_it_is_asked_for():
    libraries = ("snntorch", "spikingjelly", "norse", "nir", "nirtorch", "aeon")
    script = f"import sys, cvxsnn.exchange; print([name for name in {libraries} if name in sys.modules])"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[]"


def test_inputs_of_another_shape_are_refused():
    refuse("expected inputs of shape", to_snntorch(one_layer()), draw_inputs()[0])
