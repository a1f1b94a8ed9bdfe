import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import FINITE_DIFFERENCE, ROUNDING

from cvxsnn.convex.losses import Hinge, RoundedHinge


@settings(max_examples=30)
@given(st.floats(1e-3, 2.0), st.integers(0, 2**32 - 1))
def test_the_rounded_hinge_is_at_most_half_its_width_above_the_hinge(width: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(20, 1, generator=generator, dtype=torch.float64)
    targets = torch.where(torch.rand(20, 1, generator=generator) < 0.5, -1.0, 1.0).double()
    above = RoundedHinge(width).value(scores, targets) - Hinge().value(scores, targets)
    assert bool((above >= -ROUNDING).all())
    assert bool((above <= width / 2 + ROUNDING).all())


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_the_rounded_hinge_has_the_slopes_it_says(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(20, 1, generator=generator, dtype=torch.float64)
    targets = torch.where(torch.rand(20, 1, generator=generator) < 0.5, -1.0, 1.0).double()
    rounded, step = RoundedHinge(0.5), 1e-5
    ahead, behind = (rounded.value(scores + s * step, targets) for s in (1, -1))
    gradient = rounded.gradient(scores, targets)
    torch.testing.assert_close((ahead - behind) / (2 * step), gradient[:, 0], rtol=0, atol=FINITE_DIFFERENCE)
    assert bool(Hinge().conjugate(gradient, targets).isfinite().all())
    ahead, behind = (rounded.gradient(scores + s * step, targets) for s in (1, -1))
    curvature = rounded.curvature(scores, targets)
    torch.testing.assert_close((ahead - behind) / (2 * step), curvature, rtol=0, atol=FINITE_DIFFERENCE)
