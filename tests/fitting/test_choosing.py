"""The choice of strengths: patience, ties, two dimensions, time."""

from typing import ClassVar

import numpy as np
import pytest

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.fitting import Folds, HeldOut, LeaveOneOut, Program, Verdict, choose, judge_for
from cvxsnn.fitting.choosing import GRID

LOGISTIC = Objective("logistic")
RNG = np.random.default_rng(0)
COLUMNS, LABELS = RNG.integers(0, 2, (30, 8)), RNG.integers(0, 2, 30)
PROBLEM = cs.ConvexProblem(COLUMNS, LABELS, "logistic", 0.1)


class Table:
    """A judge that ranks by a function of the point, and keeps the points that it was asked for."""

    solves_in_turn: ClassVar[bool] = True

    def __init__(self, rank):
        self.rank, self.seen = rank, []

    def walk(self, problem, program, points):
        for point in points:
            self.seen.append(point)
            yield Verdict(point, self.rank(*point))


class AtOnce(Table):
    solves_in_turn = False


def line(n_points=10, **options):
    return Program(LOGISTIC, l1_strength=[float(strength) for strength in range(n_points, 0, -1)], **options)


def net(norms, quadratics):
    return Program(LOGISTIC, "elastic-net", norms, quadratics)


def test_one_point_is_not_judged():
    judge = Table(lambda norm, quadratic: 1 / 0)
    verdict = choose(PROBLEM, Program(LOGISTIC, l1_strength=0.3), judge)
    assert (verdict.point, verdict.validation, verdict.solution, judge.seen) == ((0.3, 0.0), None, None, [])


@pytest.mark.parametrize("best", [10.0, 7.0, 1.0])
@pytest.mark.parametrize("kind", [Table, AtOnce])
def test_the_best_of_one_valley_is_taken(kind, best):
    judge = kind(lambda norm, quadratic: -abs(norm - best))
    assert choose(PROBLEM, line(), judge).point == (best, 0.0)


def test_weaker_strengths_are_skipped_after_a_few_that_are_worse():
    judge = Table(lambda norm, quadratic: -abs(norm - 8))
    choose(PROBLEM, line(), judge)
    assert [norm for norm, _ in judge.seen] == [10, 9, 8, 7, 6, 5]
    assert GRID.patience == 3


def test_fewer_worse_ones_in_a_row_are_walked_over():
    ranks = {10: 5, 9: 4, 8: 3, 7: 5, 6: 4, 5: 4, 4: 9, 3: 1, 2: 1, 1: 99}
    judge = Table(lambda norm, quadratic: ranks[norm])
    assert choose(PROBLEM, line(), judge).point == (1.0, 0.0)


def test_a_judge_that_has_all_points_at_once_is_asked_for_all():
    judge = AtOnce(lambda norm, quadratic: -abs(norm - 10) + 100 * (norm == 1))
    assert choose(PROBLEM, line(), judge).point == (1.0, 0.0)
    assert len(judge.seen) == 10


def test_of_equals_the_larger_strength_wins():
    assert choose(PROBLEM, line(), Table(lambda norm, quadratic: norm <= 6)).point == (6.0, 0.0)
    assert choose(PROBLEM, line(), Table(lambda norm, quadratic: (1.0, -(norm > 4)))).point == (4.0, 0.0)


def test_of_equal_pairs_the_larger_norm_wins_and_then_the_larger_quadratic():
    norms, quadratics = [0.01, 0.02], [0.1, 0.3, 0.2]
    judge = Table(lambda norm, quadratic: (norm, quadratic) != (0.02, 0.3))
    assert choose(PROBLEM, net(norms, quadratics), judge).point == (0.02, 0.2)
    assert choose(PROBLEM, net(norms, quadratics), Table(lambda *point: 1.0)).point == (0.02, 0.3)


def test_the_whole_grid_of_given_pairs_is_tried():
    norms, quadratics = [0.01, 0.02], [0.1, 0.3, 0.2]
    for best in [(norm, quadratic) for norm in norms for quadratic in quadratics]:
        judge = Table(lambda *point, best=best: point == best)
        assert choose(PROBLEM, net(norms, quadratics), judge).point == best
        assert len(judge.seen) == len(set(judge.seen)) == 6


