"""ONNX graphs of models: onnxruntime has the same spikes and statistics as Python."""

import json
import sys
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest
import torch
from exchange.exported import NETWORKS, as_network, draw_inputs, kinds_network, recurrent_layer
from layers import draw_layer, draw_stack
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from small_models import assert_one_sentence, classes_of, classifier, make_sequences, regressor

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.core.errors import MissingLibraryError
from cvxsnn.exchange.c.program import compile_network
from cvxsnn.neurons import NEURON_MODELS, NeuronModel, register_neuron, roll_out

onnx = pytest.importorskip("onnx", reason="onnx is not installed: pip install 'cvxsnn[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'cvxsnn[onnx]'")


def export(folder, model, **options):
    """Return the graph of a model."""
    cs.export_onnx(model, folder / "model.onnx", **options)
    return onnx.load(folder / "model.onnx")


def execute(graph, sequences, *names, is_optimised=True):
    """Return what onnxruntime computes, by name, also of names inside the graph."""
    inside = onnx.ModelProto()
    inside.CopyFrom(graph)
    outputs = {output.name for output in graph.graph.output}
    for name in names:
        if name not in outputs:
            inside.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, None))
    options = onnxruntime.SessionOptions()
    if not is_optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(inside.SerializeToString(), options)
    return session.run(list(names), {"X": np.asarray(sequences, dtype=np.float64)})


def count_spikes(graph, network, sequences, n_steps=None, **options):
    """Return how many spikes of the neurons that matter differ from those of Python, and how many there are."""
    program = compile_network(network, n_steps)
    names = [f"spikes_{depth}" for depth in range(1, len(program.layers) + 1)]
    n_wrong = n_all = 0
    for depth, spikes in enumerate(execute(graph, sequences, *names, **options)):
        expected = roll_out(network.layers[: depth + 1], cs.Sequences.of(sequences), "all").numpy()
        n_wrong += int((spikes != expected[..., program.layers[depth].neurons]).sum())
        n_all += spikes.size
    return n_wrong, n_all


def of_length(n_steps, name, n_samples=20):
    inputs = draw_inputs(n_samples, n_steps)
    if name == "weights of 32 bits":  # whose sums with larger inputs Python refuses
        inputs[6] /= 50
    return inputs


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("is_optimised", [True, False])
def test_spikes_statistics_and_scores_are_those_of_python(name, is_optimised, tmp_path):
    network, windows = NETWORKS[name](), {"n_steps": 12} if name == "windows" else {}
    graph = export(tmp_path, network, **windows)
    program = compile_network(network, **windows)
    for n_steps in (12,) if windows else (1, 12, 40):
        sequences = of_length(n_steps, name)
        n_wrong, n_all = count_spikes(graph, network, sequences, is_optimised=is_optimised, **windows)
        assert (n_wrong, n_all >= 50) == (0, True)
        names = ("scores", "class") if network.readout == "all" else ("scores", "class", "features")
        scores, classes, *features = execute(graph, sequences, *names, is_optimised=is_optimised)
        expected = network(sequences).detach().numpy()
        assert abs(scores - expected).max() <= program.tolerance
        assert np.array_equal(classes, expected.argmax(-1))
        if features:
            assert np.array_equal(features[0], network.features(sequences).numpy()[:, program.columns])


@lru_cache
def fit_digits():
    X, y = load_digits(return_X_y=True)
    model = cs.SpikingClassifier(n_neurons=300, sparsity=64, random_state=0).fit(X[:150].reshape(-1, 8, 8), y[:150])
    return model, X.reshape(-1, 8, 8)


def test_a_million_spikes_of_random_and_trained_networks_are_those_of_python(tmp_path):
    totals = np.zeros(2, dtype=np.int64)
    for seed in range(6):
        for dtype in (torch.float32, torch.float64):
            layers = (
                [draw_layer(seed, width=20, dtype=dtype)],
                draw_stack(seed, dtype),
                [recurrent_layer(seed, 20, dtype)],
            )
            for stack in layers:
                network = as_network(stack, "mean", seed=seed)
                sequences = draw_inputs(100, 30, seed=seed)
                totals += count_spikes(export(tmp_path, network), network, sequences)
    network = kinds_network(n_witnesses=400)
    totals += count_spikes(export(tmp_path, network), network, draw_inputs(60, 20, seed=1))
    sequences = make_sequences(200, 12)
    for method in ("sg", "varpro"):
        model = classifier(method, hidden=(40,)).fit(sequences[:60], classes_of(sequences[:60], 3))
        graph = export(tmp_path, model.network_)
        for factor in (1.0, 30.0):
            totals += count_spikes(graph, model.network_, factor * model.as_sequences(sequences).inputs.numpy())
    model, X = fit_digits()
    totals += count_spikes(export(tmp_path, model.network_), model.network_, model.as_sequences(X).inputs.numpy())
    assert totals[0] == 0
    assert totals[1] >= 1e6


