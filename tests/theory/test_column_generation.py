import numpy as np
import pytest
from hypothesis import given, settings
from small_models import assert_one_sentence
from theory.families import FAMILIES, SEEDS, draw_sequences
from tolerances import CERTIFIED_AGAIN, PRICED, UNMISTAKABLE

from cvxsnn import ConvexProblem, build_dictionary, gaussian_witnesses, solve
from cvxsnn.convex import certify_with_bound
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.theory import LIFFamily, column_generation, complete_dictionary, lif_family, solve_complete

LOSSES = ("squared", "logistic", "hinge", "squared_hinge")
SMOOTH = ("squared", "logistic", "squared_hinge")
READOUTS = ("last", "all", "mean")
TOL = 1e-6


def draw_targets(rng, loss, readout, n_samples, n_steps):
    shape = (n_samples, n_steps) if readout == "all" else (n_samples,)
    targets = rng.normal(size=shape)
    if loss == "squared":
        return targets
    targets.flat[:2] = (1, -1)
    return (targets > 0).astype(float)


def optimum(inputs, targets, family, loss, strength, readout, **options):
    """Over the complete dictionary."""
    complete = complete_dictionary(inputs, family, readout=readout)
    return solve(ConvexProblem(complete, targets, loss, strength, **options), 1e-9)


def assert_bounds(bounds, complete):
    """Dual value, optimum, primal value: in this order."""
    margin = CERTIFIED_AGAIN * max(1.0, complete.primal)
    assert bounds.dual <= complete.primal + margin
    assert complete.dual <= bounds.primal + margin


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_column_generation_finds_the_optimum_over_the_complete_dictionary(loss, readout):
    rng = np.random.default_rng(LOSSES.index(loss))
    for family in (LIFFamily(0.5), LIFFamily(1.0, negative_threshold=True)):
        inputs = draw_sequences(rng, 6, 3, 1)
        targets = draw_targets(rng, loss, readout, 6, 3)
        found = solve_complete(inputs, targets, family, loss, 0.02, readout=readout, tol=TOL, n_start=2)
        complete = optimum(inputs, targets, family, loss, 0.02, readout).certificate
        assert complete.scope == found.certificate.scope == "complete"
        assert found.certificate.relative_gap <= TOL
        assert found.certificate.primal == found.solution.certificate.primal
        assert found.solution.certificate.scope == "sampled"
        for bounds in (found.certificate, *found.rounds):
            assert_bounds(bounds, complete)


@pytest.mark.parametrize("readout", READOUTS)
@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize(("penalty", "l2_strength"), [("elastic-net", 0.5), ("group-elastic-net", 3e-3)])
def test_column_generation_finds_the_elastic_net_over_all_distinct_atoms(penalty, l2_strength, loss, readout):
    rng = np.random.default_rng(SMOOTH.index(loss))
    inputs, family = draw_sequences(rng, 6, 3, 1), LIFFamily(0.5)
    targets = draw_targets(rng, loss, readout, 6, 3)
    options = {"penalty": penalty, "l2_strength": l2_strength}
    found = solve_complete(inputs, targets, family, loss, 0.02, readout=readout, tol=TOL, n_start=2, **options)
    complete = optimum(inputs, targets, family, loss, 0.02, readout, **options)
    assert complete.certificate.scope == found.certificate.scope == "complete"
    assert found.certificate.relative_gap <= TOL
    for bounds in (found.certificate, *found.rounds):
        assert_bounds(bounds, complete.certificate)
    assert len(found.rounds) > 1
    # What is read has prices above the strength, and is not generated again.
    problem = found.solution.problem
    assert float(problem.dictionary.rmatvec(found.solution.dual_point).abs().max()) > 0.02 + PRICED
    assert problem.dictionary.n_atoms <= complete.problem.dictionary.n_atoms
    assert np.all(np.diff([one.n_atoms for one in found.rounds]) > 0)


