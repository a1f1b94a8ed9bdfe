import pytest
import torch
from convex.problems import SMOOTH_LOSSES, Kind
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import ROUNDING
from torch import Tensor

from cvxsnn import solve
from cvxsnn.convex.penalties import (
    L1,
    PENALTIES,
    ElasticNet,
    GroupElasticNet,
    GroupL2,
    Penalty,
    make_penalty,
    name_of_penalty,
)
from cvxsnn.core.errors import InvalidInputError

seeds = st.integers(0, 2**32 - 1)
steps = st.sampled_from([1e-3, 0.3, 1.0, 5.0])


def draw(seed: int, n: int = 1) -> Tensor:
    """``n`` coefficient matrices of 5 atoms and 3 outputs; one atom is zero."""
    matrices = torch.randn(n, 5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    matrices[:, 2] = 0
    return matrices


@pytest.mark.parametrize("name", PENALTIES)
@settings(max_examples=30)
@given(seed=seeds, step=steps)
def test_prox_beats_every_point_near_and_far(name: str, seed: int, step: float) -> None:
    penalty, coef = make_penalty(name), draw(seed)[0]
    prox = penalty.prox(coef, step)

    def objective(other: Tensor) -> Tensor:
        return 0.5 * (other - coef).square().sum() + step * penalty.norm(other)

    for size in (1e-4, 1e-2, 1.0):
        for direction in draw(seed + 1, 20):
            assert objective(prox + size * direction) >= objective(prox) - ROUNDING
    for point in (coef, torch.zeros_like(coef)):
        assert objective(point) >= objective(prox) - ROUNDING


@pytest.mark.parametrize("name", PENALTIES)
@settings(max_examples=30)
@given(seed=seeds, step=steps)
def test_prox_and_projection_on_the_dual_ball_add_up(name: str, seed: int, step: float) -> None:
    penalty, coef = make_penalty(name), draw(seed)[0]
    rest = coef - penalty.prox(coef, step)
    assert penalty.dual_norm(rest) <= step * (1 + ROUNDING)
    # The rest is the projection: no point of the ball makes an acute angle with what was taken off.
    for other in draw(seed + 1, 20):
        inside = other * step / penalty.dual_norm(other)
        assert ((coef - rest) * (inside - rest)).sum() <= ROUNDING


@pytest.mark.parametrize("name", PENALTIES)
@settings(max_examples=30)
@given(seed=seeds)
def test_inner_product_is_at_most_norm_times_dual_norm(name: str, seed: int) -> None:
    penalty = make_penalty(name)
    correlation, coef = draw(seed, 2)
    assert (correlation * coef).sum() <= penalty.dual_norm(correlation) * penalty.norm(coef) + ROUNDING


@pytest.mark.parametrize("name", PENALTIES)
@settings(max_examples=30)
@given(seed=seeds)
def test_dual_norm_is_reached_on_the_unit_ball(name: str, seed: int) -> None:
    penalty, correlation = make_penalty(name), draw(seed)[0]
    extreme_points = []
    for atom, row in enumerate(correlation):
        directions = (
            torch.eye(len(row)).to(row) if penalty.is_separable else (row / row.norm().clamp_min(ROUNDING))[None]
        )
        for direction in (*directions, *-directions):
            point = torch.zeros_like(correlation)
            point[atom] = direction
            assert penalty.norm(point) <= 1 + ROUNDING
            extreme_points.append(point)
    largest = max(float((correlation * point).sum()) for point in extreme_points)
    assert largest == pytest.approx(float(penalty.dual_norm(correlation)), rel=ROUNDING)


@pytest.mark.parametrize("name", PENALTIES)
def test_dual_norm_is_the_largest_atom_norm(name: str) -> None:
    penalty, correlation = make_penalty(name), draw(0)[0]
    norms = penalty.atom_norms(correlation)
    assert norms.shape == (5,)
    assert norms.max() == penalty.dual_norm(correlation)


def test_penalties_of_one_output_are_the_same() -> None:
    coef = draw(0)[0][:, :1]
    l1, group = (make_penalty(name) for name in ("l1", "group"))
    assert float(l1.norm(coef)) == pytest.approx(float(group.norm(coef)), rel=ROUNDING)
    torch.testing.assert_close(l1.prox(coef, 0.4), group.prox(coef, 0.4), rtol=0, atol=ROUNDING)


def test_prox_sets_small_coefficients_to_exact_zeros() -> None:
    coef = torch.tensor([[0.3, -0.4], [3.0, 4.0]], dtype=torch.float64)
    assert make_penalty("l1").prox(coef, 3.5).tolist() == [[0, 0], [0, 0.5]]
    assert make_penalty("group").prox(coef, 0.5).tolist() == [[0, 0], [2.7, 3.6]]


@pytest.mark.parametrize("name", PENALTIES)
def test_prox_with_a_step_of_zero_changes_nothing(name: str) -> None:
    coef = torch.tensor([[0.0, 0.0], [0.0, -2.0], [3.0, 4.0]], dtype=torch.float64)
    assert make_penalty(name).prox(coef, 0.0).tolist() == coef.tolist()


def test_unknown_penalty_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInputError, match=r"penalty to be one of 'l1', 'group'.*, got 'l2'"):
        make_penalty("l2")


