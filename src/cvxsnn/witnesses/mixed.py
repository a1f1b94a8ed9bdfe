"""One layer of neurons of several kinds, so that the read-out can choose between them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from ..core.checks import Array, check_choice, check_positive_int
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator, child_seed
from ..data.sequences import Sequences
from .gaussian import Gaussian
from .settings import Check, Family, Normal, Uniform
from .tap_sampling import N_CALIBRATION, Calibration, LayerPlan, TapSampler, as_layer, as_sequences, has_variation
from .witness_set import WitnessSet

Mixture = Literal["all", "dilated", "scattered"]
MIXTURES: tuple[Mixture, ...] = get_args(Mixture)

STEPS_FOR_DELAYS = 9
"""Fewest steps of sequences for which dilated taps, nine of them, and families with delays are of use."""

FEATURES_FOR_BOXES = 4
"""Fewest features of which neighbouring ones are read together."""

_PARTS: Mapping[str, LayerPlan] = {
    "filter": LayerPlan(geometry="dilated", fan_in=9, weights="centred"),
    "slope": LayerPlan(geometry="dilated", fan_in=9, weights="two-valued", differenced=True),
    "leaky filter": LayerPlan(geometry="dilated", fan_in=9, weights="two-valued", decay=Uniform(0.5, 0.95)),
    "recent": LayerPlan(fan_in=9, weights="centred"),
    "box": LayerPlan(geometry="box", box=(10, 8), fan_in=None, weights="centred"),
    "few": LayerPlan(fan_in=4),
    "differences": LayerPlan(weights="differences"),
    "random": LayerPlan(),
    "many": LayerPlan(fan_in=100, weights="differences"),
    "leaky": LayerPlan(fan_in=9, max_delay=0, decay=Uniform(0.8, 1.0), threshold=Uniform(0.0, 1.0)),
    "sum": LayerPlan(fan_in=9, max_delay=0, decay=1.0),
}
"""The parts of mixtures; taps are scattered and weights Gaussian unless a part says otherwise."""

_CHECKS: Mapping[str, Check] = {
    "n_witnesses": check_positive_int,
    "mixture": lambda name, value: check_choice(name, value, MIXTURES),
    "n_calibration": check_positive_int,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Mixed(Family):
    """One layer of neurons of several families with delays, in equal shares.

    No single family suits all data: nearby values matter in one task, distant ones in another, slopes in a third. A
    mixture leaves the choice to the read-out. If the sequences do not vary, so that no firing levels can be taken from
    them, the neurons have no delays, random leaks and random biases.

    Parameters
    ----------
    dtype : torch.dtype
        Floating-point type of the membranes.
    device : torch.device or str, optional
        Device of the witnesses.
    n_witnesses : int
        Number of neurons.
    mixture : "all", "dilated" or "scattered"
        Neurons that read one input at regular delays, as filters do; neurons that read several inputs at random
        delays, or sum inputs over time; or all of these.
    n_calibration : int
        Number of training sequences, a seeded subset, from which firing levels and weights are taken.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import Mixed
    >>> Mixed(n_witnesses=100).sample(np.random.default_rng(0).normal(size=(50, 20, 3)))
    WitnessSet(sampled lif, 1 × (3→100))
    """

    name = "mixed"
    recognised_by = "mixture"
    checks = _CHECKS
    n_witnesses: int
    mixture: Mixture = "all"
    n_calibration: int = N_CALIBRATION

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses; :func:`cvxsnn.witnesses.regenerate` needs the same sequences to draw them again."""
        calibration = Calibration.of(as_sequences(inputs), self.n_calibration, check_seed(seed))
        n_steps, n_features, _ = calibration.values.shape
        if not has_variation(calibration.sequences):
            decay, bias = Uniform(0.5, 1.0), Normal(0.0, 0.5)
            plain = Gaussian(hidden=(self.n_witnesses,), decay=decay, bias=bias, dtype=self.dtype, device=self.device)
            return plain.sample(n_features, seed)
        check_fits(64 * self.n_witnesses, "cpu", "the neurons of a hidden layer", "use fewer of them")
        # If there are fewer neurons than parts, the first parts have one neuron each.
        plans = mixture_parts(self.mixture, n_steps, n_features)[: self.n_witnesses]
        share, rest = divmod(self.n_witnesses, len(plans))
        parts = []
        for number, plan in enumerate(plans):
            # A seed for each part: its neurons depend on no other part.
            generator = partial(child_generator, child_seed(seed, "mixed", number), "delayed", 1)
            sampler = TapSampler(plan, (1, share + (number < rest)), calibration, generator)
            parts.append(sampler.draw(self.dtype))
        layer = as_layer("lif", parts, 1, n_features, self.dtype)
        return WitnessSet((layer.to(self.device),), calibration.provenance(self, seed))


