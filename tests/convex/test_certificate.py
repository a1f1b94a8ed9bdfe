import ast
import re
import sys
from decimal import Decimal, localcontext
from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
import pytest
import torch
from convex.problems import COLUMNS, LOSSES, PENALTIES, TWO_HEADS, Kind, draw_dual, draw_point, objective
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING
from torch import Tensor

from cvxsnn import Certificate, ConvexProblem, certify, convex, solve
from cvxsnn.convex.certificate import Candidate, certify_all, certify_with_bound
from cvxsnn.convex.losses import Squared
from cvxsnn.core.errors import CertificateError, InvalidInputError
from fuzz.exact import DIGITS, ExactHead, ExactProblem, by_columns, decimals

KINDS = st.builds(
    Kind,
    loss=st.sampled_from((*LOSSES, *TWO_HEADS)),
    penalty=st.sampled_from(PENALTIES),
    intercept=st.booleans(),
    columns=st.sampled_from(COLUMNS),
    weighted=st.booleans(),
    n_outputs=st.integers(1, 2),
)
QUICK_KINDS = KINDS.filter(lambda kind: "hinge" not in kind.loss or kind.penalty == "l1")
"""Kinds that are solved in milliseconds."""
SEEDS = st.integers(0, 2**32 - 1)
RATIOS = st.sampled_from([2.0, 0.9, 0.1, 1e-3])
SIZES = st.sampled_from([0.0, 1e-3, 1.0, 30.0])


@settings(max_examples=300)
@given(KINDS, SEEDS, RATIOS, SIZES, SIZES)
def test_gap_is_nonnegative_for_any_primal_point_and_any_dual_guess(
    kind: Kind, seed: int, ratio: float, size: float, dual_size: float
) -> None:
    problem = kind.draw(seed, ratio)
    certificate, _ = certify(problem, *draw_point(problem, seed, size), [draw_dual(problem, seed, dual_size)])
    assert certificate.gap >= -ROUNDING * max(1.0, certificate.primal)


@settings(max_examples=150)
@given(KINDS, SEEDS, RATIOS, SIZES, SIZES)
def test_dual_point_is_feasible(kind: Kind, seed: int, ratio: float, size: float, dual_size: float) -> None:
    problem = kind.draw(seed, ratio)
    _, dual_point = certify(problem, *draw_point(problem, seed, size), [draw_dual(problem, seed, dual_size)])
    correlation = (problem.dictionary.columns().T @ dual_point).numpy()
    norm = np.abs(correlation).max() if kind.penalty == "l1" else np.linalg.norm(correlation, axis=1).max()
    assert norm <= problem.l1_strength * (1 + ROUNDING)
    assert not bool(dual_point[problem.row_weight == 0].any())
    if kind.intercept:
        assert bool((dual_point.sum(0).abs() <= ROUNDING).all())


@settings(max_examples=150)
@given(KINDS, SEEDS, SIZES)
def test_primal_is_the_objective(kind: Kind, seed: int, size: float) -> None:
    problem = kind.draw(seed)
    point = draw_point(problem, seed, size)
    certificate, _ = certify(problem, *point)
    assert certificate.primal == pytest.approx(objective(problem, *point), rel=ROUNDING)


@settings(max_examples=60)
@given(QUICK_KINDS, SEEDS, SIZES)
def test_no_dual_value_exceeds_the_optimum(kind: Kind, seed: int, size: float) -> None:
    problem = kind.draw(seed, 0.05)
    solution = solve(problem)
    # Guesses around the optimal dual point, where a bound that is too high shows.
    noise = draw_dual(problem, seed, 0.1 * size)
    guesses = [solution.dual_point * (1 + noise), 1.1 * solution.dual_point, 0.9 * solution.dual_point]
    for guess in guesses:
        certificate, _ = certify(problem, *draw_point(problem, seed, size), [guess])
        assert certificate.dual <= solution.certificate.primal * (1 + ROUNDING)


