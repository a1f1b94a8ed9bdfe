"""Counting what a network does on data: synaptic operations, membrane updates, and the energy that these take."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.text_table import align
from ..data.sequences import Sequences
from ..neurons import NEURON_MODELS, HiddenLayer
from ..neurons.exact import snap_inputs
from ..neurons.rollout import Steps, iterate_counts, iterate_rollout
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
    """

    accumulate: float = 0.9e-12
    multiply_accumulate: float = 4.6e-12
    membrane_update: float = 4.6e-12


CMOS_45NM = Joules()


@dataclass(frozen=True)
class LayerOperations:
    """What one layer did on all sequences together.

    Parameters
    ----------
    name : str
        The name of the layer.
    n_neurons : int
        Connected neurons (:func:`cvxsnn.network.summary.connected_neurons`), or outputs of the read-out.
    n_spikes : int
        Spikes that it fired.
    n_accumulates : int
        Spikes that reached it, each times the non-zero weights that lead on from where it came from.
    n_multiply_accumulates : int
        The same for inputs that are numbers, of which those that are zero cost nothing.
    n_membrane_updates : int
        One per neuron and step, for neuron models that keep a membrane.
    n_dense : int
        Multiply-accumulates of a layer of as many neurons that are no spiking ones, none of whose weights is zero.
    """

    name: str
    n_neurons: int
    n_spikes: int
    n_accumulates: int
    n_multiply_accumulates: int
    n_membrane_updates: int
    n_dense: int

    @property
    def n_synaptic(self) -> int:
        """Synaptic operations, of spikes and numbers."""
        return self.n_accumulates + self.n_multiply_accumulates

    def energy(self, joules: Joules = CMOS_45NM) -> float:
        """Return the energy of all sequences together.

        Parameters
        ----------
        joules : Joules
            Energy of one operation.

        Returns
        -------
        float
            Joules.
        """
        return (
            self.n_accumulates * joules.accumulate
            + self.n_multiply_accumulates * joules.multiply_accumulate
            + self.n_membrane_updates * joules.membrane_update
        )

    def dense_energy(self, joules: Joules = CMOS_45NM) -> float:
        """Return the energy of a layer of the same shape that does not spike.

        Parameters
        ----------
        joules : Joules
            Energy of one operation.

        Returns
        -------
        float
            Joules of all sequences together.
        """
        return self.n_dense * joules.multiply_accumulate


