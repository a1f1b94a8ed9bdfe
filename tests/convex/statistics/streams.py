"""Data in batches, and what their statistics are compared with."""

import pytest
import torch
from tolerances import CERTIFIED_AGAIN

import cvxsnn as cs
from cvxsnn.data.sequences import Sequences

SUMS = ("gram", "cross", "column_sums", "target_squares", "target_sums")
N_SAMPLES = 300


def batches(data, *sizes):
    """The data in batches of these sizes, over and over."""
    start, number = 0, 0
    while start < len(data[0]):
        stop = start + sizes[number % len(sizes)]
        yield tuple(part[start:stop] for part in data)
        start, number = stop, number + 1


def problem_in_memory(witnesses, data, readout="last", intercept=False, lengths=None):
    inputs, targets = data
    dictionary = cs.build_dictionary(witnesses, Sequences(inputs, lengths), readout)
    return cs.ConvexProblem(dictionary, targets, "squared", penalty="elastic-net", intercept=intercept)


def assert_same_sums(found, expected):
    for name in SUMS:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert (found.n_rows, found.n_roundings) == (expected.n_rows, expected.n_roundings)


def assert_same_optimum(solution, problem):
    """Objectives agree within the gaps, and the proof agrees with one from the rows."""
    own = solution.problem
    expected = cs.solve(problem.with_strength(own.l1_strength, own.l2_strength), tol=1e-9)
    allowed = max(solution.certificate.gap, expected.certificate.gap)
    assert abs(solution.certificate.primal - expected.certificate.primal) <= allowed
    certificate, _ = cs.certify(expected.problem, solution.coef, solution.intercept)
    assert solution.certificate.primal == pytest.approx(certificate.primal, rel=CERTIFIED_AGAIN)
    assert solution.certificate.dual == pytest.approx(certificate.dual, rel=CERTIFIED_AGAIN)
