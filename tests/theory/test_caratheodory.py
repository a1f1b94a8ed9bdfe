from dataclasses import replace

import numpy as np
import pytest
import torch
from convex.problems import Kind
from hypothesis import given, settings
from hypothesis import strategies as st
from theory.families import SEEDS
from tolerances import CERTIFIED_AGAIN, FLOAT64_SUM

from cvxsnn import ConvexProblem, certify, solve
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.theory import caratheodory, reduce_support, support_bound

KINDS = st.builds(
    Kind,
    loss=st.sampled_from(["squared", "logistic", "squared_hinge"]),
    penalty=st.sampled_from(["l1", "group"]),
    intercept=st.booleans(),
    columns=st.sampled_from(["few_rows", "equal_rows", "collinear"]),
    n_outputs=st.integers(1, 2),
)


def spread_out(solution, seed):
    """The solution with coefficients that are no longer optimal, on all atoms."""
    coef = torch.from_numpy(np.random.default_rng(seed).normal(size=solution.coef.shape))
    certificate, dual_point = certify(solution.problem, coef, solution.intercept, [solution.dual_point])
    return replace(solution, coef=coef, certificate=certificate, dual_point=dual_point)


@settings(max_examples=60)
@given(KINDS, SEEDS, st.booleans())
def test_predictions_stay_the_norm_does_not_grow_and_the_support_is_within_the_bound(kind, seed, is_spread):
    problem = kind.draw(seed, 0.05)
    solution = solve(problem)
    if is_spread:
        solution = spread_out(solution, seed)
    reduced = reduce_support(solution)
    columns = problem.dictionary.columns()
    torch.testing.assert_close(columns @ reduced.coef, columns @ solution.coef, rtol=0, atol=FLOAT64_SUM)
    assert torch.equal(reduced.intercept, solution.intercept)
    before, after = (float(problem.penalty.norm(found.coef)) for found in (solution, reduced))
    assert after <= before + FLOAT64_SUM
    assert len(reduced.support) <= min(problem.dictionary.n_rows * problem.n_outputs, len(solution.support))
    assert len(reduced.support) < support_bound(problem)
    chosen = columns[:, reduced.support]
    rank = int(torch.linalg.matrix_rank(chosen)) if len(reduced.support) else 0
    if problem.n_outputs == 1:
        assert len(reduced.support) == rank
    if kind.penalty == "l1":
        for output in range(problem.n_outputs):
            used = columns[:, reduced.coef[:, output] != 0]
            assert used.shape[1] == (int(torch.linalg.matrix_rank(used)) if used.shape[1] else 0)
    assert bool((reduced.coef[(solution.coef == 0).all(1)] == 0).all())


@settings(max_examples=30)
@given(KINDS, SEEDS)
def test_the_certificate_is_that_of_the_new_coefficients(kind, seed):
    solution = spread_out(solve(kind.draw(seed, 0.05)), seed)
    reduced = reduce_support(solution)
    intercept = reduced.intercept if kind.intercept else None
    again, _ = certify(reduced.problem, reduced.coef, intercept, [solution.dual_point])
    assert reduced.certificate.primal == pytest.approx(again.primal, rel=CERTIFIED_AGAIN)
    assert reduced.certificate.dual == pytest.approx(again.dual, rel=CERTIFIED_AGAIN)
    assert reduced.certificate.primal <= solution.certificate.primal * (1 + CERTIFIED_AGAIN)
    assert reduced.certificate.dual >= solution.certificate.dual - CERTIFIED_AGAIN * solution.certificate.primal


def test_a_norm_that_can_shrink_does():
    problem = ConvexProblem(np.array([[1, 0, 1], [0, 1, 1]]), np.ones(2), "squared", 0.1)
    solution = solve(problem)
    atoms = problem.dictionary.atom_of_column
    coef = torch.zeros(3, 1, dtype=torch.float64)
    coef[atoms] = torch.tensor([[0.3], [0.4], [-0.2]], dtype=torch.float64)
    reduced = reduce_support(replace(solution, coef=coef)).coef[atoms].flatten()
    torch.testing.assert_close(reduced, torch.tensor([0.1, 0.2, 0.0], dtype=torch.float64), rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_columns_of_any_size_are_reduced_if_they_depend_on_each_other_and_only_then(scale):
    columns = scale * torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    coef = torch.tensor([0.3, 0.4, -0.2], dtype=torch.float64)
    reduced = caratheodory._reduce(columns, coef)
    torch.testing.assert_close(reduced, torch.tensor([0.1, 0.2, 0.0], dtype=torch.float64), rtol=0, atol=FLOAT64_SUM)
    assert torch.equal(caratheodory._reduce(columns[:, :2], coef[:2]), coef[:2])


@pytest.mark.parametrize("penalty", ["l1", "group"])
def test_a_solution_of_zeros_stays_one(penalty):
    problem = ConvexProblem(np.eye(3), np.random.default_rng(0).normal(size=(3, 2)), "squared", 100.0, penalty=penalty)
    assert len(reduce_support(solve(problem)).support) == 0


def test_the_bound_is_the_theorem_s():
    assert support_bound(ConvexProblem(np.eye(4), np.ones((4, 3)), "squared", 0.1)) == 13


def test_an_elastic_net_is_refused() -> None:
    problem = Kind("squared", "elastic-net", l2_strength=0.1).draw(0)
    with pytest.raises(InvalidInputError, match="the penalty 'l1' or 'group' to reduce a support, got ElasticNet"):
        reduce_support(solve(problem))
