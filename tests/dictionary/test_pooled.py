"""The spikes of a pool, block by block, kept or drawn again."""

import pytest
import torch
from witnesses.pools import INPUTS, draw_pool

from cvxsnn import roll_out
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary.pooled import PoolSpikes


def pool_spikes(**options):
    return PoolSpikes(draw_pool(), Sequences(INPUTS), "last", **options)


def test_a_block_has_the_distinct_spikes_of_its_witnesses():
    spikes = pool_spikes()
    block, expected = spikes.block(3), roll_out(spikes.pool.block(3).layers, INPUTS)
    assert torch.equal(block.columns(dtype=torch.bool), expected[:, block.column_of_atom])
    assert torch.equal(block.patterns, spikes.of(spikes.pool.block(3)).patterns)


def test_blocks_are_kept_while_there_is_room_and_drawn_again_without_a_difference():
    roomy, tight = pool_spikes(), pool_spikes(memory_budget=1)
    assert roomy.block(3) is roomy.block(3)
    assert tight.block(3) is not tight.block(3)
    assert torch.equal(tight.block(3).patterns, roomy.block(3).patterns)


@pytest.mark.parametrize("memory_budget", [1, 600, 2**30])
def test_every_block_is_judged_once_with_the_number_of_its_first_witness(memory_budget):
    spikes = pool_spikes(memory_budget=memory_budget)
    spikes.block(1)
    expected = [(start, spikes.block(n).n_atoms) for n, start in enumerate(spikes.pool.starts[:5])]
    for _ in range(2):
        found = list(spikes.judge_blocks(lambda block, start: (start, block.n_atoms), 5))
        assert sorted(found) == expected
