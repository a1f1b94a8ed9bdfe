import torch
from convex.problems import Kind
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import FINITE_DIFFERENCE, ROUNDING

from cvxsnn.convex.envelope import HingeEnvelope, has_hinge, smoothed
from cvxsnn.convex.losses import Hinge


@settings(max_examples=30)
@given(st.floats(1e-3, 2.0), st.integers(0, 2**32 - 1))
def test_envelope_is_at_most_half_its_width_below_the_hinge(width: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(20, 1, generator=generator, dtype=torch.float64)
    targets = torch.where(torch.rand(20, 1, generator=generator) < 0.5, -1.0, 1.0).double()
    below = Hinge().value(scores, targets) - HingeEnvelope(width).value(scores, targets)
    assert bool((below >= -ROUNDING).all())
    assert bool((below <= width / 2 + ROUNDING).all())


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_envelope_has_the_slopes_it_says(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(20, 1, generator=generator, dtype=torch.float64)
    targets = torch.where(torch.rand(20, 1, generator=generator) < 0.5, -1.0, 1.0).double()
    envelope, step = HingeEnvelope(0.5), 1e-5
    ahead, behind = (envelope.value(scores + s * step, targets) for s in (1, -1))
    gradient = envelope.gradient(scores, targets)
    # Within a step of its ends the slope of the quadratic piece is off by the step times its curvature of two.
    torch.testing.assert_close((ahead - behind) / (2 * step), gradient[:, 0], rtol=0, atol=2 * step)
    assert bool(Hinge().conjugate(gradient, targets).isfinite().all())
    inside = ((1 - targets * scores) > step) & ((1 - targets * scores) < 0.5 - step)
    slope = (envelope.gradient(scores + step, targets) - envelope.gradient(scores - step, targets)) / (2 * step)
    curvature = envelope.curvature(scores, targets)
    torch.testing.assert_close(slope[inside], curvature[inside], rtol=0, atol=FINITE_DIFFERENCE)


def test_smoothing_replaces_hinges_only() -> None:
    problem = Kind("hinge + squared_hinge").draw(0)
    assert has_hinge(problem)
    smooth = smoothed(problem, 0.5)
    assert not has_hinge(smooth)
    assert smooth.heads[1] is problem.heads[1]
