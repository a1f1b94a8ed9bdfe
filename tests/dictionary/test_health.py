import numpy as np
import pytest
import torch
from dictionary.brute import LENGTHS, READOUTS, SEQUENCE_READOUTS, brute_columns, brute_padded, draw_inputs
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import FLOAT64_MEAN

from cvxsnn import LIFLayer, WitnessSet, build_dictionary
from cvxsnn.data.sequences import Sequences
from cvxsnn.witnesses import Provenance


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
        "n_columns": columns.shape[1],
    }


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


def test_one_line_tells_the_health():
    health = build_dictionary(np.array([[0, 1, 0, 1, 1], [1, 1, 0, 0, 0]])).health()
    assert str(health) == (
        "5 columns gave 4 atoms (density 0.500): 1 dead, 1 saturated, 1 duplicate, 2 complementary pairs; "
        "2 of 2 rows distinct"
    )


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
