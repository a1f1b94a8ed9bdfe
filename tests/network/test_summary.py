import pytest
import torch
from networks import NEURONS, Case

from cvxsnn import InvalidInputError, LIFLayer, SpikingNetwork, reconstruct
from cvxsnn.exchange import quantise, quantise_readout
from cvxsnn.network import OutputHead
from cvxsnn.network.summary import summarise


def make_network(**parameters):
    weight = torch.tensor([[[0.5, 0.0], [-0.25, 0.0]], [[1.0, 0.0], [0.75, -3.0]]])
    layer = LIFLayer(weight, bias=torch.tensor([[0.5, -1.0], [0.0, 0.25]]), decay=torch.tensor([[0.5, 1.0]]))
    output = torch.tensor([[1.0, 0.0], [0.5, 2.0], [-1.5, 0.0]])
    heads = [OutputHead("label", "softmax", 0, 2)]
    return SpikingNetwork([layer], output, heads, neurons=torch.tensor([0, 2, 3]), **parameters)


def test_sizes_and_ranges_leave_out_what_only_fills_up_the_arrays():
    hidden, readout = summarise(make_network()).layers
    # Neuron 1 of the first subnetwork has no weight, so its bias of -1 and decay of 1 are not seen there.
    assert (hidden.n_neurons, hidden.n_weights, hidden.n_nonzero) == (3, 6, 5)
    assert (hidden.decay, hidden.threshold, hidden.bias) == ((0.5, 1.0), (1.0, 1.0), (0.0, 0.5))
    assert (readout.n_neurons, readout.n_weights, readout.n_nonzero) == (2, 6, 4)
    assert readout.sparsity == 1 - 4 / 6
    assert readout.decay is None


def test_bytes_are_those_of_weights_in_their_bits_and_of_four_numbers_a_neuron():
    summary = summarise(make_network())
    hidden, readout = summary.layers
    assert hidden.weight_bits == 3  # 1 and 0.75 are 4 and 3 quarters
    assert hidden.n_bytes == -(-6 * 3 // 8) + 3 * 4 * 4
    assert readout.weight_bits == 3
    assert readout.n_bytes == -(-6 * 3 // 8) + 2 * 4
    assert summary.n_bytes == hidden.n_bytes + readout.n_bytes


def test_taps_are_weights_with_addresses_and_past_inputs_are_held():
    taps = {"delay": torch.tensor([[[0, 4], [6, 9]]]), "source": torch.tensor([[[2, 0], [1, 0]]])}
    lower = LIFLayer(torch.tensor([[[1.0, 1.0], [1.0, 0.0]]]), **taps, n_sources=3)
    upper = LIFLayer(torch.ones(1, 1, 1), source=torch.ones(1, 1, 1), delay=torch.full((1, 1, 1), 20), n_sources=2)
    network = SpikingNetwork([lower, upper], torch.ones(1, 1), [OutputHead("label", "hinge", 0, 1)])
    summary = summarise(network)
    first, second, readout = summary.layers
    assert (first.n_neurons, first.n_weights, first.n_nonzero, first.max_delay) == (2, 4, 3, 6)  # 9 is of weight zero
    # 2 bits of weight, 2 for three inputs, 3 for delays up to 6
    assert first.n_bytes == -(-4 * (2 + 2 + 3) // 8) + 2 * 4 * 4
    assert first.buffer_bytes == 6 * 3 * 4
    assert (second.max_delay, second.buffer_bytes) == (20, -(-20 * 2 // 8))
    assert (readout.max_delay, readout.buffer_bytes) == (0, 0)
    title, header, *lines = str(summary).splitlines()
    assert "delays up to 20" in title
    assert title.endswith(f"{summary.n_bytes:,} bytes and 77 bytes of past inputs")
    assert header.split("  ")[-2:] == ["max delay", "buffer"]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("bits", [8, 4, 2])
def test_the_bits_of_a_quantised_network_are_no_more_than_asked_for(neuron, bits):
    network = reconstruct(Case(neuron, n_outputs=2, ratio=0.1).solve())
    assert max(layer.weight_bits for layer in summarise(network).layers) == 64
    summary = summarise(quantise_readout(quantise(network, bits), bits))
    assert max(layer.weight_bits for layer in summary.layers) <= bits
    assert summary.n_bytes < summarise(network).n_bytes


@pytest.mark.parametrize("neuron", NEURONS)
def test_the_table_has_a_line_for_each_layer(neuron):
    network = reconstruct(Case(neuron, "mean", ratio=0.1).solve())
    title, *lines = str(summarise(network)).splitlines()
    assert title.startswith(f"{network}, ")
    assert "delay" not in title + lines[0]
    assert [line.split("  ")[0] for line in lines] == ["layer", "hidden 1", "hidden 2", "read-out (mean)"]
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize("other", [torch.nn.Linear(3, 2), None, "network"], ids=lambda other: type(other).__name__)
def test_other_networks_are_refused_in_one_sentence(other):
    with pytest.raises(InvalidInputError, match=rf"SpikingNetwork, .* got {type(other).__name__}: convert") as caught:
        summarise(other)
    assert "\n" not in str(caught.value)
