"""Every judge against naive fits without the rows that it left out."""

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn import ConvexProblem, InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import Folds, HeldOut, LeaveOneOut, Program, Scored

TIGHT = 1e-9
"""Relative gap of solutions that are compared."""

CLOSE = 1e-3
"""Absolute, on scores around one of two solutions with that gap."""


def draw(loss="squared", n_rows=30, n_outputs=1, n_columns=8, seed=0, **options):
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, 2, (n_rows, n_columns))
    if loss == "squared":
        targets = columns[:, :2] @ rng.normal(size=(2, n_outputs)) + 0.3 * rng.normal(size=(n_rows, n_outputs))
    else:
        targets = (columns[:, 0] + rng.random(n_rows) > 0.8).astype(int)
    return ConvexProblem(columns, targets, loss, **options)


def ridge_problem(**options):
    return draw(l1_strength=0.0, l2_strength=1.0, penalty="elastic-net", intercept=True, **options)


def points_of(program):
    return [(norm, quadratic) for quadratic in program.quadratics() for norm in program.norms()]


def scores_of(problem, solution):
    return problem.dictionary.matvec(solution.coef) + solution.intercept


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_leave_one_out_equals_as_many_fits_as_rows(n_outputs, is_weighted):
    weight = np.random.default_rng(3).uniform(0.5, 2.0, 12) if is_weighted else None
    problem = ridge_problem(n_rows=12, n_outputs=n_outputs, row_weight=weight)
    program = Program.ridge(Objective("squared"))
    points = [(0.0, 1.0), (0.0, 0.01)]
    for point, verdict in zip(points, LeaveOneOut().walk(problem, program, points), strict=True):
        strength = program.at(problem, point).l2_strength
        losses = []
        for row in range(12):
            kept = torch.tensor([other for other in range(12) if other != row])
            share = float(problem.row_weight[kept].sum())  # the weights of the others are not raised
            without = cs.solve(problem.take_rows(kept).with_strength(0.0, strength / share), 1e-12)
            score = problem.dictionary.columns()[row] @ without.coef + without.intercept
            torch.testing.assert_close(verdict.scores[row], score, rtol=0, atol=1e-6)
            losses.append(0.5 * float((score - problem.heads[0].targets[row]).square().sum()))
        assert verdict.point == point
        assert verdict.rank == pytest.approx(
            -float(problem.row_weight @ torch.tensor(losses, dtype=torch.float64)), rel=1e-5
        )
        assert torch.equal(verdict.rows, torch.arange(12))
        assert (verdict.solution, verdict.share) == (None, 1.0)


