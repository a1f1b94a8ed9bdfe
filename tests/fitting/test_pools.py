"""Optima over pools of witnesses, against the same program with all witnesses in one dictionary."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence
from tolerances import CERTIFIED_AGAIN, FLOAT64_SUM, ROUNDING, UNMISTAKABLE
from witnesses.pools import DEEP, FAMILIES, FAMILY, INPUTS, RNG, all_witnesses, draw_pool

import cvxsnn as cs
from cvxsnn import ConvexProblem, InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.dictionary.pooled import PoolSpikes
from cvxsnn.fitting import pools
from cvxsnn.fitting.pools import solve_pool
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
NETS = [
    ("squared", "real", "elastic-net"),
    ("squared", "several", "elastic-net"),
    ("squared", "several", "group-elastic-net"),
    ("logistic", "labels", "elastic-net"),
    ("squared_hinge", "labels", "elastic-net"),
    ("softmax", "classes", "elastic-net"),
    ("softmax", "classes", "group-elastic-net"),
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

    def __init__(
        self, loss, targets, penalty="l1", intercept=False, readout="last", pool=None, data=None, l2_strength=0.0
    ):
        self.pool, self.data = pool or draw_pool(), data or draw_data(targets)
        self.objective = Objective(loss, readout)
        self._options = {"penalty": penalty, "intercept": intercept, "l2_strength": l2_strength}
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
        return cs.solve(self.problem(l1_strength, n_witnesses), 0.1 * TOL)


@cache
def solved(loss, targets, penalty="l1", intercept=True, family="plain", l2_strength=0.0):
    """A case, its strength and the optimum over its pool."""
    pool = draw_pool(family=FAMILIES[family])
    case = Case(loss, targets, penalty, intercept, pool=pool, l2_strength=l2_strength)
    strength = case.strength()
    return case, strength, case.solve(strength)


@cache
def solved_plainly():
    return Case("logistic", "labels").solve(0.02)


def assert_bounds(bounds, solution):
    """Dual value, optimum, primal value: in this order."""
    optimum = solution.certificate
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


@pytest.mark.parametrize("family", ["delayed", "deep-delayed"])
@pytest.mark.parametrize(("loss", "targets", "penalty"), [KINDS[0], KINDS[3], KINDS[6]])
def test_the_optimum_over_a_pool_with_delays_is_the_one_over_all_its_witnesses(family, loss, targets, penalty):
    case, strength, found = solved(loss, targets, penalty, family=family)
    assert_optimal(case, found, strength)
    assert all(layer.has_delays for layer in found.solution.problem.dictionary.witnesses.layers)


def assert_unique(case, found, strength):
    """The coefficients are those of the optimum over all witnesses: with a quadratic there are no others.

    Its strength r makes the objective strongly convex, ½r‖W − W*‖² ≤ P(W) − P*, for both of them.
    """
    optimum = case.optimum(strength, case.pool.n_witnesses)
    own = torch.zeros_like(optimum.coef)
    own[optimum.problem.dictionary.atom_of_column[found.members]] = found.solution.coef
    gaps = [max(one.certificate.gap, 0.0) + FLOAT64_SUM for one in (found, optimum)]
    r = optimum.problem.l2_strength
    assert float((own - optimum.coef).norm()) <= sum((2 * gap / r) ** 0.5 for gap in gaps)
    # There is something to compare: the bound is not met by zeros.
    assert float(optimum.coef.norm()) > sum((2 * gap / r) ** 0.5 for gap in gaps)


@pytest.mark.parametrize("l2_strength", [3e-3, 0.5])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("loss", "targets", "penalty"), NETS)
def test_the_elastic_net_over_a_pool_is_the_one_over_all_its_distinct_atoms(
    loss, targets, penalty, intercept, l2_strength
):
    case, strength, found = solved(loss, targets, penalty, intercept, l2_strength=l2_strength)
    assert_optimal(case, found, strength)
    assert_unique(case, found, strength)
    assert found.solution.problem.l2_strength == l2_strength
    problem = case.problem(strength)
    assert problem.dictionary.n_atoms < case.pool.n_witnesses * 0.8  # witnesses with equal spikes are not rare here


FEW_SAMPLES = 6
"""So few that most witnesses have the spikes of another."""


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("loss", "targets", "penalty"), NETS)
def test_witnesses_with_equal_spikes_enter_an_elastic_net_once(loss, targets, penalty, intercept):
    data = TrainingSet(Sequences(INPUTS[:FEW_SAMPLES]), {"label": TARGETS[targets][:FEW_SAMPLES]})
    case = Case(loss, targets, penalty, intercept, pool=draw_pool(1024), data=data, l2_strength=0.1)
    strength = case.strength(0.05)
    n_atoms = case.problem().dictionary.n_atoms
    assert n_atoms < 64
    found = case.solve(strength, max_seconds=60)
    assert_optimal(case, found, strength)
    assert_unique(case, found, strength)
    # Prices of what is read are above the strength, and those of hundreds of other witnesses with the same spikes.
    above = found.solution.problem.penalty.atom_norms(
        found.solution.problem.dictionary.rmatvec(found.solution.dual_point)
    )
    assert int((above > strength * (1 + UNMISTAKABLE)).sum()) > 1
    assert max(moment.n_columns for moment in found.rounds) <= n_atoms
    assert found.rounds[-1].n_violators == 0


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
def test_spikes_of_the_working_set_are_not_priced_and_all_others_are(penalty):
    rng = np.random.default_rng(0)
    block = cs.build_dictionary(rng.random((40, 64)) < 0.5)
    dual = torch.tensor(rng.normal(size=(40, 3)))
    kind = cs.convex.PENALTIES.find(penalty)()
    prices = kind.atom_norms(block.rmatvec(dual))
    order = torch.argsort(prices, descending=True)
    exempt, others = torch.cat((order[:5], order[40:50])), torch.cat((order[5:40], order[50:]))
    strength = float(prices[order[20]])
    found = pools._Pricing(dual, kind, strength, block.patterns[exempt])(block, 100)
    assert (found.members - 100).tolist() == block.column_of_atom[order[5:20]].tolist()
    assert found.n_violators == 15
    largest = kind.atom_norms(block.rmatvec(dual)[others].abs().amax(0)[None]) if kind.is_separable else prices[others]
    assert float(kind.atom_norms(found.largest[None])) == pytest.approx(float(largest.max()), rel=ROUNDING)
    everything = pools._Pricing(dual, kind, strength, block.patterns)(block, 100)
    assert (everything.n_violators, len(everything.members)) == (0, 0)
    assert float(everything.largest.abs().max()) <= strength


@pytest.mark.parametrize("kind", [KINDS[3], KINDS[4], KINDS[2]])
def test_an_elastic_net_without_a_quadratic_is_its_norm_to_the_bit(kind):
    loss, targets, penalty = kind
    net = {"l1": "elastic-net", "group": "group-elastic-net"}[penalty]
    _, strength, plain = solved(loss, targets, penalty)
    found = Case(loss, targets, net, intercept=True).solve(strength)
    assert torch.equal(found.members, plain.members)
    assert torch.equal(found.solution.coef, plain.solution.coef)
    assert found.certificate == plain.certificate


def test_a_pool_without_a_norm_is_refused_in_one_sentence():
    with pytest.raises(InvalidInputError, match="l1_strength above zero for an optimum over a pool") as caught:
        Case("squared", "real", "elastic-net", l2_strength=0.1).solve(0.0)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(("penalty", "strengths"), [("l1", (0.1, 0.1)), ("l1", (0.0, 0.0)), ("elastic-net", (0.1, -1))])
def test_strengths_that_a_penalty_cannot_have_are_refused(penalty, strengths):
    l1_strength, l2_strength = strengths
    with pytest.raises(InvalidInputError, match=r"expected l[12]_strength") as caught:
        Case("squared", "real", penalty, l2_strength=l2_strength).solve(l1_strength)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(("loss", "targets", "penalty"), [*KINDS[2:6], NETS[2], NETS[3], NETS[5]])
def test_every_round_bounds_the_optimum_over_the_part_of_the_pool_that_it_is_about(loss, targets, penalty):
    case, strength, found = solved(loss, targets, penalty, l2_strength=0.1 if "net" in penalty else 0.0)
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


@pytest.mark.parametrize("options", [{}, {"penalty": "elastic-net", "l2_strength": 0.1}])
@pytest.mark.parametrize(("readout", "targets"), [("mean", "real"), ("all", "steps")])
def test_every_readout_is_priced(readout, targets, options):
    case = Case("squared", targets, readout=readout, intercept=True, pool=draw_pool(family=DEEP), **options)
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
    price = pools._Pricing(torch.tensor(rng.normal(size=(20_000, 2))), problem.penalty, 80.0)
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


@pytest.mark.parametrize("options", [{}, {"penalty": "elastic-net", "l2_strength": 0.1}])
def test_the_order_in_which_blocks_are_priced_changes_nothing(monkeypatch, options):
    case = Case("logistic", "labels", **options)
    plain = case.solve(0.02)
    monkeypatch.setattr(pools, "_PILE", 3)
    monkeypatch.setattr(
        pools.PoolSpikes,
        "judge_blocks",
        lambda spikes, judge, n_blocks: [
            judge(spikes.block(number), spikes.pool.starts[number]) for number in RNG.permutation(n_blocks)
        ],
    )
    found = case.solve(0.02)
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
@pytest.mark.parametrize(("loss", "targets", "penalty"), [*KINDS[2:6], NETS[2], NETS[4]])
def test_from_another_strength_the_optimum_is_the_same(loss, targets, penalty, ratio):
    case, strength, begin = solved(loss, targets, penalty, l2_strength=0.1 if "net" in penalty else 0.0)
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
    assert case.optimum(0.02).certificate.primal < found.certificate.dual
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
    with pytest.raises(InvalidInputError, match="belong to another pool"):
        Case("logistic", "labels", pool=draw_pool(seed=1)).solve(0.02, start=found)
    start = solved("logistic", "labels", family="delayed")[2]
    elsewhere = replace(start.pool, inputs=INPUTS + 1)
    with pytest.raises(InvalidInputError, match="start or the spikes belong to another pool"):
        Case("logistic", "labels", pool=elsewhere).solve(0.02, start=start)


def test_a_start_solved_on_other_data_is_rolled_out_on_the_data_at_hand():
    other = Case("logistic", "labels", data=TrainingSet(INPUTS.flip(0), draw_data("labels").targets))
    start = other.solve(0.02)
    case = Case("logistic", "labels")
    assert_optimal(case, case.solve(0.02, start=start), 0.02)


def test_spikes_of_other_data_are_refused():
    case = Case("logistic", "labels")
    spikes = PoolSpikes(case.pool, draw_data("labels").sequences, "last")
    with pytest.raises(InvalidInputError, match="other data or another read-out"):
        case.solve(0.02, spikes=spikes)


def test_a_dual_value_above_the_primal_one_is_an_error(monkeypatch):
    monkeypatch.setattr(pools, "certify_with_bound", lambda *_: 1e3)
    with pytest.raises(cs.CvxsnnError, match="above primal value"):
        Case("logistic", "labels").solve(0.02)
