"""The strengths that a penalty can have."""

from math import inf
from typing import Any

from ..core.errors import InvalidInputError
from .penalties import Penalty


def check_strengths(l1_strength: float, l2_strength: float, penalty: Penalty) -> tuple[float, float]:
    """Return strengths that a penalty can have: finite, not negative, and not both zero."""
    if not penalty.has_quadratic:
        if l2_strength != 0:
            raise InvalidInputError(
                f"expected l2_strength=0 for the penalty {penalty.name!r}, got {l2_strength!r}: use "
                "penalty='elastic-net' or 'group-elastic-net'"
            )
        if not _is_number(l1_strength) or l1_strength == 0:
            raise InvalidInputError(
                f"expected l1_strength to be a finite number above zero, got {l1_strength!r}: without it no dual bound "
                "exists"
            )
    for name, strength in (("l1_strength", l1_strength), ("l2_strength", l2_strength)):
        if not _is_number(strength):
            raise InvalidInputError(f"expected {name} to be a finite number, zero or above, got {strength!r}")
    if l1_strength == l2_strength == 0:
        raise InvalidInputError(
            "expected l1_strength or l2_strength above zero, got zero for both: without a penalty no dual bound exists"
        )
    return float(l1_strength), float(l2_strength)


def check_prices(l1_strength: float, over: str) -> None:
    """Refuse the strength at which no atom stays out of an optimum, so that prices cannot tell which are needed."""
    if l1_strength == 0:
        raise InvalidInputError(
            f"expected l1_strength above zero for an optimum over {over}, got 0, at which every one of them is active: "
            "raise it, or solve over a dictionary of all of them"
        )


def _is_number(strength: Any) -> bool:
    return not isinstance(strength, (str, bool)) and strength is not None and bool(0 <= strength < inf)
