import numpy as np
import pytest
import torch
from dictionary.brute import (
    LENGTHS,
    READOUTS,
    SEQUENCE_READOUTS,
    brute_columns,
    brute_padded,
    draw_inputs,
    draw_witnesses,
)
from naive import assert_groups_equal
from tolerances import FLOAT64_MEAN

import cvxsnn.dictionary.building
from cvxsnn import build_dictionary, gaussian_witnesses
from cvxsnn.core import memory
from cvxsnn.core.errors import BudgetError, InvalidInputError
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import count_dictionary


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("readout", READOUTS)
def test_the_column_of_every_witness_is_its_atoms(readout, neuron):
    witnesses, inputs = draw_witnesses(neuron), draw_inputs()
    dictionary = build_dictionary(witnesses, inputs, readout)
    assert 1 < dictionary.n_atoms < dictionary.n_columns
    torch.testing.assert_close(
        dictionary.columns()[:, dictionary.atom_of_column],
        brute_columns(witnesses, inputs, readout),
        rtol=FLOAT64_MEAN if readout == "mean" else 0,
        atol=0,
    )


@pytest.mark.parametrize("readout", READOUTS)
def test_atoms_are_distinct_in_order_of_their_first_witness(readout):
    witnesses, inputs = draw_witnesses(), draw_inputs()
    dictionary = build_dictionary(witnesses, inputs, readout)
    groups = (dictionary.column_of_atom, dictionary.atom_of_column, dictionary.atom_of_column.bincount())
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
    assert torch.equal(chunked.patterns, whole.patterns)
    assert torch.equal(chunked.atom_of_column, whole.atom_of_column)
    torch.testing.assert_close(
        chunked.columns()[:, chunked.atom_of_column],
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
    assert dictionary.atom_of_column[7] == dictionary.atom_of_column[3]
    assert (dictionary.columns()[:, dictionary.atom_of_column].numpy() == array).all()


def test_a_dictionary_over_its_budget_is_refused_before_any_roll_out(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("rolled out all the same")

    monkeypatch.setattr(cvxsnn.dictionary.building, "iterate_rollout", refuse)
    with pytest.raises(BudgetError, match="within 1 MiB, but 150,000 rows × 120 columns need 2 MiB: raise memory_b"):
        build_dictionary(draw_witnesses(), draw_inputs(150_000), memory_budget=2**20)


@pytest.mark.parametrize(("readout", "n_bytes"), [("last", 120 * 16), ("all", 120 * 48), ("mean", 120 * 80)])
def test_the_budget_is_the_size_of_the_columns(readout, n_bytes):
    build_dictionary(draw_witnesses(), draw_inputs(), readout, memory_budget=n_bytes)
    with pytest.raises(BudgetError):
        build_dictionary(draw_witnesses(), draw_inputs(), readout, memory_budget=n_bytes - 1)


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("readout", SEQUENCE_READOUTS)
@pytest.mark.parametrize("chunk_bytes", [1, 20_000, 2**24])
def test_rows_of_padded_sequences_are_those_of_each_alone(readout, neuron, chunk_bytes):
    witnesses, inputs = draw_witnesses(neuron), draw_inputs()
    dictionary = build_dictionary(witnesses, Sequences(inputs, LENGTHS), readout, chunk_bytes=chunk_bytes)
    expected = brute_padded(witnesses, inputs, readout)
    columns = dictionary.columns()
    torch.testing.assert_close(columns[:, dictionary.atom_of_column], expected, rtol=FLOAT64_MEAN, atol=0)
    for row in (0, 3, 41):
        alone = build_dictionary(witnesses, inputs[row : row + 1, : LENGTHS[row]], readout)
        assert torch.equal(columns[row, dictionary.atom_of_column], alone.columns()[0, alone.atom_of_column])
    padding = torch.arange(5) >= LENGTHS[:, None]
    changed = torch.where(padding[:, :, None], 1 - inputs, inputs)
    assert torch.equal(build_dictionary(witnesses, Sequences(changed, LENGTHS), readout).patterns, dictionary.patterns)


INPUTS = draw_inputs(4)
WITNESSES = draw_witnesses()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: build_dictionary(WITNESSES, INPUTS, "median"),
            "readout to be one of 'last', 'all', 'mean', 'windows-4' with any number, or .*, got 'median",
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
        (
            lambda: build_dictionary(WITNESSES, [[[1, 2, 3]], [[1, 2, 3]] * 2]),
            "inputs to be numbers in rows of equal length",
        ),
        (lambda: build_dictionary(WITNESSES, INPUTS * 1e-4), "ordinary size, got none above 0.0001, .* scale them"),
        (lambda: build_dictionary(np.eye(3), INPUTS), "no inputs beside a plain 0/1 array"),
        (lambda: build_dictionary(np.eye(3) * 2), "0/1 array, got other values: threshold them first"),
        (lambda: build_dictionary(np.eye(3) * np.nan), "0/1 array, got other values"),
        (lambda: build_dictionary(np.ones(3)), r"\(n_rows, n_columns\), got shape \(3,\)"),
        (lambda: build_dictionary(np.ones((3, 0))), r"non-empty 0/1 array .* got shape \(3, 0\)"),
        (lambda: build_dictionary([[0, 1], [0]]), "columns to be numbers in rows of equal length"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_inputs_that_are_all_zero_have_no_size_to_complain_about():
    assert build_dictionary(WITNESSES, torch.zeros(4, 5, 3)).n_rows == 4


def test_a_dictionary_that_does_not_fit_is_refused_before_the_roll_out(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 2**20)
    monkeypatch.setattr("cvxsnn.dictionary.building.iterate_rollout", lambda *_, **__: pytest.fail("rolled out"))
    inputs = np.zeros((400_000, 2, 3))
    with pytest.raises(BudgetError, match=r"400,000 rows × 1,024 columns.* needs 97\.7 MiB and 1 MiB are available"):
        build_dictionary(gaussian_witnesses(3, (1024,)), inputs)


@pytest.mark.parametrize("n_steps", [1, 5, 8, 300])
def test_counts_are_read_as_means(n_steps):
    counts = torch.randint(0, n_steps + 1, (50, 12), generator=torch.Generator().manual_seed(0), dtype=torch.int16)
    counts[:, 3] = counts[:, 8]
    dictionary = count_dictionary(counts, n_steps)
    assert dictionary.n_atoms < dictionary.n_columns == 12
    columns = dictionary.columns()[:, dictionary.atom_of_column]
    torch.testing.assert_close(columns, counts.double() / n_steps, rtol=FLOAT64_MEAN, atol=0)


@pytest.mark.parametrize("counts", [[[0, 6]], [[-1, 3]], [0, 1], [[]]])
def test_counts_out_of_range_are_refused(counts):
    with pytest.raises(InvalidInputError, match="from 0 to 5"):
        count_dictionary(torch.tensor(counts, dtype=torch.int16), 5)
