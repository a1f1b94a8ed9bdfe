import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from dictionary.brute import (
    LENGTHS,
    READOUTS,
    SEQUENCE_READOUTS,
    draw_inputs,
    draw_witnesses,
    random_bits,
    random_values,
)
from naive import assert_groups_equal
from tolerances import FLOAT64_SUM

import cvxsnn.dictionary.products
import cvxsnn.dictionary.spikes
from cvxsnn import LIFLayer, WitnessSet, build_dictionary, gaussian_witnesses
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import count_dictionary
from cvxsnn.dictionary.products import TUNING, level_roundings, sum_in_levels
from cvxsnn.dictionary.spikes import dictionary_bytes
from cvxsnn.witnesses import Provenance


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [1, 8, 20, 64, 10_000])
def test_row_blocks_are_the_columns_cut_across(readout, dtype, n_rows):
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(), readout)
    blocks = list(dictionary.iterate_rows(n_rows, dtype))
    assert torch.equal(torch.cat([block for _, block in blocks]), dictionary.columns(dtype=dtype))
    covered = [row for rows, _ in blocks for row in range(rows.start, rows.stop)]
    assert covered == list(range(dictionary.n_rows))
    assert all(len(block) <= max(8, n_rows) for _, block in blocks)


@pytest.mark.parametrize("readout", READOUTS)
def test_columns_may_be_chosen(readout):
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(), readout)
    chosen = torch.tensor([4, 0, 4])
    assert torch.equal(dictionary.columns(chosen), dictionary.columns()[:, chosen])
    assert torch.equal(dictionary.columns(slice(1, 3)), dictionary.columns()[:, 1:3])


@pytest.mark.parametrize("block", [1, 1000, 2**20])
@pytest.mark.parametrize("readout", READOUTS)
def test_products_are_those_of_the_columns_however_they_are_cut(monkeypatch, readout, block):
    monkeypatch.setattr(cvxsnn.dictionary.spikes, "PRODUCT_BLOCK", block)
    monkeypatch.setattr(cvxsnn.dictionary.products, "TUNING", replace(TUNING, block_bytes=block))
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(), readout)
    columns, generator = dictionary.columns(), torch.Generator().manual_seed(0)
    # Whole numbers, so that sums of spikes are exact in any order; a few atoms are not used at all.
    coef = torch.randint(-5, 6, (dictionary.n_atoms, 2), generator=generator).double()
    coef[::3] = 0
    rows = torch.randint(-5, 6, (dictionary.n_rows, 2), generator=generator).double()
    tolerance = {"rtol": 0, "atol": FLOAT64_SUM if readout == "mean" else 0}
    torch.testing.assert_close(dictionary.matvec(coef), columns @ coef, **tolerance)
    torch.testing.assert_close(dictionary.rmatvec(rows), columns.T @ rows, **tolerance)
    torch.testing.assert_close(dictionary.gram(), columns.T @ columns, **tolerance)
    torch.testing.assert_close(dictionary.row_gram(), columns @ columns.T, **tolerance)


@pytest.mark.parametrize("n_atoms", [3, 64, 257, 300])
def test_blocks_of_the_gram_matrix_cover_it_on_and_above_the_diagonal(n_atoms):
    spikes = torch.rand(500, n_atoms, generator=torch.Generator().manual_seed(n_atoms)) < 0.5
    dictionary = build_dictionary(spikes)
    columns = dictionary.columns()
    expected, edge = columns.T @ columns, 0
    for atoms, products in dictionary.iterate_gram():
        assert atoms.start == edge
        assert torch.equal(products, expected[atoms, atoms.start :])
        edge = atoms.stop
    assert edge == n_atoms
    assert torch.equal(dictionary.gram(), expected)


@pytest.mark.parametrize("n_rows", [5, 127, 128, 129, 500, 40_000])
def test_sums_in_levels_are_those_of_the_products_with_as_few_roundings_as_they_claim(n_rows):
    generator = torch.Generator().manual_seed(n_rows)
    across = torch.randint(-9, 10, (3, n_rows), generator=generator).double()
    block = torch.randint(0, 9, (7, n_rows), generator=generator).double()
    assert torch.equal(sum_in_levels(across, block), block @ across.T)
    assert level_roundings(n_rows) <= n_rows + 3
    # In the worst order each sum of m terms rounds each of them m − 1 times, after the product.
    n_sums = -(-n_rows // 128)
    assert level_roundings(n_rows) >= min(n_rows, 128) + min(n_sums, 128) - 1 + -(-n_sums // 128) - 1


@pytest.mark.parametrize("readout", READOUTS)
def test_rows_may_be_chosen(readout):
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(), readout)
    chosen = torch.tensor([70, 3, 3, 0, 64])
    taken = dictionary.take_rows(chosen)
    assert taken.shape == (5, dictionary.n_atoms)
    assert torch.equal(taken.columns(), dictionary.columns()[chosen])
    tolerance = {"rtol": 0, "atol": FLOAT64_SUM if readout == "mean" else 0}
    torch.testing.assert_close(taken.gram(), taken.columns().T @ taken.columns(), **tolerance)


@pytest.mark.parametrize("readout", READOUTS)
def test_rows_are_grouped_by_their_spikes(readout):
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(n_samples=200, n_steps=2), readout)
    groups = dictionary.group_rows()
    assert len(groups.first) < dictionary.n_rows
    assert_groups_equal(groups, dictionary.columns())


