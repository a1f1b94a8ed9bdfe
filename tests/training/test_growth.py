"""Witnesses that climb their own price."""

import itertools

import pytest
import torch
from layers import draw_layer
from small_models import assert_one_sentence
from tolerances import ROUNDING, UNMISTAKABLE
from witnesses.two_layers import DATA, TASK, draw_two_layers, spikes

import cvxsnn as cs
from cvxsnn import ConvexProblem
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.training import Ascent
from cvxsnn.training.growth import climb_prices, grow_witnesses

STRENGTH = 0.02
QUICK = Ascent(n_candidates=12, n_steps=10)


def optimum(witnesses, objective=None, penalty="l1", l1_strength=STRENGTH, **options):
    objective = objective or Objective("logistic")
    dictionary = cs.build_dictionary(witnesses, DATA.inputs, objective.readout)
    problem = ConvexProblem.of(objective, dictionary, DATA, l1_strength=l1_strength, penalty=penalty, **options)
    return cs.solve(problem, 1e-9)


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("penalty", ["l1", "group"])
def test_prices_are_exact_and_only_what_has_climbed_above_the_strength_is_accepted(readout, penalty):
    objective = Objective("logistic", readout)
    solution = optimum(draw_two_layers(n=1), objective, penalty)
    starts = cs.witnesses.single_out(draw_two_layers(seed=9), torch.arange(20))
    climbed = climb_prices(starts, DATA, readout, solution, QUICK)
    columns = spikes(climbed.witnesses).double()
    columns = columns[:, -1] if readout == "last" else columns.mean(1)
    torch.testing.assert_close(climbed.prices, (columns.T @ solution.dual_point)[:, 0].abs(), rtol=0, atol=ROUNDING)
    assert bool((climbed.prices >= climbed.first_prices).all())
    is_above = (climbed.prices > STRENGTH * (1 + 1e-9)) & (climbed.prices > climbed.first_prices)
    assert climbed.accepted.tolist() == torch.nonzero(is_above).squeeze(1).tolist()
    # There is something to climb from here, and some do.
    assert bool((climbed.prices > climbed.first_prices).any())


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("intercept", [False, True])
def test_with_a_quadratic_a_candidate_with_the_spikes_of_an_atom_is_not_accepted(readout, penalty, intercept):
    strength = {"last": STRENGTH, "mean": 0.2 * STRENGTH}[readout]
    solution = optimum(
        draw_two_layers(), Objective("logistic", readout), penalty, strength, l2_strength=0.1, intercept=intercept
    )
    dictionary = solution.problem.dictionary
    # Candidates that begin at what is read, whose prices are above the strength, and others.
    read = cs.witnesses.single_out(dictionary.witnesses, dictionary.column_of_atom[solution.support])
    others = cs.witnesses.single_out(draw_two_layers(seed=9), torch.arange(20))
    starts = cs.witnesses.join_witnesses([read, others])
    climbed = climb_prices(starts, DATA, readout, solution, QUICK)
    n_spikes = 1 if readout == "last" else DATA.sequences.n_steps
    atoms = set(map(tuple, (n_spikes * dictionary.columns().T).round().tolist()))
    for witnesses, prices in ((starts, climbed.first_prices), (climbed.witnesses, climbed.prices)):
        columns = spikes(witnesses).double()
        columns = columns[:, -1].T if readout == "last" else columns.mean(1).T
        is_atom = torch.tensor([tuple(column) in atoms for column in (n_spikes * columns).round().tolist()])
        exact = (columns @ solution.dual_point)[:, 0].abs()
        torch.testing.assert_close(prices, torch.where(is_atom, 0.0, exact), rtol=0, atol=ROUNDING)
        if witnesses is starts:
            assert bool((is_atom & (exact > strength * (1 + UNMISTAKABLE))).any())
    assert len(climbed.accepted) > 0
    assert not bool(is_atom[climbed.accepted].any())
    is_above = (climbed.prices > strength * (1 + 1e-9)) & (climbed.prices > climbed.first_prices)
    assert climbed.accepted.tolist() == torch.nonzero(is_above).squeeze(1).tolist()


