"""The spiking network, and a solution used as one."""

import copy
import io
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from network.models import delayed_network, draw_network, solved, step_through
from networks import NEURONS, READOUTS, Case, draw_inputs
from neurons import stacks
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.data.sequences import Sequences
from cvxsnn.network import OutputHead
from cvxsnn.network.spiking_network import SpikingNetwork
from cvxsnn.neurons.reading import read_columns

SEQUENCE_READOUTS = ("last", "mean")
DRAWN = tuple(partial(draw_network, neuron, "mean") for neuron in NEURONS)


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", READOUTS)
def test_scores_on_the_training_sequences_are_those_of_the_dictionary(readout, neuron):
    task, solution = solved(readout, neuron=neuron)
    scores = cs.reconstruct(solution)(task.train.inputs).detach()
    torch.testing.assert_close(scores.reshape(-1, 1), solution.scores(), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", READOUTS)
def test_scores_are_the_spikes_of_the_neurons_read_times_the_weights(readout, neuron):
    network, inputs = draw_network(neuron, readout), draw_inputs(11, 6, 3)
    spikes = cs.roll_out(network.layers, inputs, "all").double()[..., network.neurons]
    expected = {"last": spikes[:, -1], "mean": spikes.mean(1), "all": spikes}[readout]
    scores = expected @ network.weight + network.intercept
    torch.testing.assert_close(network(inputs), scores, rtol=ROUNDING, atol=ROUNDING)
    assert np.array_equal(network.predict(inputs)["label"], scores.argmax(-1).numpy())


def test_delays_are_copied_converted_and_loaded_with_the_network():
    source, target, inputs = delayed_network("all", 0), delayed_network("all", 1), draw_inputs(30, 8, 5)
    assert not torch.equal(source(inputs), target(inputs))
    target.load_state_dict(source.state_dict())
    assert torch.equal(source(inputs), target(inputs))
    double = copy.deepcopy(source).double()
    assert [layer.weight.dtype for layer in double.layers] == [torch.float64] * 3
    assert {value.dtype for layer in double.layers[1:] for value in (layer.source, layer.delay)} == {torch.int32}
    wrong = source.state_dict()
    wrong["stack.1.source"] = wrong["stack.1.source"] + 4
    with pytest.raises(cs.InvalidInputError, match="expected source from 0 to 3"):
        target.load_state_dict(wrong)


@given(
    st.integers(0, 2**16),
    st.sampled_from(NEURONS),
    st.sampled_from(SEQUENCE_READOUTS),
    st.lists(st.integers(1, 6), min_size=2, max_size=9),
)
@settings(max_examples=40)
def test_padded_sequences_score_as_each_alone_whatever_the_padding(seed, neuron, readout, lengths):
    network = draw_network(neuron, readout, seed=seed)
    inputs = draw_inputs(len(lengths), 6, seed)
    together = network(Sequences(inputs, np.array(lengths)))
    for row, length in enumerate(lengths):
        alone = inputs[row : row + 1, :length]
        assert torch.equal(network.features(Sequences(inputs, np.array(lengths)))[row], network.features(alone)[0])
        torch.testing.assert_close(together[row], network(alone)[0], rtol=ROUNDING, atol=ROUNDING)
    outside = torch.arange(6) >= torch.tensor(lengths)[:, None]
    changed = torch.where(outside[:, :, None], 7.5, inputs)
    assert torch.equal(network(Sequences(changed, torch.tensor(lengths))), together)


@pytest.mark.parametrize("n_steps", [255, 256, 300])
@pytest.mark.parametrize("is_padded", [False, True])
def test_means_count_more_spikes_than_a_byte_holds(n_steps, is_padded):
    # Some witnesses fire at every step, the others now and then.
    family = {"decay": 0.9, "threshold": cs.witnesses.Uniform(-1.0, 1.0)}
    witnesses = cs.gaussian_witnesses(2, (6,), seed=0, bias=cs.witnesses.Uniform(0.0, 3.0), **family)
    inputs = np.random.default_rng(0).normal(size=(5, n_steps, 2))
    lengths = np.array([n_steps, 1, 100, n_steps - 1, 254]) if is_padded else None
    spikes = cs.roll_out(witnesses.layers, Sequences(inputs, lengths), "all").sum(1).numpy()
    expected = spikes / (n_steps if lengths is None else lengths[:, None])
    assert spikes.max() == n_steps
    head = OutputHead("label", "logistic", 0, 1)
    network = SpikingNetwork(witnesses.layers, torch.ones(6, 1), (head,), readout="mean")
    dictionary = cs.build_dictionary(witnesses, Sequences(inputs, lengths), "mean")
    np.testing.assert_allclose(network.features(Sequences(inputs, lengths)).numpy(), expected, rtol=ROUNDING)
    columns = dictionary.matvec(torch.eye(dictionary.n_atoms, dtype=torch.float64))[:, dictionary.atom_of_column]
    np.testing.assert_allclose(columns.numpy(), expected, rtol=ROUNDING)


def test_decisions_respect_lengths():
    network, inputs = draw_network(), draw_inputs(6, 5, 1)
    lengths = torch.tensor([1, 2, 3, 4, 5, 2])
    expected = [network.predict(inputs[i : i + 1, :n])["label"][0] for i, n in enumerate(lengths)]
    assert network.predict(Sequences(inputs, lengths))["label"].tolist() == expected


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", READOUTS)
def test_a_state_dict_carries_the_whole_network(readout, neuron):
    source, target = draw_network(neuron, readout, seed=0), draw_network(neuron, readout, seed=1)
    inputs = draw_inputs(30, 6, 5)
    assert not torch.equal(source(inputs), target(inputs))
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    target.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(source(inputs), target(inputs))


def test_the_hidden_tensors_are_buffers_that_the_layers_share():
    network = draw_network()
    buffers = dict(network.named_buffers())
    expected = {f"stack.{i}.{name}" for i, layer in enumerate(network.layers) for name in layer.tensors()}
    assert buffers.keys() == {"neurons", *expected}
    for i, layer in enumerate(network.layers):
        for name, value in layer.tensors().items():
            assert value is buffers[f"stack.{i}.{name}"]
    assert network.state_dict().keys() == {"weight", "intercept", *buffers}


def test_a_deep_copy_has_the_same_scores_and_memory_of_its_own():
    network, inputs = draw_network(), draw_inputs(30, 6, 5)
    twin = copy.deepcopy(network)
    assert torch.equal(twin(inputs), network(inputs))
    before = network(inputs)
    twin.layers[0].weight.zero_()
    assert torch.equal(network(inputs), before)


def lateral_network(seed=0):
    layer = stacks.draw_lateral(seed=seed)
    columns = read_columns([layer], ("burst", "root", "ever"))
    weight = torch.randint(-9, 10, (len(columns), 2), generator=torch.Generator().manual_seed(seed)).double()
    return SpikingNetwork([layer], weight, [OutputHead("label", "softmax", 0, 2)], readout="burst+root+ever")


def negate_through_numpy(network):
    weight = network.stack[0].weight.numpy()
    weight *= -1


CHANGES = {
    "in place": lambda network: network.stack[0].weight.mul_(-2),
    "through .data": lambda network: network.stack[-1].weight.data.neg_(),
    "through NumPy": negate_through_numpy,
    "another tensor": lambda network: setattr(network.stack[0], "weight", -network.stack[0].weight),
    "the bias": lambda network: network.stack[-1].bias.copy_(1 - network.stack[-1].bias),
    "another state": lambda network: network.load_state_dict(_make_like(network, seed=1).state_dict()),
    "the type": lambda network: network.double(),
}


def _make_like(network, seed):
    """A network of the same sizes whose weights are in another order."""
    layers = [layer.with_tensors({"weight": layer.weight.roll(seed + 1, 2)}) for layer in network.layers]
    return network.with_layers(layers)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [lateral_network, partial(delayed_network, "mean"), *DRAWN])