@settings(max_examples=10)
@given(FAMILIES, SEEDS)
def test_every_round_bounds_the_elastic_net_too(family, seed):
    rng = np.random.default_rng(seed)
    inputs, targets = draw_sequences(rng, 5, 2, 1), rng.normal(size=5)
    options = {"penalty": "elastic-net", "l2_strength": float(10 ** rng.uniform(-4, 0))}
    found = solve_complete(inputs, targets, family, "squared", 0.01, tol=TOL, n_start=1, seed=seed, **options)
    complete = optimum(inputs, targets, family, "squared", 0.01, "last", **options).certificate
    for bounds in found.rounds:
        assert_bounds(bounds, complete)
    assert found.certificate.relative_gap <= TOL


def test_all_neurons_without_a_norm_are_refused_in_one_sentence():
    with pytest.raises(InvalidInputError, match="l1_strength above zero for an optimum over all neurons") as caught:
        solve_complete(
            np.ones((3, 2, 1)), np.arange(3.0), LIFFamily(0.5), l1_strength=0.0, penalty="elastic-net", l2_strength=0.1
        )
    assert_one_sentence(caught.value)


@settings(max_examples=15)
@given(FAMILIES, SEEDS)
def test_every_round_bounds_the_complete_optimum_and_none_is_worse_than_the_last(family, seed):
    rng = np.random.default_rng(seed)
    inputs, targets = draw_sequences(rng, 5, 2, 1), rng.normal(size=5)
    told = []
    found = solve_complete(
        inputs, targets, family, "squared", 0.01, tol=TOL, n_start=1, seed=seed, callback=told.append
    )
    complete = optimum(inputs, targets, family, "squared", 0.01, "last").certificate
    assert tuple(told) == found.rounds
    for bounds in found.rounds:
        assert_bounds(bounds, complete)
    assert np.all(np.diff([one.primal for one in found.rounds]) <= 0)
    assert np.all(np.diff([one.dual for one in found.rounds]) >= 0)
    assert found.certificate.relative_gap <= TOL


@pytest.mark.parametrize("limit", [{"max_rounds": 1}, {"max_boxes": 0}, {"max_boxes": 3}, {"max_seconds": 0.0}])
def test_stopping_early_leaves_valid_bounds(limit):
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(8, 3, 1)), rng.normal(size=8)
    family = LIFFamily(0.5, bias=True)
    limits = {"max_rounds": 3, **limit}
    found = solve_complete(inputs, targets, family, "squared", 0.005, tol=TOL, n_start=2, **limits)
    complete = solve_complete(inputs, targets, family, "squared", 0.005, tol=TOL).certificate
    assert_bounds(found.certificate, complete)
    assert found.certificate.scope == "complete"
    assert found.certificate.relative_gap > UNMISTAKABLE
    assert found.certificate.primal > complete.primal * (1 + UNMISTAKABLE)


def test_a_pulse_sees_whole_numbers_and_stops_with_valid_bounds():
    rng = np.random.default_rng(0)
    inputs, targets, family = rng.normal(size=(12, 3, 1)), rng.normal(size=12), LIFFamily(0.5, bias=True)
    complete = solve_complete(inputs, targets, family, "squared", 0.005, tol=TOL).certificate
    told = []

    def pulse(n_boxes, n_open):
        told.append((n_boxes, n_open))
        return len(told) > 2

    found = solve_complete(inputs, targets, family, "squared", 0.005, tol=TOL, n_start=2, pulse=pulse)
    assert all(type(count) is int for counts in told for count in counts)
    assert found.certificate.relative_gap > TOL
    assert_bounds(found.certificate, complete)


def test_early_rounds_are_content_with_some_neurons_and_the_last_ones_are_thorough(monkeypatch):
    asked = []
    own = column_generation.price_dual

    def spy(*arguments, is_thorough, **options):
        asked.append(is_thorough)
        return own(*arguments, is_thorough=is_thorough, **options)

    monkeypatch.setattr(column_generation, "price_dual", spy)
    rng = np.random.default_rng(0)
    inputs, targets, family = rng.normal(size=(10, 2, 2)), rng.normal(size=10), LIFFamily(0.5, bias=True)
    found = solve_complete(inputs, targets, family, "squared", 0.01, tol=TOL, n_start=2)
    assert len(asked) == len(found.rounds) > 1
    assert not asked[0]
    solve_complete(inputs, targets, family, "squared", 0.01, tol=TOL, n_start=2, max_seconds=0.0)
    assert asked[-1]