@settings(max_examples=60)
@given(QUICK_KINDS, SEEDS, SIZES)
def test_gap_of_a_wrong_solution_is_at_least_its_excess(kind: Kind, seed: int, size: float) -> None:
    problem = kind.draw(seed, 0.05)
    solution = solve(problem)
    change, shift = draw_point(problem, seed, 0.1 * size)
    intercept = solution.intercept + shift if shift is not None else None
    certificate, _ = certify(problem, solution.coef + change, intercept, [solution.dual_point])
    excess = certificate.primal - solution.certificate.primal
    assert certificate.gap >= excess - ROUNDING * certificate.primal


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_zero_coefficients_at_a_small_strength_have_a_large_gap(loss: str, intercept: bool) -> None:
    problem = Kind(loss, intercept=intercept).draw(0, 0.01)
    certificate, _ = certify(
        problem, torch.zeros(problem.shape[1:]).double(), problem.null_intercept if intercept else None
    )
    optimum = solve(problem).certificate
    assert certificate.gap >= certificate.primal - optimum.primal > 0.1 * certificate.primal


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", [*LOSSES, *TWO_HEADS])
def test_certificate_depends_neither_on_the_order_of_rows_nor_on_their_merging(loss: str, penalty: str) -> None:
    problem = Kind(loss, penalty, intercept=True, columns="equal_rows", weighted=True).draw(0)
    columns = problem.dictionary.columns().numpy()
    order = np.random.default_rng(0).permutation(np.r_[: len(columns), : len(columns)])

    def rebuilt(rows: np.ndarray) -> ConvexProblem:
        targets = {head.name: head.targets.numpy()[rows] for head in problem.heads}
        targets = {name: y.argmax(1) if name == "softmax" else y for name, y in targets.items()}
        return ConvexProblem(
            columns[rows],
            targets,
            {name: name for name in targets},
            problem.l1_strength,
            penalty=penalty,
            intercept=True,
            row_weight=problem.row_weight.numpy()[rows],
            head_weights={head.name: head.weight for head in problem.heads},
        )

    reduced, _ = problem.reduced
    assert reduced.shape[0] < problem.shape[0]
    shuffled = rebuilt(order)
    # Atoms keep the order of first appearance, which the order of rows does not change.
    assert torch.equal(shuffled.dictionary.columns(), problem.dictionary.columns()[order])
    point = draw_point(problem, 0, 1.0)
    certificate, _ = certify(problem, *point)
    for other in (reduced, shuffled):
        same, _ = certify(other, *point)
        assert same.primal == pytest.approx(certificate.primal, rel=ROUNDING)
        assert same.dual == pytest.approx(certificate.dual, rel=ROUNDING, abs=ROUNDING)


def test_problems_certified_together_get_the_certificates_they_get_alone() -> None:
    problem = Kind("softmax", intercept=True).draw(0)
    problems = [problem.with_strength(factor * problem.l1_strength) for factor in (0.5, 1.0, 3.0)]
    candidates = []
    for seed, one in enumerate(problems):
        coef, intercept = draw_point(one, seed, 1.0)
        assert intercept is not None
        candidates.append(Candidate(one, coef, intercept, (draw_dual(one, seed, 0.01),) * seed))
    for one, (certificate, dual_point) in zip(candidates, certify_all(candidates), strict=True):
        alone, dual_alone = certify(one.problem, one.coef, one.intercept, one.duals)
        assert certificate.primal == pytest.approx(alone.primal, rel=ROUNDING)
        assert certificate.dual == pytest.approx(alone.dual, rel=ROUNDING, abs=ROUNDING)
        torch.testing.assert_close(dual_point, dual_alone, rtol=0, atol=ROUNDING)


