import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import draw_stack
from network.models import delayed_network, draw_network, solved, step_through
from networks import CASES, NEURONS, READOUTS, Case, draw_inputs

import cvxsnn as cs
from cvxsnn.exchange import quantise
from cvxsnn.network import OutputHead
from cvxsnn.network.spiking_network import SpikingNetwork


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_stepping_to_the_end_predicts_what_the_whole_sequence_does(readout):
    task, solution = solved(readout)
    model = cs.reconstruct(solution)
    assert torch.equal(step_through(model, task.test.inputs)[:, -1], model(task.test.inputs))


def test_stepping_a_trajectory_readout_predicts_every_step():
    task, solution = solved("all")
    model = cs.reconstruct(solution)
    stepped = model.decide(step_through(model, task.test.inputs))["label"]
    assert np.array_equal(stepped, model.predict(task.test.inputs)["label"])


@given(case=CASES)
@settings(max_examples=30)
def test_every_step_decides_as_the_sequence_up_to_there(case):
    network = cs.reconstruct(replace(case, loss="softmax").solve())
    inputs = draw_inputs(9, 6, case.seed + 2)
    state, n_steps = network.start(len(inputs)), inputs.shape[1]
    for t in range(n_steps):
        state, scores = network.step(state, inputs[:, t])
        decisions = network.decide(scores)
        expected = network.predict(inputs[:, : t + 1])["label"]
        assert np.array_equal(decisions["label"], expected[:, -1] if case.readout == "all" else expected)
    assert state.n_steps == n_steps


@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("readout", READOUTS)
def test_a_state_can_be_advanced_twice(readout, neuron):
    network, inputs = draw_network(neuron, readout), draw_inputs(9, 4, 2)
    state = network.start(9)
    for t in range(3):
        state, _ = network.step(state, inputs[:, t])
    _, once = network.step(state, inputs[:, 3])
    network.step(state, -inputs[:, 3])
    _, again = network.step(state, inputs[:, 3])
    assert torch.equal(once, again)
    assert state.n_steps == 3


@given(seed=st.integers(0, 10**6), readout=st.sampled_from(READOUTS))
@settings(max_examples=20)
def test_stepping_with_delays_gives_the_scores_of_the_sequence_up_to_there_bit_for_bit(seed, readout):
    network, inputs = delayed_network(readout, seed), draw_inputs(9, 8, seed)
    assert network.layers[2].max_delay > 0
    scores = step_through(network, inputs)
    for t in (0, 1, 3, 7):
        expected = network(inputs[:, : t + 1]).detach()
        assert torch.equal(scores[:, t], expected[:, -1] if readout == "all" else expected)


def test_a_state_with_delays_can_be_advanced_twice():
    network, inputs = delayed_network("last"), draw_inputs(9, 4, 2)
    state = network.start(9)
    for t in range(3):
        state, _ = network.step(state, inputs[:, t])
    _, once = network.step(state, inputs[:, 3])
    network.step(state, -inputs[:, 3])
    assert torch.equal(network.step(state, inputs[:, 3])[1], once)


def snapshot(state):
    """Copies of all tensors of a state."""
    parts = [part for layer in state.layers for part in layer]
    tensors = [value for part in parts for value in (part if isinstance(part, tuple) else (part,)) if value is not None]
    return [value.clone() for value in (*tensors, state.counts)]


@given(
    seed=st.integers(0, 10**6),
    readout=st.sampled_from([*READOUTS, "windows-3"]),
    kind=st.sampled_from([*NEURONS, "delays"]),
)
@settings(max_examples=12)
def test_a_step_leaves_the_state_it_was_given_as_it_is(seed, readout, kind):
    heads = [OutputHead("first", "logistic", 0, 1), OutputHead("second", "softmax", 1, 3)]
    if kind == "delays":
        layers, width = draw_stack(seed), 12
    else:
        layers, width = Case(neuron=kind, hidden=(7, 5), seed=seed).witnesses().layers, 10
    n_read = width * (3 if readout == "windows-3" else 1)
    weight = torch.randn(n_read, 3, generator=torch.Generator().manual_seed(seed))
    plain = SpikingNetwork(layers, weight, heads, readout=readout)
    inputs = draw_inputs(5, 6, seed)
    for network in (plain, quantise(plain, 4), plain.double()):
        states, scores = [network.start(5, 6)], []
        for t in range(6):
            before = snapshot(states[-1])
            state, own = network.step(states[-1], inputs[:, t])
            assert all(map(torch.equal, before, snapshot(states[-1])))
            assert states[-1].n_steps == t
            states.append(state)
            scores.append(own)
        for t in (4, 0, 2):  # resumed from any state, in any order
            state, own = network.step(pickle.loads(pickle.dumps(states[t])), inputs[:, t])
            assert torch.equal(own, scores[t])
            assert all(map(torch.equal, snapshot(state), snapshot(states[t + 1])))
