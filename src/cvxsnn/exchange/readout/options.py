"""The settings of a read-out reconstruction, checked once and passed on as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

from torch import Tensor, nn

from ...convex.losses import LOSSES
from ...convex.penalties import PENALTIES, make_penalty
from ...convex.strengths import check_strengths
from ...core.checks import check_choice
from ...core.errors import InvalidInputError
from ...core.seeds import check_seed

Layout = Literal["batch", "time-first", "stepped"]
RunModel = Callable[[nn.Module, Tensor], Any]
Reset = Callable[[nn.Module], None]
Decide = Callable[[Any], Tensor]
ProgressCallback = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class ReadoutOptions:
    """Options of :func:`cvxsnn.reconstruct_readout`, which describes them.

    Parameters
    ----------
    loss, l1_strength, l2_strength, layer, layout, readout, run, reset, decide, penalty, tol, seed, callback
        As in :func:`cvxsnn.reconstruct_readout`.
    dense_bytes : int
        Spike counts are kept as float64 up to this size: several times as fast as unpacking bits for every product.
    """

    loss: str = "auto"
    l1_strength: float | Literal["auto"] = "auto"
    l2_strength: float | Literal["auto"] = "auto"
    layer: str | None = None
    layout: Layout = "batch"
    readout: Literal["mean", "last"] = "mean"
    run: RunModel | None = None
    reset: Reset | None = None
    decide: Decide | None = None
    penalty: str = "l1"
    tol: float = 1e-6
    seed: int = 0
    callback: ProgressCallback | None = None
    dense_bytes: int = 2**30

    def __post_init__(self) -> None:
        """Refuse options that mean nothing."""
        check_choice("layout", self.layout, ("batch", "time-first", "stepped"))
        check_choice("readout", self.readout, ("mean", "last"))
        check_choice("loss", self.loss, ("auto", *LOSSES))
        check_choice("penalty", self.penalty, tuple(PENALTIES))
        check_seed(self.seed)
        for name in ("l1_strength", "l2_strength"):
            strength = getattr(self, name)
            if isinstance(strength, str):
                check_choice(name, strength, ("auto",))
            elif not isinstance(strength, Real):
                raise InvalidInputError(f"expected {name} to be 'auto' or a number, got {strength!r}")
        penalty = make_penalty(self.penalty)
        check_strengths(
            1.0 if self.l1_strength == "auto" else self.l1_strength,
            float(penalty.has_quadratic) if self.l2_strength == "auto" else self.l2_strength,
            penalty,
        )

    def notify(self, stage: str, done: int, total: int) -> None:
        """Report progress to the user's callback, if there is one."""
        if self.callback is not None:
            self.callback(stage, done, total)
