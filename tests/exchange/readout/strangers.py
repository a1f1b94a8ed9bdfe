"""Networks as strangers write them, data for them, and a way to see that nothing was left on a network."""

import copy
from contextlib import contextmanager

import torch
from torch import Tensor, nn

N_FEATURES, N_HIDDEN, N_CLASSES, N_SAMPLES, N_STEPS = 8, 24, 3, 60, 5


def draw_data(n_samples=N_SAMPLES, n_steps=N_STEPS, n_classes=N_CLASSES, seed=0):
    """Sequences (n_samples, n_steps, n_features) whose class shows in their features, and the classes."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.arange(n_samples) % n_classes
    means = torch.randn(n_classes, N_FEATURES, generator=generator)
    noise = torch.randn(n_samples, n_steps, N_FEATURES, generator=generator)
    return means[classes][:, None] + noise, classes


class Spike(nn.Module):
    """Fires above zero and forgets."""

    def forward(self, x):
        return (x > 0).to(x.dtype)


def draw_static(n_outputs=N_CLASSES, bias=True, seed=0, n_hidden=N_HIDDEN):
    """A network without time, to run with any batch (n_samples, n_features)."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(N_FEATURES, n_hidden), Spike(), nn.Linear(n_hidden, n_outputs, bias=bias))


class Looped(nn.Module):
    """Leaky neurons in plain torch that go through time by themselves, batch first."""

    def __init__(self, n_outputs=N_CLASSES, bias=True, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.hidden = nn.Linear(N_FEATURES, N_HIDDEN)
        self.out = nn.Linear(N_HIDDEN, n_outputs, bias=bias)

    def spikes(self, x):
        """Time first."""
        membrane, spikes = torch.zeros(len(x), N_HIDDEN, dtype=x.dtype), []
        for step in range(x.shape[1]):
            membrane = 0.9 * membrane + self.hidden(x[:, step])
            spikes.append((membrane > 1).to(x.dtype))
            membrane = membrane - spikes[-1]
        return torch.stack(spikes)

    def forward(self, x):
        return torch.stack([self.out(spikes) for spikes in self.spikes(x)]).mean(0)


class Remembering(nn.Module):
    """Keeps everything that a module can keep, and changes all of it when it runs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.out = nn.Linear(N_FEATURES, N_HIDDEN), nn.Linear(N_HIDDEN, N_CLASSES)
        self.norm, self.drop = nn.BatchNorm1d(N_HIDDEN), nn.Dropout(0.5)
        self.register_buffer("trace", torch.zeros(4))
        self.membrane, self.log, self.table, self.pair = None, [torch.zeros(2)], {"n": 0}, (torch.zeros(3), 0)
        self.seen, self.generator, self.n_runs = {1}, torch.Generator().manual_seed(3), 0

    def forward(self, x):
        self.trace += 1.0
        self.membrane = torch.ones(len(x))
        self.log[0].add_(1)
        self.log.append(1)
        self.table["n"] += 1
        self.table["new"] = self.trace
        self.pair[0].add_(1)
        self.seen.add(2)
        self.n_runs += 1
        self.surprise = torch.rand(1, generator=self.generator) + torch.rand(1)
        if "late" not in self._buffers:
            self.register_buffer("late", torch.ones(1), persistent=False)
        return self.out((self.drop(self.norm(self.hidden(x))) > 0).to(x.dtype))


def photograph(model):
    """All that a model is and holds, in a form to compare."""

    def look(value):
        if isinstance(value, Tensor):
            if value.is_meta:
                return "meta", tuple(value.shape)
            return id(value), value.dtype, value.requires_grad, value.grad_fn, value.detach().reshape(-1).tolist()
        if isinstance(value, torch.Generator):
            return value.get_state().tolist()
        if isinstance(value, dict):
            return id(value), [(key, look(own)) for key, own in value.items()]
        if isinstance(value, (list, tuple)):
            return id(value), [look(own) for own in value]
        return copy.copy(value) if isinstance(value, set) else id(value)

    def look_at(module):
        gradients = [None if own.grad is None else own.grad.tolist() for own in module.parameters(recurse=False)]
        return {"gradients": gradients, **{name: look(value) for name, value in vars(module).items()}}

    return {name: look_at(module) for name, module in model.named_modules()}


@contextmanager
def unharmed(model):
    """Nothing about the model, nor the state of the random numbers, differs afterwards."""
    before, random = photograph(model), torch.get_rng_state()
    try:
        yield
    finally:
        after = photograph(model)
        assert before.keys() == after.keys()
        for name in before:
            assert before[name] == after[name], f"module {name!r} has changed"
        assert torch.equal(random, torch.get_rng_state())


def weights_apart_from(model, layer):
    """Every parameter and buffer but those of one layer."""
    return {name: own.clone() for name, own in model.state_dict().items() if not name.startswith(f"{layer}.")}


def assert_same_tensors(one, other):
    assert one.keys() == other.keys()
    for name, own in one.items():
        assert torch.equal(own, other[name]), name


def static_data(n_classes=N_CLASSES, seed=0):
    """Data without time, and the classes."""
    inputs, classes = draw_data(n_steps=1, n_classes=n_classes, seed=seed)
    return inputs[:, 0], classes


def cross_entropy(model, inputs, classes):
    """The loss of a model's outputs."""
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(inputs).double(), classes))


def accuracy(model, inputs, classes):
    """The share of a model's largest outputs that are right."""
    with torch.no_grad():
        return float((model(inputs).argmax(1) == classes).double().mean())


class CountingNeurons(Looped):
    """Output neurons that fire above a threshold of their own."""

    def forward(self, x):
        return torch.stack([(self.out(spikes) > 0.3).float() for spikes in self.spikes(x)]).sum(0)
