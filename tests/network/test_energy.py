import math

import numpy as np
import pytest
import torch
from networks import NEURONS, READOUTS, Case, draw_inputs
from tolerances import FLOAT64_MEAN

from cvxsnn import InvalidInputError, LIFLayer, SpikingNetwork, ThresholdLayer, reconstruct, roll_out
from cvxsnn.data.sequences import Sequences
from cvxsnn.network import OutputHead
from cvxsnn.network.energy import Joules, LayerOperations, Operations, count_operations

LENGTHS = torch.tensor([5, 1, 3, 5, 2, 4])


def binary_inputs(seed=0):
    return (draw_inputs(6, 5, seed) > 0).double()


def naive_operations(network, inputs, lengths):
    """Synaptic operations of each hidden layer and of the read-out: one by one, for each spike and each weight."""
    n_operations = [0] * (len(network.layers) + 1)
    spikes = [roll_out(network.layers[: depth + 1], inputs, "all") for depth in range(len(network.layers))]
    for i, length in enumerate(lengths):
        for t in range(length):
            for depth, layer in enumerate(network.layers):
                for place in np.ndindex(*layer.weight.shape):
                    k, tap, _ = place
                    j, delay = (layer.source[place], layer.delay[place]) if layer.has_delays else (tap, 0)
                    if t - delay < 0:
                        continue  # nothing has been sent yet
                    values = inputs[i] if depth == 0 else spikes[depth - 1][i, :, k * layer.n_inputs :]
                    n_operations[depth] += bool(values[t - delay, j] != 0 and layer.weight[place] != 0)
                if isinstance(layer, ThresholdLayer):
                    for k, j, target in np.ndindex(*layer.recurrent_weight.shape):
                        before = layer.initial_spikes[k, j] if t == 0 else spikes[depth][i, t - 1, k * layer.width + j]
                        n_operations[depth] += bool(before != 0 and layer.recurrent_weight[k, j, target] != 0)
            if network.readout != "last" or t == length - 1:
                for row, neuron in enumerate(network.neurons):
                    if spikes[-1][i, t, neuron]:
                        n_operations[-1] += sum(bool(value != 0) for value in network.weight[row])
    return n_operations


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize(("form", "max_delay"), [("compact", None), ("parallel", None), ("full", None), ("full", 7)])
def test_synaptic_operations_are_those_of_a_loop_over_spikes_and_weights(neuron, readout, form, max_delay):
    case = Case(neuron, readout, hidden=(3, 4), n_outputs=2, ratio=0.2, max_delay=max_delay)
    network = reconstruct(case.solve(), form)
    inputs = binary_inputs()
    found = count_operations(network, inputs)
    assert [layer.n_accumulates for layer in found.layers] == naive_operations(network, inputs, [5] * 6)
    assert found.total.n_multiply_accumulates == 0
    assert found.total.n_synaptic > 0


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("max_delay", [None, 3])
def test_padding_costs_nothing_whatever_it_holds(neuron, readout, max_delay):
    network = reconstruct(Case(neuron, readout, hidden=(3, 4), ratio=0.2, max_delay=max_delay).solve())
    inputs = binary_inputs()
    padded = inputs.clone()
    for row, length in enumerate(LENGTHS):
        padded[row, length:] = 7.5
    found = count_operations(network, Sequences(padded, LENGTHS))
    assert [layer.n_accumulates for layer in found.layers] == naive_operations(network, inputs, LENGTHS)
    assert found.n_steps == int(LENGTHS.sum())
    updates = found.n_steps * (found.layers[0].n_neurons + found.layers[1].n_neurons)
    assert found.total.n_membrane_updates == (updates if neuron == "lif" else 0)


def test_numbers_cost_multiplications_unless_they_are_zero():
    network = reconstruct(Case(hidden=(3, 4), ratio=0.2).solve())
    inputs = draw_inputs(6, 5, 0)
    inputs[inputs < 0] = 0
    first, *others = count_operations(network, inputs).layers
    assert (first.n_accumulates, first.n_multiply_accumulates) == (0, naive_operations(network, inputs, [5] * 6)[0])
    assert all(layer.n_multiply_accumulates == 0 for layer in others)


