"""A broad prior over families, for the search: leaks, resets, weights and delays.

Half of its families have synaptic delays, if sequences are long enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .settings import Constant, Normal, Uniform

_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "decay": (
        *(Constant(value) for value in (0.0, 0.5, 0.9, 1.0)),
        *(Uniform(low, 1.0) for low in (0.0, 0.5, 0.8)),
    ),
    "threshold": (Constant(0.0), Constant(0.1), Constant(1.0), Uniform(0.0, 2.0)),
    "bias": (Constant(0.0), Normal(0.0, 0.3), Normal(0.0, 1.0)),
    "gain": (Constant(0.5), Constant(1.0), Constant(3.0)),
    "balance": (Constant(0.0), Constant(0.5)),
    "fan_in": (None, 3, 8),
}
_DYNAMICS = ("decay", "threshold", "bias", "gain")

RELAY: Mapping[str, Any] = {
    "decay": Constant(0.0),
    "threshold": Constant(0.0),
    "bias": Constant(0.0),
    "gain": Constant(1.0),
    "balance": Constant(0.5),
    "fan_in": 1,
}
"""A layer whose neurons each copy or negate one neuron below, so that a deep stack preserves information."""


@dataclass(frozen=True, eq=False)
class FamilyDraw:
    """The settings of the first, the middle and the last layers of a family, whose widths are chosen later.

    A family of one layer has the first only; one of two has no middle.
    """

    n_layers: int
    first: Mapping[str, Any]
    middle: Mapping[str, Any]
    last: Mapping[str, Any]

    def __eq__(self, other: object) -> bool:
        """Return whether all layers are drawn alike."""
        return isinstance(other, FamilyDraw) and self.arguments() == other.arguments()

    def __hash__(self) -> int:
        """Return a hash of the arguments, which decide equality."""
        return hash(repr(self.arguments()))  # lists have no hash

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`cvxsnn.gaussian_witnesses`."""
        layers = [self.first, *[self.middle] * (self.n_layers - 2), self.last][: self.n_layers]
        return {name: [layer[name] for layer in layers] for name in _OPTIONS}


_DELAYED_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "geometry": ("scattered", "box", "dilated"),
    "fan_in": (9, 25),
    "max_delay": (4, 16, 64, None),
    "decay": (0.0, 0.5, 0.9),
    "weights": ("gaussian", "centred", "two-valued", "differences"),
    "quantiles": ((0.05, 0.95), (0.5, 0.98)),
}


@dataclass(frozen=True)
class DelayedDraw:
    """A family with delays, whose widths are chosen later: layers are alike, but taps above the first are scattered.

    The choices are those of ``_DELAYED_OPTIONS``, in that order.
    """

    n_layers: int
    choices: tuple[Any, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`cvxsnn.delayed_witnesses`."""
        settings = dict(zip(_DELAYED_OPTIONS, self.choices, strict=True))
        return {**settings, "geometry": [settings["geometry"], *["scattered"] * (self.n_layers - 1)]}


Draw = FamilyDraw | DelayedDraw


def draw_family(generator: np.random.Generator, n_features: int, n_layers: int, max_delay: int = 0) -> Draw:
    """Draw a family from the prior.

    Parameters
    ----------
    generator : numpy.random.Generator
        Random number generator.
    n_features : int
        Number of input features, which decides whether a sparse first layer makes sense.
    n_layers : int
        Number of hidden layers.
    max_delay : int
        The longest delay that sequences allow; with 0, no family has delays.

    Returns
    -------
    FamilyDraw or DelayedDraw
        The family.
    """
    if max_delay and generator.random() < 0.5:
        return DelayedDraw(
            n_layers, tuple(_one_of(generator, values) for values in _delayed_options(max_delay).values())
        )
    first = {name: _one_of(generator, _OPTIONS[name]) for name in _DYNAMICS}
    first |= {"balance": Constant(0.0), "fan_in": _one_of(generator, _input_fan_ins(n_features))}
    last = {name: _one_of(generator, options) for name, options in _OPTIONS.items()}
    if generator.random() < 0.5:
        last |= {name: first[name] for name in _DYNAMICS}
    return FamilyDraw(n_layers, first, RELAY if generator.random() < 0.5 else last, last)


def mutate_family(generator: np.random.Generator, family: Draw, n_features: int, max_delay: int = 0) -> Draw:
    """Return the family with one or two of its choices drawn again, in its first layer, its last, or both alike."""
    if isinstance(family, DelayedDraw):
        choices, options = list(family.choices), list(_delayed_options(max_delay).values())
        for number in generator.integers(len(choices), size=generator.integers(1, 3)):
            choices[number] = _one_of(generator, options[number])
        return DelayedDraw(family.n_layers, tuple(choices))
    first = dict(family.first)
    last = dict(family.last)
    relays = family.middle == RELAY
    for _ in range(generator.integers(1, 3)):
        where = "first" if family.n_layers == 1 else _one_of(generator, ("first", "last", "both"))
        name = _one_of(generator, (*_DYNAMICS, "fan_in") if where != "last" else tuple(_OPTIONS))
        if name == "fan_in" and where != "last":
            first["fan_in"] = _one_of(generator, _input_fan_ins(n_features))
            continue
        value = _one_of(generator, _OPTIONS[name])
        if where in ("first", "both"):
            first[name] = value
        if where in ("last", "both"):
            last[name] = value
    if family.n_layers > 2 and generator.random() < 0.25:
        relays = not relays
    return FamilyDraw(family.n_layers, first, RELAY if relays else last, last)


def _delayed_options(max_delay: int) -> dict[str, tuple[Any, ...]]:
    """Return the options of families with delays for sequences that allow such delays."""
    reaches = tuple(reach for reach in _DELAYED_OPTIONS["max_delay"] if reach is None or reach < max_delay)
    return {**_DELAYED_OPTIONS, "max_delay": reaches}


def _input_fan_ins(n_features: int) -> tuple[int | None, ...]:
    return (None, 16) if n_features > 16 else (None,)  # a sparse first layer makes sense with many inputs only


def _one_of(generator: np.random.Generator, options: tuple[Any, ...]) -> Any:
    return options[generator.integers(len(options))]
