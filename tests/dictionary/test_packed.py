import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import assert_groups_equal
from tolerances import FLOAT64_MEAN, FLOAT64_SUM

import cvxsnn.dictionary.building
import cvxsnn.dictionary.packed
from cvxsnn import LIFLayer, WitnessSet, build_dictionary, gaussian_witnesses, roll_out
from cvxsnn.core import bits, memory
from cvxsnn.core.errors import BudgetError, InvalidInputError
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import count_dictionary, stack_health
from cvxsnn.dictionary.packed import MAX_LOOKUP_OUTPUTS, dictionary_bytes, lookup_product, n_planes_of
from cvxsnn.witnesses import Normal, Provenance, Uniform

READOUTS = ["last", "all", "mean"]


def draw_inputs(n_samples=75, n_steps=5):
    """Three bits a step: few enough for witnesses to share patterns, and for rows to be equal."""
    return torch.randint(0, 2, (n_samples, n_steps, 3), generator=torch.Generator().manual_seed(0))


def draw_witnesses(neuron="lif"):
    spread = {"decay": Uniform(0, 1), "bias": Normal(0, 1)} if neuron == "lif" else {"bias": Normal(0, 1)}
    return gaussian_witnesses(3, (10, 40), 3, neuron=neuron, seed=1, **spread)


def brute_columns(witnesses, inputs, readout):
    """Every witness's column as numbers, straight from the spikes."""
    spikes = roll_out(witnesses.layers, inputs, "all").double()
    return {"last": spikes[:, -1], "all": spikes.flatten(0, 1), "mean": spikes.mean(1)}[readout]


def brute_health(columns):
    """Dead, saturated, duplicate columns, complementary pairs of distinct ones, and density, for values in [0, 1]."""
    distinct = {tuple(column) for column in columns.T.tolist()}
    # Counts over 5 steps are fifths, which 1 − x may miss by a rounding.
    complements = {tuple(np.round(1 - np.array(column), 9)) for column in distinct}
    n_complementary = len({tuple(np.round(column, 9)) for column in distinct} & complements) // 2
    return {
        "n_dead": int((columns == 0).all(0).sum()),
        "n_saturated": int((columns == 1).all(0).sum()),
        "n_duplicate": columns.shape[1] - len(distinct),
        "n_complementary": n_complementary,
        "n_atoms": len(distinct),
        "n_witnesses": columns.shape[1],
    }


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("readout", READOUTS)
def test_the_column_of_every_witness_is_its_atoms(readout, neuron):
    witnesses, inputs = draw_witnesses(neuron), draw_inputs()
    dictionary = build_dictionary(witnesses, inputs, readout)
    assert 1 < dictionary.n_atoms < dictionary.n_witnesses
    torch.testing.assert_close(
        dictionary.columns()[:, dictionary.atom_of_witness],
        brute_columns(witnesses, inputs, readout),
        rtol=FLOAT64_MEAN if readout == "mean" else 0,
        atol=0,
    )


@pytest.mark.parametrize("readout", READOUTS)
def test_atoms_are_distinct_in_order_of_their_first_witness(readout):
    witnesses, inputs = draw_witnesses(), draw_inputs()
    dictionary = build_dictionary(witnesses, inputs, readout)
    groups = (dictionary.witness_of_atom, dictionary.atom_of_witness, dictionary.atom_of_witness.bincount())
    assert_groups_equal(groups, brute_columns(witnesses, inputs, readout).T)


@pytest.mark.parametrize("readout", READOUTS)
def test_means_are_whole_counts_over_the_number_of_steps(readout):
    dictionary = build_dictionary(draw_witnesses(), draw_inputs(n_steps=7), readout)
    scale = 1 / 7 if readout == "mean" else 1.0
    counts = (dictionary.columns() / scale).round()
    assert torch.equal(dictionary.columns(), counts * scale)
    assert counts.max() == (7 if readout == "mean" else 1)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("n_samples", [1, 8, 63, 64, 65, 75])
