import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from witnesses.pools import DEEP_DELAYED, DELAYED, FAMILIES, FAMILY, INPUTS, all_witnesses, draw_pool

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.witnesses.pool import WitnessPool


@pytest.mark.parametrize("family", FAMILIES)
def test_witnesses_are_taken_in_the_order_asked_for(family):
    pool = draw_pool(100, FAMILIES[family])
    spikes = cs.roll_out(all_witnesses(pool).layers, INPUTS, "all")
    chosen = torch.tensor([95, 3, 0, 40, 31, 32, 3, 99, 64])
    taken = pool.take(chosen)
    assert (taken.n_witnesses, taken.hidden[-1]) == (len(chosen), 1)
    assert torch.equal(cs.roll_out(taken.layers, INPUTS, "all"), spikes[:, :, chosen])


def tensors_of(witnesses):
    return [value for layer in witnesses.layers for value in layer.tensors().values()]


def are_equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(tensors_of(one), tensors_of(other), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_block_is_the_same_every_time_and_no_other_is(family):
    family = FAMILIES[family]
    pool, again = draw_pool(family=family), draw_pool(family=family)
    assert all(are_equal(pool.block(n), again.block(n)) for n in (0, 3, pool.n_blocks - 1))
    assert are_equal(pool.block(3), pool.block(3))
    weights = [pool.block(n).layers[0].weight for n in range(pool.n_blocks - 1)]
    weights += [draw_pool(family=family, seed=seed).block(0).layers[0].weight for seed in (1, 2)]
    assert len({tuple(weight.flatten().tolist()) for weight in weights}) == len(weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_smaller_pool_is_the_beginning_of_a_larger_one(family):
    small, large = (cs.roll_out(all_witnesses(draw_pool(n, FAMILIES[family])).layers, INPUTS) for n in (72, 200))
    assert torch.equal(small, large[:, :72])


@pytest.mark.parametrize("n_witnesses", [1, 7, 8, 9, 31, 32, 33, 256])
def test_the_size_is_rounded_up_to_whole_subnetworks(n_witnesses):
    pool = draw_pool(n_witnesses)
    assert n_witnesses <= pool.n_witnesses < n_witnesses + 8
    assert pool.n_witnesses % 8 == 0
    sizes = [pool.block(n).n_witnesses for n in range(pool.n_blocks)]
    assert sum(sizes) == pool.n_witnesses
    assert pool.starts == [0, *np.cumsum(sizes)]
    assert set(sizes[:-1]) <= {32}


def test_a_subnetwork_wider_than_a_block_is_a_block():
    pool = draw_pool(100, {"hidden": (50,)})
    assert [pool.block(n).n_witnesses for n in range(pool.n_blocks)] == [50, 50]


def test_a_family_s_own_number_of_subnetworks_does_not_count():
    assert are_equal(draw_pool().block(0), draw_pool(family={**FAMILY, "n_subnetworks": 3}).block(0))


def test_all_blocks_are_sampled_with_the_same_few_sequences():
    pool = draw_pool(family=DEEP_DELAYED)
    assert len(pool.inputs) == 10
    assert len({pool.block(n).provenance.recipe["inputs"] for n in range(pool.n_blocks)}) == 1
    block = pool.block(3)
    assert are_equal(block, cs.witnesses.regenerate(block.provenance, inputs=pool.inputs))
    other = draw_pool(family=DEEP_DELAYED, seed=1)
    assert other.inputs_digest != pool.inputs_digest


@pytest.mark.parametrize("family", FAMILIES)
def test_pools_of_one_family_and_one_set_of_inputs_are_equal_and_survive_a_pickle(family):
    family = FAMILIES[family]
    pool, again = draw_pool(family=family), pickle.loads(pickle.dumps(draw_pool(family=family)))
    assert pool == again == replace(pool)
    assert pool != draw_pool(family=family, seed=1)
    assert are_equal(pool.block(1), again.block(1))
    other = WitnessPool(2, family, 256, block_size=32, inputs=INPUTS + 1)
    assert (pool == other) == ("geometry" not in family)


def test_inputs_are_kept_only_where_they_are_needed():
    assert draw_pool().inputs is None
    assert "tensor" not in repr(draw_pool(family=DELAYED))


@pytest.mark.parametrize(
    ("family", "inputs", "message"),
    [
        (DELAYED, None, "training inputs for a pool of neurons with delays, got none: pass inputs="),
        (DELAYED, INPUTS[:, :, :1], "inputs of 2 features, got 1"),
        ({**DELAYED, "n_calibration": 0}, INPUTS, "n_calibration to be a positive integer, got 0"),
    ],
)
def test_what_a_family_with_delays_cannot_be_sampled_with_is_refused_in_one_sentence(family, inputs, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        WitnessPool(2, family, 64, inputs=inputs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"family": {"decay": 0.5}}, r"widths of its hidden layers, got none: add hidden=\(256,\)"),
        ({"family": {"hidden": 8}}, "hidden to list the layers' widths, got 8"),
        ({"family": {"mixture": "all", "n_witnesses": 8}}, "hidden layers for a pool, got 'mixed'"),
        ({"family": {"hidden": (8,), "neuron": "threshold"}}, "got threshold neurons, which read each other"),
        ({"n_witnesses": 0}, "n_witnesses to be a positive integer, got 0"),
        ({"n_witnesses": 1e6}, "n_witnesses to be a positive integer, got 1000000.0"),
        ({"seed": -1}, "seed to be a non-negative integer"),
    ],
)
def test_what_makes_no_pool_is_refused_in_one_sentence(change, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        draw_pool(**change)
    assert "\n" not in str(caught.value)
