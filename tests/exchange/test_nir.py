"""NIR graphs: ours run exactly elsewhere and come back, those of others run here."""

import json

import numpy as np
import pytest
import torch
from exchange.cases import (
    CASES,
    N_FEATURES,
    as_network,
    delayed_network,
    draw_inputs,
    draw_tied_network,
    draw_weight,
    neuron,
    snntorch,
)
from small_models import assert_one_sentence
from tolerances import FLOAT64_SUM
from torch import nn

from cvxsnn import InvalidInputError, LIFLayer, SpikingNetwork, build_dictionary
from cvxsnn.core.errors import DataFileError, LossyExchangeWarning
from cvxsnn.core.libraries import import_library
from cvxsnn.exchange import NIRNetwork, from_nir, nirtorch_node_map, to_nir, write_nir

nir = import_library("nir", "nir")
nirtorch = import_library("nirtorch", "nir")
INPUTS = draw_inputs()
DT = 1e-4


def deep_network(readout="all", **settings):
    """Neurons that leak, that do not, that forget, that start anywhere, in two subnetworks of two layers."""
    decay = torch.tensor([0.0, 0.3, 0.5, 0.9, 1.0])
    lower = LIFLayer(draw_weight(width=10, n_subnetworks=2), decay=decay.repeat(2), threshold=0.7, **settings)
    upper = LIFLayer(draw_weight(10, 5, seed=4, n_subnetworks=2), bias=0.2, decay=decay, initial_membrane=-0.4)
    return as_network([lower, upper], readout)


NETWORKS = {
    **{name: case.network for name, case in CASES.items()},
    "ties fire": lambda: draw_tied_network("ge"),
    "ties are silent": lambda: draw_tied_network("gt"),
    "deep and mixed": deep_network,
    "delays": delayed_network,
    "no leak": lambda: as_network([LIFLayer(draw_weight(width=20), decay=1.0)]),
}


