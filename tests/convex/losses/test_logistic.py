from decimal import Decimal

import pytest
import torch
from tolerances import ROUNDING

from cvxsnn.convex.losses import Softmax, make_loss


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
