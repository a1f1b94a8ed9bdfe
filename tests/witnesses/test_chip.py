import numpy as np
import pytest
import torch

import cvxsnn as cs
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.neurons import LIFLayer, LoihiLayer, Target, XyloLayer, find_target
from cvxsnn.neurons.targets import TARGETS
from cvxsnn.witnesses import Chip, as_family, regenerate


def draw_counts(n_samples=60, n_steps=12, n_features=5, most=9):
    generator = np.random.default_rng(0)
    return generator.integers(0, most + 1, (n_samples, n_steps, n_features)) * (
        generator.random((n_samples, n_steps, n_features)) < 0.4
    )


@pytest.mark.parametrize("target", TARGETS)
def test_neurons_of_a_chip_are_drawn_again_from_their_recipe(target):
    counts = draw_counts()
    family = Chip(target=target, n_witnesses=40)
    witnesses = family.sample(counts, seed=3)
    same = (
        regenerate(witnesses.provenance, inputs=counts),
        as_family(family.describe()).sample(counts, 3),
        as_family({"target": target, "n_witnesses": 40}).sample(counts, 3),
    )
    for other in same:
        for name, value in witnesses.layers[0].tensors().items():
            assert torch.equal(value, other.layers[0].tensors()[name])
    assert not torch.equal(family.sample(counts, seed=4).layers[0].weight, witnesses.layers[0].weight)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("most", [1, 15])
@pytest.mark.parametrize("lengths", [None, np.arange(60) % 12 + 1])
def test_drawn_neurons_fit_the_chip_and_most_of_them_fire_on_some_sequences_only(target, most, lengths):
    counts = cs.Sequences(torch.from_numpy(draw_counts(most=most)), lengths)
    witnesses = Chip(target=target, n_witnesses=200).sample(counts)
    layer = find_target(target).check(witnesses.layers)
    spikes = cs.roll_out(witnesses.layers, counts, "all").flatten(0, 1)
    assert ((spikes.sum(0) > 0) & ~spikes.all(0)).float().mean() > 0.8
    # Weights use the range that the chip leaves them.
    assert float(layer.weight.abs().amax(1).median()) >= 12


@pytest.mark.parametrize("target", ["loihi", "xylo-audio2"])
def test_an_estimator_for_a_chip_is_certified_on_its_neurons(target, tmp_path):
    counts = draw_counts(n_samples=80)
    labels = counts[:, :6, 0].sum(1) > counts[:, 6:, 1].sum(1)
    model = cs.SpikingClassifier(target=target, sparsity=16, random_state=0).fit(counts, labels)
    assert model.certificate_.relative_gap <= model.tol
    assert find_target(target).check(model.network_.layers).width <= 16
    assert np.array_equal(np.concatenate(model.input_scale_), [0] * 5 + [1] * 5)
    cs.save(model, tmp_path / "model")
    again = cs.load(tmp_path / "model")
    assert again.target == target
    assert np.array_equal(again.decision_function(counts), model.decision_function(counts))
    assert model.certify(counts, labels).relative_gap <= model.tol


def test_without_a_selection_a_chip_has_as_many_neurons_as_fit():
    model = cs.SpikingClassifier(target="xylo-imu", random_state=0)
    counts = draw_counts()
    model.fit(counts, counts.sum((1, 2)) > np.median(counts.sum((1, 2))))
    assert model.network_.layers[0].width <= 496


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"target": "loihi3"}, "expected target to be one of .*'loihi3'"),
        (
            {"target": "xylo-audio2", "n_neurons": 1200},
            "most 1,000 neurons .* got 1,200, which is 200 too many",
        ),
        ({"target": "xylo-imu", "sparsity": 500}, "most 496 neurons for xylo-imu, got 500, which is 4 too many"),
        ({"target": "loihi", "method": "sg"}, "expected method 'cvx', one hidden layer"),
        ({"target": "loihi", "hidden": (8, 8)}, "one hidden layer"),
        ({"target": "loihi", "witnesses": "search"}, "witnesses 'auto'"),
        ({"target": "loihi", "witnesses": {"decay": 0.5}, "n_neurons": 8}, "loihi neurons for loihi, got lif neurons"),
        (
            {"target": "xylo-imu", "witnesses": {"target": "xylo-audio2"}, "n_neurons": 8},
            "expected core='v2' for xylo-imu, got 'v1'",
        ),
    ],
)
def test_what_does_not_fit_a_chip_is_refused(parameters, message):
    counts = draw_counts()
    with pytest.raises(InvalidInputError, match=message):
        cs.SpikingClassifier(random_state=0, **parameters).fit(counts, counts[:, 0, 0] > 0)


def test_more_inputs_than_a_chip_has_are_refused_before_anything_is_drawn():
    with pytest.raises(InvalidInputError, match="at most 16 inputs for xylo-imu, got 17, which is 1 too many"):
        cs.SpikingClassifier(target="xylo-imu").fit(draw_counts(n_features=17), np.arange(60) % 2)


def test_fractions_are_refused_before_anything_is_drawn():
    with pytest.raises(InvalidInputError, match="expected counts of spikes"):
        cs.SpikingClassifier(target="loihi").fit(draw_counts() / 2, np.arange(60) % 2)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([LIFLayer(torch.ones(1, 2, 3))], "got lif neurons: fit an estimator with target='xylo-audio2'"),
        ([LoihiLayer(torch.ones(1, 2, 3) * 2)], "expected xylo neurons for xylo-audio2, got loihi neurons"),
        ([XyloLayer(torch.ones(1, 17, 3), core="v1")], "most 16 inputs for xylo-audio2, got 17, which is 1 too many"),
        ([XyloLayer(torch.ones(1, 3, 4)), XyloLayer(torch.ones(1, 4, 3))], "at most 1 hidden layer .* got 2"),
        ([XyloLayer(torch.ones(2, 3, 600), core="v1")], "at most 1,000 neurons .* got 1,200, which is 200 too many"),
        ([XyloLayer(torch.ones(1, 3, 4), bias=1)], "every bias of xylo-audio2 among whole numbers from 0 to 0, got 1"),
        ([XyloLayer(torch.ones(1, 3, 4))], "expected core='v1' for xylo-audio2, got 'v2'"),
    ],
)
def test_layers_that_do_not_fit_are_refused(layers, message):
    with pytest.raises(InvalidInputError, match=message):
        find_target("xylo-audio2").check(layers)


def test_long_delays_and_many_synapses_are_refused():
    taps = {"source": torch.zeros(1, 2, 3), "delay": torch.full((1, 2, 3), 63), "n_sources": 1}
    layer = LoihiLayer(torch.full((1, 2, 3), 2.0), **taps)
    with pytest.raises(InvalidInputError, match="at most 62 steps of delay for loihi, got 63, which is 1 too many"):
        find_target("loihi").check([layer])
    few = Target("small", "loihi", n_inputs=9, n_neurons=9, n_synapses=5, max_delay=63)
    with pytest.raises(InvalidInputError, match="at most 5 synapses for small, got 6, which is 1 too many"):
        few.check([layer])