@torch.no_grad()
def run_in_nirtorch(graph, inputs, dt=DT):
    """Outputs of a graph as nirtorch runs it, step by step."""
    module = nirtorch.nir_to_torch(graph, nirtorch_node_map(dt), dtype=torch.float64)
    state, outputs = None, []
    for step in inputs.unbind(1):
        output, state = module(step, state)
        outputs.append(output)
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_our_graph_gives_our_scores_in_nirtorch(make, tmp_path):
    network = make()
    inputs = draw_inputs(gain=8.0) if make == NETWORKS["strong drive"] else INPUTS
    write_nir(to_nir(network), tmp_path / "network.nir")
    with torch.no_grad():
        expected = network(inputs)
    torch.testing.assert_close(run_in_nirtorch(tmp_path / "network.nir", inputs), expected, rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_our_graph_comes_back_as_an_equal_network(make, dtype, tmp_path):
    network = make().to(dtype)
    write_nir(to_nir(network, dt=1e-3), tmp_path / "network.nir")
    back = from_nir(tmp_path / "network.nir")
    assert isinstance(back, SpikingNetwork)
    assert (back.heads, back.readout, back.layers[0].weight.dtype) == (network.heads, network.readout, dtype)
    with torch.no_grad():
        assert torch.equal(back.features(INPUTS), network.features(INPUTS))
        torch.testing.assert_close(back(INPUTS), network(INPUTS), rtol=0, atol=FLOAT64_SUM)


def test_a_float32_network_comes_back_bit_for_bit():
    layer = LIFLayer(draw_weight(width=50).float(), decay=torch.rand(1, 50), threshold=torch.rand(1, 50))
    back = from_nir(to_nir(as_network([layer]))).layers[0]
    for name, value in layer.tensors().items():
        assert torch.equal(back.tensors()[name], value), name


def test_a_float32_network_with_delays_comes_back_bit_for_bit():
    taps = {"source": torch.tensor([[[0, 2], [1, 0]]]), "delay": torch.tensor([[[3, 7], [0, 2]]]), "n_sources": 4}
    layer = LIFLayer(torch.randn(1, 2, 2), decay=torch.rand(1, 2), **taps)
    back = from_nir(to_nir(as_network([layer]))).layers[0]
    assert back.settings() == layer.settings()
    for name, value in layer.tensors().items():
        assert torch.equal(back.tensors()[name], value), name
    without = layer.with_tensors({"delay": torch.zeros(1, 2, 2)})
    assert from_nir(to_nir(as_network([without]))).layers[0].has_delays


def test_a_graph_has_a_delay_node_for_each_delay_in_seconds():
    taps = {"source": torch.zeros(1, 3, 1), "delay": torch.tensor([[[3], [0], [5]]]), "n_sources": 2}
    layer = LIFLayer(torch.tensor([[[1.0], [2.0], [-1.0]]]), decay=torch.tensor([[0.5]]), **taps)
    graph = to_nir(as_network([layer]), dt=1e-3)
    lines = {name: node for name, node in graph.nodes.items() if isinstance(node, nir.Delay)}
    assert [node.delay.tolist() for node in lines.values()] == [[0.003, 0.003], [0.005, 0.005]]
    assert [end for start, end in graph.edges if start == "input"] == ["layer01_1_affine", *lines]
    assert graph.nodes["layer01_1_linear0000003"].weight.tolist() == [[1.0, 0.0]]
    assert graph.nodes["layer01_1_affine"].weight.tolist() == [[2.0, 0.0]]
    with pytest.warns(LossyExchangeWarning):
        plain = to_nir(as_network([layer]), lossy=True, dt=1e-3)
    assert sum(isinstance(node, nir.Delay) for node in plain.nodes.values()) == 2
    from_nir(plain)(INPUTS[:, :, :2])


def test_delays_of_others_may_differ_from_value_to_value():
    steps, dt = np.array([0, 3, 1]), 1e-3
    module = from_nir(nir.NIRGraph.from_list(nir.Delay((steps * dt).astype(np.float32))), dt=dt)
    inputs = torch.rand(4, 6, 3).double()
    outputs = module(inputs)
    for channel, delay in enumerate(steps):
        expected = torch.cat([torch.zeros(4, delay).double(), inputs[:, : 6 - delay, channel]], dim=1)
        assert torch.equal(outputs[..., channel], expected)
    with pytest.raises(InvalidInputError, match=r"expected delays of whole steps of 0\.002 seconds"):
        from_nir(nir.NIRGraph.from_list(nir.Delay(steps * dt)), dt=2e-3)


@pytest.mark.parametrize("tie", ["ge", "gt"])
def test_ties_are_decided_alike_by_readers_in_float32(tie):
    network = draw_tied_network(tie).float()
    graph = to_nir(network)
    assert torch.equal(NIRNetwork(graph, DT, torch.float32).spikes(INPUTS), network.features(INPUTS).bool())


def test_initial_spikes_are_part_of_the_initial_membrane():
    spikes = (torch.arange(20) % 2).double()
    network = as_network([LIFLayer(draw_weight(width=20), initial_spikes=spikes, decay=0.5)])
    torch.testing.assert_close(run_in_nirtorch(to_nir(network), INPUTS), network(INPUTS).detach())


def test_the_time_step_is_in_the_metadata_and_does_not_change_spikes():
    network = deep_network()
    for dt in (1e-4, 1e-3, 1.0):
        graph = to_nir(network, dt=dt)
        assert graph.metadata["dt"] == dt
        torch.testing.assert_close(run_in_nirtorch(graph, INPUTS, dt), network(INPUTS).detach())
    for dt in (0, -1.0, float("nan"), float("inf"), 1e-320, 1e308, 10**400, "fast", None):
        with pytest.raises(InvalidInputError, match="expected dt to be a number of seconds from 1e-12 to 1e"):
            to_nir(network, dt=dt)
    with pytest.raises(InvalidInputError, match=r"expected dt to be a number of seconds from 1e-12 to .*, got 0"):
        to_nir(network, dt=0)


def test_biases_arrive_where_nirtorch_alone_leaves_random_ones():
    graph = nir.NIRGraph.from_list(nir.Affine(np.zeros((2, 3)), np.array([7.0, -1.0])))
    assert torch.equal(run_in_nirtorch(graph, torch.zeros(1, 1, 3).double()), torch.tensor([[[7.0, -1.0]]]).double())


def test_a_plain_graph_is_given_only_when_asked_for_and_says_what_it_lost():
    network = CASES["odd threshold"].network()
    assert to_nir(network).metadata["lossy"] == ""
    with pytest.warns(LossyExchangeWarning, match="reset to zero instead of by subtraction"):
        graph = to_nir(network, lossy=True)
    assert [type(node).__name__ for node in graph.nodes.values()] == ["Input", "Affine", "LIF", "Affine", "Output"]
    assert "reset to zero" in graph.metadata["lossy"]
    assert graph.metadata["reset"] == "zero"
    module = from_nir(graph)
    assert isinstance(module, NIRNetwork)
    assert int((module.spikes(INPUTS) != network.features(INPUTS)).sum()) > 0


def test_a_plain_graph_of_neurons_that_do_not_leak_has_if_nodes():
    with pytest.warns(LossyExchangeWarning):
        graph = to_nir(as_network([LIFLayer(draw_weight(), decay=1.0)]), lossy=True)
    assert isinstance(graph.nodes["layer01_4_spikes"], nir.IF)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"threshold": 0.0}, "expected thresholds above 0"),
        ({"decay": torch.tensor([1.0, 0.5] * 5)}, "neurons all leak or none"),
    ],
)
def test_what_a_plain_graph_cannot_mean_is_refused(parameters, complaint):
    with pytest.raises(InvalidInputError, match=complaint):
        to_nir(as_network([LIFLayer(draw_weight(width=10), **parameters)]), lossy=True)


