"""Our networks in NeuroBench's harness: its numbers are ours."""

import doctest
import importlib
import sys

import numpy as np
import pytest
import torch
from layers import draw_layer, draw_stack
from networks import N_FEATURES, Case
from small_models import assert_one_sentence, classifier, make_sequences, regressor
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

pytest.importorskip("neurobench", reason="neurobench is not installed: pip install 'cvxsnn[neurobench]'")

from cvxsnn import (
    InvalidInputError,
    SpikingNetwork,
    SpikingRegressor,
    forecast,
    make_windows,
    reconstruct,
)
from cvxsnn.core.errors import CvxsnnError, MissingLibraryError
from cvxsnn.core.libraries import import_library
from cvxsnn.data.tasks import mackey_glass, smape
from cvxsnn.exchange.neurobench import (
    LeaderboardRow,
    Leaky,
    NeuroBenchForecaster,
    NeuroBenchNetwork,
    Synapses,
    leaderboard_row,
)
from cvxsnn.network import OutputHead
from cvxsnn.network.energy import count_operations
from cvxsnn.network.summary import summarise

Benchmark = import_library("neurobench.benchmarks", "neurobench").Benchmark
static = import_library("neurobench.metrics.static", "neurobench")
workload = import_library("neurobench.metrics.workload", "neurobench")

READOUTS = ("last", "mean", "all", "windows-3")
STATIC = [static.Footprint, static.ConnectionSparsity, static.ParameterCount]
WORKLOAD = [workload.ActivationSparsity, workload.SynapticOperations, workload.MembraneUpdates]


