import naive
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from neurons.stacks import draw_inputs, draw_lateral
from small_models import assert_one_sentence

from cvxsnn import SpikingNetwork, WitnessSet, build_dictionary, gaussian_witnesses, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary import PoolSpikes
from cvxsnn.dictionary.statistics import StatisticsDictionary
from cvxsnn.network import OutputHead
from cvxsnn.neurons.reading import read_columns
from cvxsnn.theory.lif_family import check_complete_readout
from cvxsnn.witnesses import Provenance, WitnessPool

READOUT = ("mean", "burst", "root", "ever", "last")
KINDS = torch.tensor([3, 4, 8, 16])
"""Statistics of neurons of four kinds, as bits."""

LENGTHS = np.random.default_rng(0).integers(1, 13, 40)


def draw(seed=0, lengths=None, width=24):
    """A dictionary of four kinds of neurons, some of which never fire; and its sequences."""
    layer = draw_lateral(width, 2, 1, seed, group=torch.arange(width)[None] % 5, statistics=KINDS.repeat(width // 4))
    layer = layer.with_tensors({"bias": torch.where(torch.arange(width) < 6, -1e3, layer.bias)})
    witnesses = WitnessSet((layer,), Provenance("pretrained"))
    sequences = Sequences(draw_inputs(40, 12, 2, seed), lengths)
    return build_dictionary(witnesses, sequences, "+".join(READOUT)), sequences


def plain(dictionary, sequences):
    """The columns, (n_rows, n_columns), by definition: entries times units, zeros where no statistic is read."""
    lengths = [12] * 40 if sequences.lengths is None else sequences.lengths.tolist()
    spikes = roll_out(dictionary.witnesses.layers, sequences, "all").numpy()
    entries = [[naive.train_entries(train) for train in own[:n].T] for own, n in zip(spikes, lengths, strict=True)]
    rows = [[neuron[name] for neuron in own for name in READOUT] for own in entries]
    is_read = torch.zeros(dictionary.n_columns, dtype=torch.bool)
    is_read[read_columns(dictionary.witnesses.layers, READOUT)] = True
    return torch.tensor(rows, dtype=torch.float64), is_read


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_columns_are_entries_times_units_and_those_that_do_not_vary_are_zero(lengths):
    dictionary, sequences = draw(lengths=lengths)
    entries, is_read = plain(dictionary, sequences)
    columns = dictionary.columns()[:, dictionary.atom_of_column]
    assert torch.equal(columns, entries * dictionary.unit)
    varies = is_read & (entries.amax(0) > entries.amin(0))
    assert torch.equal(dictionary.unit > 0, varies)
    assert bool((dictionary.atom_of_column[~varies] == 0).all())
    assert not dictionary.columns(slice(0, 1)).any()
    assert dictionary.n_atoms == 1 + int(varies.sum())
    mantissa, _ = torch.frexp(dictionary.unit[varies])
    assert bool((mantissa == 0.5).all())  # powers of two


@given(st.integers(0, 2**16), st.booleans(), st.sampled_from([8, 24, 240]))
@settings(max_examples=20)
def test_kinds_have_equal_mean_diagonals(seed, has_lengths, width):
    """Up to one and a half shares of the last column, which is at most four times its part of the sum."""
    dictionary, sequences = draw(seed, LENGTHS if has_lengths else None, width)
    entries, _ = plain(dictionary, sequences)
    shares = entries.var(0, correction=0) * dictionary.unit**2
    reads = dictionary.witnesses.layers[0].statistics[0].repeat_interleave(len(READOUT))
    for kind in KINDS:
        own = shares[(reads == kind) & (dictionary.unit > 0)]
        if len(own):
            assert abs(float(own.sum()) - 1) <= 1.5 / len(own)
            assert 0.25 / len(own) <= float(own.min()) <= float(own.max()) <= 4.001 / len(own)
            sums = own.cumsum(0) * len(own) - torch.arange(1, len(own) + 1)
            assert float(sums.abs().max()) <= 1.5001  # of the first columns, however many


@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_products_and_parts_are_those_of_the_columns(lengths, monkeypatch):
    monkeypatch.setattr("cvxsnn.dictionary.statistics._BLOCK", 200)  # five columns at once
    dictionary, _ = draw(lengths=lengths)
    columns, generator = dictionary.columns(), torch.Generator().manual_seed(0)
    coef, rows = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in columns.shape[::-1])
    coef[::3] = 0
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(dictionary.matvec(coef), columns @ coef, **close)
    torch.testing.assert_close(dictionary.rmatvec(rows), columns.T @ rows, **close)
    torch.testing.assert_close(dictionary.gram(), columns.T @ columns, **close)
    torch.testing.assert_close(dictionary.row_gram(), columns @ columns.T, **close)
    assert dictionary.largest_entry == float(columns.abs().max())
    atoms, some = torch.tensor([4, 0, 7]), torch.tensor([30, 2, 2, 39])
    assert torch.equal(dictionary.take_atoms(atoms).columns(), columns[:, atoms])
    assert torch.equal(dictionary.take_rows(some).columns(), columns[some])
    blocks = [block for _, block in dictionary.iterate_rows(8)]
    assert torch.equal(torch.cat(blocks), columns)
    naive.assert_groups_equal(
        dictionary.take_rows(some).group_rows(),
        np.column_stack((columns[some], 0 * some if lengths is None else lengths[some])),
    )


def test_rows_of_other_lengths_are_not_equal_although_their_counts_are():
    witnesses = WitnessSet((draw_lateral(3, 1, 1, bias=-1e3),), Provenance("pretrained"))
    sequences = Sequences(torch.zeros(4, 3, 1), np.array([1, 2, 1, 3]))
    dictionary = build_dictionary(witnesses, sequences, "mean+burst")
    naive.assert_groups_equal(dictionary.group_rows(), np.array([[1], [2], [1], [3]]))


def test_equal_sequences_have_no_column_that_varies():
    dictionary, sequences = draw()
    same = build_dictionary(
        dictionary.witnesses, sequences.take(torch.zeros(37, dtype=torch.int64)), dictionary.readout
    )
    assert not same.unit.any()
    assert (same.n_atoms, same.largest_entry) == (1, 0.0)


@pytest.mark.parametrize("readout", ["burst", "mean+burst"])
def test_statistics_are_refused_where_spikes_are_needed(readout):
    pool = WitnessPool(2, {"hidden": (8,)}, n_witnesses=8)
    for call in (
        lambda: PoolSpikes(pool, Sequences(draw_inputs(5, 4, 2)), readout).block(0),
        lambda: check_complete_readout(readout),
    ):
        with pytest.raises(InvalidInputError, match="expected readout 'last', 'all'") as caught:
            call()
        assert_one_sentence(caught.value)


def test_a_network_says_how_many_statistics_it_reads():
    witnesses = gaussian_witnesses(2, (8,), seed=0)
    network = SpikingNetwork(
        witnesses.layers, torch.ones(16, 1), [OutputHead("label", "squared", 0, 1)], readout="mean+burst"
    )
    assert "16 statistics of neurons read → 1, mean+burst" in repr(network)


def test_units_of_the_training_data_hold_for_other_data():
    dictionary, sequences = draw(lengths=LENGTHS)
    some = torch.arange(7)
    part = build_dictionary(dictionary.witnesses, sequences.take(some), dictionary.readout, unit=dictionary.unit)
    assert isinstance(part, StatisticsDictionary)
    assert torch.equal(part.columns(), dictionary.columns()[some])
