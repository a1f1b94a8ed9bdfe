"""Plots of how spikes cut the parameter space of neurons with two parameters."""

import math
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Wedge

from ..core.checks import Array
from ..core.errors import InvalidInputError
from .cones import Cone
from .enumeration import split_parameters
from .lif_family import LIFFamily


def plot_cones(family: LIFFamily, inputs: Array, axes: Axes | None = None) -> Axes:
    """Draw the cones of (weight, threshold) in which the spikes of a neuron with one input feature are constant.

    Each cone is labelled with its spikes: a row per sample with one 0 or 1 per step. Patterns that only ties produce
    are the bold rays between cones.

    Parameters
    ----------
    family : LIFFamily
        The neurons, without bias.
    inputs : array of shape (n_samples, n_steps, 1)
        The sequences.
    axes : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
        The axes with the drawing.
    """
    frontier, spikes = split_parameters(family, inputs)
    events = family.on(inputs)
    if events.dimension != 2:
        raise InvalidInputError(
            f"expected neurons with two parameters, got {events.dimension}: one feature and no bias"
        )
    axes = axes or plt.subplots(figsize=(7, 5), layout="constrained")[1]
    colours = plt.get_cmap("tab20")
    scale = np.array([1.0, events.unit])
    for number in range(len(frontier)):
        label = "\n".join("".join(str(int(fired)) for fired in train) for train in spikes[number])
        cone = frontier.cone(number)
        angles = sorted(math.atan2(*(np.array(ray, dtype=float) * scale)[::-1]) for ray in _rays(cone))
        if len(cone.rays) + len(cone.lines) < 2:
            for angle in angles:
                axes.plot([0, math.cos(angle)], [0, math.sin(angle)], color="black", lw=2)
            continue
        first, last = _sector(angles)
        axes.add_patch(
            Wedge((0, 0), 1, math.degrees(first), math.degrees(last), color=colours(number % 20), alpha=0.55, lw=0)
        )
        middle = 0.5 * (first + last)
        radius = 0.8 if last - first > 0.12 else 1.06
        axes.text(radius * math.cos(middle), radius * math.sin(middle), label, ha="center", va="center", fontsize=8)
        for angle in angles:
            axes.plot([0, math.cos(angle)], [0, math.sin(angle)], color="white", lw=0.8)
    lowest = -1.15 if family.negative_threshold else -0.05
    axes.set(xlim=(-1.15, 1.15), ylim=(lowest, 1.15), xlabel="input weight", ylabel="threshold", aspect="equal")
    axes.set_title("Parameters of a LIF neuron, cut by its spikes")
    return axes


def _rays(cone: Cone) -> list[tuple[int, ...]]:
    return [*cone.rays, *cone.lines, *(tuple(-x for x in line) for line in cone.lines)]


def _sector(angles: list[float]) -> tuple[float, float]:
    """Return where a cone with generators at these angles starts and ends: it is the complement of the widest gap."""
    gaps = [after - before for before, after in pairwise([*angles, angles[0] + 2 * math.pi])]
    widest = max(range(len(gaps)), key=gaps.__getitem__)
    first = angles[(widest + 1) % len(angles)]
    is_whole_plane = gaps[widest] < math.pi - 1e-9
    return first, first + 2 * math.pi - (0 if is_whole_plane else gaps[widest])
