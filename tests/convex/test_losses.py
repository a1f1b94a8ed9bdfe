import numpy as np
import pytest
import torch
from convex.problems import LOSSES, SMOOTH_LOSSES, has_real_targets
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tolerances import FINITE_DIFFERENCE, NUMERICAL_SUPREMUM, ROUNDING
from torch import Tensor

from cvxsnn import ConvexProblem, solve
from cvxsnn.convex.losses import Loss, Squared, make_loss
from cvxsnn.core.errors import InvalidInputError

N_ROWS = 12
STEP = 1e-5
"""Of finite differences: half the digits of float64, and too short to meet a kink of the hinge at random scores."""

seeds = st.integers(0, 2**32 - 1)


def draw(name: str, seed: int) -> tuple[Loss, Tensor, Tensor, Tensor, Tensor]:
    """The loss, targets, scores, any dual point, and row weights of which some are zero."""
    rng = np.random.default_rng(seed)
    loss = make_loss(name)
    if name == "softmax":
        targets = loss.encode(np.r_[0, 1, 2, rng.integers(0, 3, N_ROWS - 3)])
    elif has_real_targets(name):
        targets = loss.encode(rng.normal(size=(N_ROWS, 2)))
    else:
        targets = loss.encode(np.r_[np.eye(2), rng.integers(0, 2, (N_ROWS - 2, 2))])
    scores, dual = (torch.from_numpy(2 * rng.normal(size=targets.shape)) for _ in range(2))
    weight = rng.random(N_ROWS) * rng.integers(0, 2, N_ROWS)
    weight[:3] = 0.5
    return loss, targets, scores, dual, torch.from_numpy(weight / weight.sum())


def inner(dual: Tensor, scores: Tensor) -> Tensor:
    return (dual * scores).sum(1)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_value_and_conjugate_are_at_least_the_inner_product(name: str, seed: int) -> None:
    loss, targets, scores, dual, _ = draw(name, seed)
    dual = loss.project(dual, targets)
    slack = loss.value(scores, targets) + loss.conjugate(dual, targets) - inner(dual, scores)
    assert bool((slack >= -ROUNDING).all())


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_value_and_conjugate_are_the_inner_product_at_the_gradient(name: str, seed: int) -> None:
    loss, targets, scores, *_ = draw(name, seed)
    dual = loss.gradient(scores, targets)
    total = loss.value(scores, targets) + loss.conjugate(dual, targets)
    torch.testing.assert_close(total, inner(dual, scores), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("name", LOSSES)
def test_conjugate_is_the_supremum_over_scores(name: str) -> None:
    loss, targets, _, dual, _ = draw(name, 0)
    dual = loss.project(dual, targets)
    conjugate = loss.conjugate(dual, targets)
    for row in range(4):

        def excess(scores: np.ndarray, row: int = row) -> float:
            point = torch.from_numpy(scores)[None]
            return float(loss.value(point, targets[row, None]) - inner(dual[row, None], point))

        options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000, "maxfev": 4000}
        lowest = minimize(excess, np.zeros(targets.shape[1]), method="Nelder-Mead", options=options)
        assert -lowest.fun == pytest.approx(float(conjugate[row]), rel=0, abs=NUMERICAL_SUPREMUM)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_conjugate_is_infinite_at_points_that_project_moves(name: str, seed: int) -> None:
    loss, targets, _, dual, _ = draw(name, seed)
    inside = loss.project(dual, targets)
    for point in (dual, inside + 0.01 * (dual - inside)):
        is_moved = ((loss.project(point, targets) - point).abs() > 1e-6).any(1)
        assert bool(loss.conjugate(point, targets)[is_moved].isposinf().all())


