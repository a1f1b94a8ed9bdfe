"""Convex programs of which several numbers are extreme at once, or the tolerance: checked as in `problems`."""

from pathlib import Path
from typing import Any

import numpy as np

from .harness import Hunt
from .problems import Draw, check

_MOST = 150.0
"""Largest power of ten."""


def case(rng: np.random.Generator, folder: Path) -> str:
    """Draw a program and check what the library proves about it."""
    kind = (_Scales, _Tolerances)[rng.integers(2)]
    return f"{kind.name}, {check(kind(rng))}"


class _Scales(Draw):
    """Columns, targets, strengths and weights of any powers of ten, whole or each of its own."""

    name = "scales"

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.is_binary = False
        self.columns = self.columns * self._powers((1, self.n_columns))
        if rng.random() < 0.1:
            self.columns = self.columns * self._powers((self.n_rows, 1))
        own: list[Any] = self.targets
        self.targets = [
            targets * self._powers((1,) * (targets.ndim - 1) + targets.shape[-1:]) if loss == "squared" else targets
            for loss, targets in zip(self.losses, own, strict=True)
        ]
        self.absolute = [float(self._powers(())) if rng.random() < 0.5 else None for _ in range(2)]
        if len(self.losses) > 1:
            self.head_weights = [float(self._powers(())) for _ in self.losses]

    def strengths(self, critical: float) -> tuple[float, float]:
        """Return strengths, some of which have nothing to do with the columns."""
        relative = super().strengths(critical)
        return tuple(b if a is None or not b else a for a, b in zip(self.absolute, relative, strict=True))  # type: ignore[return-value]

    def _powers(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return powers of ten: all the same, or each its own; some of them ordinary."""
        rng = self.rng
        most = float(rng.choice([0.0, 5.0, 20.0, 80.0, _MOST]))
        exponent = rng.uniform(-most, most, shape if rng.random() < 0.4 else [1] * len(shape))
        return np.asarray(10.0**exponent)


class _Tolerances(Draw):
    """Tolerances below rounding, heads with tiny weights, and optima of zero."""

    name = "tolerances"

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self.tol = float(10 ** rng.uniform(-16, -12))
        while len(self.losses) < 3 and rng.random() < 0.6:
            self.losses.append(str(rng.choice(["squared", "squared", "hinge", "squared_hinge", "logistic", "softmax"])))
            self.targets.append(self._targets(self.losses[-1]))
            self.head_weights.append(1.0)
        if len(self.losses) > 1:
            self.head_weights = [float(10 ** rng.uniform(-30 * rng.integers(2), 1)) for _ in self.losses]
        for place, loss in enumerate(self.losses):
            if loss == "squared" and rng.random() < 0.4:  # constant, or zero, with or without rounding
                level = float(rng.choice([0.0, 0.1, 1e8]))
                self.targets[place] = np.full_like(self.targets[place], level)
            elif loss == "squared" and rng.random() < 0.3:  # in the span of the columns
                coef = rng.normal(size=(self.n_columns, *self.targets[place].shape[1:]))
                self.targets[place] = self.columns @ coef
        if rng.random() < 0.3:
            self.ratio = float(10 ** rng.uniform(-20, -10))


HUNT = Hunt(
    name="extremes",
    purpose="Convex programs with several extreme scales, or tolerances below rounding, as in `problems`.",
    case=case,
    cases=6_000,
    short=40,
    seconds=30.0,
)