def as_network(layers, readout="last", seed=0, n_outputs=2):
    """A network that reads some of its neurons with some weights that are zero."""
    generator = torch.Generator().manual_seed(seed)
    n_windows = int(readout.partition("-")[2] or 1)
    n_neurons = layers[-1].n_subnetworks * layers[-1].width
    columns = torch.randperm(n_neurons * n_windows, generator=generator)[: n_neurons * n_windows // 2]
    weight = torch.randn(len(columns), n_outputs, generator=generator, dtype=torch.float64)
    weight *= torch.rand(weight.shape, generator=generator) < 0.7
    return SpikingNetwork(
        layers,
        weight,
        [OutputHead("label", "squared", 0, n_outputs)],
        torch.randn(n_outputs, generator=generator),
        columns // n_windows,
        readout,
        columns % n_windows if n_windows > 1 else None,
    )


def draw_network(kind, readout="last"):
    """Networks with and without delays, of one layer and of several, of LIF and of recurrent threshold neurons."""
    if kind == "threshold":
        return as_network(Case("threshold", hidden=(5, 4), seed=2).witnesses().layers, readout)
    if kind == "delays":
        return as_network([draw_layer(0)], readout)
    if kind == "deep":
        return as_network(draw_stack(1), readout)
    plain = {"source": None, "delay": None, "n_sources": None}
    return as_network([draw_layer(0, n_taps=3, **plain), draw_layer(1, n_taps=6, **plain)], readout)


KINDS = ("plain", "delays", "deep", "threshold")


def draw_inputs(kind="numbers", n_samples=7, n_steps=9):
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(n_samples, n_steps, N_FEATURES, generator=generator)
    return (inputs > 0.5).float() if kind == "spikes" else inputs


def measure(model, inputs, static_metrics=STATIC, workload_metrics=WORKLOAD, batch_size=3):
    """What the harness finds; it prints errors of metrics and goes on, which fails here."""
    data = DataLoader(TensorDataset(inputs, torch.zeros(len(inputs))), batch_size)
    return Benchmark(model, data, [], [], [static_metrics, workload_metrics]).run(quiet=True)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_the_network(kind, readout):
    network, inputs = draw_network(kind, readout), draw_inputs()
    torch.testing.assert_close(NeuroBenchNetwork(network)(inputs), network(inputs).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("values", ["numbers", "spikes"])
@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("kind", KINDS)
def test_operations_and_spikes_are_those_that_we_count(kind, readout, values):
    network, inputs = draw_network(kind, readout), draw_inputs(values)
    ours = count_operations(network, inputs)
    found = measure(NeuroBenchNetwork(network), inputs)
    operations, total = found["SynapticOperations"], ours.total
    assert operations["Effective_ACs"] * len(inputs) == pytest.approx(total.n_accumulates, abs=1e-6)
    assert operations["Effective_MACs"] * len(inputs) == pytest.approx(total.n_multiply_accumulates, abs=1e-6)
    assert (total.n_multiply_accumulates > 0) == (values == "numbers")
    n_neurons = sum(layer.n_subnetworks * layer.width for layer in network.layers)
    assert found["ActivationSparsity"] == pytest.approx(1 - total.n_spikes / (n_neurons * ours.n_steps))


def test_dense_operations_are_ours_without_delays():
    network, inputs = draw_network("plain", "all"), draw_inputs()
    found = measure(NeuroBenchNetwork(network), inputs)["SynapticOperations"]["Dense"]
    assert found * len(inputs) == pytest.approx(count_operations(network, inputs).total.n_dense)


def test_dense_operations_leave_out_what_delays_read_before_the_sequence():
    layer, n_steps = draw_layer(0), 9
    network = as_network([layer])
    found = measure(NeuroBenchNetwork(network), draw_inputs(n_steps=n_steps))["SynapticOperations"]["Dense"]
    arrivals = (n_steps - layer.delay * (layer.weight != 0)).sum()
    assert found == int(arrivals) + network.weight.numel()


@pytest.mark.parametrize("kind", KINDS)
def test_connections_are_those_of_the_summary(kind):
    network = draw_network(kind)
    found, layers = measure(NeuroBenchNetwork(network), draw_inputs()), summarise(network).layers
    n_weights = sum(layer.weight.numel() for layer in network.layers) + network.weight.numel()
    n_weights += sum(layer.recurrence.numel() for layer in network.layers if layer.recurrence is not None)
    n_nonzero = sum(layer.n_nonzero for layer in layers)
    assert found["ConnectionSparsity"] == pytest.approx(1 - n_nonzero / n_weights, abs=5e-5)
    n_biases = sum(layer.bias.numel() for layer in network.layers) + network.n_outputs
    assert found["ParameterCount"] == n_weights + n_biases


def test_the_footprint_counts_weights_taps_and_past_inputs_once():
    layer = draw_layer(0, decay=0.5, threshold=1.0, initial_membrane=0.0, initial_spikes=0.0)  # 2 × 5 taps × 6 neurons
    network = as_network([layer])  # 6 neurons read, 2 outputs
    taps = 60 * (4 + 1 + 1)  # a float32, a source below 3, a delay up to 4
    neurons = 12 * 4 + 4 * 4  # biases; decay, threshold, membrane and spikes are the same for all neurons
    past = layer.max_delay * N_FEATURES * 4
    readout = 6 * 2 * 8 + 2 * 8 + 6
    assert measure(NeuroBenchNetwork(network), draw_inputs())["Footprint"] == taps + neurons + past + readout
    small = measure(NeuroBenchNetwork(network, dtype=torch.float32), draw_inputs())["Footprint"]
    assert small == taps + neurons + past + 6 * 2 * 4 + 2 * 4 + 6


def test_membranes_that_change_are_counted():
    network, inputs = draw_network("plain"), draw_inputs()
    found = measure(NeuroBenchNetwork(network), inputs, batch_size=7)["MembraneUpdates"]
    state, n_updates = network.start(len(inputs)), 0
    for step in range(inputs.shape[1]):
        after, _ = network.step(state, inputs[:, step])
        for before, now in zip(state.layers, after.layers, strict=True):
            n_updates += now.membrane.numel() if step == 0 else int((before.membrane != now.membrane).sum())
        state = after
    assert found * len(inputs) == n_updates
    assert found * len(inputs) <= count_operations(network, inputs).total.n_membrane_updates


def test_neuron_operations_are_those_of_leaky_neurons():
    model = NeuroBenchNetwork(draw_network("plain"))
    assert isinstance(model.net.layers[1], Leaky)
    found = measure(model, draw_inputs(), [], [workload.NeuronOperations, workload.MembraneUpdates])
    assert found["NeuronOperations"]["Effective Neuron Ops"] == 4 * found["MembraneUpdates"]


def test_the_modules_are_found_and_let_go_again():
    model = NeuroBenchNetwork(draw_network("threshold"))
    assert [type(layer) for layer in model.connection_layers()] == [Synapses] * 5  # two of them recurrent
    assert len(model.activation_layers()) == 2
    leaderboard_row("t", model, draw_inputs().numpy(), np.zeros((7, 2)), metric="MSE")
    assert not model.activation_hooks
    assert not any(isinstance(module, nn.Linear) and module._forward_pre_hooks for module in model.net.modules())


@pytest.mark.parametrize("labels", [["no", "yes"], [3, 8], [1, 4, 9]])
def test_a_classifier_answers_what_it_predicts(labels):
    X = make_sequences()
    y = np.array(labels)[np.arange(len(X)) % len(labels)]
    fitted = classifier(hidden=(16,), standardize=True).fit(X, y)
    found = NeuroBenchNetwork(fitted)(torch.tensor(X)).numpy()
    expected = fitted.predict(X)
    np.testing.assert_array_equal(found, expected if y.dtype.kind == "i" else np.searchsorted(labels, expected))
    if y.dtype.kind == "i":
        row = leaderboard_row("labels", NeuroBenchNetwork(fitted), X, y, batch_size=10)
        assert row.score == pytest.approx(fitted.score(X, y))


def test_a_regressor_answers_what_it_predicts():
    X = make_sequences()
    flat = regressor(hidden=(16,), standardize=True).fit(X, X[:, 0, 0])
    pairs = regressor(hidden=(16,)).fit(X, X[:, 0, :2])
    for model in (flat, pairs):
        found = NeuroBenchNetwork(model)(torch.tensor(X)).numpy()
        np.testing.assert_allclose(found, model.predict(X), rtol=1e-9, atol=1e-12)


def test_a_reconstruction_runs_too():
    network = reconstruct(Case(max_delay=3).solve(), form="compact")
    inputs = Case().inputs
    torch.testing.assert_close(NeuroBenchNetwork(network)(inputs), network(inputs).detach(), rtol=1e-12, atol=1e-12)


@pytest.fixture(scope="module")
def series():
    task = mackey_glass(17, n_train=150, n_test=40)
    X, y = make_windows(task.train, window=12)
    return task, SpikingRegressor(hidden=(48,), witnesses="delayed", l1_strength=1e-4, random_state=0).fit(X, y)


def test_forecasts_are_ours_and_look_at_the_first_value_alone(series):
    task, model = series
    shown = np.append(task.train[-1], task.test[:-1])[:, None, None]
    wrapped = NeuroBenchForecaster(model, task.train[:-1], window=12)
    expected = forecast(model, task.train, 40, window=12)
    np.testing.assert_allclose(wrapped(torch.tensor(shown)).numpy()[:, 0], expected, rtol=1e-9)
    shown[1:] = np.nan
    np.testing.assert_allclose(wrapped(torch.tensor(shown)).numpy()[:, 0], expected, rtol=1e-9)


def test_the_row_of_a_forecast(series):
    task, model = series
    shown = np.append(task.train[-1], task.test[:-1])[:, None, None]
    wrapped = NeuroBenchForecaster(model, task.train[:-1], window=12)
    row = leaderboard_row("Mackey–Glass 17", wrapped, shown, task.test[:, None], metric="SMAPE")
    assert row.score == pytest.approx(smape(forecast(model, task.train, 40, window=12), task.test), rel=1e-6)
    plain = measure(NeuroBenchNetwork(model), torch.zeros(1, 12, 1), [static.Footprint], [])["Footprint"]
    assert row.footprint == plain + 12 * 8
    known = np.concatenate((task.train, forecast(model, task.train, 40, window=12)))
    windows = np.stack([known[start : start + 12] for start in range(150 - 12, 190 - 12)])[:, :, None]
    ours = count_operations(model.network_, (windows - model.input_scale_[0]) / model.input_scale_[1])
    assert row.effective_acs + row.effective_macs == pytest.approx(ours.synaptic_per_sample)
    assert "Mackey–Glass 17" in str(row)


def test_a_network_forecasts_from_values_that_are_encoded_and_standardised():
    network = as_network([draw_layer(0)], "mean", n_outputs=1)
    history, (mean, spread), n_steps = np.array([2.0, 3.0, 2.5, 3.5]), (2.7, 0.5), 6

    def encode(values):
        return values.transpose(1, 2).expand(-1, n_steps, -1)

    wrapped = NeuroBenchForecaster(network, history, window=3, encode=encode, standard=(mean, spread))
    found = wrapped(torch.tensor([3.0, 0.0, 0.0])[:, None, None])
    known = [(value - mean) / spread for value in (2.5, 3.5, 3.0)]
    for _ in range(3):
        with torch.no_grad():
            known.append(float(network(torch.tensor(known[-3:], dtype=torch.float64).expand(1, n_steps, -1))[0, 0]))
    np.testing.assert_allclose(found[:, 0], np.array(known[3:]) * spread + mean, rtol=1e-9)


def test_rows_are_averaged():
    rows = [LeaderboardRow("a", "SMAPE", 10.0, 7, 0.5, 0.25, 30.0, 1.0, 2.0)]
    rows.append(LeaderboardRow("b", "SMAPE", 20.0, 8, 0.0, 0.75, 10.0, 3.0, 2.0))
    assert LeaderboardRow.mean("both", rows) == LeaderboardRow("both", "SMAPE", 15.0, 8, 0.25, 0.5, 20.0, 2.0, 2.0)


def test_an_error_inside_of_the_harness_is_not_a_zero():
    model = NeuroBenchNetwork(draw_network("plain"))
    with pytest.raises(CvxsnnError, match="must have the same shape") as caught:
        leaderboard_row("t", model, draw_inputs().numpy(), np.zeros(7), metric="MSE")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: NeuroBenchNetwork("model.safetensors"), "expected a SpikingNetwork or a fitted .*, got str"),
        (lambda: NeuroBenchNetwork(draw_network("plain"), dtype=torch.float16), "expected dtype to be"),
        (lambda: NeuroBenchNetwork(draw_network("plain"))(torch.zeros(1, 2, 5)), "expected 3 features per step, got 5"),
        (lambda: NeuroBenchForecaster(nn.Linear(1, 1), [1.0], window=1), "expected a SpikingRegressor or Spiking"),
        (lambda: LeaderboardRow.mean("t", []), "expected rows of one metric"),
        (lambda: leaderboard_row("t", draw_network("plain"), [], []), "expected a NeuroBenchNetwork, got Spiking"),
        (
            lambda: leaderboard_row("t", NeuroBenchNetwork(draw_network("plain")), [0], [0], metric="accuracy"),
            "expected metric to be one of 'MembraneUpdates', ",
        ),
        (
            lambda: leaderboard_row("t", NeuroBenchNetwork(draw_network("plain")), draw_inputs(), [0]),
            "one per sample, got 1 for 7",
        ),
    ],
)
def test_misuse_is_one_sentence(make, complaint):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        make()
    assert_one_sentence(caught.value)


def test_a_short_history_is_refused(series):
    with pytest.raises(InvalidInputError, match="expected a history of at least 11 steps"):
        NeuroBenchForecaster(series[1], [1.0, 2.0], window=12)


def test_an_estimator_must_be_fitted():
    with pytest.raises(InvalidInputError, match="which is not fitted: call fit first"):
        NeuroBenchNetwork(SpikingRegressor())


def test_the_example_prints_what_it_shows():
    [test] = [own for own in doctest.DocTestFinder().find(NeuroBenchNetwork, globs={}) if own.examples]
    assert doctest.DocTestRunner().run(test).failed == 0


def test_without_neurobench_there_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "neurobench.models", None)
    monkeypatch.delitem(sys.modules, "cvxsnn.exchange.neurobench")
    with pytest.raises(MissingLibraryError, match=r'pip install "cvxsnn\[neurobench\]"$') as caught:
        importlib.import_module("cvxsnn.exchange.neurobench")
    assert_one_sentence(caught.value)