def third_party_graph():
    """A convolution, IF neurons, pooling, and current-based LIF neurons read by a linear layer."""
    rng = np.random.default_rng(0)
    constant = {name: np.full(4, value) for name, value in [("tau_syn", 5e-4), ("tau_mem", 1e-3), ("r", 1.0)]}
    return nir.NIRGraph.from_list(
        nir.Input(np.array([1, 6, 6])),
        nir.Conv2d((6, 6), rng.normal(size=(2, 1, 3, 3)), (1, 1), (1, 1), (1, 1), 1, rng.normal(size=2)),
        nir.IF(np.full((2, 6, 6), 1e4), np.full((2, 6, 6), 2.0), np.full((2, 6, 6), -0.5)),
        nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])),
        nir.Flatten(np.array([2, 3, 3]), 0, -1),
        nir.Linear(rng.normal(size=(4, 18))),
        nir.CubaLIF(**constant, v_leak=np.zeros(4), v_threshold=np.full(4, 0.3), w_in=2.0),
        nir.Affine(rng.normal(size=(3, 4)), rng.normal(size=3)),
        nir.Output(np.array([3])),
    )


def run_by_hand(graph, inputs):
    """The same graph written out."""
    convolution, linear, output = (graph.nodes[name] for name in ("conv2d", "linear", "affine"))
    as_tensor = torch.from_numpy
    n_samples = len(inputs)
    v_if, current, v_lif = torch.zeros(n_samples, 2, 6, 6).double(), 0.0, torch.zeros(n_samples, 4).double()
    scores, spikes = [], []
    for step in inputs.unbind(1):
        v_if = v_if + nn.functional.conv2d(step, as_tensor(convolution.weight), as_tensor(convolution.bias), padding=1)
        fired = v_if > 2.0
        v_if = torch.where(fired, -0.5, v_if)
        pooled = 4 * nn.functional.avg_pool2d(fired.double(), 2)
        current = 0.8 * current + 0.2 * 2.0 * (pooled.flatten(1) @ as_tensor(linear.weight).T)
        v_lif = 0.9 * v_lif + 0.1 * current
        fired = v_lif > 0.3
        v_lif = torch.where(fired, 0.0, v_lif)
        spikes.append(fired)
        scores.append(fired.double() @ as_tensor(output.weight).T + as_tensor(output.bias))
    return torch.stack(scores, 1), torch.stack(spikes, 1)


def test_a_graph_of_others_runs_as_it_is_defined(tmp_path):
    graph = third_party_graph()
    nir.write(tmp_path / "graph.nir", graph)
    inputs = torch.rand(5, 30, 1, 6, 6, generator=torch.Generator().manual_seed(0)).double()
    expected, spikes = run_by_hand(graph, inputs)
    assert 0.05 < spikes.double().mean() < 0.95
    for source in (graph, tmp_path / "graph.nir", str(tmp_path / "graph.nir")):
        module = from_nir(source)
        assert torch.equal(module.spikes(inputs), spikes)
        torch.testing.assert_close(module(inputs).detach(), expected, rtol=0, atol=FLOAT64_SUM)


def test_spikes_of_a_graph_of_others_make_a_dictionary():
    spikes = from_nir(third_party_graph()).spikes(torch.rand(5, 30, 1, 6, 6))
    assert build_dictionary(spikes[:, -1].numpy()).n_rows == 5


