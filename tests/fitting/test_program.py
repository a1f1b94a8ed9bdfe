"""The program of a read-out: its grid, its strengths on data, and what it refuses."""

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn import InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.convex.left_out import mean_eigenvalue
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import Program
from cvxsnn.fitting.program import QUADRATIC_RATIOS, quadratic_unit

LOGISTIC = Objective("logistic")
NET = {"penalty": "elastic-net"}
XOR = cs.tasks.first_last_xor(3, n_train=24, n_val=16, n_test=4)
DATA = TrainingSet.of(XOR.train)
DICTIONARY = cs.build_dictionary(cs.gaussian_witnesses(2, (20,), seed=0), DATA.sequences)


@pytest.mark.parametrize(
    ("options", "norms", "quadratics"),
    [
        ({"l1_strength": 0.1}, [0.1], [0.0]),
        ({"l1_strength": [0.1, 0.3, 0.1]}, [0.3, 0.1], [0.0]),
        ({"l2_strength": 0.0}, 12, [0.0]),
        ({"n_strengths": 3, "smallest_ratio": 0.01}, [1.0, 0.1, 0.01], [0.0]),
        ({"n_strengths": 1}, [1.0], [0.0]),
        (NET, 13, 17),
        ({**NET, "l1_strength": 0.0}, [0.0], 17),
        ({**NET, "l2_strength": 0.1, "n_strengths": 3}, 4, [0.1]),
        ({**NET, "l2_strength": 0.0, "n_strengths": 3}, 3, [0.0]),
        ({**NET, "l2_strength": [0.1, 0.2, 0.1], "n_strengths": 3}, 4, [0.2, 0.1]),
        ({**NET, "l2_strength": [0.1, 0.0], "n_strengths": 3}, 3, [0.1, 0.0]),
        ({**NET, "pool": 8, "n_strengths": 3}, 3, 17),
    ],
)
def test_the_grid_falls_and_has_what_is_given(options, norms, quadratics):
    program = Program(LOGISTIC, **options)
    for grid, expected in ((program.norms(), norms), (program.quadratics(), quadratics)):
        assert grid == sorted(set(grid), reverse=True)
        assert len(grid) == expected if isinstance(expected, int) else grid == pytest.approx(expected)


def test_strengths_that_are_given_are_absolute():
    program = Program(LOGISTIC, "elastic-net", 0.2, 0.3)
    problem = program.at(program.problem(DICTIONARY, DATA), (0.2, 0.3), share=0.5)
    assert (problem.l1_strength, problem.l2_strength) == (0.2, 0.3)


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_strengths_of_the_grid_are_relative_to_the_data(share):
    program = Program(LOGISTIC, **NET)
    problem = program.problem(DICTIONARY, DATA)
    at = program.at(problem, (0.1, 0.3), share)
    assert at.l1_strength == pytest.approx(0.1 * problem.critical_strength * share**0.5, rel=ROUNDING)
    assert at.l2_strength == pytest.approx(0.3 * mean_eigenvalue(problem), rel=ROUNDING)
    ridge = program.at(problem, (0.0, 0.3), share)
    assert (ridge.l1_strength, ridge.l2_strength) == (0.0, at.l2_strength)


def test_at_the_largest_norm_of_the_grid_all_coefficients_vanish():
    program = Program(LOGISTIC)
    problem, norms = program.problem(DICTIONARY, DATA), program.norms()
    assert not bool(cs.solve(program.at(problem, (norms[0], 0.0))).coef.any())
    assert bool(cs.solve(program.at(problem, (norms[1], 0.0))).coef.any())


NETWORK = cs.SpikingNetwork(
    DICTIONARY.witnesses.layers,
    torch.from_numpy(np.random.default_rng(0).normal(size=(20, 1))),
    [cs.network.OutputHead("label", "logistic", 0, 1)],
)


@pytest.mark.parametrize(
    ("options", "penalty", "norms", "is_open"),
    [
        ({}, "elastic-net", [0.0], True),
        ({"l2_strength": "auto", "n_strengths": 3}, "elastic-net", [0.0], True),
        (NET, "elastic-net", 13, True),
        ({"penalty": "group-elastic-net", "l1_strength": [0.1, 0.0]}, "group-elastic-net", [0.1, 0.0], True),
        ({"penalty": "l1"}, "l1", 12, False),
        ({"l1_strength": 0.1}, "auto", [0.1], False),
        ({**NET, "l1_strength": 0.1}, "elastic-net", [0.1], False),
        ({**NET, "l2_strength": 0.1}, "elastic-net", 13, False),
        ({**NET, "l1_strength": 0.0, "l2_strength": [0.2, 0.1]}, "elastic-net", [0.0], False),
    ],
)
def test_what_is_given_is_kept_over_trained_neurons(options, penalty, norms, is_open):
    *around, own = Program(LOGISTIC, intercept=True, **options).around(NETWORK)
    assert (own.penalty, own.centre, own.intercept, own.objective) == (penalty, None, True, LOGISTIC)
    assert len(own.norms()) == norms if isinstance(norms, int) else own.norms() == norms
    assert len(around) == is_open
    for program in around:
        assert (program.norms(), program.centre, program.l2_strength) == ([0.0], NETWORK, "auto")
        assert (program.penalty, program.intercept) == (penalty, True)


