"""Families by name, and sampling witnesses again from their recipe."""

from collections.abc import Mapping
from typing import Any

import torch

from ..core.checks import Array, check_choice
from ..core.errors import InvalidInputError
from ..data.sequences import Sequences
from .chip import Chip
from .delayed import Delayed
from .gaussian import Gaussian
from .kinds import Kinds
from .mixed import Mixed
from .settings import Family
from .tap_sampling import N_CALIBRATION, Calibration
from .witness_set import Provenance, WitnessSet

FAMILIES: dict[str, type[Family]] = {kind.name: kind for kind in (Gaussian, Delayed, Mixed, Kinds, Chip)}
"""Families by the name that their descriptions have as ``"sampler"``."""


def family_kind(family: Mapping[str, Any]) -> type[Family]:
    """Return the type of the family that a mapping describes.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings.

    Returns
    -------
    type of Family
        The type that ``"sampler"`` names; without that, :class:`Delayed` if there is a ``"geometry"``,
        :class:`Mixed` if there is a ``"mixture"``, :class:`Chip` if there is a ``"target"``, and :class:`Gaussian`
        otherwise.
    """
    if isinstance(family, Family):
        return type(family)
    if "sampler" in family:
        return FAMILIES[check_choice("sampler", family["sampler"], tuple(FAMILIES))]
    return next((kind for kind in FAMILIES.values() if kind.recognised_by in family), Gaussian)


def as_family(family: Mapping[str, Any]) -> Family:
    """Return the family that a mapping describes.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings, also as plain values.

    Returns
    -------
    Family
        The family.

    Examples
    --------
    >>> from cvxsnn.witnesses import as_family
    >>> family = as_family({"hidden": (64,), "geometry": "scattered", "max_delay": 10})
    >>> type(family).__name__, family.fan_in
    ('Delayed', 25)
    """
    return family if isinstance(family, Family) else family_kind(family).of(family)


def sample_witnesses(family: Mapping[str, Any], inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
    """Sample witnesses of a family.

    Parameters
    ----------
    family : mapping of str to object
        A family, or its settings: those of :class:`Delayed` with a key ``"geometry"``, otherwise those of
        :class:`Gaussian`. ``hidden`` is required.
    inputs : Sequences, array of shape (n_samples, n_steps, n_features), or int
        Training sequences. The number of features is enough for a family without delays.
    seed : int
        Seed of all draws.

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
    return as_family(family).sample(inputs, seed)


def regenerate(provenance: Provenance, *, inputs: Sequences | Array | None = None, **overrides: Any) -> WitnessSet:
    """Draw sampled witnesses again from their recipe.

    Parameters
    ----------
    provenance : Provenance
        The origin of the witnesses.
    inputs : Sequences or array of shape (n_samples, n_steps, n_features), optional
        For witnesses with delays, the training sequences that they were sampled with.
    **overrides : object
        Settings to change; ``dtype`` and ``device`` change no draw.

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
    recipe = {**provenance.recipe, **overrides}
    subnetworks = recipe.pop("subnetworks", None)
    neurons = recipe.pop("neurons", None)
    seed = recipe.pop("seed")
    n_features, digest = recipe.pop("n_features", None), recipe.pop("inputs", None)
    family = as_family(recipe)
    data: Any = _same_inputs(digest, inputs, recipe, seed) if family.needs_inputs else n_features
    witnesses = family.sample(data, seed)
    if neurons is not None:
        return witnesses.take_neurons(torch.as_tensor(neurons))
    return witnesses if subnetworks is None else witnesses.take(torch.as_tensor(subnetworks))


def _same_inputs(
    digest: str | None, inputs: Sequences | Array | None, recipe: Mapping[str, Any], seed: int
) -> Sequences:
    if digest is None:
        raise InvalidInputError(
            "expected a recipe with a digest of the training inputs, got one without: set needs_inputs = False in a "
            "family that is sampled without them"
        )
    if inputs is None:
        raise InvalidInputError(
            "expected the training inputs that the witnesses were sampled with, got none: pass inputs="
        )
    sequences = Sequences.of(inputs)
    # Thresholds and weights come from these sequences, so others would draw other neurons.
    if Calibration.of(sequences, recipe.get("n_calibration", N_CALIBRATION), seed).digest != digest:
        raise InvalidInputError(
            "expected the training inputs that the witnesses were sampled with, got others: pass the same sequences in "
            "the same order"
        )
    return sequences


def is_reproducible(witnesses: WitnessSet) -> bool:
    """Return whether the recipe of witnesses draws them again, to the bit, without any data."""
    return witnesses.is_drawn and not family_kind(witnesses.provenance.recipe).needs_inputs
