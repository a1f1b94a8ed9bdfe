import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.core.seeds import check_seed, child_generator, child_seed

names = st.lists(st.one_of(st.text(max_size=5), st.integers(0, 99)), min_size=1, max_size=3)


def draw(seed, *names):
    return child_generator(seed, *names).integers(2**63, size=4).tolist()


@given(st.integers(0, 2**70), names)
def test_a_stream_depends_on_seed_and_names_alone(seed, names):
    assert draw(seed, *names) == draw(seed, *names)


def test_streams_of_different_names_or_seeds_differ():
    streams = [
        draw(0, "addition", "train"),
        draw(0, "addition", "val"),
        draw(0, "train", "addition"),
        draw(0, "additiontrain"),
        draw(0, "addition"),
        draw(0, "addition", "train", 0),
        draw(1, "addition", "train"),
    ]
    assert len(set(map(tuple, streams))) == len(streams)


def test_a_stream_is_the_same_on_every_machine_and_in_every_release():
    # Raw words, because NumPy keeps these for ever but reserves the right to improve its distributions.
    assert child_generator(0, "addition", 2, 5, "train").bit_generator.random_raw() == 6284552329134992652


@pytest.mark.parametrize("seed", [0, 7, np.int64(3)])
def test_non_negative_integers_are_seeds(seed):
    assert check_seed(seed) == int(seed)
    assert type(check_seed(seed)) is int


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True])
def test_anything_else_is_refused_with_what_to_pass(seed):
    with pytest.raises(InvalidInputError, match=r"non-negative integer, got .*: pass for example seed=0"):
        child_generator(seed, "any")


@given(st.integers(0, 2**70), names)
def test_a_child_seed_is_a_seed_that_depends_on_seed_and_names_alone(seed, names):
    child = child_seed(seed, *names)
    assert child == child_seed(seed, *names)
    assert check_seed(child) == child
    assert type(child) is int


def test_child_seeds_of_different_names_or_seeds_differ_and_so_do_their_streams():
    seeds = [
        child_seed(seed, *names) for seed in (0, 1) for names in (("pool", 0), ("pool", 1), ("pool",), ("tuning",))
    ]
    assert len(set(seeds)) == len(seeds)
    assert len({tuple(draw(seed, "witness")) for seed in (0, 1, *seeds)}) == len(seeds) + 2
