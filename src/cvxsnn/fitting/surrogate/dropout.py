"""Dropout: hiding inputs and spikes at random while a network trains, so that no neuron relies on a few others.

A mask depends on a key and a position alone, by integer arithmetic. It is the same on every device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

_WORD = 2**32 - 1


@dataclass(frozen=True, eq=False)
class Dropout:
    """What to hide from a network at one training step.

    Parameters
    ----------
    inputs : float
        The share of the inputs of each step that is hidden.
    hidden : float
        The share of the hidden neurons that is hidden for a whole sequence.
    key : int
        It decides what is hidden.
    """

    inputs: float
    hidden: float
    key: int

    def hide(self, block: Tensor, depth: int) -> Tensor:
        """Return a block of inputs or spikes with some hidden, (K, n_steps, n_samples, n_neurons).

        Inputs, at depth 0, are hidden a step at a time, spikes for a whole sequence. What stays is scaled up, so that
        sums keep their mean.
        """
        share = self.inputs if depth == 0 else self.hidden
        if not share:
            return block
        shape = list(block.shape)
        if depth > 0:
            shape[1] = 1
        # A word of 32 bits is below share · 2³² with probability share.
        stays = (_words(self.key ^ depth, torch.Size(shape).numel(), block.device) >= share * 2**32).view(shape)
        return block * stays * torch.tensor(1 / (1 - share), dtype=block.dtype, device=block.device)


def _words(key: int, size: int, device: torch.device) -> Tensor:
    """Return random words of 32 bits: a counter, mixed by the finaliser of MurmurHash3."""
    first, second = key & _WORD, key >> 31 & _WORD
    words = (torch.arange(size, device=device) * 0x9E3779B1 + first) & _WORD
    # Products wrap around in int64, but their low 32 bits, which the mask keeps, are exact on every device.
    for _ in range(2):
        words = (words ^ words >> 16) * 0x85EBCA6B & _WORD
        words = (words ^ words >> 13) * 0xC2B2AE35 & _WORD
        words = words ^ words >> 16 ^ second
    return words
