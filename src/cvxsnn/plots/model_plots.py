"""Plots of spikes, membranes, receptive fields, read-outs, gaps and dictionaries.

Every function draws on matplotlib axes, new ones if none are given, and returns them. A fitted estimator can be passed
instead of a network; its sequences are then as for its ``predict``.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from torch import Tensor

from ..convex import RegularizationPath, Solution
from ..core.checks import Array, as_tensor
from ..core.errors import InvalidInputError
from ..core.formatting import plural, round_up
from ..dictionary import DictionaryHealth
from ..dictionary.base import parse_readout
from ..estimators import SpikingClassifier, SpikingRegressor
from ..estimators.pipelines import as_the_network_reads, network_of
from ..network.spiking_network import SpikingNetwork
from ..network.tracing import trace
from ..neurons import NEURON_MODELS, HiddenLayer, roll_out

Estimator = SpikingClassifier | SpikingRegressor

_MAX_NEURONS = 80
_N_MEMBRANES = 3
_N_IMAGES = 8


def plot_raster(
    spikes: SpikingNetwork | Estimator | Array, sequence: Array | None = None, axes: Axes | None = None
) -> Axes:
    """Plot spikes over time.

    Parameters
    ----------
    spikes : SpikingNetwork, fitted estimator, or 0/1 array of shape (n_steps, n_neurons)
        For a network, the up to 80 neurons with the largest output weights are drawn, the largest on top.
    sequence : array of shape (n_steps, n_features), optional
        The input of the network; not for an array of spikes.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_raster
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_raster(network, inputs[0])
    >>> plt.close(axes.figure)
    """
    if not isinstance(spikes, (np.ndarray, Tensor)):
        if sequence is None:
            raise InvalidInputError("expected a sequence (n_steps, n_features) for the network to read, got none")
        network, inputs = _prepare(spikes, sequence)
        drawn = roll_out(network.layers, inputs, "all")[0, :, _strongest(network, _MAX_NEURONS)]
        title, label = "Spikes of the neurons that are read", "neuron, strongest first"
    else:
        drawn = torch.as_tensor(spikes)
        if drawn.ndim != 2 or sequence is not None:
            raise InvalidInputError(
                f"expected a network and a sequence, or spikes of shape (n_steps, n_neurons) alone, got an array of "
                f"shape {tuple(drawn.shape)}"
            )
        title, label = "Spikes", "neuron"
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    n_steps, n_neurons = drawn.shape
    steps, neurons = torch.nonzero(drawn.cpu(), as_tuple=True)
    axes.scatter(steps.numpy() + 1, neurons.numpy() + 1, marker="|", s=2500 / max(n_neurons, 20), color="black")
    # The axis points down, so that the strongest neuron is on top.
    axes.set(xlim=(0.5, n_steps + 0.5), ylim=(n_neurons + 1, 0), xlabel="step", ylabel=label, title=title)
    axes.locator_params(integer=True)
    return axes


def plot_membranes(
    network: SpikingNetwork | Estimator,
    sequence: Array,
    neurons: Sequence[int] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Plot membranes of LIF neurons of the last hidden layer over time, with a mark for each spike.

    They are centred at the threshold: a neuron fires if its membrane is at zero or above, and is reset in the next
    step.

    Parameters
    ----------
    network : SpikingNetwork or fitted estimator
        The model.
    sequence : array of shape (n_steps, n_features)
        The input of the network.
    neurons : sequence of int, optional
        Numbers ``subnetwork * width + neuron``; by default the three that are read with the largest weights.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_membranes
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_membranes(network, inputs[0])
    >>> plt.close(axes.figure)
    """
    model, inputs = _prepare(network, sequence)
    traced = trace(model, inputs)
    if traced.membranes is None:
        name = NEURON_MODELS.of(model.layers[-1]).name
        raise InvalidInputError(f"expected neurons that keep a membrane, got {name} neurons, which have none")
    membranes, spikes = traced.membranes[0], traced.spikes[0]
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    steps = range(1, len(membranes) + 1)
    axes.axhline(0, color="black", linestyle="--", linewidth=1, label="fires at 0")
    for neuron in _strongest(model, _N_MEMBRANES).tolist() if neurons is None else neurons:
        (line,) = axes.plot(steps, membranes[:, neuron], linewidth=1.5, label=f"neuron {neuron}")
        fired = torch.nonzero(spikes[:, neuron]).squeeze(1)
        axes.plot(fired + 1, membranes[fired, neuron], "o", color=line.get_color())
    axes.set(xlabel="step", ylabel="membrane", title="Membranes (dot: spike)")
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return axes