@pytest.mark.parametrize(("loss", "penalty"), [("logistic", "elastic-net"), ("squared", "group-elastic-net")])
def test_every_round_adds_atoms_to_an_elastic_net_and_lowers_its_optimum(loss, penalty):
    options = {"penalty": penalty, "l2_strength": 0.05, "intercept": True}
    start, objective = draw_two_layers(n=1), Objective(loss)
    before = optimum(start, objective, **options)
    grown = grow_witnesses(start, DATA, objective, STRENGTH, ascent=QUICK, n_rounds=4, tol=1e-8, **options)
    assert len(grown.rounds) > 0
    assert grown.solution.problem.l2_strength == 0.05
    primal = [before.certificate.primal, *(moment.primal for moment in grown.rounds)]
    assert all(later < earlier * (1 - 1e-8) for earlier, later in itertools.pairwise(primal))
    assert primal[-1] < primal[0] * (1 - UNMISTAKABLE)
    again = optimum(grown.solution.problem.dictionary.witnesses, objective, **options)
    assert grown.solution.certificate.dual <= again.certificate.primal + ROUNDING
    assert again.certificate.dual <= grown.solution.certificate.primal + ROUNDING


def test_growth_of_an_elastic_net_without_a_quadratic_is_that_of_its_norm():
    first, second = (
        grow_witnesses(
            draw_two_layers(n=1), DATA, Objective("logistic"), STRENGTH, ascent=QUICK, n_rounds=2, penalty=penalty
        ).rounds
        for penalty in ("l1", "elastic-net")
    )
    assert first == second


def test_growth_without_a_norm_is_refused_in_one_sentence():
    with pytest.raises(cs.InvalidInputError, match="l1_strength above zero for an optimum over witnesses") as caught:
        grow_witnesses(draw_two_layers(n=1), DATA, Objective("logistic"), 0.0, penalty="elastic-net", l2_strength=0.1)
    assert_one_sentence(caught.value)


def test_steps_of_the_trajectory_are_priced_too():
    targets = torch.from_numpy(TASK.train.inputs[:, :, 0].copy()).double()
    data, objective = TrainingSet(DATA.inputs, {"bit": targets}), Objective("squared", "all")
    dictionary = cs.build_dictionary(draw_two_layers(n=1), data.inputs, "all")
    solution = cs.solve(ConvexProblem.of(objective, dictionary, data, l1_strength=0.01), 1e-9)
    climbed = climb_prices(
        cs.witnesses.single_out(draw_two_layers(seed=9), torch.arange(8)), data, "all", solution, QUICK
    )
    columns = spikes(climbed.witnesses).double().flatten(0, 1)
    torch.testing.assert_close(climbed.prices, (columns.T @ solution.dual_point)[:, 0].abs(), rtol=0, atol=ROUNDING)


def test_every_round_lowers_the_certified_optimum_and_the_network_is_what_was_solved():
    told = []
    start = optimum(draw_two_layers(n=1))
    grown = grow_witnesses(
        draw_two_layers(n=1), DATA, Objective("logistic"), STRENGTH, ascent=QUICK, n_rounds=3, callback=told.append
    )
    assert tuple(told) == grown.rounds
    assert len(grown.rounds) > 0
    primal = [start.certificate.primal, *(moment.primal for moment in grown.rounds)]
    assert all(after <= before + 1e-6 for before, after in itertools.pairwise(primal))
    assert primal[-1] < primal[0] * (1 - 1e-3)
    assert all(moment.largest_price > STRENGTH for moment in grown.rounds)
    assert grown.solution.certificate.relative_gap <= 1e-6
    network = cs.reconstruct(grown.solution)
    torch.testing.assert_close(network(DATA.inputs).detach(), grown.solution.scores(), rtol=0, atol=ROUNDING)