def test_rows_of_means_are_equal_only_if_all_digits_of_their_counts_are():
    # one neuron that repeats its input: counts 0, 2, 1, 2 of two steps, in binary 00, 10, 01, 10
    layer = LIFLayer(torch.ones(1, 1, 1), bias=-0.5, decay=0.0, threshold=0.0)
    inputs = np.array([[0, 0], [1, 1], [0, 1], [1, 1]])[:, :, None]
    dictionary = build_dictionary(WitnessSet((layer,), Provenance("pretrained")), inputs, "mean")
    assert dictionary.columns().flatten().tolist() == [0, 1, 0.5, 1]
    assert dictionary.group_rows().inverse.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("n_atoms", [7, 8, 16])
def test_a_single_row_of_means_is_a_group_of_its_own(n_atoms):
    row = count_dictionary(torch.arange(n_atoms).expand(2, -1), 20).take_rows(torch.tensor([1]))
    assert row.group_rows().counts.tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(200,), (200, 1), (200, 3)], ids=str)
def test_rows_are_grouped_by_their_spikes_and_labels(dtype, shape):
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(n_samples=200, n_steps=2))
    levels = torch.tensor([0.0, -0.0, 0.25, 0.75]) if dtype.is_floating_point else torch.tensor([0, 0, 1, 1])
    labels = levels[torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(3))].to(dtype)
    both = torch.cat([dictionary.columns(), labels.reshape(200, -1).double()], dim=1)
    groups = dictionary.group_rows(labels)
    assert len(dictionary.group_rows().first) < len(groups.first) < 200
    assert_groups_equal(groups, both + 0.0)


def test_one_line_tells_sizes_and_origin():
    assert repr(build_dictionary(np.eye(3))) == "SpikeDictionary(3 rows × 3 atoms, readout='last', from a plain array)"


@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
@pytest.mark.parametrize("n_rows", [8, 20, 64])
def test_blocks_products_and_rows_of_unequal_means_are_those_of_the_columns(monkeypatch, readout, n_rows):
    monkeypatch.setattr(cvxsnn.dictionary.spikes, "PRODUCT_BLOCK", 1000)
    dictionary = build_dictionary(draw_witnesses(), Sequences(draw_inputs(), LENGTHS), readout)
    columns, generator = dictionary.columns(), torch.Generator().manual_seed(0)
    blocks = torch.cat([block for _, block in dictionary.iterate_rows(n_rows)])
    assert torch.equal(blocks, columns)
    coef = torch.randn(dictionary.n_atoms, 2, generator=generator, dtype=torch.float64)
    rows = torch.randn(75, 2, generator=generator, dtype=torch.float64)
    tolerance = {"rtol": 0, "atol": FLOAT64_SUM}
    torch.testing.assert_close(dictionary.matvec(coef), columns @ coef, **tolerance)
    torch.testing.assert_close(dictionary.rmatvec(rows), columns.T @ rows, **tolerance)
    torch.testing.assert_close(dictionary.gram(), columns.T @ columns, **tolerance)
    torch.testing.assert_close(dictionary.row_gram(), columns @ columns.T, **tolerance)
    chosen = torch.tensor([70, 3, 3, 0, 64])
    assert torch.equal(dictionary.take_rows(chosen).columns(), columns[chosen])


@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
def test_rows_of_unequal_length_merge_only_if_their_numbers_and_lengths_are_equal(readout):
    inputs, lengths = draw_inputs(n_samples=200, n_steps=2), torch.arange(200) % 2 + 1
    dictionary = build_dictionary(draw_witnesses(), Sequences(inputs, lengths), readout)
    groups, columns = dictionary.group_rows(), dictionary.columns()
    assert len(groups.first) < 200
    # Equal means of unequal lengths stay apart; what is merged is equal.
    assert torch.equal(columns[groups.first][groups.inverse], columns)
    assert_groups_equal(groups, torch.cat([columns, lengths[:, None]], dim=1) if readout == "mean" else columns)