def test_many_pairs_begin_with_ridge_and_go_on_with_quadratics_up_to_its_best():
    program = net("auto", "auto")
    best = program.quadratics()[6]
    judge = AtOnce(lambda norm, quadratic: -abs(np.log(quadratic / best)) - 0.1 * (norm > 0))
    assert choose(PROBLEM, program, judge).point == (0.0, best)
    n_ridge = len(program.quadratics())
    assert judge.seen[:n_ridge] == [(0.0, quadratic) for quadratic in program.quadratics()]
    beside = judge.seen[n_ridge:]
    assert sorted({quadratic for _, quadratic in beside}, reverse=True) == program.quadratics()[6:9]
    norms = sorted({norm for norm, _ in beside}, reverse=True)
    assert 0 < len(norms) <= GRID.norms_beside
    assert set(norms) <= set(program.norms()) - {0.0}
    assert len(beside) == len(set(beside)) == 3 * len(norms)


def test_a_norm_beside_the_quadratic_is_taken_if_it_is_better():
    program = net("auto", "auto")
    judge = AtOnce(lambda norm, quadratic: -abs(np.log(quadratic / program.quadratics()[6])) + (norm > 0.1))
    norm, quadratic = choose(PROBLEM, program, judge).point
    assert (norm > 0.1, quadratic) == (True, program.quadratics()[6])


@pytest.mark.parametrize("program", [line(), net([0.3, 0.2], [0.3, 0.2]), net("auto", "auto")])
def test_progress_counts_every_point_once(program):
    told = []
    judge = AtOnce(lambda *point: 0.0)
    choose(PROBLEM, program, judge, notify=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == list(range(1, len(judge.seen) + 1))
    assert len({total for _, total in told}) == 1
    assert told[-1][0] <= told[-1][1]


def test_when_time_is_over_the_best_so_far_is_taken():
    judge = Table(lambda norm, quadratic: -norm)
    verdict = choose(PROBLEM, line(), judge, is_late=lambda: len(judge.seen) == 8)
    assert (verdict.point, len(judge.seen)) == ((3.0, 0.0), 8)


def test_with_no_time_at_all_a_point_in_the_middle_is_reached():
    judge = Table(lambda norm, quadratic: -norm)
    assert choose(PROBLEM, line(), judge, is_late=lambda: True).point == (5.0, 0.0)


def test_with_no_time_at_all_only_one_line_is_walked():
    judge = Table(lambda norm, quadratic: -norm - quadratic)
    choose(PROBLEM, net("auto", "auto"), judge, is_late=lambda: True)
    assert {norm for norm, _ in judge.seen} == {0.0}
    assert len(judge.seen) == 9


def test_points_that_come_at_once_are_all_judged_however_late_it_is():
    judge = AtOnce(lambda norm, quadratic: norm == 1)
    assert choose(PROBLEM, line(), judge, is_late=lambda: True).point == (1.0, 0.0)


def ridge_problem(n_rows=30, loss="squared"):
    columns = np.random.default_rng(0).integers(0, 2, (n_rows, 8))
    return cs.ConvexProblem(columns, columns[:, 0], loss, 0.0, l2_strength=1.0, penalty="elastic-net")


def test_leave_one_out_judges_ridge_and_folds_or_a_part_held_out_all_else(monkeypatch):
    ridge, squared = Program.ridge(Objective("squared")), Objective("squared")
    assert judge_for(ridge_problem(), ridge, 3) == LeaveOneOut()
    for few, judge in ((30, Folds(n_repeats=3, seed=3)), (29, HeldOut(seed=3))):
        monkeypatch.setattr("cvxsnn.fitting.choosing.GRID", type(GRID)(few=few))
        assert judge_for(ridge_problem(loss="logistic"), Program.ridge(LOGISTIC), 3) == judge
        assert judge_for(ridge_problem(), Program(squared, "elastic-net"), 3) == judge
    monkeypatch.setattr("cvxsnn.fitting.choosing.GRID", type(GRID)(max_left_out=29, few=29))
    assert judge_for(ridge_problem(), ridge, 3) == HeldOut(seed=3, max_rows=29)