@pytest.mark.parametrize("chunk_bytes", [1, 20_000])
def test_a_dictionary_does_not_depend_on_the_chunk(readout, n_samples, chunk_bytes):
    witnesses, inputs = draw_witnesses(), draw_inputs(n_samples)
    whole = build_dictionary(witnesses, inputs, readout)
    chunked = build_dictionary(witnesses, inputs, readout, chunk_bytes=chunk_bytes)
    assert torch.equal(chunked.packed, whole.packed)
    assert torch.equal(chunked.atom_of_witness, whole.atom_of_witness)
    torch.testing.assert_close(
        chunked.columns()[:, chunked.atom_of_witness],
        brute_columns(witnesses, inputs, readout),
        rtol=FLOAT64_MEAN,
        atol=0,
    )


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor, np.ndarray.tolist], ids=["array", "tensor", "list"])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32])
def test_a_plain_array_is_its_own_columns(convert, dtype):
    array = np.random.default_rng(0).integers(0, 2, (70, 40)).astype(dtype)
    array[:, 7] = array[:, 3]
    array.flags.writeable = False
    dictionary = build_dictionary(convert(array))
    assert dictionary.shape == (70, 39)
    assert dictionary.witnesses is None
    assert dictionary.atom_of_witness[7] == dictionary.atom_of_witness[3]
    assert (dictionary.columns()[:, dictionary.atom_of_witness].numpy() == array).all()


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
    monkeypatch.setattr(cvxsnn.dictionary.packed, "_PRODUCT_BLOCK", block)
    monkeypatch.setattr(cvxsnn.dictionary.packed, "_GRAM_BLOCK", block)
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


@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.integers(1, 12))
@settings(max_examples=50)
def test_health_counts_what_the_columns_show(seed, n_rows, n_columns):
    generator = np.random.default_rng(seed)
    array = generator.integers(0, 2, (min(n_rows, 3), n_columns))[generator.integers(0, min(n_rows, 3), n_rows)]
    array = np.concatenate([array, array[:, :1], 1 - array[:, :2], np.zeros((n_rows, 1), int)], axis=1)
    health = build_dictionary(array).health()
    assert {name: getattr(health, name) for name in brute_health(array)} == brute_health(array)
    assert health.density == pytest.approx(array.mean(), rel=FLOAT64_MEAN)


@pytest.mark.parametrize("n_steps", [1, 4, 5])
@pytest.mark.parametrize("readout", READOUTS)
def test_health_of_witnesses_counts_what_the_columns_show(readout, n_steps):
    # Negated weights and a bias of half a unit, against ties, give every pattern its negation.
    weight = torch.randint(-2, 3, (1, 3, 30), generator=torch.Generator().manual_seed(0)).float()
    bias = torch.full((30,), 0.5)
    layer = LIFLayer(torch.cat([weight, -weight], dim=2), bias=torch.cat([bias, -bias]), decay=0.0, threshold=0.0)
    witnesses, inputs = WitnessSet((layer,), Provenance("pretrained")), draw_inputs(10, n_steps)
    columns = brute_columns(witnesses, inputs, readout).numpy()
    health = build_dictionary(witnesses, inputs, readout).health()
    assert health.n_complementary > 5
    assert {name: getattr(health, name) for name in brute_health(columns)} == brute_health(columns)
    assert health.density == pytest.approx(columns.mean(), rel=FLOAT64_MEAN)


def test_a_mean_that_is_its_own_negation_is_no_pair():
    # decay 0 and threshold 2 with drive 1: the neuron fires every other step, whatever it reads
    layer = LIFLayer(torch.zeros(1, 3, 1), bias=1.0, decay=0.0, threshold=2.0)
    dictionary = build_dictionary(WitnessSet((layer,), Provenance("pretrained")), draw_inputs(n_steps=4), "mean")
    assert dictionary.columns().unique().tolist() == [0.5]
    assert dictionary.health().n_complementary == 0


