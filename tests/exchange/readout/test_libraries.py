"""Networks as the stock tutorials of snnTorch, SpikingJelly and Norse have them."""

import logging

import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    N_STEPS,
    assert_same_tensors,
    draw_data,
    photograph,
    unharmed,
    weights_apart_from,
)
from tolerances import ROUNDING
from torch import nn

from cvxsnn import InvalidInputError, reconstruct_readout
from cvxsnn.core.libraries import import_library

logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # SpikingJelly asks for a GPU's compiler

for library in ("snntorch", "spikingjelly", "norse"):
    pytest.importorskip(library, reason=f"{library} is not installed: pip install 'cvxsnn[interop]'")

snn = import_library("snntorch", "snntorch")
neuron = import_library("spikingjelly.activation_based.neuron", "spikingjelly")
layer = import_library("spikingjelly.activation_based.layer", "spikingjelly")
functional = import_library("spikingjelly.activation_based.functional", "spikingjelly")
encoding = import_library("spikingjelly.activation_based.encoding", "spikingjelly")
norse = import_library("norse.torch", "norse")

# Norse calls torch.jit on CPUs, which torch advises against.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.*:DeprecationWarning")


class SnnTorchTutorial(nn.Module):
    """Linear, Leaky, Linear, Leaky; time first, membranes by hand, spikes and membranes out."""

    def __init__(self, output=None):
        super().__init__()
        torch.manual_seed(0)
        self.fc1, self.lif1 = nn.Linear(N_FEATURES, N_HIDDEN), snn.Leaky(beta=0.9)
        self.fc2, self.lif2 = nn.Linear(N_HIDDEN, N_CLASSES), output or snn.Leaky(beta=0.9)

    def forward(self, x):
        mem1, spk2, state2 = self.lif1.init_leaky(), None, None
        spikes, membranes = [], []
        for step in range(len(x)):
            spk1, mem1 = self.lif1(self.fc1(x[step]), mem1)
            current = self.fc2(spk1)
            spk2, state2 = self.lif2(current) if state2 is None else self.lif2(current, *self.carry(spk2, state2))
            spikes.append(spk2)
            membranes.append(state2)
        return torch.stack(spikes), torch.stack(membranes)

    def carry(self, spikes, membrane):
        return (spikes, membrane) if isinstance(self.lif2, snn.RLeaky) else (membrane,)


