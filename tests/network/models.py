"""Networks that are drawn or solved for, and their scores step by step."""

import numpy as np
import torch
from layers import draw_stack
from networks import Case

import cvxsnn as cs
from cvxsnn.network import OutputHead
from cvxsnn.network.spiking_network import SpikingNetwork


def solved(readout, loss="logistic", targets=None, **family):
    task = cs.tasks.first_last_xor(5, n_train=200, n_val=50, n_test=100)
    witnesses = cs.gaussian_witnesses(2, (24, 48), 2, decay=0.99, **family)
    dictionary = cs.build_dictionary(witnesses, task.train.inputs, readout)
    labels = task.train.targets if targets is None else targets(task.train.targets)
    if readout == "all":
        labels = np.repeat(labels[:, None], task.train.n_steps, axis=1)
    problem = cs.ConvexProblem(dictionary, labels, loss, intercept=True)
    return task, cs.solve(problem.with_strength(problem.critical_strength / 50))


def draw_network(neuron="lif", readout="last", n_outputs=2, seed=0, hidden=(7, 5), dtype=torch.float32):
    layers = Case(neuron=neuron, hidden=hidden, seed=seed).witnesses().to(dtype=dtype).layers
    generator = torch.Generator().manual_seed(seed)
    # Every second neuron is read, the last first.
    neurons = torch.arange(2 * hidden[-1] - 1, -1, -2)
    weight = torch.randn(len(neurons), n_outputs, generator=generator)
    intercept = torch.randn(n_outputs, generator=generator)
    return SpikingNetwork(layers, weight, [OutputHead("label", "softmax", 0, n_outputs)], intercept, neurons, readout)


def delayed_network(readout, seed=0):
    """A network with delays whose scores are whole numbers, up to an exact mean over 8 steps."""
    weight = torch.randint(-9, 10, (12, 2), generator=torch.Generator().manual_seed(seed)).double()
    return SpikingNetwork(draw_stack(seed), weight, [OutputHead("label", "softmax", 0, 2)], readout=readout)


def step_through(network, inputs):
    """Scores after every step, shape (n_samples, n_steps, n_outputs)."""
    state, scores = network.start(len(inputs)), []
    for t in range(inputs.shape[1]):
        state, own = network.step(state, inputs[:, t])
        scores.append(own)
    return torch.stack(scores, dim=1)