def plot_receptive_field(
    network: SpikingNetwork | Estimator,
    neuron: int,
    feature_shape: tuple[int, int] | None = None,
    layer: int = 1,
    axes: Axes | None = None,
) -> Axes:
    """Plot the weights of one neuron as a heat map over delay and feature.

    Weights are those of the network: an estimator standardises its inputs first.

    Parameters
    ----------
    network : SpikingNetwork or fitted estimator
        The model.
    neuron : int
        Number ``subnetwork * width + neuron`` in its layer.
    feature_shape : tuple of int, optional
        Height and width, if the features of a step are an image. Images are then drawn side by side, one for each delay
        or, with more than 8 delays, one for each group of delays, with the sum of their weights.
    layer : int
        Number of the hidden layer, from 1. Above the first, the features are the neurons below.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_receptive_field
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_receptive_field(network, 0)
    >>> plt.close(axes.figure)
    """
    layers = network_of(network).layers
    if not 1 <= layer <= len(layers):
        raise InvalidInputError(f"expected a hidden layer from 1 to {len(layers)}, got {layer!r}")
    chosen = layers[layer - 1]
    n_neurons = chosen.n_subnetworks * chosen.width
    if not 0 <= neuron < n_neurons:
        raise InvalidInputError(f"expected a neuron from 0 to {n_neurons - 1} of layer {layer}, got {neuron!r}")
    if feature_shape is not None and math.prod(feature_shape) != chosen.n_inputs:
        raise InvalidInputError(
            f"expected a feature_shape of {plural(chosen.n_inputs, 'feature')} in all, such as (1, "
            f"{chosen.n_inputs}), got {feature_shape!r}"
        )
    field = receptive_field(chosen, neuron).numpy()
    axes = axes or plt.subplots(figsize=(7, 3.4), layout="constrained")[1]
    if feature_shape is None:
        _heat_map(axes, field, "weight", "auto")
        axes.set(xlabel="feature" if layer == 1 else "neuron below", ylabel="delay in steps")
        axes.locator_params(integer=True)
    else:
        height, width = feature_shape
        groups = np.array_split(np.arange(len(field)), min(len(field), _N_IMAGES))
        shown = np.full((height, len(groups) * (width + 1) - 1), np.nan)  # a column between images stays empty
        for number, delays in enumerate(groups):
            shown[:, number * (width + 1) :][:, :width] = field[delays].sum(0).reshape(height, width)
        _heat_map(axes, shown, "weight", "equal")
        names = [str(delays[0]) if len(delays) == 1 else f"{delays[0]}–{delays[-1]}" for delays in groups]
        axes.set_xticks([number * (width + 1) + (width - 1) / 2 for number in range(len(groups))], names)
        axes.set(xlabel="delay in steps", yticks=[])
    axes.set_title(f"Receptive field of neuron {neuron} of layer {layer}")
    return axes