def test_one_spike_of_one_step_is_not_one_of_two():
    layer = LIFLayer(torch.ones(1, 1, 1), bias=-0.5, decay=0.0, threshold=0.0)
    inputs = np.array([[1, 0], [1, 0], [1, 1], [0, 1]])[:, :, None]
    witnesses = WitnessSet((layer,), Provenance("pretrained"))
    dictionary = build_dictionary(witnesses, Sequences(inputs, [1, 2, 2, 1]), "mean")
    assert dictionary.columns().flatten().tolist() == [1, 0.5, 1, 0]
    assert dictionary.group_rows().inverse.tolist() == [0, 1, 2, 3]


NARROW = """
import torch
from cvxsnn.dictionary import count_dictionary

counts = torch.randint(60, 128, (500, 40), generator=torch.Generator().manual_seed(0))
dictionary, whole = count_dictionary(counts, 127), counts.double()
gram, rows = dictionary.gram(), dictionary.row_gram()
assert torch.equal(gram, whole.T @ whole / 127**2), (gram - whole.T @ whole / 127**2).abs().max()
assert torch.equal(rows, whole @ whole.T / 127**2), (rows - whole @ whole.T / 127**2).abs().max()
"""


@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE", "DEFAULT"])
def test_counts_are_multiplied_exactly_on_any_processor(instructions):
    """Without instructions for bytes, products of two large ones would saturate."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions}
    subprocess.run([sys.executable, "-c", NARROW], env=environment, check=True)


@pytest.mark.parametrize("n_outputs", [1, 4, 5])
@pytest.mark.parametrize("n_steps", [1, 5])
def test_products_of_a_dictionary_are_those_of_its_columns(n_steps, n_outputs):
    counts = torch.randint(0, n_steps + 1, (300, 70), generator=torch.Generator().manual_seed(0))
    dictionary = count_dictionary(counts, n_steps) if n_steps > 1 else build_dictionary(counts == 1)
    columns = dictionary.columns()
    rows, coef = random_values(300, n_outputs), random_values(dictionary.n_atoms, n_outputs)
    torch.testing.assert_close(dictionary.rmatvec(rows), columns.T @ rows, rtol=0, atol=FLOAT64_SUM)
    torch.testing.assert_close(dictionary.matvec(coef), columns @ coef, rtol=0, atol=FLOAT64_SUM)
    assert dictionary.matvec(coef).is_contiguous()


@pytest.mark.parametrize(("n_rows", "n_columns"), [(1, 1), (8, 3), (64, 5), (65, 7), (500, 33)])
def test_dictionary_bytes_are_those_of_the_columns(n_rows, n_columns):
    patterns = build_dictionary(random_bits(n_rows, n_columns)).patterns
    assert dictionary_bytes(n_rows, len(patterns)) == patterns.nbytes


@pytest.mark.parametrize(
    ("readout", "n_steps", "bits_per_entry"),
    [("last", 5, 1), ("all", 5, 1), ("mean", 1, 8), ("mean", 8, 8), ("mean", 256, 16), ("windows-2", 256, 8)],
)
def test_spikes_take_a_bit_each_and_counts_a_byte_or_two(readout, n_steps, bits_per_entry):
    inputs = torch.randn(37, n_steps, 3, generator=torch.Generator().manual_seed(0))
    dictionary = build_dictionary(gaussian_witnesses(3, (20,), bias=0.3), inputs, readout)
    assert dictionary.patterns.nbytes == dictionary_bytes(dictionary.n_rows, dictionary.n_atoms, readout, n_steps)
    n_words = -(-dictionary.n_rows * bits_per_entry // 64)
    assert dictionary.patterns.nbytes == 8 * n_words * dictionary.n_atoms


@pytest.mark.parametrize("n_steps", [79, 80, 255, 256, 300, 32_767, 32_768, 1_000_000])
def test_counts_of_any_size_are_multiplied_exactly(n_steps):
    counts = torch.randint(0, n_steps + 1, (70, 300), generator=torch.Generator().manual_seed(0))
    dictionary, whole = count_dictionary(counts, n_steps), counts.double()
    assert torch.equal(dictionary.gram(), whole.T @ whole / n_steps**2)
    assert torch.equal(dictionary.row_gram(), whole @ whole.T / n_steps**2)
    assert torch.equal(dictionary.columns(), whole * (1 / n_steps))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build_dictionary(np.eye(3)).group_rows(torch.zeros(4)), "one label for each of 3 rows, got 4"),
        (lambda: next(build_dictionary(np.eye(3)).iterate_rows(0)), "n_rows to be a positive integer, got 0"),
    ],
)
def test_rows_that_cannot_be_read_are_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
