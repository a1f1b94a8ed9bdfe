"""Families of witnesses: arguments of a sampler, by which witnesses are drawn, described and drawn again."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS
from .delayed import calibration_subset, delayed_witnesses, fingerprint
from .sampling import Distribution, gaussian_witnesses, parse_distribution
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
    """
    if provenance.kind != "sampled":
        raise InvalidInputError(f"expected sampled witnesses, got {provenance.kind} ones: only a sample has a seed")
    recipe: dict[str, Any] = {name: _parsed(value) for name, value in provenance.recipe.items()}
    recipe["dtype"] = getattr(torch, recipe["dtype"])
    subnetworks = recipe.pop("subnetworks", None)
    if needs_inputs(provenance):
        sequences = _same_inputs(recipe.pop("inputs"), inputs, recipe["n_calibration"], recipe["seed"])
        del recipe["sampler"]
        witnesses = delayed_witnesses(sequences, **{**recipe, **overrides})
    else:
        witnesses = gaussian_witnesses(**{**recipe, **overrides})
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
    return provenance.recipe.get("sampler") == "delayed"


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