class Own(L1):
    """A penalty of a user's own with the L1 norm and a quadratic."""

    name = "own"
    has_quadratic = True


@pytest.mark.parametrize("loss", SMOOTH_LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("l2_strength", [1e-3, 0.3])
def test_a_penalty_of_ones_own_with_a_quadratic_is_solved_and_certified(
    loss: str, intercept: bool, l2_strength: float
) -> None:
    kind = Kind(loss, Own(), intercept=intercept, columns="collinear", weighted=True, l2_strength=l2_strength)
    problem = kind.draw(0)
    ours, slow = solve(problem, 1e-9), solve(problem, 1e-6, "reference")
    assert ours.has_converged
    assert slow.has_converged
    assert abs(ours.certificate.primal - slow.certificate.primal) <= slow.certificate.gap + ROUNDING


class WeightedL1(L1):
    """A norm of a user's own: Σ v_j |w_j|, with weights that rise from one half to two."""

    name = "weighted l1"

    def weights(self, n_atoms: int) -> Tensor:
        return torch.linspace(0.5, 2.0, n_atoms, dtype=torch.float64)[:, None]

    def norm(self, coef: Tensor) -> Tensor:
        return (self.weights(len(coef)) * coef.abs()).sum()

    def atom_norms(self, correlation: Tensor) -> Tensor:
        return (correlation.abs() / self.weights(len(correlation))).amax(1)

    def prox(self, coef: Tensor, step: float) -> Tensor:
        limit = step * self.weights(len(coef))
        return coef - coef.clamp(-limit, limit)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_a_norm_of_ones_own_is_never_solved_as_the_l1_norm(loss: str) -> None:
    problem = Kind(loss, WeightedL1(), columns="random").draw(0, 0.1)
    solution = solve(problem, 1e-4)
    assert (solution.solver, solution.has_converged) == ("reference", True)
    with pytest.raises(InvalidInputError, match="solver 'auto', 'reference' or 'reference' for"):
        solve(problem, solver="l1")


@pytest.mark.parametrize("kind", [ElasticNet, GroupElasticNet])
@settings(max_examples=20)
@given(seed=seeds, step=steps)
def test_conjugate_and_proximal_point_with_a_quadratic_are_those_of_the_definition(
    kind: type[Penalty], seed: int, step: float
) -> None:
    penalty, strengths = kind(), (0.4, 0.7)
    point = draw(seed)[0]
    best = penalty.prox(point, strengths[0]) / strengths[1]
    conjugate = float(penalty.prox(point, strengths[0]).square().sum()) / (2 * strengths[1])
    assert conjugate == pytest.approx(float((point * best).sum() - penalty.value(best, *strengths)), abs=ROUNDING)
    near = penalty.descend(point, step, *strengths)
    for size in (1e-3, 0.1, 2.0):
        for direction in draw(seed + 1, 10):
            other = best + size * direction
            assert float((point * other).sum() - penalty.value(other, *strengths)) <= conjugate + ROUNDING
            moved = near + size * direction
            assert 0.5 * (moved - point).square().sum() + step * penalty.value(moved, *strengths) >= (
                0.5 * (near - point).square().sum() + step * penalty.value(near, *strengths) - ROUNDING
            )


def test_a_penalty_that_is_not_registered_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match=r"a registered penalty \('l1', 'group'.*\), got Own, which is not"):
        PENALTIES.of(Own())
    assert PENALTIES.of(make_penalty("group")) is GroupL2


def test_a_penalty_that_its_name_does_not_describe_has_no_name() -> None:
    assert name_of_penalty(make_penalty("l1")) == "l1"
    other = L1()
    other.scale = 0.3  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match="the penalty 'l1' with its default parameters"):
        name_of_penalty(other)


@pytest.mark.parametrize(
    ("penalty", "n_outputs", "strengths", "expected"),
    [
        (ElasticNet, 2, (1.0, 0.0), L1),
        (ElasticNet, 2, (0.0, 1.0), ElasticNet),
        (GroupElasticNet, 2, (1.0, 1.0), GroupElasticNet),
        (GroupElasticNet, 1, (1.0, 1.0), ElasticNet),
        (GroupElasticNet, 2, (0.0, 1.0), ElasticNet),
        (GroupElasticNet, 2, (1.0, 0.0), GroupL2),
        (GroupElasticNet, 1, (1.0, 0.0), L1),
        (GroupL2, 1, (1.0, 0.0), L1),
        (Own, 1, (1.0, 0.0), Own),
    ],
)
def test_the_simplest_penalty_that_is_the_same(
    penalty: type[Penalty], n_outputs: int, strengths: tuple[float, float], expected: type[Penalty]
) -> None:
    assert type(penalty().simplest(n_outputs, *strengths)) is expected
