"""Counts of the operations of a network on data: synaptic operations, membrane updates, and their energy."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.formatting import align, plural
from ..data.sequences import Sequences
from ..dictionary.base import parse_readout
from ..neurons import NEURON_MODELS, HiddenLayer, LateralLayer
from ..neurons.exact import snap_inputs
from ..neurons.layer import check_stack
from ..neurons.rollout import count_spikes, iterate_rollout
from .spiking_network import SpikingNetwork, check_network
from .summary import connected_neurons


@dataclass(frozen=True)
class Joules:
    """Energy of one operation, in joules.

    The defaults are the figures that the literature on spiking networks uses: 32-bit floating-point arithmetic in
    45 nm CMOS at 0.9 V (M. Horowitz, "Computing's energy problem", ISSCC 2014). They leave out memory, which on most
    hardware costs more than the arithmetic.

    Parameters
    ----------
    accumulate : float
        Adding a weight for a spike.
    multiply_accumulate : float
        Adding a weight times a number.
    membrane_update : float
        Leaking a membrane by its decay and adding the drive; a multiply-accumulate.

    Examples
    --------
    >>> from cvxsnn.network import Joules
    >>> Joules().accumulate < Joules().multiply_accumulate
    True
    """

    accumulate: float = 0.9e-12
    multiply_accumulate: float = 4.6e-12
    membrane_update: float = 4.6e-12


CMOS_45NM = Joules()


@dataclass(frozen=True)
class LayerOperations:
    """Operations of one layer on all sequences together.

    Parameters
    ----------
    name : str
        The name of the layer.
    n_neurons : int
        Connected neurons (:func:`cvxsnn.network.summary.connected_neurons`), or outputs of the read-out.
    n_spikes : int
        Spikes that it fired.
    n_accumulates : int
        Additions of a weight for a spike: one for each spike and non-zero weight that reads it. A delayed spike counts
        if it arrives before the sequence ends.
    n_multiply_accumulates : int
        The same for inputs that are numbers; zeros cost nothing.
    n_membrane_updates : int
        One per neuron and step, for neuron models that keep a membrane.
    n_dense : int
        Multiply-accumulates of a dense layer of non-spiking neurons of the same size; with delays, of as many taps.
    """

    name: str
    n_neurons: int
    n_spikes: int = 0
    n_accumulates: int = 0
    n_multiply_accumulates: int = 0
    n_membrane_updates: int = 0
    n_dense: int = 0

    @property
    def n_synaptic(self) -> int:
        """Synaptic operations, of spikes and numbers."""
        return self.n_accumulates + self.n_multiply_accumulates

    def energies(self, joules: Joules = CMOS_45NM) -> tuple[float, float]:
        """Return the energy of all sequences together, and that of a layer of the same shape that does not spike.

        Parameters
        ----------
        joules : Joules
            Energy of one operation.

        Returns
        -------
        tuple of two floats
            Joules.
        """
        counts = (self.n_accumulates, self.n_multiply_accumulates, self.n_membrane_updates)
        spiking = sum(count * energy for count, energy in zip(counts, astuple(joules), strict=True))
        return spiking, self.n_dense * joules.multiply_accumulate


@dataclass(frozen=True)
class Operations:
    """Operations of a network on some sequences.

    Parameters
    ----------
    layers : tuple of LayerOperations
        Operations of each layer, from the inputs up, the read-out last.
    n_samples : int
        Number of sequences.
    n_steps : int
        Steps of all of them together, without padding.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> operations = cs.network.count_operations(network, inputs)
    >>> operations.n_samples, operations.synaptic_per_sample > 0
    (40, True)
    """

    layers: tuple[LayerOperations, ...]
    n_samples: int
    n_steps: int

    @property
    def total(self) -> LayerOperations:
        """All layers together."""
        _, *counts = zip(*map(astuple, self.layers), strict=True)
        return LayerOperations("all", *map(sum, counts))

    @property
    def synaptic_per_sample(self) -> float:
        """Synaptic operations per sequence, on average."""
        return self.total.n_synaptic / self.n_samples

    @property
    def synaptic_per_step(self) -> float:
        """Synaptic operations per step, on average."""
        return self.total.n_synaptic / self.n_steps

    def energy(self, joules: Joules = CMOS_45NM) -> float:
        """Return the energy per sequence, on average.

        Parameters
        ----------
        joules : Joules
            Energy of one operation.

        Returns
        -------
        float
            Joules.
        """
        return self.total.energies(joules)[0] / self.n_samples

    def dense_energy(self, joules: Joules = CMOS_45NM) -> float:
        """Return the energy per sequence of a network of the same shape that does not spike.

        Parameters
        ----------
        joules : Joules
            Energy of one operation.

        Returns
        -------
        float
            Joules.
        """
        return self.total.energies(joules)[1] / self.n_samples

    def __str__(self) -> str:
        """Return a table with the operations and the energy of each layer per sequence, and a sentence on the total."""
        header = ("per sample", "neurons", "spikes", "AC", "MAC", "updates", "energy", "dense MAC", "dense energy")
        rows = []
        for layer in (*self.layers, self.total):
            name, n_neurons, *counts = astuple(layer)
            spiking, dense = (f"{1e9 * joules / self.n_samples:,.3f} nJ" for joules in layer.energies())
            *shown, shown_dense = (f"{count / self.n_samples:,.1f}" for count in counts)
            rows.append((name, str(n_neurons), *shown, spiking, shown_dense, dense))
        sums = f"{self.synaptic_per_sample:,.1f} synaptic operations per sample, {self.synaptic_per_step:,.1f} per step"
        n_steps = self.n_steps / self.n_samples
        sizes = f"({plural(self.n_samples, 'sample')}, {n_steps:.4g} {'step' if n_steps == 1 else 'steps'} each)"
        return f"{align(header, rows)}\n{sums} {sizes}"


def count_operations(network: SpikingNetwork, inputs: Sequences | Array) -> Operations:
    """Count the operations of a network on sequences, event by event.

    A spike costs an addition for each non-zero weight that leads on from its neuron. Inputs cost the same if they are
    all 0 or 1, and multiply-accumulates if they are other numbers. A synapse with a delay adds its weight when the
    spike arrives; a spike that would arrive after the last step of its sequence costs nothing there. The read-out adds
    weights for the spikes that it reads: those of the last step, or of every step for "all", "mean" and windows.
    Statistics are numbers: each of their weights costs a multiply-accumulate at the end of a sequence. Making the views
    that lateral neurons read costs nothing; reading one that is not zero does. The counts include neurons that nothing
    reads; a compact reconstruction has none.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    inputs : Sequences, or an array of shape (n_samples, n_steps, n_features)
        The sequences; padding costs nothing.

    Returns
    -------
    Operations
        The counts of every layer.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> operations = cs.network.count_operations(network, inputs)
    >>> operations.energy(cs.network.Joules()) > 0
    True
    """
    check_network(network)
    sequences = Sequences.of(inputs).to(network.weight.device)
    check_stack(network.layers, sequences.n_features)
    values = snap_inputs(sequences.inputs)
    inside = sequences.is_inside()
    n_samples = len(sequences)
    if isinstance(network.layers[0], LateralLayer):
        values = network.layers[0].view(values.transpose(0, 1)).transpose(0, 1)
    values = values if inside is None else values * inside[:, :, None]
    n_steps = n_samples * sequences.n_steps if inside is None else int(inside.sum())
    has_numbers = bool(((values != 0) & (values != 1)).any())

    # Longest delay at which arrivals are counted: at least one step, after which recurrent neurons read each other.
    reach = [max(1, min(layer.max_delay, sequences.n_steps)) for layer in network.layers]
    arrivals = _arrivals([(slice(None), slice(None), values != 0)], sequences, values.shape[2], reach[0])
    arrivals = arrivals[:, None].expand(-1, network.n_subnetworks, -1)
    senders = torch.full((network.n_subnetworks,), network.n_features, device=values.device)
    connected, layers = connected_neurons(network), []
    for depth, (layer, reach_above) in enumerate(zip(network.layers, [*reach[1:], 1], strict=True)):
        blocks = iterate_rollout(network.layers[: depth + 1], sequences, "all")
        spikes = _arrivals(blocks, sequences, layer.n_subnetworks * layer.width, reach_above)
        spikes = spikes.view(-1, layer.n_subnetworks, layer.width)
        neurons = connected[depth].sum(1)
        synaptic = _n_additions(layer, arrivals)
        are_numbers = depth == 0 and has_numbers
        feedback, n_dense = 0, int((neurons * (layer.n_taps if layer.has_delays else senders)).sum())
        if layer.recurrence is not None:
            # The first step reads the initial spikes, the others those of the step before.
            fed_back = spikes[1] + n_samples * layer.initial_spikes.to(torch.int64)
            feedback = int((fed_back * (layer.recurrence != 0).sum(2)).sum())
            n_dense += int((neurons * neurons).sum())
        counts = LayerOperations(
            f"hidden {depth + 1}",
            n_neurons=int(neurons.sum()),
            n_spikes=int(spikes[0].sum()),
            n_accumulates=feedback + (0 if are_numbers else synaptic),
            n_multiply_accumulates=synaptic if are_numbers else 0,
            n_membrane_updates=int(neurons.sum()) * n_steps if NEURON_MODELS.of(layer).keeps_membrane else 0,
            n_dense=n_dense * n_steps,
        )
        layers.append(counts)
        arrivals, senders = spikes, neurons
    has_statistics = parse_readout(network.readout).kind == "statistics"
    if has_statistics:
        n_read = torch.full((len(network.columns),), n_samples)
    elif network.n_windows > 1:
        n_read = count_spikes(network.layers, sequences, network.n_windows).sum(0)[network.columns]
    else:  # spikes that do not arrive one step later were fired in the last step
        n_fired = arrivals[0] - arrivals[1] if network.readout == "last" else arrivals[0]
        n_read = n_fired.flatten()[network.columns]
    n_additions = int((n_read.to(network.weight.device) * (network.weight != 0).sum(1)).sum())
    # A mean is linear: a network that does not spike takes it first and multiplies once.
    n_dense = network.weight.numel() * (n_steps if network.readout == "all" else n_samples)
    counts = LayerOperations(
        "read-out",
        network.n_outputs,
        n_accumulates=0 if has_statistics else n_additions,
        n_multiply_accumulates=n_additions if has_statistics else 0,
        n_dense=n_dense,
    )
    layers.append(counts)
    return Operations(tuple(layers), n_samples, n_steps)


def _arrivals(
    blocks: Iterable[tuple[slice, slice, Tensor]], sequences: Sequences, n_columns: int, reach: int
) -> Tensor:
    """Return how many spikes arrive before their sequence ends, (reach + 1, n_columns), after delays 0 to ``reach``.

    ``blocks`` are ``(rows, columns, spikes[rows, :, columns])``.
    """
    steps = torch.arange(sequences.n_steps, device=sequences.device)
    last = sequences.n_steps - 1 if sequences.lengths is None else sequences.lengths[:, None] - 1
    # A spike arrives after every delay up to the number of steps that are left.
    steps_left = (last - steps).clamp(0, reach).expand(len(sequences), -1)
    counts = torch.zeros(reach + 1, n_columns, dtype=torch.int64, device=sequences.device)
    for rows, columns, spikes in blocks:
        counts_of_block = counts[:, columns]
        counts_of_block.index_add_(0, steps_left[rows].flatten(), spikes.flatten(0, 1).to(torch.int64))
    return counts.flip(0).cumsum(0).flip(0)


def _n_additions(layer: HiddenLayer, arrivals: Tensor) -> int:
    """Return how often a layer adds a weight, for the arrivals (n_delays, n_subnetworks, n_inputs) that it reads."""
    if not layer.has_delays:
        return int((arrivals[0] * layer.fan_out()).sum())
    subnetworks = torch.arange(layer.n_subnetworks, device=arrivals.device)[:, None, None]
    delays = layer.delay.long().clamp(max=len(arrivals) - 1)
    return int((arrivals[delays, subnetworks, layer.source.long()] * (layer.weight != 0)).sum())