def plot_readout(readout: SpikingNetwork | Estimator | Solution, axes: Axes | None = None) -> Axes:
    """Plot the output weights that are not zero: sorted stems for one output, a heat map for several.

    Parameters
    ----------
    readout : SpikingNetwork, fitted estimator, or Solution
        The columns of the heat map are the neurons, or atoms, in the support, grouped by the output for which their
        weight is largest.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_readout
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_readout(network)
    >>> plt.close(axes.figure)
    """
    if isinstance(readout, Solution):
        weight, columns = readout.coef, "atoms"
    else:
        network = network_of(readout)
        weight = network.weight
        columns = f"{parse_readout(network.readout).columns_are} read"
    weight, total = weight.detach().cpu(), len(weight)
    weight = weight[weight.any(1)]
    n_used, n_outputs = weight.shape
    axes = axes or plt.subplots(figsize=(7, 4 if n_outputs == 1 else 3), layout="constrained")[1]
    if n_outputs == 1:
        values = weight[:, 0].sort(descending=True).values
        axes.vlines(range(1, n_used + 1), 0, values, color=["C0" if value > 0 else "C3" for value in values])
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(xlabel=f"{columns}, by weight", ylabel="output weight")
    else:
        largest = weight.abs().argmax(1, keepdim=True)
        # The last key counts most: by output first, then by weight.
        order = np.lexsort((-weight.gather(1, largest).squeeze(1), largest.squeeze(1)))
        shown = weight[order] if n_used else weight.new_zeros(1, n_outputs)  # a map must have a column
        _heat_map(axes, shown.T.numpy(), "output weight", "auto")
        axes.set(xlabel=f"{columns}, by output", ylabel="output", yticks=range(n_outputs))
    axes.locator_params(axis="x", integer=True)
    axes.set_title(f"Read-out: {n_used} of {total} {columns}")
    return axes


def plot_path(path: RegularizationPath, axes: Axes | None = None) -> Axes:
    """Plot loss and number of atoms against the strength; the title has the largest certified gap.

    The number of atoms has its own axis on the right. There is one curve for each ``l2_strength``, paler for smaller
    ones. A strength of zero is left out, since the axis is logarithmic.

    Parameters
    ----------
    path : RegularizationPath
        Solutions of all strengths.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_path
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_path(cs.solve_path(solution.problem, n_strengths=5))
    >>> plt.close(axes.figure)
    """
    if not isinstance(path, RegularizationPath):
        raise InvalidInputError(f"expected path to be a RegularizationPath, got {type(path).__name__}")
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    right = axes.twinx()
    axes.set_xscale("log")
    l2_strengths = sorted({solution.problem.l2_strength for solution in path}, reverse=True)
    for number, l2_strength in enumerate(l2_strengths):
        shown = [at for at in path if at.problem.l2_strength == l2_strength and at.problem.l1_strength > 0]
        strengths = [solution.problem.l1_strength for solution in shown]
        losses = [float(solution.problem.loss_value(solution.scores())) for solution in shown]
        alpha = 1 - 0.8 * number / len(l2_strengths)
        axes.plot(strengths, losses, ".-", color="C0", alpha=alpha)
        right.plot(strengths, [len(solution.support) for solution in shown], ".-", color="C1", alpha=alpha)
    right.locator_params(axis="y", integer=True)
    right.set_ylabel("atoms used", color="C1")
    axes.set_ylabel("training loss", color="C0")
    worst = max(solution.certificate.relative_gap for solution in path)
    axes.set(
        xlabel="strength", title=f"Path of {len(path)} strengths, relative gaps of at most {round_up(worst, 1):.0e}"
    )
    return axes


def plot_gaps(solutions: Mapping[str, Solution], axes: Axes | None = None) -> Axes:
    """Plot the solver's relative gap against its iterations, and the certificate at the end.

    Parameters
    ----------
    solutions : mapping of str to Solution
        Solutions by the names of their curves.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_gaps
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_gaps({"squared": solution})
    >>> plt.close(axes.figure)
    """
    _check(solutions, Solution, "solutions")
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    for name, solution in solutions.items():
        gaps = [moment.relative_gap for moment in solution.history if moment.relative_gap > 0]
        (line,) = axes.semilogy(range(1, len(gaps) + 1), gaps, ".-", label=name)
        # A logarithmic axis has no zero.
        axes.plot(len(gaps), max(solution.certificate.relative_gap, 1e-17), "o", color=line.get_color())
    axes.locator_params(axis="x", integer=True)
    axes.set(xlabel="iteration", ylabel="relative gap", title="Gap against iterations (dot: certificate)")
    axes.legend(fontsize="small")
    return axes