def test_a_default_fit_with_few_neurons_answers_raw_inputs_as_python_does(tmp_path):
    model, X = fit_digits()
    graph = export(tmp_path, model)
    scores, classes = execute(graph, X, "scores", "class")
    assert np.array_equal(classes, model.predict(X))
    properties = {entry.key: entry.value for entry in graph.metadata_props}
    assert abs(scores - model.decision_function(X)).max() <= float(properties["tolerance"])
    assert json.loads(properties["classes"]) == list("0123456789")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("decay", [0.5, 0.9])
def test_membranes_that_underflow_do_so_as_in_python(dtype, decay, tmp_path):
    layer = cs.LIFLayer(
        torch.ones(1, 1, 3, dtype=dtype), decay=decay, threshold=torch.tensor([[0.0, 1e-3, 1.0]]), bias=0.0
    )
    network = as_network([layer], "mean")
    n_steps = 1200 if dtype == torch.float32 else 1200 if decay == 0.5 else 8000
    sequences = np.zeros((4, n_steps, 1))
    sequences[:, 0, 0] = [-1000.0, 1000.0, -(2.0**-16), 1.0]
    assert count_spikes(export(tmp_path, network), network, sequences)[0] == 0
    spikes = roll_out([layer], torch.tensor(sequences), "all")
    if decay == 0.5:  # it underflows to minus zero, which fires
        assert spikes[0, -1, 0]
        assert not spikes[0, 100, 0]


def test_the_only_neuron_of_a_layer_is_no_exception(tmp_path):
    for seed in range(5):
        layers = [recurrent_layer(seed, 1, torch.float64), draw_layer(seed, 2, 3, 1, 1, dtype=torch.float64)]
        network = as_network(layers, "mean")
        assert count_spikes(export(tmp_path, network), network, draw_inputs(200, seed=seed))[0] == 0


def answers(graph, network, sequences):
    """Return whether each sequence is answered, after a comparison with Python; those that Python refuses are not."""
    is_answered = []
    for sequence, scores, number in zip(sequences, *execute(graph, sequences, "scores", "class"), strict=True):
        is_answered.append(number >= 0)
        assert (number < 0) == np.isnan(scores).all() == np.isnan(scores).any()
        if number >= 0:
            expected = network(sequence[None]).detach().numpy()[0]
            assert abs(scores - expected).max() <= compile_network(network).tolerance
            assert number == expected.argmax()
            assert count_spikes(graph, network, sequence[None])[0] == 0
        else:
            with pytest.raises(InvalidInputError):
                network(sequence[None])
    return is_answered


def test_large_inputs_have_exact_spikes_or_no_answer(tmp_path):
    network = as_network([draw_layer(3, decay=0.0, threshold=0.0, width=20)])
    network = network.with_readout(torch.randn(40, 3, generator=torch.Generator().manual_seed(0)))
    unit, levels = 2.0**-16, compile_network(network).layers[0].taps.levels.max()
    largest = (2**53 - 1) // levels * unit
    sequences = draw_inputs(14)
    sequences[:, 3, 1] = [
        *(largest - unit, -largest + unit, largest + unit, -largest - 2 * unit, 1e30, np.nan, np.inf, 2.0**40 + 0.5),
        *(np.floor(largest), 2.0**30, np.floor(largest) * 2**15, np.floor(largest) * 2**17, 1e300, -np.inf),
    ]
    sequences[8:] = np.round(sequences[8:])  # sums of whole numbers have fewer bits
    expected = [True] * 2 + [False] * 6 + [True] * 3 + [False] * 3
    assert answers(export(tmp_path, network), network, sequences) == expected
    views = kinds_network("mean", 120, ("distance",))
    sequences = draw_inputs(8)
    sequences[:, 3, 1] = [2.0**8, 2.0**9, 2.0**30, -(2.0**30), np.nan, np.inf, 1.0, 1e200]
    assert {*answers(export(tmp_path, views), views, sequences)} == {True, False}