def test_neurons_of_too_many_bits_end_the_search_with_a_valid_bound(monkeypatch):
    # To tell the two sequences apart, weights of 13 bits are necessary.
    inputs, targets = np.array([[2.0**12, 2.0**12 + 1], [2.0**12 + 1, 2.0**12 + 2]])[:, None], [1.0, -1.0]
    complete = solve_complete(inputs, targets, LIFFamily(0.5), "squared", 0.01).certificate
    monkeypatch.setattr(lif_family, "_WEIGHT_BITS", 12)
    found = solve_complete(inputs, targets, LIFFamily(0.5), "squared", 0.01)
    assert len(found.rounds) == 3
    assert found.certificate.primal == pytest.approx(0.5)
    assert_bounds(found.certificate, complete)
    assert found.certificate.dual < complete.primal < 0.1


def test_without_anything_to_explain_nothing_is_generated():
    found = solve_complete(np.ones((3, 2, 1)), np.zeros(3), LIFFamily(0.5))
    assert (found.certificate.primal, found.certificate.dual, len(found.rounds)) == (0.0, 0.0, 1)


def test_several_outputs_and_intercepts_are_optimal_over_the_complete_dictionary():
    rng = np.random.default_rng(3)
    inputs, targets, family = draw_sequences(rng, 7, 2, 1), rng.normal(size=(7, 2)), LIFFamily(0.5, bias=True)
    found = solve_complete(inputs, targets, family, "squared", 0.05, intercept=True, tol=TOL, n_start=2)
    complete = optimum(inputs, targets, family, "squared", 0.05, "last", intercept=True).certificate
    assert found.certificate.relative_gap <= TOL
    assert_bounds(found.certificate, complete)
    assert found.solution.problem.intercept


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
@pytest.mark.parametrize("readout", ["last", "mean"])
def test_a_group_of_several_outputs_is_optimal_over_the_complete_dictionary(loss, readout):
    rng = np.random.default_rng(3)
    inputs, family = draw_sequences(rng, 7, 2, 1), LIFFamily(0.5, bias=True)
    targets = {"squared": rng.normal(size=(7, 3)), "logistic": rng.random((7, 3)) < 0.5, "softmax": np.arange(7) % 3}[
        loss
    ]
    options = {"penalty": "group", "intercept": True}
    found = solve_complete(inputs, targets, family, loss, 0.05, readout=readout, tol=TOL, n_start=2, **options)
    complete = optimum(inputs, targets, family, loss, 0.05, readout, **options).certificate
    assert found.certificate.relative_gap <= TOL
    for bounds in (found.certificate, *found.rounds):
        assert_bounds(bounds, complete)
    separate = solve_complete(inputs, targets, family, loss, 0.05, readout=readout, tol=TOL, intercept=True)
    assert abs(separate.certificate.primal - found.certificate.primal) > UNMISTAKABLE  # another objective


def test_a_group_of_several_outputs_with_a_quadratic_is_refused():
    with pytest.raises(InvalidInputError, match="penalty 'l1', 'group' or 'elastic-net'") as caught:
        solve_complete(
            np.ones((3, 2, 1)), np.eye(3)[:, :2], LIFFamily(0.5), penalty="group-elastic-net", l2_strength=0.1
        )
    assert_one_sentence(caught.value)


def test_a_search_that_starts_from_another_one_s_neurons_needs_one_round():
    rng = np.random.default_rng(4)
    inputs, targets, family = draw_sequences(rng, 12, 2, 1), rng.normal(size=12), LIFFamily(0.5, bias=True)
    first = solve_complete(inputs, targets, family, "squared", 0.01, tol=TOL, n_start=2)
    again = solve_complete(inputs, targets, family, "squared", 0.01, tol=TOL, n_start=2, start=first.parameters)
    assert len(first.rounds) > 1
    assert len(again.rounds) == 1
    assert again.certificate.primal == pytest.approx(first.certificate.primal, rel=1e-5)