def mixture_parts(mixture: Mixture, n_steps: int, n_features: int) -> list[LayerPlan]:
    """Return the parts of a mixture, for sequences of a shape.

    Parameters
    ----------
    mixture : "all", "dilated" or "scattered"
        The mixture.
    n_steps : int
        Number of steps of the longest sequence. Short sequences have no use for dilated taps.
    n_features : int
        Number of inputs per step. With four or more, neurons may read neighbouring ones.

    Returns
    -------
    list of LayerPlan
        The settings of each part.
    """
    has_several = n_features >= FEATURES_FOR_BOXES
    nearby = ["recent", "box"] if has_several else ["recent"]
    if n_steps * n_features == 1:
        names = ["few"]
    elif n_steps == 1:
        names = ["few", "recent", "differences", "random", "many"]
    elif n_steps < STEPS_FOR_DELAYS:
        names = ["few", *nearby, "differences", "random", "many", "leaky", "sum"]
    elif mixture == "dilated":
        names = ["filter", "slope", "leaky filter"]
    elif mixture == "scattered":
        names = ["few", "differences", "random", "many", "leaky", "sum"]
    else:
        names = ["filter", "slope", "leaky filter", *nearby, "differences", "random", "leaky"]
    recent = replace(_PARTS["recent"], max_delay=min(7 if has_several else 15, n_steps - 1))
    return [recent if name == "recent" else _PARTS[name] for name in names]


def mixtures_for(n_steps: int, n_features: int) -> tuple[Mixture, ...]:
    """Return the mixtures that differ for sequences of a shape, the default first.

    Parameters
    ----------
    n_steps : int
        Number of steps of the longest sequence.
    n_features : int
        Number of inputs per step. With four or more, "all" is as accurate as "scattered".

    Returns
    -------
    tuple of str
        Some of "all", "dilated" and "scattered".
    """
    if n_steps < STEPS_FOR_DELAYS:
        return ("all",)
    return ("all", "dilated") if n_features >= FEATURES_FOR_BOXES else MIXTURES


def mixed_witnesses(
    inputs: Sequences | Array, n_witnesses: int, mixture: Mixture = "all", *, seed: int = 0, **settings: Any
) -> WitnessSet:
    """Sample one layer of neurons with delays from several families.

    Parameters
    ----------
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        Training sequences. Firing levels and some weights are taken from a seeded subset of them.
    n_witnesses : int
        Number of neurons.
    mixture : "all", "dilated" or "scattered"
        The families, each with an equal share of the neurons.
    seed : int
        Seed of all draws.
    **settings : object
        Further settings of :class:`Mixed`: ``n_calibration``, ``dtype`` and ``device``.

    Returns
    -------
    WitnessSet
        One layer, family by family.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import mixed_witnesses
    >>> mixed_witnesses(np.random.default_rng(0).normal(size=(50, 20, 3)), 100)
    WitnessSet(sampled lif, 1 × (3→100))
    """
    return Mixed(n_witnesses=n_witnesses, mixture=mixture, **settings).sample(inputs, seed)
