"""Small networks, data and jobs, and how they are trained."""

from dataclasses import replace

import torch

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import SurrogateSettings, train_surrogate
from cvxsnn.fitting.surrogate.settings import initial_network

XOR = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=8)
DATA = TrainingSet.of(XOR.train)
LOGISTIC = Objective("logistic")
QUICK = SurrogateSettings(epochs=6, batch_size=16, seed=3)


def draw_network(data=DATA, objective=LOGISTIC, hidden=(12,), neuron="lif", dtype=torch.float32, seed=0, **family):
    witnesses = cs.gaussian_witnesses(data.inputs.shape[2], hidden, 2, neuron=neuron, seed=seed, dtype=dtype, **family)
    return initial_network(witnesses.layers, objective, data, seed)


def delayed(network, n_taps=5, max_delay=2, seed=0):
    """A network of the same widths whose neurons have taps with delays."""
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for layer in network.layers:
        shape = (layer.n_subnetworks, n_taps, layer.width)
        taps = {
            "weight": torch.randn(shape, generator=generator, dtype=layer.weight.dtype),
            "source": torch.randint(layer.n_inputs, shape, generator=generator),
            "delay": torch.randint(max_delay + 1, shape, generator=generator),
        }
        layers.append(replace(layer, **taps, n_sources=layer.n_inputs))
    return cs.SpikingNetwork(layers, network.weight, network.heads, network.intercept, network.neurons, network.readout)


def accuracy(network):
    return float((network.predict(XOR.val.inputs)["label"] == XOR.val.targets).mean())


def train(settings=QUICK, network=None, data=DATA, objective=LOGISTIC, score=accuracy, **options):
    start = draw_network(data, objective) if network is None else network
    return train_surrogate(start, data, objective, settings, score=score, **options)


def tensors_of(network):
    return network.state_dict()


def are_same(one, other):
    one, other = tensors_of(one), tensors_of(other)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