def test_neurons_that_only_fill_up_a_subnetwork_do_not_count():
    layer = LIFLayer(torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]]))
    network = SpikingNetwork(
        [layer], torch.ones(3, 1), [OutputHead("label", "hinge", 0, 1)], neurons=torch.tensor([0, 2, 3])
    )
    (hidden, readout) = count_operations(network, torch.ones(4, 5, 2)).layers
    assert hidden.n_neurons == 3
    assert hidden.n_membrane_updates == 4 * 5 * 3
    assert hidden.n_dense == 4 * 5 * 2 * 3
    assert readout.n_dense == 4 * 3


def test_a_dense_network_multiplies_once_for_each_weight_and_step_and_reads_means_once():
    for readout, n_reads in (("last", 6), ("mean", 6), ("all", 30)):
        network = SpikingNetwork(
            [LIFLayer(torch.eye(3).repeat(2, 1, 1)), LIFLayer(torch.ones(2, 3, 4))],
            torch.ones(8, 2),
            [OutputHead("label", "squared", 0, 2)],
            readout=readout,
        )
        found = count_operations(network, binary_inputs())
        assert [layer.n_dense for layer in found.layers] == [30 * 2 * 9, 30 * 2 * 12, n_reads * 16]


@pytest.mark.parametrize(("delay", "n_arrivals"), [(0, 5), (2, 3), (4, 1), (5, 0), (1000, 0)])
def test_a_delayed_spike_counts_once_if_it_arrives_within_the_sequence(delay, n_arrivals):
    taps = {"source": torch.zeros(1, 2, 1), "delay": torch.tensor([[[delay], [1000]]]), "n_sources": 3}
    layer = LIFLayer(torch.tensor([[[1.0], [0.0]]]), **taps)
    network = SpikingNetwork([layer], torch.ones(1, 1), [OutputHead("label", "hinge", 0, 1)])
    hidden = count_operations(network, torch.ones(4, 5, 3)).layers[0]
    assert hidden.n_accumulates == 4 * n_arrivals
    assert hidden.n_dense == 4 * 5 * 2  # two taps, each step


def test_energy_is_the_operations_times_what_each_costs():
    layers = (LayerOperations("hidden 1", 10, 7, 100, 20, 30, 500), LayerOperations("read-out", 2, 0, 8, 0, 0, 40))
    operations = Operations(layers, n_samples=4, n_steps=20)
    assert operations.energy() == pytest.approx((108 * 0.9 + 50 * 4.6) * 1e-12 / 4, rel=FLOAT64_MEAN)
    assert operations.dense_energy() == pytest.approx(540 * 4.6e-12 / 4, rel=FLOAT64_MEAN)
    assert operations.energy(Joules(1.0, 0.0, 0.0)) == 108 / 4
    assert operations.energy(Joules(0.0, 1.0, 0.0)) == 20 / 4
    assert operations.energy(Joules(0.0, 0.0, 1.0)) == 30 / 4
    assert (operations.synaptic_per_sample, operations.synaptic_per_step) == (128 / 4, 128 / 20)


def test_the_table_has_a_line_for_each_layer_and_one_for_all():
    text = str(count_operations(reconstruct(Case(hidden=(3, 4), ratio=0.2).solve()), binary_inputs()))
    lines = text.splitlines()
    assert [line.split("  ")[0].strip() for line in lines[1:-1]] == ["hidden 1", "hidden 2", "read-out", "all"]
    assert len({len(line) for line in lines[:-1]}) == 1
    assert "per step (6 samples, 5 steps each)" in lines[-1]


def test_counts_do_not_depend_on_how_the_samples_are_divided():
    network = reconstruct(Case(hidden=(3, 4), ratio=0.2).solve())
    inputs = binary_inputs()
    whole, parts = count_operations(network, inputs), [count_operations(network, inputs[i : i + 2]) for i in (0, 2, 4)]
    assert whole.total.n_synaptic == sum(part.total.n_synaptic for part in parts)
    assert math.isclose(whole.energy(), np.mean([part.energy() for part in parts]), rel_tol=FLOAT64_MEAN)


def test_inputs_of_another_width_are_refused():
    with pytest.raises(InvalidInputError, match="n_features"):
        count_operations(reconstruct(Case().solve()), torch.ones(2, 5, 7))


@pytest.mark.parametrize("other", [torch.nn.Linear(3, 2), None, np.ones(3)], ids=lambda other: type(other).__name__)
def test_other_networks_are_refused_in_one_sentence(other):
    with pytest.raises(InvalidInputError, match=rf"SpikingNetwork, .* got {type(other).__name__}: convert") as caught:
        count_operations(other, binary_inputs())
    assert "\n" not in str(caught.value)
