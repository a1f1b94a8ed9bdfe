import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import assert_one_sentence
from theory.families import SEEDS, draw_sequences
from tolerances import CERTIFIED_AGAIN, PRICED

from cvxsnn import ConvexProblem, roll_out, solve
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.dictionary.dense import DenseDictionary
from cvxsnn.neurons import Taps
from cvxsnn.theory import (
    FamilyUnion,
    LIFFamily,
    complete_dictionary,
    enumerate_lif,
    enumerate_patterns,
    price,
    solve_complete,
    write_certificate,
)

TOL = 1e-6


@settings(max_examples=20)
@given(SEEDS, st.booleans(), st.booleans())
def test_the_price_of_a_union_is_the_largest_of_the_enumerations(seed, bias, is_group):
    rng = np.random.default_rng(seed)
    inputs, dual = draw_sequences(rng, 4, 2, 1), rng.normal(size=(4, 2, 2 if is_group else 1))
    union = FamilyUnion.of_decays((0.0, 0.5, 1.0), bias=bias)
    spikes = np.concatenate([enumerate_lif(own, inputs).spikes for own in union.families])
    expected = np.linalg.norm(np.einsum("pnt,ntk->pk", spikes, dual), axis=1).max()
    events = union.on(inputs)
    found = price(events, dual, is_group=is_group)
    assert found.value == pytest.approx(expected, rel=0, abs=PRICED)
    assert expected - PRICED <= found.bound <= expected + PRICED
    prices = np.linalg.norm(np.einsum("pnt,ntk->pk", events.simulate(found.parameters), dual), axis=1)
    assert prices.max() == pytest.approx(expected, rel=0, abs=PRICED)


def test_every_member_of_a_union_is_searched_within_the_same_limits():
    rng = np.random.default_rng(0)
    inputs, dual = rng.normal(size=(12, 3, 1)), rng.normal(size=(12, 3))
    events = FamilyUnion.of_decays((0.0, 0.5), bias=True).on(inputs)
    whole = price(events, dual)
    members = [price(own, dual) for own in events.members]
    assert whole.n_boxes == sum(own.n_boxes for own in members)
    assert all(own.n_boxes > 10 for own in members)
    assert whole.is_finished
    assert len(whole.parameters) == sum(len(own.parameters) for own in members)
    assert len(price(events, dual, n_found=3).parameters) == 6
    short = price(events, dual, max_boxes=5)
    assert short.n_boxes == 10
    assert not short.is_finished
    assert price(events, dual, max_seconds=0.0).n_boxes == 0
    told = []
    stopped = price(events, dual, pulse=lambda *counts: told.append(counts) or len(told) > 1)
    assert not stopped.is_finished  # the second member was stopped at once
    assert len(told) >= 2
    # A search that is content with some neurons begins near those given, each in its own member.
    few = price(events, dual, n_found=1).parameters
    hasty = {"enough": 0.5 * whole.value, "is_thorough": False, "n_found": 1}
    assert price(events, dual, **hasty, start=few).value == whole.value
    assert price(events, dual, **hasty).n_boxes < whole.n_boxes


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_the_optimum_over_several_decays_is_that_of_all_their_atoms(readout):
    rng = np.random.default_rng(0)
    inputs, targets = draw_sequences(rng, 7, 3, 1), rng.normal(size=7)
    union = FamilyUnion.of_decays((0.0, 1.0), bias=True)
    found = solve_complete(inputs, targets, union, "squared", 0.02, readout=readout, tol=TOL, n_start=2)
    columns = [complete_dictionary(inputs, own, readout=readout).columns() for own in union.families]
    problem = ConvexProblem(DenseDictionary(torch.cat(columns, dim=1).double()), targets, "squared", 0.02)
    best = solve(problem, 1e-9).certificate
    assert found.certificate.relative_gap <= TOL
    assert found.certificate.dual <= best.primal * (1 + CERTIFIED_AGAIN)
    assert found.certificate.primal >= best.dual * (1 - CERTIFIED_AGAIN)
    assert set(found.solution.problem.dictionary.witnesses.layers[0].decay.flatten().tolist()) == {0.0, 1.0}
    for own in union.families:  # a part of the neurons is not better
        alone = solve_complete(inputs, targets, own, "squared", 0.02, readout=readout, tol=TOL)
        assert alone.certificate.primal >= found.certificate.dual


def test_neurons_of_a_union_have_their_own_spikes():
    rng = np.random.default_rng(1)
    inputs = draw_sequences(rng, 6, 3, 1)
    taps = Taps([0, 0], [0, 1], 1)
    union = FamilyUnion((LIFFamily(0.5, bias=True, taps=taps), LIFFamily(1.0, taps=taps), LIFFamily(0.0, taps=taps)))
    events = union.on(inputs)
    parameters = events.join([rng.integers(1, 9, (4, own.dimension)).astype(object) for own in events.members])
    mixed = parameters[rng.permutation(len(parameters))]
    spikes = roll_out([events.layer(mixed)], inputs, "all").numpy()
    assert np.array_equal(spikes.transpose(2, 0, 1), events.simulate(mixed))
    assert events.simulate(mixed).dtype == bool


def test_unions_say_what_they_are_and_refuse_other_taps_and_files(tmp_path):
    union = FamilyUnion.of_decays((0.25, 0.5), bias=True)
    assert str(union) == "LIF neurons with decay 0.25 or 0.5, with bias and with thresholds of at least zero"
    assert str(FamilyUnion((LIFFamily(0.5), LIFFamily(0.0, resets=False)))).endswith(
        "; or threshold neurons, without bias"
    )
    with pytest.raises(InvalidInputError, match="families with the same taps") as caught:
        FamilyUnion((LIFFamily(0.5), LIFFamily(0.5, taps=Taps([0], [1], 1))))
    assert_one_sentence(caught.value)
    inputs = np.ones((3, 1, 1))
    with pytest.raises(InvalidInputError, match="one family for a certificate in a file") as caught:
        write_certificate(tmp_path / "proof.json", solve_complete(inputs, np.arange(3.0), union), inputs)
    assert_one_sentence(caught.value)


@settings(max_examples=20)
@given(SEEDS, st.booleans(), st.integers(1, 3))
def test_threshold_neurons_are_priced_over_all_patterns_of_all_steps(seed, bias, n_steps):
    rng = np.random.default_rng(seed)
    inputs, dual = draw_sequences(rng, 4, n_steps, 2), rng.normal(size=(4, n_steps))
    rows = inputs.reshape(-1, 2)
    rows = np.column_stack((rows, np.ones(len(rows)))) if bias else rows
    expected = np.abs(enumerate_patterns(rows).patterns @ dual.ravel()).max()
    family = LIFFamily(0.0, bias=bias, resets=False)
    found = price(family.on(inputs), dual)
    assert found.value == pytest.approx(expected, rel=0, abs=PRICED)
    assert expected - PRICED <= found.bound <= expected + PRICED
    assert len(enumerate_lif(family, inputs)) == len(enumerate_patterns(rows))
    events = family.on(inputs)
    parameters = events.representable(enumerate_lif(family, inputs).parameters)
    spikes = roll_out([events.layer(parameters)], inputs, "all").numpy()
    assert np.array_equal(spikes.transpose(2, 0, 1), events.simulate(parameters))