EDGE = onnx.helper.make_attribute("mode", "edge")
MUTATIONS = {
    "nothing": ("leaky", lambda node: None),
    "the leak": ("leaky", lambda node: node.op_type == "Scan" and change_body(node, "Mul", "Add")),
    "the reset": ("leaky", lambda node: node.op_type == "Scan" and change_body(node, "Sub", "Add")),
    "ties": ("ties", lambda node: node.op_type == "Scan" and change_body(node, "GreaterOrEqual", "Greater")),
    "silent ties": (
        "silent ties of membranes",
        lambda node: node.op_type == "Scan" and change_body(node, "Greater", "GreaterOrEqual"),
    ),
    "feedback": ("recurrent", lambda node: node.op_type == "Scan" and change_body(node, "Add", "Sub")),
    "levels": ("kinds", lambda node: node.op_type == "GreaterOrEqual" and rename(node, "Greater")),
    "winners": (
        "groups",
        lambda node: "ArgMax" in node.op_type and node.input[0] != "scores" and rename(node, "ArgMin"),
    ),
    "rounding": ("ties", lambda node: node.op_type == "Round" and rename(node, "Floor")),
    "delays": ("leaky", lambda node: node.op_type == "Pad" and node.attribute.append(EDGE)),
}
"""Networks, and changes of a node that is one of their equations."""


def rename(node, kind):
    node.op_type = kind


def change_body(node, kind, other):
    body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
    for inner in body.node:
        if inner.op_type == kind:
            rename(inner, other)
            return


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_any_broken_equation_changes_spikes(mutation, tmp_path):
    name, change = MUTATIONS[mutation]
    network, graph = NETWORKS[name](), export(tmp_path, NETWORKS[name]())
    before = graph.SerializeToString()
    for node in graph.graph.node:
        change(node)
    assert (graph.SerializeToString() != before) == (mutation != "nothing")
    sequences = np.concatenate((draw_inputs(), 2.0**-15 * draw_inputs(seed=1)))  # the latter are a few units
    n_wrong, _ = count_spikes(graph, network, sequences)
    assert (n_wrong > 0) == (mutation != "nothing")


def test_two_classes_windows_rows_and_targets_are_supported(tmp_path):
    sequences = make_sequences(n_steps=12)
    names = np.array(["no", 'a "yes"\n'])[classes_of(sequences)]
    model = classifier(loss="softmax", readout="windows-4").fit(sequences, names)
    graph = export(tmp_path, model, n_steps=12)
    scores, classes = execute(graph, sequences, "scores", "class")
    assert scores.shape == (48, 1)
    assert abs(scores[:, 0] - model.decision_function(sequences)).max() <= 1e-12
    assert np.array_equal(model.classes_[classes], model.predict(sequences))
    rows = sequences[:, 0]
    model = cs.SpikingRegressor(n_neurons=30, random_state=0).fit(rows, np.stack([rows.sum(1), rows[:, 0]], axis=1))
    graph = export(tmp_path, model)
    assert [output.name for output in graph.graph.output] == ["scores"]
    (scores,) = execute(graph, rows[:, None], "scores")
    assert abs(scores - model.predict(rows)).max() <= 1e-12


def refuse(complaint, model, path, **options):
    with pytest.raises(InvalidInputError, match=complaint) as refused:
        cs.export_onnx(model, path, **options)
    assert_one_sentence(refused.value)
    assert not path.exists()


def test_what_cannot_be_exported_is_refused_in_one_sentence(tmp_path):
    path = tmp_path / "model.onnx"
    refuse("expected a path that ends in .onnx", NETWORKS["leaky"](), tmp_path / "model.bin")
    refuse("which is not fitted", cs.SpikingClassifier(), path)
    refuse("expected the number of steps of all sequences", NETWORKS["windows"](), path)
    sequences = make_sequences()
    pipeline = make_pipeline(cs.SequenceScaler(), regressor()).fit(sequences, sequences.sum((1, 2)))
    refuse("a pipeline with SequenceScaler: export pipeline", pipeline, path)


def test_a_neuron_model_that_is_unknown_here_is_refused_by_name(tmp_path):
    @dataclass(frozen=True, eq=False)
    class EagerLayer(cs.LIFLayer):
        pass

    register_neuron(NeuronModel("eager", EagerLayer))
    try:
        network = as_network([EagerLayer(torch.ones(1, 3, 4))])
        refuse("expected LIF or threshold neurons, .* got EagerLayer: others", network, tmp_path / "x.onnx")
    finally:
        NEURON_MODELS.unregister("eager")


def test_an_absent_library_is_asked_for_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "cvxsnn\[onnx\]"'):
        cs.export_onnx(NETWORKS["leaky"](), tmp_path / "model.onnx")