@pytest.mark.parametrize("readout", READOUTS)
def test_a_solution_s_price_is_the_largest_correlation_with_all_atoms(readout):
    rng = np.random.default_rng(0)
    inputs, family = draw_sequences(rng, 6, 3, 1), LIFFamily(0.5)
    targets = draw_targets(rng, "squared", readout, 6, 3)
    few = build_dictionary(gaussian_witnesses(1, (3,), decay=0.5, seed=1), inputs, readout)
    solution = solve(ConvexProblem(few, targets, "squared", 0.01))
    complete = complete_dictionary(inputs, family, readout=readout)
    largest = float(complete.rmatvec(solution.dual_point).abs().max())
    assert largest > 0.01 * (1 + UNMISTAKABLE)
    found = column_generation.price_dual(family.on(inputs), solution.problem, solution.dual_point, 0.01)
    assert found.value == pytest.approx(largest, rel=0, abs=PRICED)
    dual = certify_with_bound(solution.problem, solution.dual_point, found.bounds)
    best = solve(ConvexProblem(complete, targets, "squared", 0.01), 1e-9).certificate
    assert dual < solution.certificate.dual
    assert dual <= best.primal


def test_a_larger_bound_proves_less_and_one_within_the_strength_proves_the_dual_value():
    rng = np.random.default_rng(0)
    solution = solve(ConvexProblem(rng.random((9, 5)) < 0.5, rng.normal(size=9), "squared", 0.05), 1e-9)
    values = [certify_with_bound(solution.problem, solution.dual_point, [b]) for b in (0.01, 0.05, 0.06, 0.1, 10.0)]
    assert values[:2] == pytest.approx([solution.certificate.dual] * 2, rel=CERTIFIED_AGAIN)
    assert np.all(np.diff(values[1:]) < 0)


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("l2_strength", [1e-3, 0.3])
def test_a_bound_on_other_atoms_is_one_for_the_dictionary_with_them(penalty, l2_strength):
    rng = np.random.default_rng(0)
    columns, targets = rng.random((12, 30)) < 0.5, rng.normal(size=(12, 2))
    options = {"loss": "squared", "l1_strength": 0.05, "l2_strength": l2_strength, "penalty": penalty}
    solution = solve(ConvexProblem(columns[:, :10], targets, **options), 1e-9)
    whole = ConvexProblem(columns, targets, **options)
    best = solve(whole, 1e-9).certificate.primal
    prices = np.abs(columns[:, 10:].T @ solution.dual_point.numpy())
    largest = prices.max(0) if penalty == "elastic-net" else [np.linalg.norm(prices, axis=1).max(), 0.0]
    bound = certify_with_bound(solution.problem, solution.dual_point, list(largest))
    assert max(largest) > 0.05 * (1 + UNMISTAKABLE)
    assert solution.certificate.dual > best * (1 + UNMISTAKABLE)  # the others do help
    assert bound <= best * (1 + CERTIFIED_AGAIN)
    # Where the others satisfy the constraint the bound is that over the dictionary, whatever its own prices are.
    assert float(whole.penalty.dual_norm(solution.problem.dictionary.rmatvec(solution.dual_point))) > 0.05
    within = certify_with_bound(solution.problem, solution.dual_point, [0.02, 0.02])
    assert within == pytest.approx(solution.certificate.dual, rel=CERTIFIED_AGAIN)
    values = [certify_with_bound(solution.problem, solution.dual_point, [b, 0.0]) for b in (0.05, 0.06, 0.1, 10.0)]
    assert np.all(np.diff(values) < 0)


def test_a_dual_point_outside_the_loss_s_domain_is_refused():
    rng = np.random.default_rng(0)
    problem = ConvexProblem(rng.random((9, 5)) < 0.5, np.arange(9) % 2, "hinge", 0.05)
    with pytest.raises(InvalidInputError, match="expected a dual point in the domain of the loss"):
        certify_with_bound(problem, 100 * solve(problem).dual_point, [1.0])
