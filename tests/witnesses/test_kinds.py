"""Lateral neurons of several kinds, and the default of classifiers that reads them."""

import pickle

import numpy as np
import pytest
import torch
from naive import lateral_views, tap_drive
from small_models import assert_close_certificates, assert_one_sentence

import cvxsnn as cs
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.sequences import Sequences
from cvxsnn.witnesses import Kinds, as_family, regenerate
from cvxsnn.witnesses.kinds import KINDS, readout_of

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(40, 24, 3))
LENGTHS = RNG.integers(1, 25, 40)
UNEQUAL = Sequences(torch.tensor(INPUTS), LENGTHS)
ALL = tuple(KINDS)


def draw(inputs=INPUTS, n=120, kinds=ALL, seed=0, **settings):
    return Kinds(n_witnesses=n, kinds=kinds, **settings).sample(inputs, seed)


def are_equal(one, other):
    pairs = zip(one.layers[0].tensors().values(), other.layers[0].tensors().values(), strict=True)
    return all(torch.equal(*pair) for pair in pairs) and one.layers[0].settings() == other.layers[0].settings()


@pytest.mark.parametrize("inputs", [INPUTS, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("kinds", [ALL, ("rate",), ("winner", "last")], ids=str)
def test_witnesses_are_drawn_again_from_their_recipe_and_their_description(inputs, kinds):
    family = Kinds(n_witnesses=120, kinds=kinds, n_calibration=30)
    witnesses = family.sample(inputs, 3)
    assert are_equal(regenerate(witnesses.provenance, inputs=inputs), witnesses)
    assert are_equal(as_family(family.describe()).sample(inputs, 3), witnesses)
    assert are_equal(pickle.loads(pickle.dumps(witnesses)), witnesses)
    every = Kinds(n_witnesses=120, kinds=kinds)  # all sequences, so that only the draws differ
    assert not torch.equal(every.sample(inputs, 4).layers[0].weight, every.sample(inputs, 3).layers[0].weight)
    part = witnesses.take_neurons(torch.arange(1, witnesses.n_witnesses, 7))
    assert are_equal(regenerate(part.provenance, inputs=inputs), part)
    with pytest.raises(InvalidInputError, match="expected the training inputs that the witnesses were sampled with"):
        regenerate(witnesses.provenance, inputs=INPUTS[::-1].copy())


def test_a_part_of_a_part_is_drawn_again_from_its_recipe():
    part = draw().take_neurons(torch.arange(1, 120, 3))
    (read,) = (part.layers[0].statistics[0] != 0).nonzero(as_tuple=True)
    assert len(read) == 40 < part.n_witnesses
    few = part.take_neurons(read[5::4])
    assert few.provenance.recipe["neurons"] == list(range(1, 120, 3))[5::4]
    assert are_equal(regenerate(few.provenance, inputs=INPUTS), few)


def test_a_kind_is_the_same_whatever_other_kinds_there_are():
    alone, beside = draw(n=60, kinds=("last",)).layers[0], draw(n=540).layers[0]
    own = beside.statistics[0] == 16
    assert int(own.sum()) == alone.width == 60
    assert torch.equal(beside.bias[:, own], alone.bias)


@pytest.mark.usefixtures("gpu_stand_in")
def test_neurons_do_not_depend_on_threads_or_devices(monkeypatch):
    expected, before = draw(), torch.get_num_threads()
    monkeypatch.setattr("cvxsnn.neurons.tap_kernel._MIN_WORK", 1)
    torch.set_num_threads(3)
    try:
        assert are_equal(draw(), expected)
    finally:
        torch.set_num_threads(before)


def test_each_kind_is_what_it_is_said_to_be():
    layer = draw(n=240).layers[0]
    reads, group = layer.statistics[0], layer.group[0]
    rate, winner, distance, last = (reads == bits for bits in (3, 4, 8, 16))
    assert int(rate.sum() + winner.sum() + distance.sum() + last.sum()) == layer.width
    assert not group[~winner].any()
    assert set(torch.bincount(group[winner].long())[1:].tolist()) == {8}
    assert not layer.bias[0, winner].any()
    half = layer.weight[0][:, winner].unflatten(1, (2, -1))
    assert torch.equal(half[:, 0], -half[:, 1])  # the largest and the smallest drive
    assert {tuple(w[w != 0].unique().tolist()) for w in layer.weight[0][:, rate].T} == {(-1.0, 2.0)}
    spikes = cs.roll_out([layer], INPUTS, "all")
    assert 0.05 < spikes[..., rate].double().mean() < 0.95
    assert 0.2 < spikes[..., distance].any(1).double().mean() < 0.8  # radii are quantiles over sequences
    assert 0.3 < spikes[:, -1, last].double().mean() < 0.7


def test_distance_neurons_fire_near_a_window_of_the_training_data():
    layer = draw(n=30, kinds=("distance",)).layers[0]
    n_taps, weight, source, delay = layer.n_taps // 2, layer.weight[0], layer.source[0].long(), layer.delay[0].long()
    values = lateral_views(INPUTS, layer.views)
    spikes = cs.roll_out([layer], INPUTS, "all").numpy()
    drives = np.stack([tap_drive(layer, 0, values, t) for t in range(24)], axis=1)
    for neuron in range(layer.width):
        window, squares = weight[:n_taps, neuron].numpy() / 2, weight[n_taps:, neuron]
        is_read = squares.numpy() != 0
        assert set(squares.tolist()) <= {0.0, -1.0}
        assert torch.equal(source[n_taps:, neuron], source[:n_taps, neuron] + 2 * 3)
        assert torch.equal(delay[n_taps:, neuron], delay[:n_taps, neuron])
        distance = np.full((40, 24), (window**2).sum())
        for t in range(24):
            for tap in np.flatnonzero(is_read):
                at = t - int(delay[tap, neuron])
                seen = values[:, at, source[tap, neuron]] if at >= 0 else np.zeros(40)
                distance[:, t] += seen**2 - 2 * seen * window[tap]
        assert abs(distance.min()) < 1e-3  # the window itself, in its sequence
        # The constant |s|² apart, and up to the rounding of squares to the grid.
        np.testing.assert_allclose((window**2).sum() - distance, drives[..., neuron], atol=n_taps * 2**-17)
        assert np.array_equal(spikes[..., neuron], drives[..., neuron] >= -float(layer.bias[0, neuron]))
        assert bool((drives[..., neuron].max(1) == -float(layer.bias[0, neuron])).any())  # the radius is a distance


def lengths_of(*lengths):
    return Sequences(torch.tensor(RNG.normal(size=(len(lengths), max(lengths), 2))), np.array(lengths))


@pytest.mark.parametrize(
    "inputs",
    [
        *(RNG.normal(size=(5, n_steps, 2)) for n_steps in (1, 2, 3)),
        RNG.normal(size=(1, 20, 2)),
        np.ones((5, 20, 2)),
        np.zeros((5, 20, 2)),
        RNG.normal(size=(5, 20, 1)),
        RNG.normal(size=(5, 20, 500)),
        lengths_of(3, 20),
        lengths_of(1, 1, 20),
        RNG.integers(0, 2, (5, 20, 2)),
        1e3 * RNG.normal(size=(5, 20, 2)),
        1e-3 * RNG.normal(size=(5, 20, 2)),
    ],
    ids=lambda inputs: "x".join(map(str, Sequences.of(inputs).inputs.shape)),
)
@pytest.mark.parametrize("n", [1, 100])
def test_sequences_of_any_shape_have_neurons_and_finite_columns(inputs, n):
    dictionary = cs.build_dictionary(draw(inputs, n), inputs, readout_of(ALL))
    assert bool(torch.isfinite(dictionary.columns()).all())
    assert bool(torch.isfinite(dictionary.unit).all())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kinds": ()}, "expected kinds to be some of 'rate', 'winner', 'distance', 'last', got"),
        ({"kinds": ("rate", "rate")}, "expected kinds to be some of"),
        ({"kinds": ("fast",)}, "expected kinds to be some of"),
        ({"n": 0}, "n_witnesses to be a positive integer, got 0"),
        ({"n": 2.5}, "n_witnesses to be a positive integer, got 2.5"),
        ({"n_calibration": 0}, "n_calibration to be a positive integer, got 0"),
        ({"seed": -1}, "seed to be a non-negative integer"),
        ({"n": 10**12}, "the neurons of a hidden layer"),
        ({"inputs": 3}, "training inputs to sample neurons"),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_one_sentence(change, message):
    with pytest.raises(cs.CvxsnnError, match=message) as caught:
        draw(**change)
    assert_one_sentence(caught.value)


# Models of kinds.


LABELS = np.arange(40) % 2
TASK = INPUTS + np.where(LABELS, 1.0, 0.0)[:, None, None] * np.sin(np.arange(24))[:, None]


@pytest.fixture(scope="module")
def model():
    """A small fit of all kinds at once."""
    witnesses = Kinds(n_witnesses=120, kinds=ALL)
    return cs.SpikingClassifier(witnesses=witnesses, readout=readout_of(ALL), random_state=0).fit(TASK, LABELS)


def test_one_certificate_covers_all_kinds(model):
    certificate = model.certificate_
    assert certificate.scope == "sampled"
    assert 0 <= certificate.relative_gap <= 1e-6
    assert_close_certificates(model.certify(TASK, LABELS), certificate)
    proof, data = model.proof_, model.data_of_fit(TASK, LABELS)
    assert set(proof.witnesses.layers[0].statistics[0].tolist()) == {3, 4, 8, 16}
    assert set((proof.support % len(readout_of(ALL).split("+"))).tolist()) > {4}  # statistics of several kinds
    # The objective by its definition: the penalty is that of coefficients, which are weights in units.
    scores = model.network_(data.sequences).detach()[:, 0].numpy()
    loss = np.log1p(np.exp(-np.where(LABELS, 1, -1) * scores)).mean()
    penalty = proof.l1_strength * (proof.coef[:, 0] / proof.unit[proof.support]).abs().sum()
    assert loss + float(penalty) == pytest.approx(certificate.primal, rel=1e-9)


def test_a_model_answers_the_same_alone_in_a_stream_and_from_its_file(model, tmp_path):
    expected = model.decision_function(TASK)
    assert np.array_equal(model.decision_function(TASK[3:4]), expected[3:4])
    cs.save(model, tmp_path / "model.safetensors")
    for again in (cs.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.decision_function(TASK), expected)
        assert_close_certificates(again.certify(TASK, LABELS), model.certificate_)
    network = model.network_
    state = network.start(40)
    scores = network(TASK).detach()
    for step in np.moveaxis(TASK, 1, 0):
        state, so_far = network.step(state, step)
    torch.testing.assert_close(so_far, scores, rtol=1e-12, atol=1e-12)


def test_what_reads_models_of_kinds_works(model, tmp_path):
    network = model.network_
    operations = cs.network.count_operations(network, TASK)
    spikes = cs.roll_out(network.layers, TASK, "all")
    assert operations.layers[0].n_spikes > 0
    assert operations.layers[0].n_membrane_updates == 0
    assert operations.layers[0].n_neurons <= spikes.shape[2]
    assert operations.layers[1].n_multiply_accumulates == 40 * len(network.neurons)
    assert "lateral" in str(cs.network.summarise(network)) + str(model.summary(TASK)) + repr(model.proof_.witnesses)
    quantised = cs.exchange.quantise(network, bits=15)
    assert torch.equal(cs.roll_out(quantised.layers, TASK, "all"), spikes)
    model.explore(TASK, LABELS).save(tmp_path / "page.html")
    assert "<html" in (tmp_path / "page.html").read_text()
    full = cs.reconstruct(cs.solve(model.proof_.problem(model.data_of_fit(TASK, LABELS))), form="full")
    data = model.as_sequences(TASK)
    torch.testing.assert_close(full(data), network(data), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (
                lambda model, name=name: getattr(cs.exchange, name)(model.network_),
                "expected LIF neurons, got LateralLayer",
            )
            for name in ("to_snntorch", "to_spikingjelly", "to_norse", "to_nir")
        ),
        (lambda model: model.certify_complete(TASK, LABELS), "readout 'last', 'all' or 'mean'.*got 'mean\\+burst"),
        (
            lambda model: cs.reconstruct(
                cs.solve(model.proof_.problem(model.data_of_fit(TASK, LABELS))), form="parallel"
            ),
            "got lateral neurons of groups, which compete",
        ),
        (
            lambda model: cs.SpikingClassifier("sg-cvx", witnesses=Kinds(n_witnesses=40)).fit(TASK, LABELS),
            "neurons with surrogate gradients .*, got lateral neurons",
        ),
    ],
)
def test_what_cannot_hold_lateral_neurons_says_so_in_one_sentence(model, call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call(model)
    assert_one_sentence(caught.value)


def test_a_model_of_kinds_may_read_nothing():
    family = Kinds(n_witnesses=60, kinds=ALL)
    model = cs.SpikingClassifier(witnesses=family, readout=readout_of(ALL), l1_strength=1e3, random_state=0)
    model.fit(TASK, LABELS)
    assert model.network_.n_active == 0
    assert len(set(model.predict(TASK))) == 1
    assert_close_certificates(model.certify(TASK, LABELS), model.certificate_)


@pytest.mark.parametrize("sparsity", [20, "few"])
def test_few_neurons_of_kinds_spike_as_among_all(sparsity):
    model = cs.SpikingClassifier(n_neurons=200, sparsity=sparsity, random_state=0).fit(TASK, LABELS)
    if sparsity == 20:
        assert model.history_[-1].n_neurons == model.network_.n_active == 20
        assert model.certificate_.scope == "selected"
    whole = {**model.proof_.witnesses.provenance.recipe}
    chosen = whole.pop("neurons", None)
    if chosen is not None:
        data = model.as_sequences(TASK)
        sample = regenerate(cs.witnesses.Provenance("sampled", whole), inputs=data)
        part = model.proof_.witnesses.layers[0]
        is_read = part.statistics[0] != 0
        spikes = cs.roll_out(sample.layers, data, "all")[..., torch.tensor(chosen)]
        assert torch.equal(cs.roll_out([part], data, "all")[..., is_read], spikes)