def test_changed_neurons_answer_in_a_batch_alone_and_step_by_step(make, change):
    network = make()
    inputs = stacks.draw_inputs(40, 9, network.n_features)
    before, state = network(inputs), network.start(40)
    network.step(state, inputs[:, 0])
    CHANGES[change](network)
    fresh = network.with_layers([layer.with_valid(torch.clone) for layer in network.layers])
    expected = fresh(inputs)
    assert torch.equal(expected, before) == (change == "the type")
    file = io.BytesIO()
    torch.save(network, file)
    file.seek(0)
    for twin in (network, copy.deepcopy(network), torch.load(file, weights_only=False)):
        assert torch.equal(twin(inputs), expected)
        assert torch.equal(twin.features(inputs[3:4]), fresh.features(inputs)[3:4])
        assert torch.equal(step_through(twin, inputs), step_through(fresh, inputs))
    if change in ("in place", "through .data", "through NumPy", "the bias"):  # the state reads the same tensors
        assert torch.equal(network.step(state, inputs[:, 0])[1], fresh.step(fresh.start(40), inputs[:, 0])[1])


def test_a_file_of_a_network_does_not_grow_when_it_is_used():
    network, sizes = lateral_network(), []
    for _ in range(2):
        file = io.BytesIO()
        torch.save(network, file)
        sizes.append(len(file.getvalue()))
        network(stacks.draw_inputs(40, 9, network.n_features))
    assert sizes[1] < 1.1 * sizes[0]