def test_the_best_of_several_dual_guesses_is_used() -> None:
    problem = Kind("logistic").draw(0, 0.05)
    solution = solve(problem)
    zero = torch.zeros(problem.shape[1:]).double()
    alone, _ = certify(problem, zero)
    helped, dual_point = certify(problem, zero, None, [draw_dual(problem, 0, 1.0), solution.dual_point])
    assert helped.dual == pytest.approx(solution.certificate.dual, rel=ROUNDING)
    assert helped.dual > alone.dual
    torch.testing.assert_close(dual_point, solution.dual_point, rtol=0, atol=ROUNDING)


def test_coefficients_in_single_precision_are_certified_in_double() -> None:
    problem = Kind("logistic").draw(0)
    coef = solve(problem).coef.float()
    single, dual_point = certify(problem, coef)
    double, _ = certify(problem, coef.double())
    assert single == double
    assert dual_point.dtype == torch.float64


def test_scope_is_sampled_unless_said_otherwise() -> None:
    certificate, _ = certify(Kind("squared").draw(0), torch.zeros(12, 1, dtype=torch.float64))
    assert certificate.scope == "sampled"
    assert "over these witnesses" in str(certificate)
    assert "over all witnesses" in str(Certificate(1.0, 0.5, scope="complete"))


def test_a_certificate_over_a_pool_says_so_and_how_large_it_is() -> None:
    assert "over a pool of 1,000,000 witnesses" in str(Certificate(1.0, 0.5, "pool", 1_000_000))
    assert str(Certificate(1.0, 0.5, "pool")).endswith("of the optimum over a pool of witnesses")
    sampled, pool = Certificate(1.0, 0.5), Certificate(1.0, 0.5, "pool", 8)
    assert (sampled.scope, sampled.n_witnesses) == ("sampled", None)
    assert (pool.gap, pool.relative_gap) == (sampled.gap, sampled.relative_gap)
    assert pool != sampled


def test_relative_gap_is_the_share_of_the_objective() -> None:
    assert Certificate(2.0, 1.5).gap == 0.5
    assert Certificate(2.0, 1.5).relative_gap == 0.25
    assert Certificate(0.0, 0.0).relative_gap == 0.0
    # Of an objective of zero, no gap is a share.
    assert Certificate(0.0, -0.5).relative_gap == inf
    assert "At most 0.5 can still be gained." in Certificate(0.0, -0.5).explain()


@settings(max_examples=300)
@given(st.floats(1e-30, 1e30), st.floats(0, 1))
def test_what_is_said_of_a_certificate_is_never_more_than_it_proves(primal: float, share: float) -> None:
    certificate = Certificate(primal, share * primal)
    said = re.fullmatch(r"objective (\S+), proven within (\S+) \(relative (\S+)\) of .*", str(certificate))
    assert said
    objective, gap, relative = map(float, said.groups())
    assert objective >= primal
    assert gap >= certificate.gap
    assert relative >= certificate.relative_gap
    assert [objective, gap, relative] == pytest.approx([primal, certificate.gap, certificate.relative_gap], rel=0.01)
    text = certificate.explain()
    assert float(re.findall(r"give less than (\S+)\.\n", text)[0]) <= certificate.dual
    gained = re.search(r"At most (\S+), or (\S+) %", text)
    assert gained or certificate.relative_gap <= 1e-13 * (1 + ROUNDING)
    assert not gained or (float(gained[1]) >= certificate.gap and float(gained[2]) >= 100 * certificate.relative_gap)


@pytest.mark.parametrize(("primal", "dual"), [(1.0, 1.0 + 2.0**-45), (0.5, 1.0), (0.0, 5e-324)])
def test_no_certificate_has_a_negative_gap(primal: float, dual: float) -> None:
    with pytest.raises(CertificateError, match=r"at most the primal one, got dual value .* above primal value"):
        Certificate(primal, dual)


def test_a_dual_value_above_the_primal_value_is_an_error() -> None:
    class Dishonest(Squared):
        """Claims a conjugate that is too small."""

        def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
            return super().conjugate(dual, targets) - 10.0

    problem = ConvexProblem(np.eye(4), np.arange(4.0), Dishonest(), 0.1)
    with pytest.raises(CertificateError, match=r"dual value .* above primal value"):
        certify(problem, torch.zeros(4, 1, dtype=torch.float64))


