"""Mixtures of families with delays, for when the user names no family.

No single family suits all data: nearby values matter in one task, far ones in another, slopes in a third. A mixture
samples equally many neurons of several families, and leaves the choice to the read-out.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch

from ..core.checks import Array, check_choice, check_positive_int
from ..core.seeds import check_seed, child_seed
from ..data.sequences import Sequences
from .delayed import N_CALIBRATION, calibration_subset, delayed_witnesses, fingerprint, has_variation
from .joining import join_witnesses
from .sampling import Normal, Uniform, gaussian_witnesses
from .witness_set import Provenance, WitnessSet

Mixture = Literal["all", "dilated", "scattered"]

MIXTURES: tuple[Mixture, ...] = ("all", "dilated", "scattered")

STEPS_FOR_DILATION = 9
"""Steps from which neurons with dilated taps, of which they have nine, differ from others."""

SEVERAL_FEATURES = 4
"""Inputs per step from which neurons may read neighbouring ones."""

_RECENT_STEPS = (15, 7)
"""Longest delay in steps of neurons that read the recent past; and where they choose among several inputs."""

_DILATED: tuple[Mapping[str, Any], ...] = (
    {"geometry": "dilated", "fan_in": 9, "weights": "centred"},
    {"geometry": "dilated", "fan_in": 9, "weights": "two-valued", "differenced": True},
    {"geometry": "dilated", "fan_in": 9, "weights": "two-valued", "decay": Uniform(0.5, 0.95)},
)
_RECENT: Mapping[str, Any] = {"geometry": "scattered", "fan_in": 9, "weights": "centred"}
_BOX: Mapping[str, Any] = {"geometry": "box", "box": (10, 8), "fan_in": None, "weights": "centred"}
_SCATTERED: tuple[Mapping[str, Any], ...] = (
    {"geometry": "scattered", "fan_in": 25, "weights": "differences"},
    {"geometry": "scattered", "fan_in": 25, "weights": "gaussian"},
)
_NOW: Mapping[str, Any] = {"geometry": "scattered", "fan_in": 9, "weights": "gaussian", "max_delay": 0}
_LEAKY: Mapping[str, Any] = {**_NOW, "decay": Uniform(0.8, 1.0), "threshold": Uniform(0.0, 1.0)}
_SUMMING: Mapping[str, Any] = {**_NOW, "decay": 1.0}
_FEW: Mapping[str, Any] = {"geometry": "scattered", "fan_in": 4, "weights": "gaussian"}
_MANY: Mapping[str, Any] = {"geometry": "scattered", "fan_in": 100, "weights": "differences"}


def mixture_families(mixture: Mixture, n_steps: int, n_features: int) -> list[Mapping[str, Any]]:
    """Return the families of a mixture.

    Parameters
    ----------
    mixture : "all", "dilated" or "scattered"
        Neurons that read one input at regular delays, as filters do; neurons that read several inputs at random
        delays, or sum inputs over time; or all of these.
    n_steps : int
        Number of steps of the longest sequence. Short sequences have no use for dilated taps.
    n_features : int
        Number of inputs per step.

    Returns
    -------
    list of mapping
        Arguments of :func:`cvxsnn.delayed_witnesses`.
    """
    check_choice("mixture", mixture, MIXTURES)
    has_several = n_features >= SEVERAL_FEATURES
    recent = {**_RECENT, "max_delay": min(_RECENT_STEPS[has_several], n_steps - 1)}
    nearby = [recent, _BOX] if has_several else [recent]
    if n_steps * n_features == 1:
        return [_FEW]
    if n_steps == 1:
        return [_FEW, recent, *_SCATTERED, _MANY]
    if n_steps < STEPS_FOR_DILATION:
        return [_FEW, *nearby, *_SCATTERED, _MANY, _LEAKY, _SUMMING]
    if mixture == "dilated":
        return [*_DILATED]
    if mixture == "scattered":
        return [_FEW, *_SCATTERED, _MANY, _LEAKY, _SUMMING]
    return [*_DILATED, *nearby, *_SCATTERED, _LEAKY]


def mixtures_for(n_steps: int, n_features: int) -> tuple[Mixture, ...]:
    """Return the mixtures that differ for sequences of a shape, the default first.

    Parameters
    ----------
    n_steps : int
        Number of steps of the longest sequence.
    n_features : int
        Number of inputs per step. With several, all families together are as good as those with scattered taps alone.

    Returns
    -------
    tuple of str
        Some of "all", "dilated" and "scattered".
    """
    if n_steps < STEPS_FOR_DILATION:
        return ("all",)
    return ("all", "dilated") if n_features >= SEVERAL_FEATURES else MIXTURES


def mixed_witnesses(
    inputs: Sequences | Array,
    n_witnesses: int,
    mixture: Mixture = "all",
    *,
    n_calibration: int = N_CALIBRATION,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> WitnessSet:
    """Sample one layer of neurons with delays from several families.

    Parameters
    ----------
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        Training sequences. Thresholds and some weights are taken from a seeded subset of them.
    n_witnesses : int
        Number of neurons.
    mixture : "all", "dilated" or "scattered"
        The families, of which each gets an equal share of the neurons.
    n_calibration : int
        Number of sequences in the subset.
    seed : int
        The seed of all draws.
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Where to put the witnesses.

    Returns
    -------
    WitnessSet
        One layer, family by family. If the sequences do not vary, so that no thresholds can be taken from them, the
        neurons have no delays, random leaks and random biases.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import mixed_witnesses
    >>> mixed_witnesses(np.random.default_rng(0).normal(size=(50, 20, 3)), 100)
    WitnessSet(sampled lif, 1 × (3→100))
    """
    sequences, seed = Sequences.of(inputs), check_seed(seed)
    check_positive_int("n_witnesses", n_witnesses)
    chosen = calibration_subset(sequences, n_calibration, seed)
    if not has_variation(chosen):
        dynamics: dict[str, Any] = {"decay": Uniform(0.5, 1.0), "bias": Normal(0.0, 0.5)}
        return gaussian_witnesses(
            sequences.n_features, (n_witnesses,), seed=seed, dtype=dtype, device=device, **dynamics
        )
    families = mixture_families(mixture, sequences.n_steps, sequences.n_features)[:n_witnesses]
    share, rest = divmod(n_witnesses, len(families))
    parts = [
        delayed_witnesses(
            chosen, (1,), share + (number < rest), n_calibration=n_calibration, seed=child_seed(seed, "mixed", number),
            dtype=dtype, **family,
        )
        for number, family in enumerate(families)
    ]  # fmt: skip
    (layer,) = join_witnesses(parts).layers
    # From subnetworks of one neuron each to neurons of one subnetwork.
    tensors = {name: value.movedim(0, -1)[None, ..., 0, :] for name, value in layer.tensors().items()}
    recipe = {
        "sampler": "mixed",
        "n_witnesses": n_witnesses,
        "mixture": mixture,
        "n_calibration": n_calibration,
        "seed": seed,
        "dtype": str(dtype).removeprefix("torch."),
        "inputs": fingerprint(chosen),
    }
    one = layer.with_tensors({name: value.contiguous() for name, value in tensors.items()})
    return WitnessSet((one.to(device),), Provenance("sampled", recipe))
