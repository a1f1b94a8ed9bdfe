"""Mixtures of families with delays."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import Sequences
from cvxsnn.neurons import count_spikes
from cvxsnn.witnesses import mixed_witnesses, regenerate
from cvxsnn.witnesses.mixed import MIXTURES, mixture_parts

INPUTS = np.random.default_rng(0).normal(size=(40, 20, 3))


@settings(max_examples=30, deadline=None)
@given(
    n_witnesses=st.integers(1, 40),
    shape=st.tuples(st.integers(2, 6), st.integers(1, 14), st.integers(1, 4)),
    mixture=st.sampled_from(MIXTURES),
)
def test_there_are_as_many_neurons_as_asked_for_whatever_the_shape(n_witnesses, shape, mixture):
    inputs = np.random.default_rng(1).normal(size=shape)
    witnesses = mixed_witnesses(inputs, n_witnesses, mixture)
    assert (witnesses.n_subnetworks, witnesses.hidden) == (1, (n_witnesses,))
    assert count_spikes(witnesses.layers, inputs).shape == (shape[0], n_witnesses)


def test_each_part_has_an_equal_share():
    parts = mixture_parts("all", 20, 3)
    (layer,) = mixed_witnesses(INPUTS, 10 * len(parts)).layers
    n_taps = (layer.weight[0] != 0).sum(0).view(len(parts), 10)
    n_places = [3 * (20 if own.max_delay is None else 1 + own.max_delay) for own in parts]
    expected = [min(own.fan_in, most) * (1 + own.differenced) for own, most in zip(parts, n_places, strict=True)]
    assert n_taps.max(1).values.tolist() == expected
    has_leak = (layer.decay[0] > 0).view(len(parts), 10)
    assert has_leak.all(1).tolist() == [own.decay != 0 for own in parts]


def test_the_same_inputs_and_seed_give_the_same_neurons_and_others_do_not():
    first, again = mixed_witnesses(INPUTS, 30, seed=3), mixed_witnesses(INPUTS, 30, seed=3)
    assert all(torch.equal(value, again.layers[0].tensors()[name]) for name, value in first.layers[0].tensors().items())
    other = mixed_witnesses(INPUTS, 30, seed=4)
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_recipe_draws_them_again_from_the_same_inputs(mixture):
    many = np.random.default_rng(5).normal(size=(300, 12, 2))  # more than are used
    drawn = mixed_witnesses(many, 24, mixture, seed=7)
    again = regenerate(drawn.provenance, inputs=many)
    for name, value in drawn.layers[0].tensors().items():
        assert torch.equal(value, again.layers[0].tensors()[name])
    with pytest.raises(InvalidInputError, match="got others"):
        regenerate(drawn.provenance, inputs=many[::-1].copy())


def test_thresholds_make_neurons_fire_some_of_the_time():
    rate = count_spikes(mixed_witnesses(INPUTS, 600).layers, INPUTS).double().mean(0) / 20
    assert 0.4 < float(rate.mean()) < 0.6
    assert float(((rate > 0.02) & (rate < 0.98)).double().mean()) > 0.9


def test_inputs_that_do_not_vary_give_neurons_without_delays():
    witnesses = mixed_witnesses(np.ones((4, 12, 2)), 16)
    assert witnesses.hidden == (16,)
    assert not witnesses.layers[0].has_delays


def test_padding_is_not_read():
    lengths = torch.randint(5, 21, (40,), generator=torch.Generator().manual_seed(0))
    padded = torch.from_numpy(INPUTS.copy())
    padded[torch.arange(20) >= lengths[:, None]] = 1e6
    clean = padded.masked_fill((torch.arange(20) >= lengths[:, None])[:, :, None], 0.0)
    first, second = (mixed_witnesses(Sequences(own, lengths), 60, "dilated") for own in (padded, clean))
    assert torch.equal(first.layers[0].bias, second.layers[0].bias)


def test_an_unknown_mixture_is_refused():
    with pytest.raises(InvalidInputError, match=r"mixture to be .*, got 'some'"):
        mixed_witnesses(INPUTS, 8, "some")
