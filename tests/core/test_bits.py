import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naive import assert_groups_equal

from cvxsnn.core import bits

n_bits = st.one_of(st.integers(1, 20), st.sampled_from([63, 64, 65, 127, 128, 129, 200]))
seeds = st.integers(0, 2**32 - 1)


def draw_bits(seed, *shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


def draw_words(seed, n_rows, n_words, n_distinct):
    """Rows of 64-bit words, many of them equal; the distinct ones may differ in one bit only."""
    generator = np.random.default_rng(seed)
    distinct = np.tile(generator.integers(-(2**63), 2**63 - 1, n_words, dtype=np.int64), (n_distinct, 1))
    flips = generator.integers(0, 64, (n_distinct, n_words), dtype=np.int64)
    distinct ^= np.int64(1) << flips
    return torch.from_numpy(distinct[generator.integers(0, n_distinct, n_rows)])


@given(seeds, st.integers(1, 20), n_bits)
def test_unpacking_undoes_packing(seed, n_rows, n_bits):
    matrix = draw_bits(seed, n_rows, n_bits)
    packed = bits.pack(matrix)
    assert packed.shape == (n_rows, bits.packed_bytes(n_bits))
    assert torch.equal(bits.unpack(packed, n_bits), matrix)
    assert torch.equal(bits.unpack(packed, n_bits, torch.float64), matrix.double())


@given(seeds, n_bits)
def test_bits_lie_lowest_first_and_the_padding_is_zero(seed, n_bits):
    row = draw_bits(seed, n_bits)
    expected = np.zeros(bits.packed_bytes(n_bits), dtype=np.uint8)
    packed = np.packbits(row.numpy(), bitorder="little")
    expected[: len(packed)] = packed
    assert bits.pack(row).tolist() == expected.tolist()


@pytest.mark.parametrize(("n_bits", "n_bytes"), [(1, 8), (63, 8), (64, 8), (65, 16), (128, 16), (129, 24)])
def test_rows_are_padded_to_whole_words(n_bits, n_bytes):
    assert bits.packed_bytes(n_bits) == n_bytes


def test_views_that_do_not_start_at_a_word_can_be_packed():
    matrix = draw_bits(0, 1, 65)
    assert torch.equal(bits.unpack(bits.pack(matrix[:, 1:]), 64), matrix[:, 1:])
    assert torch.equal(bits.unpack(bits.pack(draw_bits(1, 64, 3).T), 64), draw_bits(1, 64, 3).T)


@given(seeds, n_bits, n_bits)
def test_transposing_is_transposing(seed, n_rows, n_columns):
    matrix = draw_bits(seed, n_rows, n_columns)
    assert torch.equal(bits.transpose(bits.pack(matrix), n_columns), bits.pack(matrix.T))


@given(seeds, st.integers(1, 5), n_bits)
def test_complement_flips_every_bit_and_leaves_the_padding(seed, n_rows, n_bits):
    matrix = draw_bits(seed, n_rows, n_bits)
    assert torch.equal(bits.complement(bits.pack(matrix), n_bits), bits.pack(~matrix))


@given(seeds, st.integers(1, 5), n_bits)
def test_count_is_the_number_of_ones(seed, n_rows, n_bits):
    matrix = draw_bits(seed, n_rows, n_bits)
    assert torch.equal(bits.count(bits.pack(matrix)), matrix.sum(-1))


def test_count_reaches_sixty_four_ones_in_a_word():
    assert bits.count(bits.pack(torch.ones(3, 128, dtype=torch.bool))).tolist() == [128] * 3


@given(seeds, st.integers(1, 60), st.integers(1, 4), st.integers(1, 30))
def test_groups_are_those_of_numpy_in_order_of_first_appearance(seed, n_rows, n_words, n_distinct):
    words = draw_words(seed, n_rows, n_words, n_distinct)
    assert_groups_equal(bits.group_equal(words), words)


@pytest.mark.parametrize("n_words_at_once", [1, 7, 64])
def test_groups_do_not_depend_on_how_many_rows_are_compared_at_once(monkeypatch, n_words_at_once):
    words = draw_words(0, n_rows=50, n_words=3, n_distinct=20)
    hashes = bits.hash_rows(words)
    monkeypatch.setattr(bits, "_rows_at_once", lambda words: max(1, n_words_at_once // max(1, words.shape[1])))
    assert torch.equal(bits.hash_rows(words), hashes)
    assert_groups_equal(bits.group_equal(words), words)


@given(seeds, st.integers(0, 20), st.integers(0, 20), st.integers(1, 3), st.integers(1, 8))
def test_entries_are_among_others_if_one_of_them_is_equal(seed, n_rows, n_others, n_planes, n_distinct):
    words = draw_words(seed, n_rows + n_others, n_planes, n_distinct)
    packed = words[..., None].clone().view(torch.uint8)
    expected = [any(torch.equal(row, other) for other in words[n_rows:]) for row in words[:n_rows]]
    assert bits.are_among(packed[:n_rows], packed[n_rows:]).tolist() == expected


@pytest.mark.parametrize("n_colliding", [1, 3])
def test_groups_are_exact_when_hashes_collide(monkeypatch, n_colliding):
    honest, salts = bits.hash_rows, []

    def colliding(words, salt=0):
        salts.append(salt)
        return torch.zeros_like(words[:, 0]) if salt < n_colliding else honest(words, salt)

    monkeypatch.setattr(bits, "hash_rows", colliding)
    words = draw_words(0, n_rows=50, n_words=3, n_distinct=20)
    assert_groups_equal(bits.group_equal(words), words)
    assert salts == list(range(n_colliding + 1))


def test_a_hash_that_never_tells_rows_apart_is_an_error_and_no_answer(monkeypatch):
    monkeypatch.setattr(bits, "hash_rows", lambda words, salt: torch.zeros_like(words[:, 0]))
    with pytest.raises(AssertionError, match="collided"):
        bits.group_equal(torch.tensor([[0], [1]]))


def test_rows_that_differ_in_any_one_bit_hash_differently():
    flipped = torch.tensor(1, dtype=torch.int64) << torch.arange(64)
    words = torch.cat([torch.zeros(1, 2, dtype=torch.int64), torch.stack([flipped, flipped * 0], 1)])
    assert bits.hash_rows(words).unique().numel() == 65
    assert bits.hash_rows(words.flip(1)).unique().numel() == 65
