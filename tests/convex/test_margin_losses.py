from decimal import Decimal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import FINITE_DIFFERENCE, ROUNDING

from cvxsnn.convex.losses import Hinge, RoundedHinge, Softmax, make_loss


@pytest.mark.parametrize("name", ["hinge", "squared_hinge", "logistic"])
@pytest.mark.parametrize("labels", [[0, 1, 1], [-1, 1, 1], [False, True, True], [0.0, 1.0, 1.0]])
def test_binary_labels_are_minus_one_and_one(name: str, labels: list[float]) -> None:
    for given_labels in (np.array(labels), torch.tensor(labels)):
        assert make_loss(name).encode(given_labels).tolist() == [[-1], [1], [1]]


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


def test_the_logistic_loss_of_a_very_wrong_score_is_the_score() -> None:
    scores, labels = torch.tensor([[-39.0], [-720.0], [-1e300]]).double(), torch.ones(3, 1).double()
    torch.testing.assert_close(make_loss("logistic").value(scores, labels), -scores[:, 0], rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("share", [1e-300, 1e-20, 1.5e-16, 3e-9, 0.25])
def test_conjugates_of_small_shares_keep_their_digits(share: float) -> None:
    a = Decimal(share)
    expected = float(a * a.ln() + (1 - a) * (1 - a).ln() if share > 1e-25 else a * a.ln() - a)
    dual = torch.tensor([[-share]], dtype=torch.float64)
    assert float(make_loss("logistic").conjugate(dual, torch.ones(1, 1).double())) == pytest.approx(expected, rel=1e-15)
    dual, truth = torch.tensor([[-share, share]], dtype=torch.float64), torch.tensor([[1.0, 0.0]]).double()
    assert float(Softmax().conjugate(dual, truth)) == pytest.approx(expected, rel=1e-15)