def test_one_line_tells_sizes_and_origin():
    assert repr(build_dictionary(np.eye(3))) == "SpikeDictionary(3 rows × 3 atoms, readout='last', from a plain array)"
    health = build_dictionary(np.array([[0, 1, 0, 1, 1], [1, 1, 0, 0, 0]])).health()
    assert str(health) == (
        "5 witnesses gave 4 atoms (density 0.500): 1 dead, 1 saturated, 1 duplicate, 2 complementary pairs; "
        "2 of 2 rows distinct"
    )


def test_the_health_of_a_stack_tells_which_layer_dies_and_which_takes_rows_for_one():
    inputs = draw_inputs(20, 4)
    dense = gaussian_witnesses(3, (16, 16, 16), balance=[0, 0.5, 0.5], fan_in=[None, 1, 1], decay=0.0, threshold=0.0)
    dead = replace(dense.layers[1], bias=-100.0)
    witnesses = WitnessSet((dense.layers[0], dead, dense.layers[2]), Provenance("pretrained"))
    first, second, third = stack_health(witnesses, inputs)
    assert first.n_distinct_rows > 1
    assert (second.n_dead, second.n_distinct_rows, second.density) == (16, 1, 0.0)
    assert third.n_distinct_rows == 1
    alive = stack_health(dense, inputs)
    # Each neuron reads one below: rows may coincide only where nobody reads what tells them apart.
    assert alive[0] == first
    assert 1 < alive[2].n_distinct_rows <= alive[0].n_distinct_rows