def test_leaky_integrators_follow_their_equations():
    node = nir.LI(np.array([5e-4]), np.array([3.0]), np.array([0.5]))
    levels = from_nir(nir.NIRGraph.from_list(node))(torch.ones(1, 3, 1))[0, :, 0]
    expected, level = [], 0.0
    for _ in range(3):
        level += 0.2 * (0.5 - level + 3.0)
        expected.append(level)
    assert levels.tolist() == pytest.approx(expected, abs=FLOAT64_SUM)
    cuba = nir.CubaLI(np.array([2e-4]), np.array([5e-4]), np.array([1.0]), np.array([0.0]), w_in=4.0)
    assert from_nir(nir.NIRGraph.from_list(cuba))(torch.ones(1, 1, 1)).item() == pytest.approx(0.2 * 0.5 * 4)


@pytest.mark.filterwarnings("ignore:nirtorch.extract_nir_graph is being deprecated")  # snnTorch exports with it
def test_a_snntorch_export_runs_here_spike_for_spike():
    """Neurons that reset to zero within the step are what NIR's LIF node is."""
    torch.manual_seed(0)
    settings = {"beta": torch.full((50,), 0.9), "threshold": torch.ones(50), "reset_mechanism": "zero"}
    leaky = snntorch.Leaky(**settings, init_hidden=True, reset_delay=False)
    model = nn.Sequential(nn.Linear(N_FEATURES, 50), leaky).double()
    nn.init.normal_(model[0].weight)
    export = import_library("snntorch.export_nir", "nir").export_to_nir
    graph = export(model, INPUTS[:1, 0], ignore_dims=[0])
    leaky.reset_mem()
    with torch.no_grad():
        theirs = torch.stack([model(step) for step in INPUTS.unbind(1)], dim=1).bool()
    assert 0.02 < theirs.double().mean() < 0.98
    assert torch.equal(from_nir(graph).spikes(INPUTS), theirs)


def test_graphs_without_spikes_have_none_to_give():
    module = from_nir(nir.NIRGraph.from_list(nir.Linear(np.ones((2, 3)))))
    with pytest.raises(InvalidInputError, match="expected a graph with IF, LIF, CubaLIF or Threshold nodes, got none"):
        module.spikes(torch.ones(1, 1, 3))


def test_what_nobody_can_run_is_refused_in_one_sentence():
    class Unknown(nir.Scale):
        """A node of nobody's."""

    graph = nir.NIRGraph.from_list(Unknown(np.ones(3)))
    with pytest.raises(InvalidInputError, match=r"expected a graph that nirtorch can run, got .Unknown node type"):
        from_nir(graph)
    with pytest.raises(InvalidInputError, match="expected a NIR graph or the path of one, got int"):
        from_nir(3)


def test_files_that_are_missing_or_damaged_are_refused_in_one_sentence(tmp_path):
    with pytest.raises(DataFileError, match="found none"):
        from_nir(tmp_path / "nothing.nir")
    (tmp_path / "text.nir").write_text("not a graph")
    with pytest.raises(DataFileError, match=r"expected a NIR file at .*, which fails with"):
        from_nir(tmp_path / "text.nir")


@pytest.mark.parametrize("damage", ["node", "delay", "linear", "other delay", "long delay", "header"])
def test_a_graph_of_ours_with_a_part_missing_is_refused_in_one_sentence(damage):
    graph = to_nir(delayed_network())
    if damage == "node":
        del graph.nodes["layer02_5_reset"]
    elif damage in ("delay", "linear"):
        del graph.nodes[{"delay": "layer02_0_delay0000003", "linear": "layer02_1_linear0000003"}[damage]]
    elif damage == "other delay":
        graph.nodes["layer02_0_delay0000003"].delay[0] = 0.0
    elif damage == "long delay":
        for kind in ("0_delay", "1_linear"):
            graph.nodes[f"layer01_{kind}900000000"] = graph.nodes[f"layer01_{kind}0000003"]
        graph.nodes["layer01_0_delay900000000"].delay[:] = 90000.0
        header = json.loads(graph.metadata["network"])
        header["layers"][0]["delays"] = [900000000]
        graph.metadata["network"] = json.dumps(header)
    else:
        graph.metadata["network"] = json.dumps({"format": 1})
    with pytest.raises(InvalidInputError, match="does not fit together"):
        from_nir(graph)


def test_spikingjelly_neurons_with_hard_reset_run_here_by_way_of_nir():
    model = nn.Sequential(nn.Linear(N_FEATURES, 50), neuron.LIFNode(tau=2.0, v_reset=0.0)).double()
    torch.manual_seed(0)
    nn.init.normal_(model[0].weight)
    node = nir.LIF(*(np.full(50, value) for value in (2 * DT, 1.0, 0.0, 1.0, 0.0)))
    affine = nir.Affine(model[0].weight.detach().numpy(), model[0].bias.detach().numpy())
    graph = nir.NIRGraph.from_list(affine, node)
    with torch.no_grad():
        theirs = torch.stack([model(step) for step in INPUTS.unbind(1)], dim=1).bool()
    assert 0.02 < theirs.double().mean() < 0.98
    assert torch.equal(from_nir(graph).spikes(INPUTS), theirs)


