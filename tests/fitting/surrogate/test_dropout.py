"""Dropout."""

import pytest
import torch
from tolerances import STANDARD_ERRORS

from cvxsnn.fitting.surrogate.dropout import Dropout

BLOCK = torch.ones(4, 5, 60, 30)
"""Four subnetworks, 5 steps, 60 sequences, 30 neurons."""


@pytest.mark.parametrize("share", [0.2, 0.5])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_share_is_hidden_and_the_rest_scaled_up(depth, share):
    hidden = Dropout(share, share, 11).hide(BLOCK, depth)
    assert hidden.unique().tolist() == pytest.approx([0.0, 1 / (1 - share)])
    n_draws = hidden.numel() if depth == 0 else hidden[:, 0].numel()
    spread = (share * (1 - share) / n_draws) ** 0.5
    assert abs(float((hidden == 0).double().mean()) - share) < STANDARD_ERRORS * spread


def test_inputs_are_hidden_a_step_at_a_time_and_neurons_for_a_whole_sequence():
    assert not torch.equal(*Dropout(0.5, 0.5, 11).hide(BLOCK, 0)[0, :2])
    hidden = Dropout(0.5, 0.5, 11).hide(BLOCK, 1)
    assert torch.equal(hidden, hidden[:, :1].expand_as(hidden))


def test_nothing_is_hidden_without_a_share():
    assert Dropout(0.0, 0.0, 11).hide(BLOCK, 0) is BLOCK


def test_steps_depths_samples_and_subnetworks_are_hidden_independently():
    one, other = (Dropout(0.5, 0.5, key).hide(BLOCK, 1) == 0 for key in (5, 6))
    deeper = Dropout(0.5, 0.5, 5).hide(BLOCK, 2) == 0
    pairs = [
        (one, other),
        (one, deeper),
        (one[0], one[1]),
        (one[..., 0, :], one[..., 1, :]),
        (one[..., 1:], one[..., :-1]),
    ]
    for a, b in pairs:
        signs = torch.where(a, 1.0, -1.0) * torch.where(b, 1.0, -1.0)
        n_draws = signs.numel() / BLOCK.shape[1]  # the steps repeat each other
        assert abs(float(signs.mean())) < STANDARD_ERRORS / n_draws**0.5