CASES = {
    "squared": (draw(), Program(Objective("squared"), l1_strength=[0.1, 0.01])),
    "ridge": (ridge_problem(), Program(Objective("squared"), "elastic-net", 0.0, [0.1, 0.01], intercept=True)),
    "logistic": (draw("logistic", n_rows=60), Program(Objective("logistic"), n_strengths=3, smallest_ratio=0.1)),
    "net": (
        draw("logistic", n_rows=60, penalty="elastic-net", l2_strength=0.1),
        Program(Objective("logistic"), "elastic-net", [0.05], [0.1, 0.03]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_held_out_are_judged_by_a_fit_to_the_others(name):
    problem, program = CASES[name]
    n_rows, points = problem.dictionary.n_rows, points_of(program)
    verdicts = list(HeldOut(5, tol=TIGHT).walk(problem, program, points))
    held = verdicts[0].rows
    assert len(held) == len(torch.unique(held)) == n_rows // 5
    kept = torch.tensor(np.setdiff1d(np.arange(n_rows), held.numpy()))
    left, part = problem.take_rows(held), problem.take_rows(kept)
    for point, verdict in zip(points, verdicts, strict=True):
        expected = scores_of(left, cs.solve(program.at(part, point), TIGHT))
        torch.testing.assert_close(verdict.scores, expected, rtol=0, atol=CLOSE)
        head = left.heads[0]
        loss = float(left.row_weight @ head.loss.value(verdict.scores, head.targets))
        assert (verdict.point, verdict.share) == (point, len(kept) / n_rows)
        assert verdict.rank == pytest.approx(-loss, rel=ROUNDING)


@pytest.mark.parametrize("name", CASES)
def test_every_fold_is_judged_by_a_fit_to_the_others(name):
    problem, program = CASES[name]
    n_rows, points = problem.dictionary.n_rows, points_of(program)
    verdicts = list(Folds(3, tol=TIGHT, seed=1).walk(problem, program, points))
    assert all(torch.equal(verdict.rows, torch.arange(n_rows)) for verdict in verdicts)
    assert {verdict.share for verdict in verdicts} == {1 - 1 / 3}
    # Which rows are left out together is in the scores: only fits without a row's own fold give them.
    fold_of_row = cs.convex.left_out.deal_rows(problem, 3, cs.core.seeds.child_generator(1, "folds"))
    for point, verdict in zip(points, verdicts, strict=True):
        for fold in range(3):
            left, kept = (torch.nonzero(rows).squeeze(1) for rows in (fold_of_row == fold, fold_of_row != fold))
            solution = cs.solve(program.at(problem.take_rows(kept), point), TIGHT)
            expected = scores_of(problem.take_rows(left), solution)
            torch.testing.assert_close(verdict.scores[left], expected, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("judge", [LeaveOneOut, HeldOut, Folds])
def test_seeds_and_criteria(judge):
    problem, program = ridge_problem(n_rows=60), Program.ridge(Objective("squared"))
    points = [(0.0, 0.1)]
    (verdict,) = judge().walk(problem, program, points)
    (again,) = judge().walk(problem, program, points)
    assert (verdict.rank, torch.equal(verdict.rows, again.rows)) == (again.rank, True)
    if judge is not LeaveOneOut:
        (other,) = judge(seed=1).walk(problem, program, points)
        assert other.rank != verdict.rank


@pytest.mark.parametrize("judge", [HeldOut, Folds])
def test_accuracy_ranks_if_asked_for_and_where_there_are_classes(judge):
    problem, program = CASES["logistic"]
    for verdict in judge(by="accuracy").walk(problem, program, points_of(program)):
        hits = (verdict.scores > 0) == (problem.heads[0].targets[verdict.rows] > 0)
        assert verdict.rank == pytest.approx(float(hits.double().mean()))
    real, by_loss = draw(seed=4), Program(Objective("squared"), l1_strength=0.1)
    (verdict,) = judge(by="accuracy").walk(real, by_loss, [(0.1, 0.0)])
    assert verdict.rank < 0


def step_problem(n_samples=12, n_steps=5):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(n_samples, n_steps, 2))
    data = TrainingSet(inputs, {"label": inputs.cumsum(1)[:, :, 0]})
    dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (10,), seed=0), data.sequences, "all")
    program = Program(Objective("squared", "all"), l1_strength=[0.1, 0.01])
    return program.problem(dictionary, data), program


def test_steps_of_a_sample_are_held_out_together():
    problem, program = step_problem()
    for max_rows in (None, 5):
        judge = HeldOut(5, max_rows=max_rows)
        held, kept = judge._divide(problem)
        for rows in (held, kept):
            _, counts = np.unique(rows.numpy() // 5, return_counts=True)
            assert set(counts) == {5}
        assert not set(held.numpy() // 5) & set(kept.numpy() // 5)
        (first, _) = judge.walk(problem, program, points_of(program))
        assert torch.equal(first.rows, held)


def test_steps_of_a_sample_are_in_one_fold(monkeypatch):
    problem, program = step_problem()
    taken = []
    monkeypatch.setattr(
        ConvexProblem,
        "take_rows",
        lambda own, rows, take=ConvexProblem.take_rows: taken.append(rows) or take(own, rows),
    )
    list(Folds(4).walk(problem, program, points_of(program)))
    parts = [rows for rows in taken if len(rows) < 60]
    assert len(parts) == 4
    for rows in parts:
        assert set(np.unique(rows.numpy() // 5, return_counts=True)[1]) == {5}
        assert len(rows) == 45


def sorted_classes(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    columns = np.random.default_rng(0).integers(0, 2, (len(labels), 6))
    return ConvexProblem(columns, labels, "softmax", 0.1), labels


@pytest.mark.parametrize("counts", [(20, 20, 20), (50, 2, 1), (1, 1, 30), (4, 3, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_every_class_stays_in_the_part_that_is_fitted(counts, seed):
    problem, labels = sorted_classes(counts)
    held, kept = HeldOut(5, seed=seed)._divide(problem)
    assert set(labels[kept]) == {0, 1, 2}
    assert not set(held.tolist()) & set(kept.tolist())
    assert len(held) + len(kept) == sum(counts)


@pytest.mark.parametrize("max_rows", [10, 15, 30])
def test_a_part_of_many_rows_has_all_classes_though_these_are_sorted(max_rows):
    problem, labels = sorted_classes((100, 100, 100))
    held, kept = HeldOut(5, max_rows=max_rows)._divide(problem)
    for rows in (held, kept):
        assert set(labels[rows]) == {0, 1, 2}
        assert max_rows / 2 < len(rows) <= max_rows
    assert not set(held.tolist()) & set(kept.tolist())


@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 1, 1), (1, 3, 0)])
def test_too_few_samples_serve_as_both(counts):
    problem, _ = sorted_classes(counts)
    held, kept = HeldOut(5)._divide(problem)
    assert held.tolist() == kept.tolist() == list(range(sum(counts)))
    program = Program(Objective("softmax"), l1_strength=[0.1, 0.01])
    assert [verdict.share for verdict in HeldOut(5).walk(problem, program, points_of(program))] == [1.0, 1.0]


def test_all_of_too_few_samples_are_fitted_and_judged():
    problem, _ = sorted_classes((2, 1, 1))
    program = Program(Objective("softmax"))
    (verdict,) = Folds(5, n_repeats=2).walk(problem, program, [(0.1, 0.0)])
    assert (verdict.share, len(verdict.rows)) == (1.0, 4)
    torch.testing.assert_close(verdict.scores, scores_of(problem, verdict.solution), rtol=0, atol=ROUNDING)
    with pytest.raises(InvalidInputError, match="two groups or more that can be left out"):
        list(Folds(5).walk(problem.with_groups(torch.tensor([0, 0, 1, 1])), program, [(0.1, 0.0)]))


def test_losses_are_means_over_the_repeats_and_scores_those_of_the_first():
    problem, program = CASES["logistic"]
    points = points_of(program)[1:2]
    (verdict,), (single,) = (list(Folds(3, n_repeats=n, seed=2).walk(problem, program, points)) for n in (2, 1))
    assert torch.equal(verdict.scores, single.scores)
    assert Folds(3, n_repeats=2).n_fits == 6
    rng = cs.core.seeds.child_generator(2, "folds")
    losses = []
    for _ in range(2):
        fold_of_row, scores = cs.convex.left_out.deal_rows(problem, 3, rng), torch.zeros_like(verdict.scores)
        for fold in range(3):
            left, kept = (torch.nonzero(rows).squeeze(1) for rows in (fold_of_row == fold, fold_of_row != fold))
            solution = cs.solve(program.at(problem.take_rows(kept), points[0]), TIGHT)
            scores[left] = scores_of(problem.take_rows(left), solution)
        losses.append(problem.heads[0].loss.value(scores, problem.heads[0].targets))
    assert not torch.allclose(*losses)
    torch.testing.assert_close(verdict.validation.loss[0], sum(losses) / 2, rtol=0, atol=CLOSE)
    assert verdict.rank == -float(verdict.validation.mean()[0])


def grouped(problem, n_groups=7):
    groups = np.random.default_rng(4).integers(0, n_groups, problem.dictionary.n_rows)
    return problem.with_groups(torch.from_numpy(groups))


@pytest.mark.parametrize("judge", [HeldOut(5), HeldOut(5, max_rows=8), Folds(3, n_repeats=2)], ids=repr)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_no_group_is_fitted_and_judged_at_once(judge, loss):
    problem = grouped(draw(loss, n_rows=60))
    for folds in judge._parts(problem):
        for part in folds:
            held, kept = set(problem.groups[part.held].tolist()), set(part.problem.groups.tolist())
            assert held
            assert kept
            assert not held & kept
    (verdict,) = judge.walk(problem, Program(Objective(loss)), [(0.1, 0.0)])
    assert verdict.validation.is_by_group
    assert verdict.validation.loss.shape[1] == len(torch.unique(problem.groups[verdict.rows]))


def test_fewer_groups_than_folds_are_as_many_folds():
    problem = grouped(draw(n_rows=60), 3)
    (verdict,) = Folds(5).walk(problem, Program(Objective("squared")), [(0.1, 0.0)])
    assert (verdict.validation.method, verdict.share) == ("3 folds", pytest.approx(2 / 3))
    (verdict,) = HeldOut(5).walk(problem, Program(Objective("squared")), [(0.1, 0.0)])
    assert len(torch.unique(problem.groups[verdict.rows])) == 1


def network_problem(penalty="l1", **options):
    task = cs.tasks.first_last_xor(3, n_train=24, n_val=16, n_test=4)
    data = TrainingSet.of(task.train)
    dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (16,), seed=0), data.sequences)
    program = Program(Objective("logistic"), penalty, **options)
    return program.problem(dictionary, data), program


@pytest.mark.parametrize(
    "options",
    [
        {"l1_strength": [0.1, 0.03, 0.01]},
        {"n_strengths": 3},
        {"penalty": "elastic-net", "l1_strength": 0.01, "l2_strength": [0.1, 0.03]},
        {"penalty": "elastic-net", "l1_strength": [0.1, 0.01], "l2_strength": 0.03},
    ],
)
def test_a_function_of_the_network_ranks_certified_solutions_of_all_rows(options):
    problem, program = network_problem(**options)
    points = points_of(program)
    judge = Scored(lambda network: (len(network.neurons), float(network.weight.detach().abs().sum())))
    verdicts = list(judge.walk(problem, program, points))
    for point, verdict in zip(points, verdicts, strict=True):
        at = program.at(problem, point)
        strengths = verdict.solution.problem.l1_strength, verdict.solution.problem.l2_strength
        assert strengths == pytest.approx((at.l1_strength, at.l2_strength), rel=ROUNDING)
        assert verdict.solution.certificate.relative_gap <= program.tol
        assert verdict.rank == judge.score(cs.reconstruct(verdict.solution))
        assert (verdict.point, verdict.share, verdict.validation) == (point, 1.0, None)
    assert len({verdict.rank for verdict in verdicts}) > 1


def test_all_steps_of_a_group_are_left_out_together():
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 2, (12, 5, 3)).astype(float)
    data = TrainingSet(inputs, {"label": inputs.cumsum(1)[:, :, 0]}, groups=np.arange(12) // 3)
    dictionary = cs.build_dictionary(cs.gaussian_witnesses(3, (16,), seed=0), data.sequences, readout="all")
    program = Program.ridge(Objective("squared", "all"))
    problem = program.problem(dictionary, data)
    assert problem.groups.tolist() == np.repeat(np.arange(4), 15).tolist()
    for judge, n_judged in ((LeaveOneOut(), 60), (Folds(4), 60), (HeldOut(4), 15)):
        (verdict,) = judge.walk(problem, program, [(0.0, 0.1)])
        assert len(verdict.rows) == n_judged
        assert verdict.validation.loss.shape == (1, n_judged // 15)
