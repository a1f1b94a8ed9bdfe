"""How the program of a read-out is solved: checked once, and passed on as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Literal

from ...convex.penalties import PENALTIES, check_strengths, make_penalty
from ...core.checks import check_choice
from ...core.errors import InvalidInputError
from ...core.seeds import check_seed

ProgressCallback = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class ReadoutOptions:
    """Options of :func:`cvxsnn.reconstruct_readout`, which describes them.

    Parameters
    ----------
    l1_strength, l2_strength, penalty, tol, seed, callback
        As in :func:`cvxsnn.reconstruct_readout`.
    """

    l1_strength: float | Literal["auto"] = "auto"
    l2_strength: float | Literal["auto"] = "auto"
    penalty: str = "l1"
    tol: float = 1e-6
    seed: int = 0
    callback: ProgressCallback | None = None

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        check_choice("penalty", self.penalty, tuple(PENALTIES))
        check_seed(self.seed)
        for name in ("l1_strength", "l2_strength"):
            strength = getattr(self, name)
            if not isinstance(strength, Real) and not (isinstance(strength, str) and strength == "auto"):
                raise InvalidInputError(f"expected {name} to be 'auto' or a number, got {strength!r}")
        penalty = make_penalty(self.penalty)
        l1_strength = 1.0 if self.l1_strength == "auto" else self.l1_strength
        l2_strength = float(penalty.has_quadratic) if self.l2_strength == "auto" else self.l2_strength
        check_strengths(l1_strength, l2_strength, penalty)

    def notify(self, stage: str, done: int, total: int) -> None:
        """Report progress to the user's callback, if there is one."""
        if self.callback is not None:
            self.callback(stage, done, total)
