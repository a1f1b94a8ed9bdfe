"""Dropout: hiding inputs and spikes at random while a network trains, so that no neuron relies on a few others.

A mask depends on a key and a position alone, by integer arithmetic. It is the same on every device, and for a network
that trains alone or side by side with others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_WORD = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Dropout:
    """What to hide from several networks at one training step.

    Parameters
    ----------
    inputs : sequence of float
        The share of the inputs of each step that is hidden, for each network.
    hidden : sequence of float
        The share of the hidden neurons that is hidden for a whole sequence, for each network.
    keys : sequence of int
        The key that decides what is hidden, for each network.
    """

    inputs: Sequence[float]
    hidden: Sequence[float]
    keys: Sequence[int]

    def hide(self, block: Tensor, depth: int) -> Tensor:
        """Return a block of inputs or spikes with some hidden, (n_networks · K, n_steps, n_samples, n_neurons).

        Inputs, at depth 0, are hidden a step at a time, spikes for a whole sequence. What stays is scaled up, so that
        sums keep their mean.
        """
        shares = self.inputs if depth == 0 else self.hidden
        if not any(shares):
            return block
        n_networks = len(self.keys)
        shape = list(block.shape)
        if depth > 0:
            shape[1] = 1
        share = torch.tensor(shares, dtype=torch.float64, device=block.device)[:, None]
        words = _words([key ^ depth for key in self.keys], torch.Size(shape).numel() // n_networks, block.device)
        # A word of 32 bits is below share · 2³² with probability share.
        stays = (words >= share * 2**32).view(shape)
        scale = (1 / (1 - share)).to(block.dtype).repeat_interleave(shape[0] // n_networks, 0)
        return block * stays * scale.view(-1, 1, 1, 1)


def _words(keys: Sequence[int], size: int, device: torch.device) -> Tensor:
    """Return random words of 32 bits, shape (n_keys, size): a counter, mixed by the finaliser of MurmurHash3."""
    first, second = (torch.tensor([key >> s & _WORD for key in keys], device=device)[:, None] for s in (0, 31))
    words = (torch.arange(size, device=device) * 0x9E3779B1 + first) & _WORD
    # Products wrap around in int64, but their low 32 bits, which the mask keeps, are exact on every device.
    for _ in range(2):
        words = (words ^ words >> 16) * 0x85EBCA6B & _WORD
        words = (words ^ words >> 13) * 0xC2B2AE35 & _WORD
        words = words ^ words >> 16 ^ second
    return words