def test_growth_is_the_same_for_the_same_seed():
    first, second = (
        grow_witnesses(
            draw_two_layers(n=1), DATA, Objective("logistic"), STRENGTH, ascent=QUICK, n_rounds=2, seed=4
        ).rounds
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_candidates": 0}, "n_candidates to be a positive integer"),
        ({"n_steps": 0.5}, "n_steps to be a positive integer"),
        ({"learning_rate": 0.0}, "learning_rate above zero"),
        ({"steepness": -1.0}, "steepness above zero"),
    ],
)
def test_an_ascent_that_means_nothing_is_refused(options, message):
    with pytest.raises(cs.InvalidInputError, match=message):
        Ascent(**options)


def test_growth_can_begin_where_nothing_is_worth_reading():
    start = draw_two_layers(n=1, width=1)
    dictionary = cs.build_dictionary(start, DATA.inputs)
    strength = 1.01 * ConvexProblem.of(Objective("logistic"), dictionary, DATA).critical_strength
    grown = grow_witnesses(start, DATA, Objective("logistic"), strength, ascent=QUICK, n_rounds=2)
    assert len(grown.rounds) > 0
    assert len(grown.solution.support) > 0


def test_witnesses_with_delays_grow_and_keep_them():
    layers = (draw_layer(0, n_inputs=2, width=6), draw_layer(1, n_inputs=6, width=5))
    start = cs.WitnessSet(layers, cs.witnesses.Provenance("pretrained"))
    grown = grow_witnesses(start, DATA, Objective("logistic"), STRENGTH, ascent=QUICK, n_rounds=2)
    assert len(grown.rounds) > 0
    network = cs.reconstruct(grown.solution)
    assert max(layer.max_delay for layer in network.layers) > 0
    scores = network(DATA.inputs).detach()
    torch.testing.assert_close(scores, grown.solution.scores(), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("is_deep", [False, True])
def test_witnesses_with_delays_climb_with_the_taps_that_they_have(is_deep):
    hidden = (7, 5) if is_deep else (20,)
    sampled = cs.delayed_witnesses(DATA.inputs, hidden, 2, fan_in=3, decay=0.5, seed=1)
    dense = cs.gaussian_witnesses(2, hidden, bias=0.1, seed=2)
    solution = optimum(cs.delayed_witnesses(DATA.inputs, (4,), fan_in=2))
    # Those without delays have fewer taps than the others, or more, and are filled up with taps of weight zero.
    starts = cs.witnesses.single_out(cs.witnesses.join_witnesses([sampled, dense]), torch.arange(0, 2 * hidden[-1] + 4))
    climbed = climb_prices(starts, DATA, "last", solution, QUICK)
    columns = spikes(climbed.witnesses).double()[:, -1]
    torch.testing.assert_close(climbed.prices, (columns.T @ solution.dual_point)[:, 0].abs(), rtol=0, atol=ROUNDING)
    assert bool((climbed.prices > climbed.first_prices).any())
    for before, after in zip(starts.layers, climbed.witnesses.layers, strict=True):
        assert torch.equal(before.source, after.source)
        assert torch.equal(before.delay, after.delay)
        assert not bool(after.weight[before.weight == 0].any())
        assert not torch.equal(before.weight, after.weight)


def test_witnesses_with_delays_grow():
    start = cs.delayed_witnesses(DATA.inputs, (20,), fan_in=6, seed=1)
    grown = grow_witnesses(start, DATA, Objective("logistic"), STRENGTH, ascent=QUICK, n_rounds=3)
    assert len(grown.rounds) > 0
    assert grown.solution.certificate.primal < optimum(start).certificate.primal * (1 - UNMISTAKABLE)
    network = cs.reconstruct(grown.solution)
    assert all(layer.has_delays for layer in network.layers)
    torch.testing.assert_close(network(DATA.inputs).detach(), grown.solution.scores(), rtol=0, atol=ROUNDING)


def test_candidates_climb_whether_or_not_the_caller_computes_gradients():
    solution = optimum(draw_two_layers(n=1))
    starts = cs.witnesses.single_out(draw_two_layers(seed=9), torch.arange(20))
    expected = climb_prices(starts, DATA, "last", solution, QUICK)
    with torch.no_grad():
        climbed = climb_prices(starts, DATA, "last", solution, QUICK)
    assert torch.equal(climbed.prices, expected.prices)