def tied_network(**settings):
    """Whole weights and quarters, so that membranes are often exactly zero."""
    weight = torch.randint(-3, 4, (1, 4, 30), generator=torch.Generator().manual_seed(5)) / 2
    return as_network([LIFLayer(weight.double(), **settings)])


@pytest.mark.parametrize("dt", [1e-4, 0.3, 1e-9])
@pytest.mark.parametrize(
    "settings",
    [
        {"decay": 0.75, "threshold": 1.0, "initial_spikes": 1.0},
        {"decay": 1.0, "bias": 0.25},
        {"decay": 0.1, "bias": 0.1},
    ],
)
def test_a_network_comes_back_to_the_bit_and_its_nodes_agree_at_ties(settings, dt):
    inputs = torch.randint(-4, 5, (20, 12, 4), generator=torch.Generator().manual_seed(6)) / 4
    network = tied_network(**settings)
    back = from_nir(to_nir(network, dt=dt))
    for own, its in zip(network.layers, back.layers, strict=True):
        assert all(torch.equal(value, its.tensors()[name]) for name, value in own.tensors().items())
    torch.testing.assert_close(back(inputs), network(inputs))
    if settings["decay"] != 0.1:  # a tenth is rounded in another way by a graph's readers
        torch.testing.assert_close(
            run_in_nirtorch(to_nir(network, dt=dt), inputs.double(), dt), network(inputs).detach()
        )


def altered(change):
    graph = to_nir(deep_network())
    change(graph)
    return graph


@pytest.mark.parametrize(
    "change",
    [
        lambda graph: graph.edges.remove(("layer01_4_spikes", "layer01_5_reset")),
        lambda graph: graph.edges.append(("readout", "layer01_1_affine")),
        lambda graph: graph.nodes.pop("layer01_5_reset"),
        lambda graph: graph.nodes.update(more=nir.Scale(np.ones(2))),
        lambda graph: graph.nodes.update(layer01_4_spikes=nir.Threshold(np.ones(8))),
        lambda graph: setattr(graph.nodes["layer01_4_spikes"], "threshold", np.array(0.5)),
        lambda graph: setattr(graph.nodes["layer01_2_leak"], "tau", graph.nodes["layer01_2_leak"].tau * 2),
        lambda graph: setattr(graph.nodes["readout"], "weight", graph.nodes["readout"].weight.astype(complex)),
        lambda graph: setattr(graph.nodes["readout"], "bias", None),
        lambda graph: graph.metadata.update(network="[" * 100_000),
        lambda graph: graph.metadata.update(network="3"),
        lambda graph: graph.metadata.update(dt="soon"),
    ],
)
def test_a_graph_that_is_not_that_of_its_network_is_refused(change):
    with pytest.raises(InvalidInputError) as caught:
        from_nir(altered(change))
    assert_one_sentence(caught.value)


def chain(*nodes):
    return nir.NIRGraph.from_list(*nodes, type_check=False)


def with_edge(graph, *edge):
    graph.edges.append(edge)
    return graph


@pytest.mark.parametrize(
    "make",
    [
        lambda: chain(nir.Affine(np.full((2, 3), np.nan), np.zeros(2))),
        lambda: chain(nir.Scale(np.array([1j, 2, 3]))),
        lambda: with_edge(chain(nir.Scale(np.ones(3))), "scale", "nowhere"),
        lambda: nir.NIRGraph({"input": nir.Input(np.array([3]))}, [], type_check=False),
        lambda: nir.NIRGraph({}, [], type_check=False),
    ],
)
def test_graphs_that_cannot_run_are_refused(make):
    with pytest.raises(InvalidInputError, match="expected a graph that nirtorch can run") as caught:
        from_nir(make())
    assert_one_sentence(caught.value)


@pytest.mark.parametrize("shape", [(2, 4, 5), (2, 3), (0, 4, 3), (2, 0, 3)])
def test_inputs_that_do_not_fit_a_graph_are_refused(shape):
    module = from_nir(chain(nir.Affine(np.ones((2, 3)), np.zeros(2)), nir.Threshold(np.ones(2))))
    with pytest.raises(InvalidInputError) as caught:
        module(torch.zeros(shape))
    assert_one_sentence(caught.value)