@dataclass(frozen=True)
class Operations:
    """What a network did on some sequences.

    Parameters
    ----------
    layers : tuple of LayerOperations
        What each layer did, from the inputs up, the read-out last.
    n_samples : int
        Number of sequences.
    n_steps : int
        Steps of all of them together, without padding.
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
        return self.total.energy(joules) / self.n_samples

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
        return self.total.dense_energy(joules) / self.n_samples

    def table(self, joules: Joules = CMOS_45NM) -> str:
        """Return operations and energy of every layer per sequence, on average.

        Parameters
        ----------
        joules : Joules
            Energy of one operation.

        Returns
        -------
        str
            A table, one line per layer.
        """
        header = ("per sample", "neurons", "spikes", "AC", "MAC", "updates", "energy", "dense MAC", "dense energy")
        rows = []
        for layer in (*self.layers, self.total):
            counts = (layer.n_spikes, layer.n_accumulates, layer.n_multiply_accumulates, layer.n_membrane_updates)
            rows.append(
                (
                    layer.name,
                    str(layer.n_neurons),
                    *(f"{count / self.n_samples:,.1f}" for count in counts),
                    f"{1e9 * layer.energy(joules) / self.n_samples:,.3f} nJ",
                    f"{layer.n_dense / self.n_samples:,.1f}",
                    f"{1e9 * layer.dense_energy(joules) / self.n_samples:,.3f} nJ",
                )
            )
        return align(header, rows)

    def __str__(self) -> str:
        """Return the table, and its sums in a sentence."""
        return (
            f"{self.table()}\n"
            f"{self.synaptic_per_sample:,.1f} synaptic operations per sample, {self.synaptic_per_step:,.1f} per step "
            f"({self.n_samples} samples, {self.n_steps / self.n_samples:.4g} steps each)"
        )


def count_operations(network: SpikingNetwork, inputs: Sequences | Array) -> Operations:
    """Count what a network does on sequences, event by event.

    A spike costs an addition for each non-zero weight that leads on from its neuron. Inputs cost the same if they are
    all 0 or 1, and multiply-accumulates if they are other numbers. The read-out adds weights for the spikes that it
    reads: those of the last step, or of every step for "all", "mean" and windows. The network is counted as it stands,
    neurons that nobody reads included: count a compact reconstruction, which has none.

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
    """
    check_network(network)
    sequences = Sequences.of(inputs).to(network.weight.device)
    inside, n_samples = sequences.is_inside(), len(sequences)
    n_steps = n_samples * sequences.n_steps if inside is None else int(inside.sum())
    values = snap_inputs(sequences.inputs)
    if inside is not None:
        values = values * inside[:, :, None]
    has_numbers = bool(((values != 0) & (values != 1)).any())

    arrivals = (values != 0).sum((0, 1)).expand(network.n_subnetworks, -1)
    senders = torch.full((network.n_subnetworks,), network.n_features, device=values.device)
    connected, layers = connected_neurons(network), []
    for depth, layer in enumerate(network.layers):
        stack = network.layers[: depth + 1]
        spikes = _spike_counts(stack, sequences, "all")
        neurons = connected[depth].sum(1)
        synaptic = int((arrivals * layer.fan_out()).sum())
        are_numbers = depth == 0 and has_numbers
        feedback, n_dense = 0, int((senders * neurons).sum())
        if layer.recurrence is not None:
            # The last spikes of a sequence have no step left to be fed back in, and the initial ones are.
            last = _spike_counts(stack, sequences, "last")
            fed_back = spikes - last + n_samples * layer.initial_spikes.to(torch.int64)
            feedback = int((fed_back * (layer.recurrence != 0).sum(2)).sum())
            n_dense += int((neurons * neurons).sum())
        layers.append(
            LayerOperations(
                f"hidden {depth + 1}",
                n_neurons=int(neurons.sum()),
                n_spikes=int(spikes.sum()),
                n_accumulates=feedback + (0 if are_numbers else synaptic),
                n_multiply_accumulates=synaptic if are_numbers else 0,
                n_membrane_updates=int(neurons.sum()) * n_steps if NEURON_MODELS.of(layer).keeps_membrane else 0,
                n_dense=n_dense * n_steps,
            )
        )
        arrivals, senders = spikes, neurons
    if network.readout == "last":
        arrivals = _spike_counts(network.layers, sequences, "last")
    elif network.n_windows > 1:
        arrivals = _window_counts(network, sequences)
    fan_out = (network.weight != 0).sum(1)
    layers.append(
        LayerOperations(
            "read-out",
            n_neurons=network.n_outputs,
            n_spikes=0,
            n_accumulates=int((arrivals.flatten()[network.columns] * fan_out).sum()),
            n_multiply_accumulates=0,
            n_membrane_updates=0,
            # A mean is linear: a network that does not spike takes it first and multiplies once.
            n_dense=network.weight.numel() * (n_steps if network.readout == "all" else n_samples),
        )
    )
    return Operations(tuple(layers), n_samples, n_steps)


def _spike_counts(layers: Sequence[HiddenLayer], sequences: Sequences, steps: Steps) -> Tensor:
    """Return how often each neuron of the last layer fired, shape (n_subnetworks, width), over all sequences."""
    last = layers[-1]
    counts = torch.zeros(last.n_subnetworks * last.width, dtype=torch.int64, device=sequences.device)
    for _, columns, spikes in iterate_rollout(layers, sequences, steps):
        counts[columns] += spikes.flatten(0, -2).sum(0)
    return counts.view(last.n_subnetworks, last.width)


def _window_counts(network: SpikingNetwork, sequences: Sequences) -> Tensor:
    """Return how often each neuron of the last layer fired in each window, shape (n_neurons * n_windows,)."""
    n_columns = network.n_subnetworks * network.hidden[-1] * network.n_windows
    counts = torch.zeros(n_columns, dtype=torch.int64, device=sequences.device)
    for _, columns, block in iterate_counts(network.layers, sequences, network.n_windows):
        counts[columns] += block.sum(0, dtype=torch.int64)
    return counts
