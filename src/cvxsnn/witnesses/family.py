"""Families of witnesses: arguments of a sampler, by which witnesses are drawn, described and drawn again.

For when the user names no family there is a broad prior over how neurons leak, reset and read. Half of its families
have synaptic delays, where sequences are long enough.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS
from .delayed import calibration_subset, delayed_witnesses, fingerprint
from .mixture import mixed_witnesses
from .sampling import Constant, Distribution, Normal, Uniform, gaussian_witnesses, parse_distribution
from .witness_set import Provenance, WitnessSet

_DECIDED = ("n_features", "inputs", "seed", "parameters")
"""Arguments of a sampler that the data and the run decide, and the name of those that have no name of their own."""


def has_delays(family: Mapping[str, Any]) -> bool:
    """Return whether a family is one of :func:`delayed_witnesses`: it says where taps are.

    Parameters
    ----------
    family : mapping of str to object
        The family.

    Returns
    -------
    bool
        True where there is a key ``"geometry"``.
    """
    return "geometry" in family


def family_arguments(family: Mapping[str, Any]) -> list[str]:
    """Return the names that a family of this kind may have.

    Parameters
    ----------
    family : mapping of str to object
        The family.

    Returns
    -------
    list of str
        The names of the arguments of its sampler.
    """
    if has_delays(family):
        names = [*inspect.signature(delayed_witnesses).parameters]
    else:  # and what a registered neuron model is sampled with
        model = NEURON_MODELS.get(family.get("neuron", "lif"))
        names = [*inspect.signature(gaussian_witnesses).parameters, *(() if model is None else model.sampled)]
    return [name for name in dict.fromkeys(names) if name not in _DECIDED]


def sample_witnesses(family: Mapping[str, Any], inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
    """Sample witnesses of a family.

    Parameters
    ----------
    family : mapping of str to object
        With a key ``"geometry"`` arguments of :func:`cvxsnn.delayed_witnesses`, without one arguments of
        :func:`cvxsnn.gaussian_witnesses`. ``hidden`` is required.
    inputs : Sequences, array of shape (n_samples, n_steps, n_features), or int
        Training sequences. The number of features is enough for a family without delays.
    seed : int
        The seed of the sample.

    Returns
    -------
    WitnessSet
        The witnesses.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import sample_witnesses
    >>> inputs = np.random.default_rng(0).normal(size=(100, 20, 3))
    >>> sample_witnesses({"hidden": (64,), "decay": 0.5}, inputs)
    WitnessSet(sampled lif, 1 × (3→64))
    >>> delayed = sample_witnesses({"hidden": (64,), "geometry": "scattered", "max_delay": 10}, inputs)
    >>> delayed.layers[0].max_delay
    10
    """
    check_family(family)
    if has_delays(family):
        if isinstance(inputs, int):
            raise InvalidInputError("expected training inputs to sample neurons with delays from, got none")
        return delayed_witnesses(inputs, seed=seed, **family)
    n_features = inputs if isinstance(inputs, int) else Sequences.of(inputs).n_features
    return gaussian_witnesses(n_features, seed=seed, **family)


def check_family(family: Mapping[str, Any]) -> None:
    """Refuse names that the sampler of a family does not know, and a family without widths.

    Parameters
    ----------
    family : mapping of str to object
        The family.
    """
    known = family_arguments(family)
    unknown = sorted(set(family) - set(known))
    if unknown:
        hint = ""
        if not has_delays(family) and not set(unknown) - set(family_arguments({"geometry": None})):
            hint = ": add geometry for neurons with delays"
        raise InvalidInputError(f"expected a family of {sorted(known)}, got {unknown} too{hint}")
    if "hidden" not in family:
        raise InvalidInputError("expected a family with the widths of its hidden layers, got none: add hidden=(256,)")


def describe_family(family: Mapping[str, Any]) -> dict[str, Any]:
    """Return a family as plain values.

    Parameters
    ----------
    family : mapping of str to object
        Arguments of :func:`cvxsnn.gaussian_witnesses` or :func:`cvxsnn.delayed_witnesses`, distributions among them.

    Returns
    -------
    dict of str to object
        The same with every distribution described.

    Examples
    --------
    >>> from cvxsnn.witnesses import Uniform, describe_family
    >>> describe_family({"hidden": (64,), "decay": Uniform(0.5, 1.0)})
    {'hidden': [64], 'decay': {'distribution': 'uniform', 'low': 0.5, 'high': 1.0}}
    """

    def plain(value: Any) -> Any:
        if isinstance(value, Distribution):
            return value.describe()
        return [plain(one) for one in value] if isinstance(value, (list, tuple)) else value

    return {name: plain(value) for name, value in family.items()}


def regenerate(provenance: Provenance, *, inputs: Sequences | Array | None = None, **overrides: Any) -> WitnessSet:
    """Draw sampled witnesses again from their recipe.

    Parameters
    ----------
    provenance : Provenance
        Where the witnesses came from.
    inputs : Sequences or array of shape (n_samples, n_steps, n_features), optional
        For witnesses with delays, the training sequences that they were sampled with.
    **overrides : object
        Arguments to change; ``dtype`` and ``device`` change no draw.

    Returns
    -------
    WitnessSet
        The same witnesses.

    Examples
    --------
    >>> import torch
    >>> import cvxsnn as cs
    >>> from cvxsnn.witnesses import regenerate
    >>> witnesses = cs.gaussian_witnesses(2, (8,), seed=3)
    >>> again = regenerate(witnesses.provenance)
    >>> torch.equal(again.layers[0].weight, witnesses.layers[0].weight)
    True
    """
    if provenance.kind != "sampled":
        raise InvalidInputError(f"expected sampled witnesses, got {provenance.kind} ones: only a sample has a seed")
    recipe: dict[str, Any] = {name: _parsed(value) for name, value in provenance.recipe.items()}
    recipe["dtype"] = getattr(torch, recipe["dtype"])
    subnetworks, neurons = recipe.pop("subnetworks", None), recipe.pop("neurons", None)
    if needs_inputs(provenance):
        sequences = _same_inputs(recipe.pop("inputs"), inputs, recipe["n_calibration"], recipe["seed"])
        sample = mixed_witnesses if recipe.pop("sampler") == "mixed" else delayed_witnesses
        witnesses = sample(sequences, **{**recipe, **overrides})
    else:
        witnesses = gaussian_witnesses(**{**recipe, **overrides})
    if neurons is not None:
        return witnesses.take_neurons(torch.as_tensor(neurons))
    return witnesses if subnetworks is None else witnesses.take(torch.as_tensor(subnetworks))


def needs_inputs(provenance: Provenance) -> bool:
    """Return whether training sequences are needed to draw sampled witnesses again.

    Parameters
    ----------
    provenance : Provenance
        Where the witnesses came from.

    Returns
    -------
    bool
        True for witnesses with delays.
    """
    return provenance.recipe.get("sampler") in ("delayed", "mixed")


def is_reproducible(witnesses: WitnessSet) -> bool:
    """Return whether the recipe of witnesses draws them again, to the bit, without any data.

    Witnesses whose layers were replaced or converted to another type keep the recipe of what they were made from.
    """
    provenance = witnesses.provenance
    if provenance.kind != "sampled" or "dtype" not in provenance.recipe or needs_inputs(provenance):
        return False
    again = regenerate(provenance)
    return again.hidden == witnesses.hidden and all(
        type(own) is type(drawn)
        and own.settings() == drawn.settings()
        and all(_equal(value, drawn.tensors()[name]) for name, value in own.tensors().items())
        for own, drawn in zip(witnesses.layers, again.layers, strict=True)
    )


def _same_inputs(digest: str, inputs: Sequences | Array | None, n_calibration: int, seed: int) -> Sequences:
    if inputs is None:
        raise InvalidInputError(
            "expected the training inputs that the witnesses were sampled with, got none: pass inputs="
        )
    sequences = Sequences.of(inputs)
    if fingerprint(calibration_subset(sequences, n_calibration, seed)) != digest:
        raise InvalidInputError(
            "expected the training inputs that the witnesses were sampled with, got others: pass the same sequences in "
            "the same order"
        )
    return sequences


def _parsed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return parse_distribution(value)
    is_list = isinstance(value, (list, tuple)) and any(isinstance(one, Mapping) for one in value)
    return [parse_distribution(one) for one in value] if is_list else value


def _equal(value: Tensor, other: Tensor) -> bool:
    return value.dtype == other.dtype and torch.equal(value.cpu(), other)


_DECAYS: tuple[Distribution, ...] = (
    Constant(0.0),
    Constant(0.5),
    Constant(0.9),
    Constant(1.0),
    Uniform(0.0, 1.0),
    Uniform(0.5, 1.0),
    Uniform(0.8, 1.0),
)
_THRESHOLDS: tuple[Distribution, ...] = (Constant(0.0), Constant(0.1), Constant(1.0), Uniform(0.0, 2.0))
_BIASES: tuple[Distribution, ...] = (Constant(0.0), Normal(0.0, 0.3), Normal(0.0, 1.0))
_GAINS: tuple[Distribution, ...] = (Constant(0.5), Constant(1.0), Constant(3.0))
_FAN_INS: tuple[int | None, ...] = (None, 3, 8)
_SPARSE_INPUTS = 16
"""Inputs that a sparse first layer reads, where there are more."""

RELAY: Mapping[str, Any] = {
    "decay": Constant(0.0),
    "threshold": Constant(0.0),
    "bias": Constant(0.0),
    "gain": Constant(1.0),
    "balance": Constant(0.5),
    "fan_in": 1,
}
"""A layer whose neurons repeat or negate one neuron below each: it keeps a deep stack alive, whatever is below."""


_OPTIONS: Mapping[str, tuple[Any, ...]] = {
    "decay": _DECAYS,
    "threshold": _THRESHOLDS,
    "bias": _BIASES,
    "gain": _GAINS,
    "balance": (Constant(0.0), Constant(0.5)),
    "fan_in": _FAN_INS,
}
_DYNAMICS = ("decay", "threshold", "bias", "gain")


@dataclass(frozen=True, eq=False)
class FamilyDraw:
    """A family before its widths are known: what its first, its middle and its last layers are like.

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
        """Return the hash of what counts for equality."""
        return hash(repr(self.arguments()))

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

