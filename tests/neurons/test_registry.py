"""A neuron model of one's own: one class and one registration make it work everywhere, or refused by name."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import cvxsnn as cs
from cvxsnn.core.errors import CvxsnnError, InvalidInputError
from cvxsnn.exchange import to_nir, to_norse, to_snntorch, to_spikingjelly
from cvxsnn.exchange.quantisation import quantise
from cvxsnn.fitting.reservoir import tune_reservoir
from cvxsnn.network import OutputHead, SpikingNetwork, count_operations, summarise
from cvxsnn.neurons import NEURON_MODELS, HiddenLayer, LIFLayer, NeuronModel, ThresholdLayer, register_neuron
from cvxsnn.neurons.layer import LayerState, per_sample
from cvxsnn.neurons.lif import fire, lif_membrane
from cvxsnn.neurons.registry import make_trainable
from cvxsnn.theory import rescale_hidden
from cvxsnn.theory.complete_certificate import family_of
from cvxsnn.witnesses import Normal, Provenance, Uniform, WitnessSet, regenerate, single_out


@dataclass(frozen=True, eq=False)
class HardResetLayer(HiddenLayer):
    """LIF neurons whose membrane restarts from ``reset`` after a spike, whatever it was."""

    decay: torch.Tensor = 0.9
    reset: torch.Tensor = -1.0
    initial_membrane: torch.Tensor = 0.0

    def _check_dynamics(self):
        for name in ("decay", "reset", "initial_membrane"):
            self._expand(name)

    def initial_state(self, n_samples):
        shape = (self.n_subnetworks, n_samples, self.width)
        values = per_sample(self.initial_membrane), per_sample(self.initial_spikes)
        return LayerState(*(value.expand(shape).clone() for value in values))

    def step(self, drive, state):
        membrane, spikes = state.membrane, state.spikes
        before = torch.where(spikes != 0, per_sample(self.reset), membrane)
        torch.add(torch.mul(before, per_sample(self.decay)), drive, out=membrane)
        fire(membrane, out=spikes)


@dataclass(frozen=True, eq=False)
class StrangeLayer(LIFLayer):
    """A LIF layer of somebody else, who did not register it."""


@dataclass(frozen=True, eq=False)
class StrangeRecurrentLayer(ThresholdLayer):
    """A recurrent layer of somebody else."""


@dataclass(frozen=True, eq=False)
class AdaptiveLayer(LIFLayer):
    """LIF neurons whose threshold rises by ``jump`` after a spike and falls back: a variable beside the membrane."""

    recovery: torch.Tensor = 0.5
    jump: torch.Tensor = 1.0

    def _check_dynamics(self):
        super()._check_dynamics()
        for name in ("recovery", "jump"):
            self._expand(name)

    def initial_state(self, n_samples):
        state = super().initial_state(n_samples)
        return state._replace(others=(state.membrane.clone(), torch.zeros_like(state.membrane)))

    def step(self, drive, state):
        spikes, (potential, rise) = state.spikes, state.others
        lif_membrane(drive, potential, spikes, per_sample(self.decay), per_sample(self.threshold), out=potential)
        rise.mul_(per_sample(self.recovery)).add_(per_sample(self.jump) * spikes)
        fire(torch.sub(potential, rise, out=state.membrane), out=spikes)

    def scan(self, drive, state, spikes=None):
        return HiddenLayer.scan(self, drive, state, spikes)  # that of LIF neurons has a kernel of its own on GPUs


MODEL = NeuronModel(
    "toy-lif",
    HardResetLayer,
    sampled=("decay", "reset", "initial_membrane"),
    scaled=("reset", "initial_membrane"),
)
FAMILY = {"neuron": "toy-lif", "decay": Uniform(0.5, 1.0), "reset": Uniform(-2.0, 0.0), "bias": Normal(0.0, 0.5)}
HEADS = [OutputHead("label", "logistic", 0, 1)]


@pytest.fixture(autouse=True)
def hard_reset():
    register_neuron(MODEL)
    yield
    NEURON_MODELS.unregister("toy-lif")


def draw_data(n_samples=60):
    inputs = np.random.default_rng(0).normal(size=(n_samples, 7, 3)).astype(np.float32)
    return inputs, (inputs[:, :, 0].sum(1) > 0).astype(np.int64)


def draw_solution(readout="last", hidden=(12, 20)):
    inputs, labels = draw_data()
    dictionary = cs.build_dictionary(cs.gaussian_witnesses(3, hidden, 2, **FAMILY), inputs, readout)
    problem = cs.ConvexProblem(dictionary, labels, "logistic", intercept=True)
    return cs.solve(problem.with_strength(problem.critical_strength / 20))


def test_a_hard_reset_forgets_what_the_membrane_was():
    layer = HardResetLayer(torch.ones(1, 1, 1), decay=1.0, reset=-1.5)
    inputs = torch.tensor([[[7.0], [1.0], [1.0]], [[0.0], [1.0], [1.0]]])
    assert cs.roll_out([layer], inputs, "all").int().squeeze(2).tolist() == [[1, 0, 1], [1, 0, 1]]


def test_a_registered_model_is_sampled_and_drawn_again_from_its_recipe():
    witnesses = cs.gaussian_witnesses(3, (8, 6), 2, **FAMILY)
    assert repr(witnesses) == "WitnessSet(sampled toy-lif, 2 × (3→8→6))"
    assert -2 <= float(witnesses.layers[0].reset.min()) < float(witnesses.layers[0].reset.max()) <= 0
    again = regenerate(witnesses.provenance)
    for one, other in zip(witnesses.layers, again.layers, strict=True):
        assert type(other) is HardResetLayer
        assert all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())
    assert single_out(witnesses, torch.tensor([5, 0])).hidden == (8, 1)


@pytest.mark.parametrize("form", ["compact", "parallel", "full"])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_a_registered_model_is_solved_and_rebuilt(form, readout):
    solution = draw_solution(readout)
    assert solution.certificate.relative_gap < 1e-5
    network = cs.reconstruct(solution, form)
    inputs, _ = draw_data()
    torch.testing.assert_close(network(inputs).detach(), solution.scores(), rtol=1e-12, atol=1e-12)
    state = network.start(len(inputs))
    for t in range(inputs.shape[1]):
        state, scores = network.step(state, inputs[:, t])
    assert torch.equal(scores, network(inputs))
    wide = rescale_hidden(network, 4.0)
    assert torch.equal(wide(inputs), network(inputs))


def test_a_registered_model_is_saved_loaded_counted_summarised_and_quantised(tmp_path):
    network, (inputs, _) = cs.reconstruct(draw_solution()), draw_data()
    cs.save(network, tmp_path / "network")
    loaded = cs.load(tmp_path / "network")
    assert all(type(layer) is HardResetLayer for layer in loaded.layers)
    assert torch.equal(loaded(inputs), network(inputs))
    hidden = count_operations(network, inputs).layers[0]
    assert hidden.n_membrane_updates == hidden.n_neurons * inputs.shape[0] * inputs.shape[1]
    assert summarise(network).layers[0].decay is not None
    assert quantise(network, 8)(inputs).shape == (60, 1)


def test_a_registered_model_is_fitted_by_an_estimator_and_its_file_needs_the_registration(tmp_path):
    inputs, labels = draw_data()
    family = {"neuron": "toy-lif", "hidden": (16,), "decay": 0.5}
    model = cs.SpikingClassifier(witnesses=family).fit(inputs, labels)
    assert model.network_.layers[0].decay.unique().tolist() == [0.5]
    cs.save(model, tmp_path / "model")
    assert np.array_equal(cs.load(tmp_path / "model").predict(inputs), model.predict(inputs))
    NEURON_MODELS.unregister("toy-lif")
    try:
        with pytest.raises(CvxsnnError, match=r"neuron to be one of 'lif', .*, got 'toy-lif'"):
            cs.load(tmp_path / "model")
    finally:
        register_neuron(MODEL)


def test_variables_beside_the_membrane_are_carried_from_step_to_step():
    inputs, _ = draw_data()
    register_neuron(NeuronModel("adaptive", AdaptiveLayer, sampled=("decay", "jump"), scaled=("threshold", "jump")))
    try:
        witnesses = cs.gaussian_witnesses(3, (8, 6), 2, neuron="adaptive", jump=Uniform(0.0, 2.0))
        network = SpikingNetwork(witnesses.layers, torch.ones(12, 1), HEADS)
        before = state = network.start(len(inputs))
        for t in range(inputs.shape[1]):
            state, scores = network.step(state, inputs[:, t])
        assert torch.equal(scores, network(inputs))
        assert bool(state.layers[0].others[1].any())
        assert not bool(before.layers[0].others[1].any())
        assert torch.equal(rescale_hidden(network, 4.0)(inputs), network(inputs))
    finally:
        NEURON_MODELS.unregister("adaptive")


def refusals(network, witnesses):
    """What needs an ability that a model may lack, with the words that tell so."""
    inputs, labels = draw_data()
    data = cs.data.TrainingSet(cs.Sequences(inputs), {"label": labels})
    return {
        "to_snntorch": lambda: to_snntorch(network),
        "to_spikingjelly": lambda: to_spikingjelly(network),
        "to_norse": lambda: to_norse(network),
        "to_nir": lambda: to_nir(network),
        "price": lambda: family_of(witnesses),
        "train": lambda: make_trainable(network.layers[0], "arctan", 1.0, frozenset()),
        "tune": lambda: tune_reservoir(witnesses, data),
    }


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("to_snntorch", "got HardResetLayer as layer 1: snnTorch cannot represent them"),
        ("to_spikingjelly", "got HardResetLayer as layer 1: SpikingJelly cannot represent them"),
        ("to_norse", "got HardResetLayer as layer 1: Norse cannot represent them"),
        ("to_nir", "got HardResetLayer as layer 1: NIR cannot represent them"),
        ("price", "a last layer of LIF or threshold neurons to price all of them, got HardResetLayer"),
        ("train", r"surrogate gradients \(lif, threshold.*\), got toy-lif neurons, which have none"),
        ("tune", "LIF neurons for a reservoir, got toy-lif neurons"),
    ],
)
def test_what_a_model_cannot_do_is_refused_in_one_sentence(what, message):
    witnesses = cs.gaussian_witnesses(3, (8,), **FAMILY)
    network = SpikingNetwork(witnesses.layers, torch.ones(8, 1), HEADS)
    with pytest.raises(InvalidInputError, match=message) as caught:
        refusals(network, witnesses)[what]()
    assert "\n" not in str(caught.value)


STRANGE = StrangeLayer(torch.ones(1, 3, 4))


@pytest.mark.parametrize(
    "call",
    [
        lambda: NEURON_MODELS.of(STRANGE),
        lambda: WitnessSet((STRANGE,), Provenance("pretrained")),
        lambda: replace(cs.gaussian_witnesses(3, (4,)), layers=(STRANGE,)),
        lambda: SpikingNetwork([STRANGE], torch.ones(4, 1), HEADS),
        lambda: make_trainable(STRANGE, "arctan", 1.0, frozenset()),
    ],
)
def test_a_subclass_that_nobody_registered_is_refused_by_name(call):
    with pytest.raises(InvalidInputError, match=r"'toy-lif'.*, got StrangeLayer, which is not") as caught:
        call()
    assert "\n" not in str(caught.value)


def test_layers_are_looked_up_by_their_exact_type():
    assert NEURON_MODELS.of(LIFLayer(torch.ones(1, 3, 4))).name == "lif"
    assert NEURON_MODELS.of(ThresholdLayer(torch.ones(1, 3, 4))).name == "threshold"
    assert NEURON_MODELS.of(HardResetLayer(torch.ones(1, 3, 4))) is MODEL is NEURON_MODELS.find("toy-lif")
    assert list(NEURON_MODELS)[:2] == ["lif", "threshold"]
    assert list(NEURON_MODELS)[-1] == "toy-lif"


def test_models_tell_what_they_can_do():
    lif, threshold = NEURON_MODELS.find("lif"), NEURON_MODELS.find("threshold")
    assert all(
        (
            lif.keeps_membrane,
            lif.libraries,
            threshold.is_recurrent,
        )
    )
    assert not any((threshold.keeps_membrane, threshold.libraries))
    assert not lif.is_recurrent
    assert lif.all_scaled == {"weight", "bias", "threshold", "initial_membrane"}
    assert threshold.all_scaled == {"weight", "bias", "recurrent_weight"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: register_neuron(NeuronModel("toy-lif", StrangeLayer)),
            "and 'toy-lif' with HardResetLayer is there",
        ),
        (lambda: register_neuron(replace(MODEL, name="other")), "'other' with HardResetLayer, and 'toy-lif'"),
        (lambda: register_neuron(NeuronModel("other", nn.Linear)), "a subclass of HiddenLayer for 'other', got"),
        (
            lambda: register_neuron(NeuronModel("other", StrangeLayer, sampled=("rest",))),
            "parameters of StrangeLayer, got rest: its tensors are weight, bias,",
        ),
        (
            lambda: register_neuron(NeuronModel("other", StrangeRecurrentLayer)),
            "if and only if StrangeRecurrentLayer has a tensor recurrent_weight, got False",
        ),
        (
            lambda: register_neuron(NeuronModel("other", StrangeLayer, is_recurrent=True)),
            "if and only if StrangeLayer has a tensor recurrent_weight, got True",
        ),
        (lambda: NEURON_MODELS.unregister("other"), r"'lif', 'threshold', .*'toy-lif', got 'other'"),
        (lambda: cs.gaussian_witnesses(3, (4,), neuron="other"), r"'lif', 'threshold', .*'toy-lif', got 'other'"),
        (
            lambda: cs.gaussian_witnesses(3, (4,), reset=0.5),
            r"unknown settings \['reset'\]; a gaussian family has \[.*'decay'",
        ),
        (lambda: cs.gaussian_witnesses(3, (4,), neuron="toy-lif", rest=0.5), r"unknown settings \['rest'\]"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