@pytest.mark.parametrize(
    ("name", "factors"),
    [
        ("hinge", (0.01, -1.01)),
        ("logistic", (0.01, -1.01)),
        ("softmax", (0.01, -1.01)),
        ("squared_hinge", (0.01,)),
    ],
)
def test_conjugate_is_infinite_just_outside_its_domain(name: str, factors: tuple[float, ...]) -> None:
    loss, targets, *_ = draw(name, 0)
    for factor in factors:
        assert bool(loss.conjugate(factor * targets, targets).isposinf().all())


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_value_is_nonnegative_and_zero_is_in_the_dual_domain(name: str, seed: int) -> None:
    loss, targets, scores, *_ = draw(name, seed)
    assert bool((loss.value(scores, targets) >= 0).all())
    assert bool((loss.conjugate(torch.zeros_like(scores), targets).abs() <= ROUNDING).all())


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_gradient_is_the_slope_of_the_value(name: str, seed: int) -> None:
    loss, targets, scores, *_ = draw(name, seed)
    for output in range(targets.shape[1]):
        step = torch.zeros_like(scores)
        step[:, output] = STEP
        slope = (loss.value(scores + step, targets) - loss.value(scores - step, targets)) / (2 * STEP)
        gradient = loss.gradient(scores, targets)[:, output]
        torch.testing.assert_close(slope, gradient, rtol=0, atol=FINITE_DIFFERENCE)