def test_a_network_of_some_subnetworks_keeps_nothing_of_the_others():
    layers = Case(hidden=(7, 5)).witnesses().layers
    network = SpikingNetwork([layer.take(slice(1)) for layer in layers], WEIGHT[:5], HEADS)
    for buffer in network.buffers():
        assert buffer.untyped_storage().nbytes() <= buffer.nbytes


def test_loading_a_state_changes_no_layer_that_the_network_was_made_of():
    layers = Case(hidden=(7, 5)).witnesses().layers
    before = [{name: value.clone() for name, value in layer.tensors().items()} for layer in layers]
    network = SpikingNetwork(layers, WEIGHT, HEADS)
    network.load_state_dict(SpikingNetwork(Case(hidden=(7, 5), seed=9).witnesses().layers, WEIGHT, HEADS).state_dict())
    assert not torch.equal(network.layers[0].weight, layers[0].weight)
    for layer, own in zip(layers, before, strict=True):
        for name, value in own.items():
            assert torch.equal(layer.tensors()[name], value)


def test_the_read_out_has_memory_of_its_own():
    weight, intercept = torch.ones(2, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    layers = Case(hidden=(2,), n_subnetworks=1).witnesses().layers
    network = SpikingNetwork(layers, weight, [OutputHead("label", "logistic", 0, 1)], intercept)
    with torch.no_grad():
        network.weight.add_(1)
        network.intercept.add_(1)
    assert bool((weight == 1).all())
    assert bool((intercept == 1).all())


def test_a_state_that_makes_no_layer_is_refused():
    network = draw_network()
    state = network.state_dict()
    with pytest.raises(cs.InvalidInputError, match="decay between 0 and 1"):
        network.load_state_dict({**state, "stack.0.decay": torch.full_like(state["stack.0.decay"], 2.0)})
    with pytest.raises(RuntimeError, match=r"size mismatch for stack.1.weight"):
        network.load_state_dict({**state, "stack.1.weight": torch.ones(2, 7, 4)})
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"stack.0.bias\""):
        draw_network().load_state_dict({name: value for name, value in state.items() if name != "stack.0.bias"})


def test_double_makes_the_membranes_double_and_float_undoes_it():
    network, inputs = draw_network(), draw_inputs(30, 6, 5)
    before = network(inputs)
    layers = [layer.to(dtype=torch.float64) for layer in network.layers]
    assert network.double() is network
    assert all(layer.weight.dtype == torch.float64 for layer in network.layers)
    assert torch.equal(network.features(inputs), cs.roll_out(layers, inputs, "all").double()[:, -1][:, network.neurons])
    network.to("cpu", torch.float32)
    assert all(layer.weight.dtype == torch.float32 for layer in network.layers)
    assert torch.equal(network(inputs), before)


