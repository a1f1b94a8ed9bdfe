"""What a training method needs to know."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..convex.objective import Objective
from ..convex.penalties import make_penalty
from ..core.checks import check_choice, check_positive_int
from ..core.errors import InvalidInputError
from ..data.training_set import TrainingSet
from ..network.spiking_network import SpikingNetwork
from .search import Tuning
from .surrogate.settings import SurrogateSettings


@dataclass(frozen=True)
class Settings:
    """What a method needs to know beside the data.

    Parameters
    ----------
    objective : Objective
    family : mapping or Tuning
        Arguments of :func:`cvxsnn.gaussian_witnesses` other than ``n_features`` and ``seed``; or how to search for
        them.
    pool : int
        Witnesses of the family that a convex stage is optimal over: it prices a pool of so many. With 0 it is optimal
        over those that were sampled.
    l1_strength : float, sequence of float, or "auto"
        Several strengths, or for "auto" a path of ``n_strengths`` of them, are compared on validation data.
    n_strengths : int
    smallest_ratio : float
        The end of the path, relative to the strength at which all coefficients vanish.
    penalty : "l1" or "group"
    intercept : bool
    tol : float
        Relative gap to certify.
    surrogate : SurrogateSettings, or a sequence of them
        Several are all tried, and the one that does best on validation data is kept.
    n_networks : int
        Networks that a first gradient stage trains, each from another sample of the family, by the settings that serve
        the first of them best. Their average goes on to the next stage, where a convex one has the neurons of all.
    finetuning : SurrogateSettings, or a sequence of them, optional
        For a second gradient stage, or one after a convex stage; by default ``surrogate`` at a fifth of its rate.
    seed : int
    """

    objective: Objective
    family: Mapping[str, Any] | Tuning
    l1_strength: float | Sequence[float] | Literal["auto"] = "auto"
    n_strengths: int = 12
    smallest_ratio: float = 1e-3
    penalty: str = "l1"
    intercept: bool = False
    tol: float = 1e-6
    surrogate: SurrogateSettings | Sequence[SurrogateSettings] = field(default_factory=SurrogateSettings)
    finetuning: SurrogateSettings | Sequence[SurrogateSettings] | None = None
    pool: int = 0
    n_networks: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no stage could use, whether the method has that stage or not."""
        make_penalty(self.penalty)
        check_positive_int("n_strengths", self.n_strengths)
        check_positive_int("n_networks", self.n_networks)
        if isinstance(self.l1_strength, str):
            check_choice("l1_strength", self.l1_strength, ("auto",))
            return
        given = self.l1_strength if isinstance(self.l1_strength, Sequence) else [self.l1_strength]
        if len(given) == 0:
            raise InvalidInputError("expected at least one strength, got none: pass l1_strength='auto'")
        if not all(isinstance(strength, (int, float)) and 0 < strength < math.inf for strength in given):
            raise InvalidInputError(
                f"expected l1_strength to be a finite number above zero, or 'auto', got {self.l1_strength!r}"
            )


@dataclass(frozen=True, eq=False)
class Split:
    """Sequences to train on, and the validation score of a network; higher is better."""

    data: TrainingSet
    score: Callable[[SpikingNetwork], float]