@pytest.mark.parametrize("name", SMOOTH_LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_curvature_is_the_slope_of_the_gradient(name: str, seed: int) -> None:
    loss, targets, scores, *_ = draw(name, seed)
    curvature = loss.curvature(scores, targets)
    hessian = torch.diag_embed(curvature)
    if not loss.is_separable:
        hessian = hessian - curvature[:, :, None] * curvature[:, None, :]
    for output in range(targets.shape[1]):
        step = torch.zeros_like(scores)
        step[:, output] = STEP
        slope = (loss.gradient(scores + step, targets) - loss.gradient(scores - step, targets)) / (2 * STEP)
        torch.testing.assert_close(slope, hessian[:, output], rtol=0, atol=FINITE_DIFFERENCE)


@pytest.mark.parametrize("name", ["logistic", "softmax"])
def test_extreme_scores_give_finite_values_and_gradients(name: str) -> None:
    loss, targets, scores, *_ = draw(name, 0)
    for factor in (1e3, -1e3):
        value = loss.value(factor * scores, targets)
        assert bool(value.isfinite().all())
        assert bool(loss.gradient(factor * scores, targets).isfinite().all())


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_project_reaches_the_dual_domain_and_stays_there(name: str, seed: int) -> None:
    loss, targets, _, dual, _ = draw(name, seed)
    projected = loss.project(dual, targets)
    assert bool(loss.conjugate(projected, targets).isfinite().all())
    torch.testing.assert_close(loss.project(projected, targets), projected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_project_leaves_gradients_alone(name: str, seed: int) -> None:
    loss, targets, scores, *_ = draw(name, seed)
    gradient = loss.gradient(scores, targets)
    torch.testing.assert_close(loss.project(gradient, targets), gradient, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_balance_gives_zero_weighted_sums_inside_the_dual_domain(name: str, seed: int) -> None:
    loss, targets, _, dual, weight = draw(name, seed)
    balanced = loss.balance(loss.project(dual, targets), targets, weight)
    assert bool(((weight @ balanced).abs() <= ROUNDING).all())
    assert bool(loss.conjugate(balanced, targets).isfinite().all())


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_balance_leaves_balanced_points_alone(name: str, seed: int) -> None:
    loss, targets, _, dual, weight = draw(name, seed)
    balanced = loss.balance(loss.project(dual, targets), targets, weight)
    torch.testing.assert_close(loss.balance(balanced, targets, weight), balanced, rtol=0, atol=ROUNDING)


def test_unknown_loss_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"loss to be one of 'squared', 'hinge', .*'softmax'.*, got 'nonsense'"):
        make_loss("nonsense")


class Huber(Squared):
    """A loss of a user's own: quadratic near the target, linear beyond a distance of one."""

    name = "huber"

    def value(self, scores: Tensor, targets: Tensor) -> Tensor:
        distance = (scores - targets).abs()
        return torch.where(distance <= 1, 0.5 * distance.square(), distance - 0.5).sum(1)

    def gradient(self, scores: Tensor, targets: Tensor) -> Tensor:
        return (scores - targets).clamp(-1, 1)

    def curvature(self, scores: Tensor, targets: Tensor) -> Tensor:
        return ((scores - targets).abs() <= 1).to(scores)

    def conjugate(self, dual: Tensor, targets: Tensor) -> Tensor:
        return (0.5 * dual.square() + dual * targets).masked_fill(dual.abs() > 1 + ROUNDING, torch.inf).sum(1)

    def project(self, dual: Tensor, targets: Tensor) -> Tensor:
        return dual.clamp(-1, 1)


def test_a_loss_of_ones_own_is_solved_and_certified_and_never_mistaken_for_its_base_class() -> None:
    rng = np.random.default_rng(0)
    columns = rng.random((60, 8)) < 0.5
    targets = 3.0 * columns[:, 0] + rng.standard_t(1.5, size=60)
    problem = ConvexProblem(columns, targets, Huber(), 0.05)
    ours, slow = solve(problem, 1e-8), solve(problem, 1e-6, "reference")
    assert (ours.solver, ours.has_converged) == ("l1", True)
    assert abs(ours.certificate.primal - slow.certificate.primal) <= slow.certificate.gap + ROUNDING


def test_a_loss_that_no_solver_accepts_is_one_sentence() -> None:
    class Kinked(Huber):
        name, is_smooth = "kinked", False

    problem = ConvexProblem(np.eye(4) == 1, np.arange(4.0), Kinked(), 0.01)
    with pytest.raises(InvalidInputError, match="smooth and of bounded curvature when smoothed, got 'kinked'"):
        solve(problem)


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=25, deadline=None)
@given(seed=seeds, power=st.integers(-20, 3))
def test_error_bounds_cover_what_a_changed_score_or_dual_point_does(name: str, seed: int, power: int) -> None:
    loss, targets, scores, dual, _ = draw(name, seed)
    generator = torch.Generator().manual_seed(seed)
    error = 10.0**power * torch.rand(scores.shape, generator=generator, dtype=torch.float64)
    moved = scores + error * (2 * torch.rand(scores.shape, generator=generator, dtype=torch.float64) - 1)
    change = (loss.value(moved, targets) - loss.value(scores, targets)).abs()
    assert bool((change <= loss.value_error(scores, targets, error + scores.abs() * 2.0**-50)).all())
    inside = loss.project(dual, targets)
    nearby = loss.project(inside * (1 + 2.0**-51), targets)
    change = (loss.conjugate(nearby, targets) - loss.conjugate(inside, targets)).abs()
    assert bool((change <= loss.conjugate_error(inside, targets)).all())


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_no_constant_beats_the_null_intercept(name: str, seed: int) -> None:
    loss, targets, scores, _, weight = draw(name, seed)
    best = loss.null_intercept(targets, weight)
    lowest = weight @ loss.value(best.expand_as(targets), targets)
    for other in (*scores, *(best + 1e-3 * scores)):
        assert weight @ loss.value(other.expand_as(targets), targets) >= lowest - ROUNDING


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30)
@given(seed=seeds)
def test_null_dual_proves_the_null_intercept_optimal(name: str, seed: int) -> None:
    loss, targets, _, _, weight = draw(name, seed)
    constant = loss.null_intercept(targets, weight).expand_as(targets)
    dual = loss.null_dual(targets, weight)
    assert bool(((weight @ dual).abs() <= ROUNDING).all())
    primal, bound = weight @ loss.value(constant, targets), -(weight @ loss.conjugate(dual, targets))
    assert float(bound) == pytest.approx(float(primal), rel=ROUNDING, abs=ROUNDING)


@given(seeds, st.sampled_from(["l1", "elastic-net"]))
@settings(max_examples=20)
def test_shifted_targets_move_the_intercept_and_nothing_else(seed: int, penalty: str) -> None:
    rng = np.random.default_rng(seed)
    columns, targets, shift = rng.integers(0, 2, (12, 5)), rng.normal(size=(12, 2)), rng.normal(size=2)
    quadratic = 0.1 if penalty == "elastic-net" else 0.0
    plain, moved = (
        solve(
            ConvexProblem(
                columns, targets, loss=loss, l1_strength=0.01, l2_strength=quadratic, penalty=penalty, intercept=True
            ),
            tol=1e-10,
        )
        for loss in ("squared", Squared(shift.tolist()))
    )
    assert moved.certificate.primal == pytest.approx(plain.certificate.primal, rel=1e-9)
    scores = moved.scores() - plain.scores()
    np.testing.assert_allclose(scores.numpy(), np.tile(shift, (12, 1)), atol=1e-4)


def test_a_shift_has_one_value_for_each_output() -> None:
    with pytest.raises(InvalidInputError, match="2 outputs, which are shifted, got 1"):
        Squared([0.0, 1.0]).encode(np.zeros(3))