@pytest.mark.parametrize("convert", ["float", "double"])
def test_scores_stay_in_double_precision(convert):
    network = getattr(draw_network(), convert)()
    assert network.weight.dtype == network.intercept.dtype == torch.float64
    assert network.neurons.dtype == torch.int64
    assert network(draw_inputs(2, 3, 0)).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_membranes_of_half_precision_are_refused_and_change_nothing(dtype):
    network, inputs = draw_network(), draw_inputs(5, 6, 5)
    before = network(inputs)
    with pytest.raises(cs.InvalidInputError, match="membranes in float32 or float64"):
        network.to(dtype)
    assert torch.equal(network(inputs), before)


def test_the_readout_has_a_gradient():
    network, inputs = draw_network(), draw_inputs(5, 6, 5)
    network(inputs).sum().backward()
    torch.testing.assert_close(
        network.weight.grad, network.features(inputs).sum(0)[:, None].expand(-1, 2), rtol=ROUNDING, atol=ROUNDING
    )


def test_another_readout_leaves_the_neurons():
    network, inputs = draw_network(readout="mean"), draw_inputs(5, 6, 5)
    other = network.with_readout(torch.ones_like(network.weight))
    expected = network.features(inputs).sum(1, keepdim=True).expand(-1, 2)
    torch.testing.assert_close(other(inputs), expected, rtol=ROUNDING, atol=ROUNDING)
    assert not other.intercept.any()


def test_one_line_tells_the_sizes():
    assert repr(draw_network()) == "SpikingNetwork(2 × (3 → 7 → 5), 5 neurons read → 2, last)"
    assert (draw_network().n_features, draw_network().n_outputs, draw_network().n_subnetworks) == (3, 2, 2)


LAYERS = Case(hidden=(7, 5)).witnesses().layers
WEIGHT, HEADS = torch.ones(10, 2), [OutputHead("label", "softmax", 0, 2)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SpikingNetwork([], WEIGHT, HEADS), "at least one hidden layer, got none"),
        (lambda: SpikingNetwork(LAYERS[::-1], torch.ones(14, 2), HEADS), "layer 2 to read 5 values, got weights for 3"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT[:3], HEADS), r"each of 10 neurons that are read, got shape \(3, 2\)"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT[:, 0], HEADS), r"one row of output weights .* got shape \(10,\)"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT, HEADS, torch.ones(3)), r"intercept .* 2 outputs, got shape \(3,\)"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT, HEADS, torch.ones(1)), r"intercept .* 2 outputs, got shape \(1,\)"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT, []), r"heads that cover 2 outputs in order, got \[\]"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT, [OutputHead("a", "softmax", 0, 1)]), "cover 2 outputs"),
        (lambda: SpikingNetwork(LAYERS, WEIGHT, [OutputHead("a", "softmax", 1, 2)]), "cover 2 outputs"),
        (
            lambda: SpikingNetwork(LAYERS, WEIGHT, [OutputHead("a", "hinge", 0, 2), OutputHead("b", "hinge", 1, 2)]),
            "cover 2 outputs",
        ),
        (
            lambda: SpikingNetwork(LAYERS, WEIGHT, HEADS, None, torch.arange(1, 11)),
            "from 0 to 9, got values from 1 to 10",
        ),
        (
            lambda: SpikingNetwork(LAYERS, WEIGHT, HEADS, None, torch.arange(-1, 9)),
            "from 0 to 9, got values from -1 to 8",
        ),
        (lambda: SpikingNetwork(LAYERS, WEIGHT, HEADS, readout="median"), "readout to be one of"),
        (lambda: draw_network()(Sequences(INPUTS, [0, 1, 2, 3])), "lengths from 1 to 3, got values from 0 to 3"),
        (lambda: draw_network()(Sequences(INPUTS, [1, 2, 3, 4])), "lengths from 1 to 3, got values from 1 to 4"),
        (lambda: draw_network()(Sequences(INPUTS, [1, 2])), "lengths to be 4 integers"),
        (lambda: draw_network(readout="mean")(Sequences(INPUTS, [1.0] * 4)), "lengths to be 4 integers"),
        (lambda: draw_network()(INPUTS[:, :, :2]), "layer 1 to read 2 values, got weights for 3"),
        (lambda: draw_network().step(draw_network().start(4), INPUTS[:2, 0]), r"shape \(4, 3\), got shape \(2, 3\)"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(cs.InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


INPUTS = draw_inputs(4, 3, 0)
