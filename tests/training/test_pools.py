"""Optima over pools of witnesses, against the same program with all witnesses in one dictionary."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from tolerances import CERTIFIED_AGAIN, FLOAT64_SUM, ROUNDING, UNMISTAKABLE
from witnesses.pools import DEEP, FAMILIES, FAMILY, INPUTS, RNG, all_witnesses, draw_pool

import cvxsnn as cs
from cvxsnn import ConvexProblem, InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary.pooled import PoolSpikes
from cvxsnn.training import pools
from cvxsnn.training.pools import solve_pool
from cvxsnn.witnesses.pool import WitnessPool

TOL = 1e-6
TARGETS = {
    "real": INPUTS[:, 0, 0].numpy() * INPUTS[:, -1, 1].numpy(),
    "several": np.stack([INPUTS[:, t].numpy().prod(1) for t in (0, 3)], axis=1),
    "labels": (INPUTS[:, 0, 0] * INPUTS[:, -1, 1] > 0).numpy().astype(float),
    "classes": (INPUTS[:, 0, 0] > 0).numpy().astype(int) + (INPUTS[:, -1, 1] > 0).numpy(),
    "steps": INPUTS.numpy().prod(2),
}
KINDS = [
    ("squared", "real", "l1"),
    ("squared", "several", "l1"),
    ("squared", "several", "group"),
    ("logistic", "labels", "l1"),
    ("hinge", "labels", "l1"),
    ("softmax", "classes", "l1"),
    ("softmax", "classes", "group"),
]


@pytest.fixture(autouse=True)
def _many_small_steps(monkeypatch):
    """Working sets so small that a pool of hundreds goes through all that one of millions does."""
    monkeypatch.setattr(pools, "_ENTERING", 16)
    monkeypatch.setattr(pools, "_LEAST_COLUMNS", 40)


def draw_data(targets="labels", lengths=None, **options):
    return TrainingSet(Sequences(INPUTS, lengths), {"label": TARGETS[targets]}, **options)


class Case:
    """A pool, data and an objective, with the program over all witnesses to compare with."""

    def __init__(self, loss, targets, penalty="l1", intercept=False, readout="last", pool=None, data=None):
        self.pool, self.data = pool or draw_pool(), data or draw_data(targets)
        self.objective, self._options = Objective(loss, readout), {"penalty": penalty, "intercept": intercept}
        self.optimum = cache(self._optimum)

    def problem(self, l1_strength=1.0, n_witnesses=None):
        dictionary = cs.build_dictionary(
            all_witnesses(self.pool, n_witnesses), self.data.sequences, self.objective.readout
        )
        return ConvexProblem.of(self.objective, dictionary, self.data, l1_strength=l1_strength, **self._options)

    def strength(self, ratio=0.2):
        return ratio * self.problem().critical_strength

    def solve(self, l1_strength, **options):
        return solve_pool(self.pool, self.data, self.objective, l1_strength, tol=TOL, **self._options, **options)

    def _optimum(self, l1_strength, n_witnesses=None):
        return cs.solve(self.problem(l1_strength, n_witnesses), 0.1 * TOL).certificate


@cache
def solved(loss, targets, penalty="l1", intercept=True, family="plain"):
    """A case, its strength and the optimum over its pool."""
    case = Case(loss, targets, penalty, intercept, pool=draw_pool(family=FAMILIES[family]))
    strength = case.strength()
    return case, strength, case.solve(strength)


@cache
def solved_plainly():
    return Case("logistic", "labels").solve(0.02)


def assert_bounds(bounds, optimum):
    """Dual value, optimum, primal value: in this order."""
    margin = CERTIFIED_AGAIN * max(1.0, optimum.primal)
    assert bounds.dual <= optimum.primal + margin
    assert optimum.dual <= bounds.primal + margin


def assert_optimal(case, found, strength):
    optimum = case.optimum(strength, case.pool.n_witnesses)
    assert (found.certificate.scope, found.certificate.n_witnesses) == ("pool", case.pool.n_witnesses)
    assert found.certificate.relative_gap <= TOL
    assert_bounds(found.certificate, optimum)


@pytest.mark.parametrize(
    ("loss", "targets", "penalty", "intercept"), [*((*k, True) for k in KINDS), *((*k, False) for k in KINDS[2:5])]
)
def test_the_optimum_over_a_pool_is_the_one_over_all_its_witnesses(loss, targets, penalty, intercept):
    case, strength, found = solved(loss, targets, penalty, intercept)
    assert_optimal(case, found, strength)
    # The coefficients themselves, not only what the certificate says of them.
    primal = found.solution.problem.objective(found.solution.coef, found.solution.scores())
    assert primal == pytest.approx(found.certificate.primal, rel=CERTIFIED_AGAIN)


@pytest.mark.parametrize(("loss", "targets", "penalty"), KINDS[2:6])
def test_every_round_bounds_the_optimum_over_the_part_of_the_pool_that_it_is_about(loss, targets, penalty):
    case, strength, found = solved(loss, targets, penalty)
    for moment in found.rounds:
        assert_bounds(moment, case.optimum(strength, moment.n_witnesses))
    # There is something to bound: violators, pools of several sizes, columns that come and columns that go.
    assert any(moment.n_violators > 0 and moment.dual < moment.primal * (1 - UNMISTAKABLE) for moment in found.rounds)
    sizes = [moment.n_witnesses for moment in found.rounds]
    assert sizes == sorted(sizes)
    assert sorted(set(sizes)) == [32, 128, 256]
    changes = [after.n_columns - before.n_columns for before, after in pairwise(found.rounds)]
    assert 0 < max(changes) <= pools._ENTERING
    if penalty == "l1":
        assert min(changes) < 0


def test_primal_values_fall_and_seconds_pass():
    _, _, found = solved("logistic", "labels")
    primal = np.array([moment.primal for moment in found.rounds])
    # A part of the pool is solved to a thousandth only.
    assert np.all(np.diff(primal) <= 1e-3 * primal[:-1])
    assert primal[-1] < primal[0] * (1 - UNMISTAKABLE)
    assert np.all(np.diff([moment.seconds for moment in found.rounds]) >= 0)


@pytest.mark.parametrize(("readout", "targets"), [("mean", "real"), ("all", "steps")])
def test_every_readout_is_priced(readout, targets):
    case = Case("squared", targets, readout=readout, intercept=True, pool=draw_pool(family=DEEP))
    strength = case.strength()
    assert_optimal(case, case.solve(strength), strength)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_padded_sequences_and_weighted_ones_are_priced_as_such(readout):
    data = draw_data("real", lengths=torch.arange(24) % 4 + 1, sample_weight=torch.arange(24.0) % 3)
    case = Case("squared", "real", readout=readout, data=data)
    strength = case.strength()
    found = case.solve(strength)
    assert_optimal(case, found, strength)
    network = cs.reconstruct(found.solution)
    torch.testing.assert_close(network(data.sequences).detach(), found.solution.scores(), rtol=0, atol=ROUNDING)


def test_a_pool_that_helps_where_its_first_block_does_not():
    case = Case("logistic", "labels", intercept=True)
    first = case.problem(n_witnesses=32).critical_strength
    assert first < case.strength(1.0)
    strength = 0.5 * (first + case.strength(1.0))
    found = case.solve(strength)
    assert_optimal(case, found, strength)
    assert len(found.solution.support) > 0


def test_above_the_critical_strength_nothing_enters():
    case = Case("logistic", "labels", intercept=True)
    found = case.solve(1.01 * case.strength(1.0))
    assert [moment.n_violators for moment in found.rounds] == [0] * 3
    assert len(found.solution.support) == 0
    assert found.certificate.relative_gap <= TOL


@pytest.mark.parametrize("memory_budget", [1, 600, 2**30])
def test_spikes_that_are_drawn_again_change_nothing(memory_budget):
    case = Case("logistic", "labels")
    drawn = []

    class Counting(WitnessPool):
        def block(self, number):
            drawn.append(number)
            return super().block(number)

    plain = solved_plainly()
    case.pool = Counting(2, FAMILY, 256, block_size=32)
    found = case.solve(0.02, memory_budget=memory_budget)
    assert torch.equal(found.members, plain.members)
    assert torch.equal(found.solution.coef, plain.solution.coef)
    assert found.certificate == plain.certificate
    n_priced = sum(-(-moment.n_witnesses // 32) for moment in found.rounds)
    # Each block once more, if one of its members is in the network.
    n_taken = len(set((found.members // 32).tolist()))
    if memory_budget == 1:
        assert len(drawn) == 1 + n_priced + n_taken
    elif memory_budget == 2**30:
        assert len(drawn) == case.pool.n_blocks + n_taken
    else:
        assert case.pool.n_blocks + n_taken < len(drawn) < 1 + n_priced + n_taken


@pytest.mark.parametrize("penalty", ["l1", "group"])
def test_prices_do_not_depend_on_the_number_of_threads(penalty):
    _, _, found = solved("squared", "several", penalty)
    problem = found.solution.problem
    rng = np.random.default_rng(0)
    block = cs.build_dictionary(rng.random((20_000, 64)) < 0.3)
    price = pools._Pricing(torch.from_numpy(rng.normal(size=(20_000, 2))), problem.penalty, 80.0)
    n_threads = torch.get_num_threads()
    priced = []
    try:
        for number in (1, 2, 3, 5):
            torch.set_num_threads(number)
            priced.append(price(block, 100))
    finally:
        torch.set_num_threads(n_threads)
    assert 0 < priced[0].n_violators < 64
    for other in priced[1:]:
        assert all(torch.equal(getattr(other, name), getattr(priced[0], name)) for name in ("largest", "price"))
        assert torch.equal(other.members, priced[0].members)


def test_the_order_in_which_blocks_are_priced_changes_nothing(monkeypatch):
    case = Case("logistic", "labels")
    monkeypatch.setattr(pools, "_PILE", 3)
    monkeypatch.setattr(
        pools.PoolSpikes,
        "judge_blocks",
        lambda spikes, judge, n_blocks: [
            judge(spikes.block(number), spikes.pool.starts[number]) for number in RNG.permutation(n_blocks)
        ],
    )
    found, plain = case.solve(0.02), solved_plainly()
    assert torch.equal(found.members, plain.members)
    assert torch.equal(found.solution.coef, plain.solution.coef)
    assert found.certificate == plain.certificate


def test_spikes_are_shared_between_strengths():
    case = Case("logistic", "labels")
    spikes = PoolSpikes(case.pool, case.data.sequences, case.objective.readout)
    case.solve(0.05, spikes=spikes)
    assert torch.equal(case.solve(0.02, spikes=spikes).solution.coef, solved_plainly().solution.coef)
    assert spikes.block(3) is spikes.block(3)


@pytest.mark.parametrize("ratio", [0.5, 3.0])
@pytest.mark.parametrize(("loss", "targets", "penalty"), [KINDS[2], KINDS[3], KINDS[4], KINDS[5]])
def test_from_another_strength_the_optimum_is_the_same(loss, targets, penalty, ratio):
    case, strength, begin = solved(loss, targets, penalty)
    found = case.solve(ratio * strength, start=begin)
    assert_optimal(case, found, ratio * strength)
    assert {moment.n_witnesses for moment in found.rounds} == {case.pool.n_witnesses}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("form", ["compact", "parallel"])
def test_the_rebuilt_network_has_the_solutions_scores(family, form):
    _, _, found = solved("squared", "several", "group", family=family)
    assert 0 < len(found.solution.support) < len(found.members)
    network = cs.reconstruct(found.solution, form)
    torch.testing.assert_close(network(INPUTS).detach(), found.solution.scores(), rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("family", FAMILIES)
def test_members_are_the_witnesses_that_the_columns_come_from(family):
    case, _, found = solved("squared", "several", "group", family=family)
    dictionary = found.solution.problem.dictionary
    spikes = cs.roll_out(all_witnesses(case.pool).layers, INPUTS)
    assert torch.equal(dictionary.columns(dtype=torch.bool), spikes[:, found.members])
    assert torch.equal(cs.roll_out(dictionary.witnesses.layers, INPUTS), spikes[:, found.members])
    assert len(set(map(tuple, spikes[:, found.members].T.tolist()))) == len(found.members)


def test_when_time_is_up_the_gap_is_that_over_the_part_that_was_priced():
    case = Case("logistic", "labels")
    with pytest.warns(cs.ConvergenceWarning, match="over 256 witnesses, got .* over 32: it was stopped"):
        found = case.solve(0.02, max_seconds=1e-9)
    assert found.solution.status is cs.Status.STOPPED
    assert len(found.rounds) == 1
    assert (found.certificate.scope, found.certificate.n_witnesses) == ("pool", 32)
    assert_bounds(found.certificate, case.optimum(0.02, 32))
    # It is no bound on the optimum over the whole pool, and does not say so.
    assert case.optimum(0.02).primal < found.certificate.dual
    network = cs.reconstruct(found.solution)
    torch.testing.assert_close(network(INPUTS).detach(), found.solution.scores(), rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("n_rounds", [1, 4])
def test_an_interrupt_leaves_the_last_certificate_and_a_warning(n_rounds):
    case, told = Case("logistic", "labels"), []

    def interrupt(moment):
        told.append(moment)
        if len(told) == n_rounds:
            raise KeyboardInterrupt

    with pytest.warns(cs.ConvergenceWarning, match=r"over 256 witnesses, got .* over \d+: it was stopped"):
        found = case.solve(0.02, callback=interrupt)
    assert tuple(told) == found.rounds
    last = told[-1]
    certificate = found.certificate
    assert (certificate.primal, certificate.dual, certificate.n_witnesses) == (last.primal, last.dual, last.n_witnesses)
    assert_bounds(certificate, case.optimum(0.02, last.n_witnesses))
    network = cs.reconstruct(found.solution)
    torch.testing.assert_close(network(INPUTS).detach(), found.solution.scores(), rtol=0, atol=FLOAT64_SUM)


def test_an_interrupt_before_anything_is_proven_is_passed_on(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pools, "solve", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Case("logistic", "labels").solve(0.02)


def test_an_interrupted_solve_can_be_gone_on_with():
    case = Case("logistic", "labels")
    with pytest.warns(cs.ConvergenceWarning):
        part = case.solve(0.02, max_seconds=1e-9)
    assert_optimal(case, case.solve(0.02, start=part), 0.02)


def test_columns_that_leave_do_not_come_back_for_ever(monkeypatch):
    monkeypatch.setattr(pools, "_ENTERING", 4)
    monkeypatch.setattr(pools, "_LEAST_COLUMNS", 1)
    case = Case("hinge", "labels", intercept=True)
    assert_optimal(case, case.solve(0.005, max_seconds=60), 0.005)


def test_a_start_of_another_pool_is_refused():
    _, _, found = solved("logistic", "labels")
    with pytest.raises(InvalidInputError, match="of the same pool"):
        Case("logistic", "labels", pool=draw_pool(seed=1)).solve(0.02, start=found)


def test_a_start_solved_on_other_data_is_rolled_out_on_the_data_at_hand():
    other = Case("logistic", "labels", data=TrainingSet(INPUTS.flip(0), draw_data("labels").targets))
    start = other.solve(0.02)
    case = Case("logistic", "labels")
    assert_optimal(case, case.solve(0.02, start=start), 0.02)


def test_spikes_of_other_data_are_refused():
    case = Case("logistic", "labels")
    spikes = PoolSpikes(case.pool, draw_data("labels").sequences, "last")
    with pytest.raises(InvalidInputError, match="same data and read-out"):
        case.solve(0.02, spikes=spikes)


def test_a_dual_value_above_the_primal_one_is_an_error(monkeypatch):
    monkeypatch.setattr(pools, "certify_with_bound", lambda *_: 1e3)
    with pytest.raises(cs.CvxsnnError, match="above primal value"):
        Case("logistic", "labels").solve(0.02)
