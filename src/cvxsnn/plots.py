"""Pictures of spikes, gaps and dictionaries. Every function draws on matplotlib axes and returns them."""

from collections.abc import Mapping

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .checks import Array
from .convex import Solution
from .dictionary import DictionaryHealth
from .network import SpikingNetwork
from .neurons import roll_out

_MAX_NEURONS = 80


def plot_raster(network: SpikingNetwork, sequence: Array, axes: Axes | None = None) -> Axes:
    """Spikes over time of the neurons that are read, for one sequence (n_steps, n_features); strongest on top."""
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    spikes = roll_out(network.layers, sequence[None], "all")[0][:, network.neurons.cpu()]
    strength = network.weight.detach().abs().amax(1).cpu()
    order = torch.argsort(strength, descending=True)[:_MAX_NEURONS]
    steps, neurons = torch.nonzero(spikes[:, order].cpu(), as_tuple=True)
    axes.scatter(steps.numpy() + 1, neurons.numpy() + 1, marker="|", s=2500 / max(len(order), 20), color="black")
    axes.set(
        xlim=(0.5, len(spikes) + 0.5),
        ylim=(len(order) + 1, 0),
        xlabel="step",
        ylabel="neuron, strongest first",
        title="Spikes of the neurons that are read",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return axes


def plot_gaps(solutions: Mapping[str, Solution], axes: Axes | None = None) -> Axes:
    """The solver's relative gap against its iterations, and the certificate at the end."""
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    for name, solution in solutions.items():
        gaps = [moment.relative_gap for moment in solution.history if moment.relative_gap > 0]
        (line,) = axes.semilogy(range(1, len(gaps) + 1), gaps, ".-", label=name)
        axes.plot(len(gaps), max(solution.certificate.relative_gap, 1e-17), "o", color=line.get_color())
    axes.set(xlabel="iteration", ylabel="relative gap", title="Gap against iterations (dot: certificate)")
    axes.legend(fontsize="small")
    return axes


def plot_health(dictionaries: Mapping[str, DictionaryHealth], axes: Axes | None = None) -> Axes:
    """Shares of distinct, duplicate, saturated and dead columns."""
    axes = axes or plt.subplots(figsize=(7, 3.4), layout="constrained")[1]
    left = [0.0] * len(dictionaries)
    for label, colour in (("distinct", "C0"), ("other duplicates", "C1"), ("saturated", "C2"), ("dead", "C7")):
        widths = [_shares(health)[label] for health in dictionaries.values()]
        axes.barh(list(dictionaries), widths, left=left, color=colour, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set(xlabel="share of witnesses", title="Dictionary health")
    axes.figure.legend(fontsize="small", ncols=4, loc="outside lower center")
    return axes


def _shares(health: DictionaryHealth) -> dict[str, float]:
    # A dead or saturated column is a duplicate of the first of its kind: count it under one name only.
    constant = health.n_dead + health.n_saturated
    distinct = health.n_atoms - (health.n_dead > 0) - (health.n_saturated > 0)
    counts = {
        "distinct": distinct,
        "other duplicates": health.n_witnesses - constant - distinct,
        "saturated": health.n_saturated,
        "dead": health.n_dead,
    }
    return {label: count / health.n_witnesses for label, count in counts.items()}