def test_a_dictionary_over_its_budget_is_refused_before_any_roll_out(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("rolled out all the same")

    monkeypatch.setattr(cvxsnn.dictionary.building, "iterate_rollout", refuse)
    with pytest.raises(BudgetError, match="within 1 MiB, but 150,000 rows × 120 columns need 2 MiB: raise memory_b"):
        build_dictionary(draw_witnesses(), draw_inputs(150_000), memory_budget=2**20)


@pytest.mark.parametrize(("readout", "n_bytes"), [("last", 120 * 16), ("all", 120 * 48), ("mean", 120 * 16 * 3)])
def test_the_budget_is_the_size_of_the_packed_columns(readout, n_bytes):
    build_dictionary(draw_witnesses(), draw_inputs(), readout, memory_budget=n_bytes)
    with pytest.raises(BudgetError):
        build_dictionary(draw_witnesses(), draw_inputs(), readout, memory_budget=n_bytes - 1)


LENGTHS = torch.arange(75) * 7 % 5 + 1
SEQUENCE_READOUTS = ["last", "mean"]


def brute_padded(witnesses, inputs, readout, lengths=LENGTHS):
    """Every witness's column where each sequence was rolled out alone, without its padding."""
    rows = [brute_columns(witnesses, row[None, :length], readout) for row, length in zip(inputs, lengths, strict=True)]
    return torch.cat(rows)


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
@pytest.mark.parametrize("chunk_bytes", [1, 20_000, 2**24])
def test_rows_of_padded_sequences_are_those_of_each_alone(readout, neuron, chunk_bytes):
    witnesses, inputs = draw_witnesses(neuron), draw_inputs()
    dictionary = build_dictionary(witnesses, Sequences(inputs, LENGTHS), readout, chunk_bytes=chunk_bytes)
    expected = brute_padded(witnesses, inputs, readout)
    columns = dictionary.columns()
    torch.testing.assert_close(columns[:, dictionary.atom_of_witness], expected, rtol=FLOAT64_MEAN, atol=0)
    for row in (0, 3, 41):
        alone = build_dictionary(witnesses, inputs[row : row + 1, : LENGTHS[row]], readout)
        assert torch.equal(columns[row, dictionary.atom_of_witness], alone.columns()[0, alone.atom_of_witness])
    padding = torch.arange(5) >= LENGTHS[:, None]
    changed = torch.where(padding[:, :, None], 1 - inputs, inputs)
    assert torch.equal(build_dictionary(witnesses, Sequences(changed, LENGTHS), readout).packed, dictionary.packed)


@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
@pytest.mark.parametrize("n_rows", [8, 20, 64])
def test_blocks_products_and_rows_of_unequal_means_are_those_of_the_columns(monkeypatch, readout, n_rows):
    monkeypatch.setattr(cvxsnn.dictionary.packed, "_PRODUCT_BLOCK", 1000)
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


@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
def test_health_of_unequal_lengths_counts_what_the_columns_show(readout):
    weight = torch.randint(-2, 3, (1, 3, 30), generator=torch.Generator().manual_seed(0)).float()
    bias = torch.full((30,), 0.5)
    layer = LIFLayer(torch.cat([weight, -weight], dim=2), bias=torch.cat([bias, -bias]), decay=0.0, threshold=0.0)
    witnesses, inputs = WitnessSet((layer,), Provenance("pretrained")), draw_inputs(10, 5)
    lengths = LENGTHS[:10]
    columns = brute_padded(witnesses, inputs, readout, lengths).numpy()
    health = build_dictionary(witnesses, Sequences(inputs, lengths), readout).health()
    expected = brute_health(columns)
    assert health.n_complementary > 5
    assert {name: getattr(health, name) for name in expected} == expected
    # the density of means is over all steps there are, long sequences counting for more
    share = lengths.double() if readout == "mean" else torch.ones(10, dtype=torch.float64)
    density = float((share / share.sum()) @ torch.from_numpy(columns).mean(1))
    assert health.density == pytest.approx(density, rel=FLOAT64_MEAN)


INPUTS = draw_inputs(4)
WITNESSES = draw_witnesses()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: build_dictionary(WITNESSES, INPUTS, "first"),
            "readout to be one of 'last', 'all', 'mean', got 'first",
        ),
        (lambda: build_dictionary(WITNESSES, INPUTS, memory_budget=0), "memory_budget to be a positive integer, got 0"),
        (lambda: build_dictionary(WITNESSES, INPUTS, chunk_bytes=0.5), "chunk_bytes to be a positive integer, got 0.5"),
        (
            lambda: build_dictionary(WITNESSES, Sequences(INPUTS, [1, 2, 3, 4]), "all"),
            "'last' or 'mean' for sequences of unequal length, got 'all'",
        ),
        (
            lambda: build_dictionary(WITNESSES, Sequences(INPUTS, [0, 1, 2, 3])),
            "lengths from 1 to 5, got values from 0",
        ),
        (lambda: build_dictionary(WITNESSES, Sequences(INPUTS, [1, 2, 3])), "lengths to be 4 integers"),
        (lambda: build_dictionary(WITNESSES), r"inputs of shape \(n_samples, n_steps, n_features\) .* got none"),
        (lambda: build_dictionary(WITNESSES, INPUTS * torch.nan), "finite inputs"),
        (lambda: build_dictionary(WITNESSES, INPUTS * torch.inf), "finite inputs"),
        (lambda: build_dictionary(WITNESSES, INPUTS[0]), "got 2 dimensions"),
        (lambda: build_dictionary(WITNESSES, INPUTS[:0]), "non-empty inputs"),
        (lambda: build_dictionary(WITNESSES, INPUTS[:, :, :2]), "layer 1 to read 2 values, got weights for 3"),
        (lambda: build_dictionary(WITNESSES, [[[1, 2, 3]], [[1, 2, 3]] * 2]), "sequences of equal length, .* ragged"),
        (lambda: build_dictionary(WITNESSES, INPUTS * 1e-4), "ordinary size, got none above 0.0001, .* standardise"),
        (lambda: build_dictionary(np.eye(3), INPUTS), "no inputs beside a plain 0/1 array"),
        (lambda: build_dictionary(np.eye(3) * 2), "0/1 array, got other values: threshold them first"),
        (lambda: build_dictionary(np.eye(3) * np.nan), "0/1 array, got other values"),
        (lambda: build_dictionary(np.ones(3)), r"\(n_rows, n_columns\), got shape \(3,\)"),
        (lambda: build_dictionary(np.ones((3, 0))), r"non-empty 0/1 array .* got shape \(3, 0\)"),
        (lambda: build_dictionary([[0, 1], [0]]), "got rows of unequal length or no numbers"),
        (lambda: build_dictionary(np.eye(3)).group_rows(torch.zeros(4)), "one label for each of 3 rows, got 4"),
        (lambda: next(build_dictionary(np.eye(3)).iterate_rows(0)), "n_rows to be a positive integer, got 0"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_inputs_that_are_all_zero_have_no_size_to_complain_about():
    assert build_dictionary(WITNESSES, torch.zeros(4, 5, 3)).n_rows == 4


NARROW = """
import torch
from cvxsnn.dictionary import count_dictionary

counts = torch.randint(60, 128, (500, 40), generator=torch.Generator().manual_seed(0))
gram = count_dictionary(counts, 127).gram()
whole = counts.double()
assert torch.equal(gram, whole.T @ whole / 127**2), (gram - whole.T @ whole / 127**2).abs().max()
"""


@pytest.mark.parametrize("instructions", ["AVX2", "AVX512_CORE", "DEFAULT"])
def test_counts_are_multiplied_exactly_on_any_processor(instructions):
    """Without instructions for bytes, products of two large ones would saturate."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": instructions}
    subprocess.run([sys.executable, "-c", NARROW], env=environment, check=True)


LOOKUP_SHAPES = [(1, 1), (7, 3), (64, 5), (513, 40), (3000, 1200), (40_000, 9)]


def random_bits(n_rows, n_columns):
    return torch.rand(n_rows, n_columns, generator=torch.Generator().manual_seed(n_rows)) < 0.4


def random_values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("n_bits", "n_rows"), LOOKUP_SHAPES)
def test_look_ups_give_the_matrix_product(n_bits, n_rows, n_outputs):
    matrix, values = random_bits(n_rows, n_bits), random_values(n_bits, n_outputs)
    found = lookup_product(bits.pack(matrix), values)
    assert found.shape == (n_rows, n_outputs)
    torch.testing.assert_close(found, matrix.double() @ values, rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize(("n_bits", "n_rows"), LOOKUP_SHAPES)
def test_sums_of_integers_are_exact(n_bits, n_rows):
    matrix, values = random_bits(n_rows, n_bits), torch.round(1e6 * random_values(n_bits, 2))
    assert torch.equal(lookup_product(bits.pack(matrix), values), matrix.double() @ values)


@pytest.mark.parametrize("n_outputs", [1, MAX_LOOKUP_OUTPUTS, MAX_LOOKUP_OUTPUTS + 1])
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
def test_dictionary_bytes_are_those_of_the_packed_columns(n_rows, n_columns):
    packed = build_dictionary(random_bits(n_rows, n_columns)).packed
    assert dictionary_bytes(n_rows, packed.shape[0]) == packed.numel() * packed.element_size()


@pytest.mark.parametrize(("readout", "n_steps"), [("last", 5), ("all", 5), ("mean", 1), ("mean", 7), ("mean", 8)])
def test_dictionary_bytes_count_the_planes_of_every_readout(readout, n_steps):
    inputs = torch.randn(37, n_steps, 3, generator=torch.Generator().manual_seed(0))
    dictionary = build_dictionary(gaussian_witnesses(3, (20,), bias=0.3), inputs, readout)
    n_planes = n_planes_of(readout, n_steps)
    expected = dictionary_bytes(dictionary.n_rows, dictionary.n_atoms, n_planes)
    assert dictionary.packed.numel() == expected


def test_a_dictionary_that_does_not_fit_is_refused_before_the_roll_out(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**20)
    monkeypatch.setattr("cvxsnn.dictionary.building.iterate_rollout", lambda *_, **__: pytest.fail("rolled out"))
    inputs = np.zeros((200_000, 2, 3))
    with pytest.raises(BudgetError, match=r"200,000 rows × 1,024 columns.* needs 73\.2 MiB and 1 MiB are available"):
        build_dictionary(gaussian_witnesses(3, (1024,)), inputs)
