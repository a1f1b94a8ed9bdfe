import pytest
import torch
from witnesses.two_layers import DATA, draw_two_layers, spikes

import cvxsnn as cs
from cvxsnn.witnesses import Provenance


def test_single_witnesses_fire_as_they_did_in_company():
    witnesses, chosen = draw_two_layers(), torch.tensor([29, 3, 3, 17])
    alone = cs.witnesses.single_out(witnesses, chosen)
    assert (alone.n_subnetworks, alone.hidden) == (4, (7, 1))
    assert torch.equal(spikes(alone), spikes(witnesses)[..., chosen])


def test_joined_sets_fire_as_each_did_whatever_their_lower_widths():
    narrow = cs.gaussian_witnesses(2, (3, 4), 2, seed=1)
    wide = draw_two_layers(n=3, width=4, seed=2)
    joined = cs.witnesses.join_witnesses([narrow, wide, narrow])
    assert (joined.n_subnetworks, joined.hidden) == (7, (7, 4))
    assert torch.equal(spikes(joined), torch.cat([spikes(own) for own in (narrow, wide, narrow)], dim=-1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_deep", [False, True])
def test_sets_with_and_without_delays_are_joined_and_fire_as_each_did(seed, is_deep):
    widths = [(3, 4), (7, 4), (5, 4)] if is_deep else [(4,)] * 3
    dense = cs.gaussian_witnesses(2, widths[0], 2, bias=cs.witnesses.Normal(0, 0.5), seed=seed)
    few = cs.delayed_witnesses(DATA.inputs, widths[1], 3, fan_in=3, max_delay=2, seed=seed)
    many = cs.delayed_witnesses(DATA.inputs, widths[2], geometry="box", fan_in=None, decay=0.5, seed=seed)
    for sets in ((dense, few, many), (many, dense), (few, dense, few), (many, few)):
        joined = cs.witnesses.join_witnesses(sets)
        assert torch.equal(spikes(joined), torch.cat([spikes(own) for own in sets], dim=-1))
        assert all(layer.has_delays for layer in joined.layers)
        assert joined.provenance == Provenance("pretrained", {"joined": len(sets)})
        chosen = torch.arange(joined.n_witnesses - 1, 0, -2)
        assert torch.equal(spikes(cs.witnesses.single_out(joined, chosen)), spikes(joined)[..., chosen])


@pytest.mark.parametrize(
    "other",
    [
        cs.gaussian_witnesses(2, (7, 6)),
        cs.gaussian_witnesses(2, (5,)),
        cs.gaussian_witnesses(3, (7, 5)),
        cs.gaussian_witnesses(2, (7, 5), neuron="threshold"),
    ],
)
def test_sets_that_do_not_fit_are_refused_in_one_sentence(other):
    with pytest.raises(cs.InvalidInputError, match="to join, got several") as caught:
        cs.witnesses.join_witnesses([draw_two_layers(), other])
    assert "\n" not in str(caught.value)


def test_threshold_neurons_cannot_be_singled_out():
    with pytest.raises(cs.InvalidInputError, match="read each other"):
        cs.witnesses.single_out(cs.gaussian_witnesses(2, (4,), neuron="threshold"), torch.tensor([0]))