STEPS_FOR_DELAYS = 9
"""Fewest steps of sequences for which families with delays are drawn: nine dilated taps need as many."""


@dataclass(frozen=True)
class DelayedDraw:
    """A family with delays before its widths are known: all layers are alike, but taps above the first are scattered.

    The choices are those of ``_DELAYED_OPTIONS``, in that order.
    """

    n_layers: int
    choices: tuple[Any, ...]

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of :func:`cvxsnn.delayed_witnesses`."""
        own = dict(zip(_DELAYED_OPTIONS, self.choices, strict=True))
        return {**own, "geometry": [own["geometry"], *["scattered"] * (self.n_layers - 1)]}


Draw = FamilyDraw | DelayedDraw


def draw_family(generator: np.random.Generator, n_features: int, n_layers: int, max_delay: int = 0) -> Draw:
    """Draw a family from the prior.

    Parameters
    ----------
    generator : numpy.random.Generator
        The source of randomness.
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
        return DelayedDraw(n_layers, tuple(_one_of(generator, own) for own in _delayed_options(max_delay).values()))
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
        for place in generator.integers(len(choices), size=generator.integers(1, 3)):
            choices[place] = _one_of(generator, options[place])
        return DelayedDraw(family.n_layers, tuple(choices))
    first, last, relays = dict(family.first), dict(family.last), family.middle == RELAY
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
    reaches = tuple(own for own in _DELAYED_OPTIONS["max_delay"] if own is None or own < max_delay)
    return {**_DELAYED_OPTIONS, "max_delay": reaches}


def _input_fan_ins(n_features: int) -> tuple[int | None, ...]:
    return (None, _SPARSE_INPUTS) if n_features > _SPARSE_INPUTS else (None,)


def _one_of(generator: np.random.Generator, options: tuple[Any, ...]) -> Any:
    return options[generator.integers(len(options))]