def test_coefficients_that_are_not_numbers_are_never_certified() -> None:
    problem = Kind("squared").draw(0)
    with pytest.raises(CertificateError):
        certify(problem, torch.full((12, 1), torch.nan, dtype=torch.float64))


def test_an_intercept_is_refused_for_a_problem_without_one() -> None:
    problem = Kind("squared").draw(0)
    with pytest.raises(InvalidInputError, match="expected no intercept, or a problem that has one"):
        certify(problem, torch.zeros(12, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))


def test_coefficients_of_another_shape_are_refused() -> None:
    problem = ConvexProblem(torch.eye(4, 3), torch.arange(4.0), "squared", 0.1)
    with pytest.raises(InvalidInputError, match=r"coefficients of shape \(3, 1\), got \(2, 1\)"):
        certify(problem, torch.zeros(2, 1))


def test_coefficients_may_be_numpy_arrays() -> None:
    problem = Kind("logistic", intercept=True).draw(0)
    solution = solve(problem)
    found, _ = certify(problem, solution.coef.numpy(), solution.intercept.numpy(), [solution.dual_point.numpy()])
    assert found == solution.certificate


def test_an_explanation_says_what_is_proven_and_what_is_not() -> None:
    lines = Certificate(0.25, 0.2).explain().splitlines()
    assert lines[1] == "For this model it is 0.25."
    assert "these witnesses (the sampled hidden neurons) give less than 0.2." in lines[2]
    assert lines[3] == "At most 0.05, or 20 % of the objective, can still be gained."
    assert "Sample more of them" in lines[4]
    assert len(lines) == 6
    assert "select more of them" in Certificate(0.25, 0.2, "selected").explain()
    assert "A larger pool may hold better ones." in Certificate(0.25, 0.2, "pool", 8).explain()
    complete = Certificate(0.25, 0.25, "complete").explain().splitlines()
    assert "all witnesses (every hidden neuron of the family)" in complete[2]
    assert complete[3] == "The two agree to the precision of float64: nothing can be gained."
    assert len(complete) == 5
    assert "can still be gained" in Certificate(0.25, 0.25 - 1e-13, "complete").explain()
    assert "nothing can be gained" in Certificate(0.25, 0.25 - 1e-14).explain()
    assert "At most 0.5, or 50 %" in Certificate(1.0, 0.5).explain()


