import re

import numpy as np
import pytest
from convex.problems import ELASTIC_NETS, PENALTIES

from cvxsnn import ConvexProblem
from cvxsnn.core.errors import InvalidInputError


def elastic_net(l1_strength: object, l2_strength: object, penalty: str = "elastic-net") -> ConvexProblem:
    columns, labels = np.eye(4, dtype=bool), np.array([0, 1, 0, 1])
    return ConvexProblem(columns, labels, "logistic", l1_strength, l2_strength=l2_strength, penalty=penalty)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("strengths", "message"),
    [
        ((-0.1, 1.0), "expected l1_strength to be a finite number, zero or above, got -0.1"),
        ((0.1, -1.0), "expected l2_strength to be a finite number, zero or above, got -1.0"),
        ((float("nan"), 1.0), "expected l1_strength to be a finite number, zero or above, got nan"),
        ((0.1, float("nan")), "expected l2_strength to be a finite number, zero or above, got nan"),
        ((float("inf"), 1.0), "expected l1_strength to be a finite number, zero or above, got inf"),
        ((0.1, float("inf")), "expected l2_strength to be a finite number, zero or above, got inf"),
        (("0.1", 1.0), "expected l1_strength to be a finite number, zero or above, got '0.1'"),
        ((0.1, "auto"), "expected l2_strength to be a finite number, zero or above, got 'auto'"),
        ((0.1, None), "expected l2_strength to be a finite number, zero or above, got None"),
        ((True, 1.0), "expected l1_strength to be a finite number, zero or above, got True"),
        (
            (0, 0.0),
            "expected l1_strength or l2_strength above zero, got zero for both: without a penalty no dual bound exists",
        ),
    ],
)
@pytest.mark.parametrize("penalty", ELASTIC_NETS)
def test_strengths_of_an_elastic_net_that_mean_nothing_are_refused(
    penalty: str, strengths: tuple[object, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$"):
        elastic_net(*strengths, penalty)
    if strengths[1] is not None:  # which is "as it is" there
        with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$"):
            elastic_net(0.1, 0.1, penalty).with_strength(*strengths)  # type: ignore[arg-type]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("l2_strength", [0.5, -1.0, float("nan"), "0.5", None])
def test_a_quadratic_beside_a_penalty_that_has_none_is_refused(penalty: str, l2_strength: object) -> None:
    message = (
        f"expected l2_strength=0 for the penalty {penalty!r}, got {l2_strength!r}: use penalty='elastic-net' or "
        "'group-elastic-net'"
    )
    with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$"):
        elastic_net(0.1, l2_strength, penalty)
    if l2_strength is not None:
        with pytest.raises(InvalidInputError, match=f"^{re.escape(message)}$"):
            elastic_net(0.1, 0.0, penalty).with_strength(0.1, l2_strength)  # type: ignore[arg-type]


def test_with_strength_keeps_the_quadratic_unless_told_otherwise() -> None:
    problem = elastic_net(0.1, 0.5)
    assert problem.with_strength(0.2).l2_strength == 0.5
    assert problem.with_strength(0.2, 0.0).l2_strength == 0.0
    assert problem.with_strength(0.0).l1_strength == 0.0