def snntorch_hidden():
    """A Sequential whose neurons keep their membranes, to step."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(N_FEATURES, N_HIDDEN),
        snn.Leaky(beta=0.9, init_hidden=True),
        nn.Linear(N_HIDDEN, N_CLASSES),
        snn.Leaky(beta=0.9, init_hidden=True, output=True),
    )


def spikingjelly_net(step_mode):
    torch.manual_seed(0)
    net = nn.Sequential(
        layer.Linear(N_FEATURES, N_HIDDEN),
        neuron.LIFNode(tau=2.0, v_threshold=0.5),
        layer.Linear(N_HIDDEN, N_CLASSES),
        neuron.LIFNode(tau=2.0, v_threshold=0.5),
    )
    functional.set_step_mode(net, step_mode)
    return net


def spikingjelly_container():
    """Layers without time, in a container that flattens steps and samples."""
    torch.manual_seed(0)
    return nn.Sequential(
        layer.SeqToANNContainer(nn.Linear(N_FEATURES, N_HIDDEN)),
        neuron.IFNode(v_threshold=0.5, step_mode="m"),
        layer.SeqToANNContainer(nn.Flatten(), nn.Linear(N_HIDDEN, N_CLASSES)),
    )


def norse_net(last=None):
    torch.manual_seed(0)
    last = last or nn.Linear(N_HIDDEN, N_CLASSES)
    return norse.SequentialState(nn.Linear(N_FEATURES, N_HIDDEN), norse.LIFCell(), last)


def run_norse(model, batch):
    """The state goes from step to step by hand."""
    outputs, state = [], None
    for step in range(batch.shape[1]):
        output, state = model(20 * batch[:, step], state)
        outputs.append(output)
    return torch.stack(outputs)


NETWORKS = {
    "snntorch tutorial": (SnnTorchTutorial, {"layout": "time-first"}, "fc2"),
    "snntorch hidden": (snntorch_hidden, {"layout": "stepped"}, "2"),
    "spikingjelly step by step": (lambda: spikingjelly_net("s"), {"layout": "stepped"}, "2"),
    "spikingjelly at once": (lambda: spikingjelly_net("m"), {"layout": "time-first"}, "2"),
    "spikingjelly container": (spikingjelly_container, {"layout": "time-first"}, "2.1"),
    "norse step by step": (norse_net, {"run": run_norse}, "2"),
    "norse integrator": (lambda: norse_net(norse.LILinearCell(N_HIDDEN, N_CLASSES)), {"run": run_norse}, "2"),
    "norse at once": (
        lambda: norse.SequentialState(
            nn.Linear(N_FEATURES, N_HIDDEN), norse.LIF(), nn.Linear(N_HIDDEN, N_CLASSES), norse.LI()
        ),
        {"layout": "time-first"},
        "2",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_tutorials_network_gets_its_optimal_readout(name):
    make, options, expected = NETWORKS[name]
    (inputs, classes), model = draw_data(), make()
    inputs = 2 * inputs
    model.train()
    others = weights_apart_from(model, expected)
    result = reconstruct_readout(model, inputs, classes, batch_size=25, l1_strength=1e-3, **options)
    assert result.layer == expected
    assert result.after.loss < result.before.loss
    assert result.after.accuracy > result.before.accuracy
    assert result.after.model_accuracy is not None
    assert result.certificate.relative_gap <= 1e-6
    assert not any("real numbers" in note for note in result.notes)
    assert all(module.training for module in model.modules())
    assert_same_tensors(weights_apart_from(model, expected), others)
    again = reconstruct_readout(model, inputs, classes, batch_size=60, l1_strength=1e3, **options)
    if (result.scale, result.shift) == (1.0, 0.0):
        assert again.before.loss == pytest.approx(result.after.loss, rel=ROUNDING)
    assert again.before.model_accuracy == result.after.model_accuracy


@pytest.mark.parametrize("name", ["spikingjelly step by step", "spikingjelly at once", "spikingjelly container"])
def test_the_ways_through_time_of_spikingjelly_agree(name):
    (inputs, classes), (make, options, _) = draw_data(), NETWORKS[name]
    model = make()
    result = reconstruct_readout(model, 2 * inputs, classes, l1_strength=0.01, batch_size=11, **options)
    functional.reset_net(model)
    hidden = spikingjelly_net("m")[:2] if name != "spikingjelly container" else model[:2]
    with torch.no_grad():
        spikes = hidden(2 * inputs.transpose(0, 1)).double()
    columns = result.solution.problem.dictionary.columns()
    torch.testing.assert_close(columns, spikes.mean(0), rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("name", ["snntorch hidden", "spikingjelly step by step", "spikingjelly at once"])
def test_membranes_of_a_training_step_come_back_with_their_graph(name):
    make, options, expected = NETWORKS[name]
    (inputs, classes), model = draw_data(), make()
    steps = inputs[:9].transpose(0, 1)
    output = model(steps) if name.endswith("at once") else [model(step) for step in steps][-1]
    before = photograph(model)
    membranes = [own.mem if hasattr(own, "mem") else own.v for own in (model[1], model[3])]
    assert all(membrane.requires_grad for membrane in membranes)
    result = reconstruct_readout(model, inputs, classes, **options)
    assert result.has_changed
    after = photograph(model)
    for seen in (before, after):
        del seen[expected]["_parameters"]
    assert after == before
    membranes[0].sum().backward()
    assert model[0].weight.grad is not None
    assert output is not None
    with unharmed(model), pytest.raises(InvalidInputError, match="classes from 0 to 2"):
        reconstruct_readout(model, inputs, classes + 7, **options)


def test_recurrent_hidden_neurons_are_no_readout():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.fc1, self.out = nn.Linear(N_FEATURES, N_HIDDEN), nn.Linear(N_HIDDEN, N_CLASSES)
            self.lif = snn.RLeaky(beta=0.9, linear_features=N_HIDDEN)

        def forward(self, x):
            spikes, membrane = self.lif.init_rleaky()
            outputs = []
            for step in range(x.shape[1]):
                spikes, membrane = self.lif(self.fc1(x[:, step]), spikes, membrane)
                outputs.append(self.out(spikes))
            return torch.stack(outputs, 1)

    (inputs, classes), model = draw_data(), Recurrent()
    others = weights_apart_from(model, "out")
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert result.layer == "out"
    assert result.after.loss < result.before.loss
    assert result.after.model_accuracy == result.after.accuracy
    assert_same_tensors(weights_apart_from(model, "out"), others)


def test_a_linear_layer_inside_output_neurons_is_said_and_another_may_be_named():
    (inputs, classes), model = draw_data(), SnnTorchTutorial(snn.RLeaky(beta=0.9, linear_features=N_CLASSES))
    with unharmed(model), pytest.raises(InvalidInputError, match=r"inputs of layer 'lif2.recurrent' not to depend"):
        reconstruct_readout(model, inputs, classes, layout="time-first", l1_strength=1e-3)
    result = reconstruct_readout(model, inputs, classes, layout="time-first", layer="fc2", l1_strength=1e-3)
    assert result.after.loss < result.before.loss


def test_recurrent_cells_of_norse_are_no_linear_layer():
    inputs, classes = draw_data()
    torch.manual_seed(0)
    model = norse.SequentialState(nn.Linear(N_FEATURES, N_HIDDEN), norse.LIFRecurrentCell(N_HIDDEN, N_CLASSES))
    with unharmed(model), pytest.raises(InvalidInputError, match="run last, got LIFRecurrentCell '1' after it"):
        reconstruct_readout(model, inputs, classes, run=run_norse, l1_strength=1e-3)


def test_states_that_are_given_back_and_not_kept_have_a_note():
    inputs, classes = draw_data()
    forgetting = reconstruct_readout(norse_net(), 50 * inputs, classes, layout="stepped", l1_strength=1e-3)
    assert any("no step depends on those before it" in note for note in forgetting.notes)
    for remembering in (
        reconstruct_readout(snntorch_hidden(), inputs, classes, layout="stepped", l1_strength=1e-3),
        reconstruct_readout(norse_net(), inputs, classes, run=run_norse, l1_strength=1e-3),
    ):
        assert not any("no step depends" in note for note in remembering.notes)


def test_a_convolutional_network_is_solved_for():
    torch.manual_seed(0)
    model = nn.Sequential(
        layer.Conv2d(1, 4, 3, padding=1, step_mode="m"),
        layer.BatchNorm2d(4, step_mode="m"),
        neuron.IFNode(step_mode="m", v_threshold=0.5),
        layer.MaxPool2d(2, 2, step_mode="m"),
        layer.Flatten(step_mode="m"),
        layer.Linear(64, N_CLASSES, bias=False, step_mode="m"),
    ).to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(40) % N_CLASSES
    images = torch.rand(40, 4, 1, 8, 8, generator=generator) + classes[:, None, None, None, None] * torch.eye(8)
    others = weights_apart_from(model, "5")
    result = reconstruct_readout(model, images, classes, layout="time-first", batch_size=16, l1_strength=1e-3)
    assert result.layer == "5"
    assert result.after.accuracy == result.after.model_accuracy > result.before.accuracy
    assert_same_tensors(weights_apart_from(model, "5"), others)


def test_a_poisson_encoder_and_a_voting_layer_of_spikingjelly():
    class Encoded(nn.Module):
        def __init__(self, vote):
            super().__init__()
            torch.manual_seed(0)
            self.encoder, self.net = encoding.PoissonEncoder(), spikingjelly_net("s")
            self.vote = nn.Identity() if vote == 1 else layer.VotingLayer(vote)
            self.net[2] = layer.Linear(N_HIDDEN, N_CLASSES * vote)

        def forward(self, x):
            return sum(self.vote(self.net(self.encoder(x))) for _ in range(N_STEPS)) / N_STEPS

    inputs, classes = draw_data()
    inputs = inputs[:, 0].sigmoid()
    results = [reconstruct_readout(Encoded(1), inputs, classes, l1_strength=1e-3) for _ in range(2)]
    assert torch.equal(results[0].model.net[2].weight, results[1].model.net[2].weight)
    assert results[0].after == results[1].after
    assert results[0].after.loss < results[0].before.loss
    model = Encoded(10)
    with unharmed(model), pytest.raises(InvalidInputError, match=r"'net.2', which has 30, got shape"):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