def test_a_strong_quadratic_around_a_network_is_the_network():
    assert DICTIONARY.n_atoms < DICTIONARY.n_columns  # weights of equal columns add up
    around, own = Program(LOGISTIC).around(NETWORK)
    for program, scores in ((around, NETWORK(XOR.train.inputs).detach()), (own, torch.zeros(24, 1))):
        solution = cs.solve(program.at(program.problem(DICTIONARY, DATA), (0.0, 1e8)))
        torch.testing.assert_close(solution.scores(), scores.double(), rtol=0, atol=1e-5)


def test_columns_that_do_not_vary_have_a_unit_of_one():
    problem = cs.ConvexProblem(np.ones((6, 3)), np.arange(6.0), "squared", 0.0, l2_strength=1.0, intercept=True, **NET)
    assert quadratic_unit(problem) == 1.0


@pytest.mark.parametrize("penalty", ["l1", "group", "elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_problem_is_that_of_the_program(penalty, intercept):
    problem = Program(LOGISTIC, penalty, intercept=intercept).problem(DICTIONARY, DATA)
    assert (problem.penalty.name, problem.intercept, problem.heads[0].loss.name) == (penalty, intercept, "logistic")


def test_ridge_is_an_elastic_net_without_a_norm():
    ridge = Program.ridge(Objective("squared", "mean"), tol=1e-3)
    assert (ridge.norms(), ridge.quadratics()) == ([0.0], list(QUADRATIC_RATIOS))
    assert (ridge.intercept, ridge.tol, ridge.is_fixed) == (True, 1e-3, False)


def test_another_read_out_changes_nothing_else():
    program = Program(LOGISTIC, "group", 0.3, intercept=True)
    other = program.with_readout("mean")
    assert other.objective == Objective("logistic", "mean")
    assert other.with_readout(LOGISTIC.readout) == program


def test_a_program_is_fixed_if_nothing_is_left_to_choose():
    assert Program(LOGISTIC, l1_strength=0.1).is_fixed
    assert Program(LOGISTIC, l1_strength=0.1, l2_strength=0.0).is_fixed
    assert Program(LOGISTIC, l1_strength=0.0, l2_strength=1, **NET).is_fixed
    assert not Program(LOGISTIC, l1_strength=0.1, **NET).is_fixed
    assert not Program(LOGISTIC, l1_strength=0.1, l2_strength=[0.1], **NET).is_fixed
    assert not Program(LOGISTIC, l2_strength=0.1, **NET).is_fixed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l1_strength": "large"}, "l1_strength to be one of 'auto', got 'large'"),
        ({"l1_strength": 0.0}, "l1_strength to be a finite number above zero"),
        ({"l1_strength": float("inf")}, "l1_strength to be a finite number above zero"),
        ({"l1_strength": []}, "at least one strength, got none"),
        ({"n_strengths": 0}, "n_strengths to be a positive integer, got 0"),
        ({"smallest_ratio": 1.0}, "smallest_ratio between 0 and 1, got 1.0"),
        ({"l1_strength": True}, "l1_strength to be a finite number above zero, got True"),
        ({"l1_strength": None}, "l1_strength to be a number, a list of numbers, or 'auto', got None"),
        ({"l1_strength": [0.1, "auto"]}, "l1_strength to be a number, a list of numbers, or 'auto'"),
        ({"l2_strength": 0.1}, "l2_strength=0 for the penalty 'l1', got 0.1: use penalty='elastic-net'"),
        ({"l2_strength": [0.0, 0.1], "penalty": "group"}, "l2_strength=0 for the penalty 'group', got 0.1"),
        ({"l2_strength": "large", **NET}, "l2_strength to be one of 'auto', got 'large'"),
        ({"l2_strength": -0.1, **NET}, "l2_strength to be a finite number, zero or above, got -0.1"),
        ({"l2_strength": float("nan"), **NET}, "l2_strength to be a finite number, zero or above, got nan"),
        ({"l2_strength": [], **NET}, "at least one strength, got none: pass l2_strength='auto'"),
        ({"l2_strength": np.ones(2), **NET}, "l2_strength to be a number, a list of numbers, or 'auto'"),
        ({"l1_strength": -0.1, **NET}, "l1_strength to be a finite number, zero or above, got -0.1"),
        ({"l1_strength": 0, "l2_strength": 0, **NET}, "above zero, got zero for both"),
        ({"l1_strength": [0.1, 0], "l2_strength": [0.1, 0], **NET}, "above zero, got zero for both"),
        ({"l1_strength": [0.1, 0.0], "pool": 8, **NET}, "l1_strength above zero for an optimum over a pool"),
        ({"penalty": "l3"}, r"penalty to be one of 'l1', 'group'.*, got 'l3'"),
    ],
)
def test_programs_that_mean_nothing_are_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        Program(LOGISTIC, **options)
    assert "\n" not in str(caught.value)