@pytest.mark.parametrize("penalty", ["l1", "elastic-net"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_bound_over_more_atoms_is_that_of_the_dictionary_with_these_atoms(loss: str, penalty: str) -> None:
    rng = np.random.default_rng(0)
    columns = rng.integers(0, 2, (30, 8)).astype(float)
    targets = rng.normal(size=30) if loss == "squared" else np.where(rng.normal(size=30) > 0, 1.0, -1.0)
    l2_strength = 0.01 if penalty == "elastic-net" else 0.0

    def problem_of(n_atoms: int) -> ConvexProblem:
        return ConvexProblem(
            columns[:, :n_atoms], targets, loss, 0.02, l2_strength=l2_strength, penalty=penalty, intercept=True
        )

    few, all_of_them = problem_of(4), solve(problem_of(8))
    solution = solve(few)
    prices = np.abs(columns.T @ solution.dual_point.numpy())
    outside = float(prices[4:].max())
    assert outside > few.l1_strength  # so that the other atoms matter
    bound = certify_with_bound(few, solution.dual_point, [float(prices.max()) if penalty == "l1" else outside])
    assert bound <= all_of_them.certificate.primal
    assert bound < solution.certificate.dual
    # Atoms that satisfy the constraint change nothing.
    inside = certify_with_bound(few, solution.dual_point, [0.5 * few.l1_strength])
    assert inside == pytest.approx(solution.certificate.dual, rel=1e-6)
    with pytest.raises(InvalidInputError, match="domain of the loss"):
        certify_with_bound(problem_of(4), solution.dual_point + 1.0, [1.0])


def test_every_certificate_passes_the_guard() -> None:
    """A function that makes a certificate calls the guard, too; only files hold certificates that were made before."""
    root = Path(convex.__file__).parent.parent
    makers = set()
    for path in root.rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                calls = {call.func.id for call in _calls(function) if isinstance(call.func, ast.Name)}
                if "Certificate" in calls and "checked_certificate" not in calls:
                    makers.add(str(path.relative_to(root)))
    assert makers == {"estimators/model_parts.py"}


def _calls(function: ast.FunctionDef) -> list[ast.Call]:
    return [node for node in ast.walk(function) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic", "softmax", "hinge"])
@pytest.mark.parametrize("intercept", [False, True])
def test_certificates_bound_what_decimal_numbers_of_many_digits_say(loss: str, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    columns = rng.random((9, 4)) < 0.5
    targets = rng.normal(size=9) if loss == "squared" else np.arange(9) % 2
    problem = ConvexProblem(columns, targets, loss, 1.0, intercept=intercept)
    problem = problem.with_strength(1e-3 * problem.critical_strength)
    solution = solve(problem, 1e-9)
    kept = columns[:, problem.dictionary.column_of_atom.numpy()]
    encoded = problem.heads[0].targets.numpy()
    with localcontext(DIGITS):
        exact = ExactProblem(
            by_columns(kept),
            decimals(problem.row_weight.numpy()),
            [ExactHead(loss, Decimal(1), by_columns(encoded))],
            False,
            intercept,
            Decimal(problem.l1_strength),
            Decimal(0),
        )
        objective = exact.objective(by_columns(solution.coef.numpy()), decimals(solution.intercept.numpy()))
        bound = exact.bound(by_columns(solution.dual_point.numpy()))
        assert objective <= Decimal(solution.certificate.primal)
        assert Decimal(solution.certificate.dual) <= bound <= objective


@pytest.mark.parametrize("penalty", [*PENALTIES, "elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["gamma", "_correlation_error"])
def test_the_larger_the_roundings_the_wider_the_interval(
    monkeypatch: pytest.MonkeyPatch, loss: str, penalty: str, name: str
) -> None:
    module = sys.modules["cvxsnn.convex.certificate"]
    problem = Kind(loss, penalty, l2_strength=0.05 if "elastic-net" in penalty else 0.0).draw(0)
    coef, allowance, found = solve(problem).coef, getattr(module, name), []
    for factor in (1.0, 1e5, 1e8, 1e10):
        monkeypatch.setattr(module, name, lambda *arguments, factor=factor: factor * allowance(*arguments))
        found.append(certify(problem, coef)[0])
    assert all(wide.dual < narrow.dual or narrow.dual == 0 for narrow, wide in pairwise(found))
    assert found[1].dual > 0
    if name == "gamma":
        assert all(wide.primal > narrow.primal for narrow, wide in pairwise(found))


def test_a_bound_counts_what_the_projection_of_a_dual_point_adds_to_its_correlations():
    # An intercept asks for a dual point whose sum is zero; this one is off by less than what is accepted as rounding.
    column = np.array([[1], [1], [1], [0], [0], [0], [0], [0]])
    targets = np.array([3.0, 3.0, 1.0, 1.0, -1.0, 1.0, -1.0, 0.5])
    problem = ConvexProblem(column, targets, loss="squared", l1_strength=0.05, intercept=True)
    solution = solve(problem, tol=1e-12)
    unit = solution.dual_point * len(targets)
    off = 0.9e-9 * float(unit.abs().min())
    shifted = (unit * (1 + 7.4 * off) - off) / len(targets)
    bound = float((problem.dictionary.columns().T @ shifted).abs().max())
    assert certify_with_bound(problem, shifted, [bound]) <= solution.certificate.primal