def plot_health(dictionaries: Mapping[str, DictionaryHealth], axes: Axes | None = None) -> Axes:
    """Plot shares of distinct, duplicate, saturated and dead columns.

    Parameters
    ----------
    dictionaries : mapping of str to DictionaryHealth
        Results of ``dictionary.health()`` by the names of their bars.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_health
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> axes = plot_health({"sampled": dictionary.health()})
    >>> plt.close(axes.figure)
    """
    _check(dictionaries, DictionaryHealth, "dictionaries")
    axes = axes or plt.subplots(figsize=(7, 3.4), layout="constrained")[1]
    starts = [0.0] * len(dictionaries)
    for label, colour in (("distinct", "C0"), ("other duplicates", "C1"), ("saturated", "C2"), ("dead", "C7")):
        widths = [health.shares[label] for health in dictionaries.values()]
        axes.barh(list(dictionaries), widths, left=starts, color=colour, label=label)
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    # Bars start at the bottom, but the first name belongs on top.
    axes.invert_yaxis()
    axes.set(xlabel="share of witnesses", title="Dictionary health")
    axes.figure.legend(fontsize="small", ncols=4, loc="outside lower center")
    return axes


def _strongest(network: SpikingNetwork, count: int) -> Tensor:
    """Return the neurons that are read with the largest output weights, each once, however often it is read."""
    order = torch.argsort(network.weight.detach().abs().amax(1), descending=True)
    return torch.tensor(list(dict.fromkeys(network.neurons[order].tolist()))[:count], device=network.neurons.device)


def receptive_field(layer: HiddenLayer, neuron: int) -> Tensor:
    """Return the weights of a neuron by delay and input, of shape (max_delay + 1, n_inputs)."""
    subnetwork, index = divmod(neuron, layer.width)
    field = torch.zeros(layer.max_delay + 1, layer.n_inputs, dtype=torch.float64)
    weight = layer.weight[subnetwork, :, index].double().cpu()
    if not layer.has_delays:
        field[0] = weight
        return field
    delay, source = (taps[subnetwork, :, index].long().cpu() for taps in (layer.delay, layer.source))
    # Taps of weight zero may have any delay, also one beyond the longest. Several taps may read the same value.
    return field.index_put((delay * (weight != 0), source), weight, accumulate=True)


def _prepare(model: SpikingNetwork | Estimator, sequence: Array) -> tuple[SpikingNetwork, Tensor]:
    """Return a model's network, and a sequence as a batch that it reads."""
    network = network_of(model)
    inputs = as_tensor("sequence", as_the_network_reads(model, sequence))
    if inputs.ndim != 2 or inputs.shape[1] != network.n_features:
        raise InvalidInputError(
            f"expected one sequence of shape (n_steps, {network.n_features}), got shape {tuple(inputs.shape)}"
        )
    return network, inputs[None].to(network.weight.device)


def _check(values: object, kind: type, name: str) -> None:
    """Refuse anything but a mapping of names to values of one type."""
    for value in values.values() if isinstance(values, Mapping) else [values]:
        if value is values or not isinstance(value, kind):
            raise InvalidInputError(
                f"expected {name} to map names to values of type {kind.__name__}, got {type(value).__name__}"
            )


def _heat_map(axes: Axes, values: npt.NDArray[np.floating], label: str, aspect: Literal["auto", "equal"]) -> None:
    """Draw a matrix of signed values, zero in white."""
    # Symmetric limits put zero in the middle of the colours.
    limit = float(np.nanmax(np.abs(values))) or 1.0
    image = axes.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, interpolation="none", aspect=aspect)
    axes.figure.colorbar(image, ax=axes, label=label)
