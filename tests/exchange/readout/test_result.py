import pytest
import torch
from exchange.readout.strangers import N_CLASSES, N_FEATURES, N_HIDDEN, Looped, draw_data, draw_static
from small_models import assert_one_sentence
from tolerances import ROUNDING
from torch import nn

import cvxsnn as cs
from cvxsnn import InvalidInputError, reconstruct_readout
from cvxsnn.data import SequenceData, TrainingSet
from cvxsnn.exchange import quantise_and_solve


def test_a_result_prints_as_a_table():
    (inputs, classes), model = draw_data(), Looped()
    text = str(reconstruct_readout(model, inputs, classes))
    for part in ("layer 'out'", "before", "after", "loss", "accuracy of the layer", "weights", "neurons read"):
        assert part in text
    real = str(reconstruct_readout(draw_static(1), inputs[:, 0], inputs[:, 0, 0]))
    assert " -" in real


def spiking_stack(form="looped", beta=0.9):
    """A model of snnTorch whose outputs are averaged over the steps, or are those of the last step."""
    snn = pytest.importorskip("snntorch")

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.hidden = nn.Linear(N_FEATURES, N_HIDDEN)
            self.neurons = snn.Leaky(beta=beta, reset_mechanism="subtract", init_hidden=True)
            self.out = nn.Linear(N_HIDDEN, N_CLASSES)
            self.after = snn.Leaky(beta=0.5, init_hidden=True) if form == "neurons" else None

        def forward(self, x):
            spikes = [self.neurons(self.hidden(step)) for step in x.unbind(1)]
            if form == "last step":
                return self.out(spikes[-1])
            if form == "neurons":
                return torch.stack([self.after(self.out(step)) for step in spikes])
            return torch.stack([self.out(step) for step in spikes]).mean(0)

    return Stack()


@pytest.mark.parametrize(("form", "readout"), [("looped", "mean"), ("looped", "last"), ("neurons", "mean")])
def test_a_result_becomes_a_network_that_reads_the_same_steps(form, readout):
    inputs, classes = draw_data(n_samples=120)
    result = reconstruct_readout(spiking_stack(form), inputs, classes, readout=readout, l1_strength=1e-3)
    network = result.to_network()
    assert network.readout == readout
    decided = network.predict(inputs.double().numpy())["label"]
    assert float((decided == classes.numpy()).mean()) == pytest.approx(result.after.accuracy, abs=0.02)
    assert result.after.accuracy > 0.9


@pytest.mark.parametrize("centre", [False, True])
def test_a_result_is_explored_rounded_and_certified_over_the_neurons_of_its_network(centre):
    inputs, classes = draw_data(n_samples=120)
    penalty = "elastic-net" if centre else "l1"
    result = reconstruct_readout(spiking_stack(), inputs, classes, penalty=penalty, centre=centre)
    data = TrainingSet.of(SequenceData(inputs.double().numpy(), classes.numpy()))
    again = result.to_proof().certify(data)
    assert again.primal == pytest.approx(result.certificate.primal, rel=ROUNDING)
    assert again.relative_gap == pytest.approx(result.certificate.relative_gap, abs=ROUNDING)
    small = quantise_and_solve(result, data, 6)
    assert small.certificate.relative_gap <= 1e-6
    assert (small.proof.centre is not None) == centre
    page = cs.explore.explore(result, inputs, classes, max_seconds=1)
    assert page.views[0].name == "SpikingNetwork"
    assert "that were sampled" not in page.html
    assert page.views[0].neurons.n_sampled is None
    with pytest.raises(InvalidInputError, match=r"expected sequences with .* and a target for each, got") as caught:
        cs.explore.explore(result.to_network(), inputs[:, :, :1], classes)
    assert_one_sentence(caught.value)


def test_a_network_that_would_read_other_steps_is_refused():
    inputs, classes = draw_data()
    result = reconstruct_readout(spiking_stack("last step"), inputs, classes, l1_strength=1e-3)
    with pytest.raises(InvalidInputError, match="read as 'mean', got others") as caught:
        result.to_network()
    assert_one_sentence(caught.value)
    result = reconstruct_readout(spiking_stack("last step"), inputs, classes, l1_strength=1e-3, readout="last")
    assert result.to_network().readout == "last"


def test_a_model_without_neurons_of_a_library_is_refused():
    inputs, classes = draw_data()
    with pytest.raises(InvalidInputError, match="Norse neurons in turn, got neurons of 0 of") as caught:
        reconstruct_readout(Looped(), inputs, classes, l1_strength=1e-3).to_network()
    assert_one_sentence(caught.value)
