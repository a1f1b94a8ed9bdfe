r"""Exchange with Norse's ``LIFBoxCell``.

Its Euler step :math:`v + \Delta t\, \tau^{-1} (x + v_{leak} - v)` is ours with :math:`\beta = 1 - \Delta t\, \tau^{-1}`
and inputs :math:`x = I / (1 - \beta)`. It resets within the step, by a method that can be chosen, so that its
membrane can be measured from the threshold as ours is: :math:`v_{th} = v_{leak} = 0`, and :math:`U_{thr} / \beta` is
subtracted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..dictionary import Readout
from ..network.spiking_network import SpikingNetwork
from ..neurons import LIFLayer
from ..witnesses import WitnessSet
from .dynamics import reset_within_step, silent_start, tilt, untilt
from .peer_network import Library, PeerLayer, PeerNetwork, make_linear, shared
from .stack import read_stack

DT = 1e-3
"""Norse's own time step, in seconds. Only dt / tau matters."""


def subtract_v_reset(spikes: Tensor, membrane: Tensor, v_reset: Tensor, v_th: Tensor) -> Tensor:
    """Subtract ``v_reset`` after a spike: a reset method for Norse."""
    return membrane - spikes * v_reset


class NorseNetwork(PeerNetwork):
    """A network in layers of ``nn.Linear`` and Norse's ``LIFBoxCell``."""

    def scan(self, neuron: nn.Module, drive: Tensor, membrane: Tensor) -> Tensor:
        """Call the neuron once per step."""
        box = import_library("norse.torch.functional.lif_box", "norse")
        state, spikes = box.LIFBoxFeedForwardState(v=membrane), []
        for step in drive:
            fired, state = neuron(step, state)
            spikes.append(fired)
        return torch.stack(spikes)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply ``fn`` to the cells' parameters too, which Norse keeps in a tuple that torch does not see."""
        cells: list[Any] = self.neurons
        for cell in cells:
            cell.p = type(cell.p)(*(fn(value) if isinstance(value, Tensor) else value for value in cell.p))
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


def to_norse(network: SpikingNetwork, *, dtype: torch.dtype = torch.float64, time_first: bool = False) -> NorseNetwork:
    """Convert a network to Norse's layers.

    Parameters
    ----------
    network : SpikingNetwork
        A network of LIF neurons with decays below 1, and above 0 where there is a reset.
    dtype : torch.dtype
        Type of the parameters. In float32, rounding occasionally flips a spike (``docs/exchange.md`` says how often).
    time_first : bool
        Whether inputs and outputs are (n_steps, n_samples, ...), as is usual in the library, or (n_samples, n_steps,
        ...), as in cvxsnn.

    Returns
    -------
    NorseNetwork
        A module with the same spikes and scores.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> network = cs.reconstruct(solution)
    >>> theirs = cs.exchange.to_norse(network)
    >>> type(theirs).__name__
    'NorseNetwork'
    """
    return NorseNetwork.of(network, library(), dtype, time_first)


def from_norse(
    model: nn.Module | Sequence[nn.Module],
    *,
    readout: Readout | None = None,
    loss: str | None = None,
    weight_bits: int | None = None,
    dtype: torch.dtype | None = None,
) -> WitnessSet | SpikingNetwork:
    """Convert the hidden layers of a Norse model, and its read-out if it ends in a linear layer.

    Parameters
    ----------
    model : Module or sequence of Modules
        Alternating ``Linear`` and ``LIFBoxCell`` modules with ``reset_method=reset_subtract``, in the order in which
        they are applied.
    readout : "last", "all", "mean" or "windows-k", optional
        How a last linear layer reads the spikes: required if there is one, unless the model was converted by cvxsnn.
    loss : str, optional
        Loss of its outputs: by default "softmax" for several outputs and "logistic" for one.
    weight_bits : int, optional
        Bits per weight, on a grid per neuron (:mod:`cvxsnn.neurons.exact`): a weight moves by at most 2^(−bits) of the
        power of two at or above the neuron's largest. By default 32 bits above the first layer, and in the first as
        many, up to 32, as leave room for real inputs up to 16. Layers that cvxsnn converted, and nobody changed since,
        have the bits that they had.
    dtype : torch.dtype, optional
        Type of the membranes: by default float64, and for a network that cvxsnn converted, and whose hidden layers
        nobody changed since, its own.

    Returns
    -------
    WitnessSet or SpikingNetwork
        The hidden layers; with a last linear layer, a network with that read-out.

    Examples
    --------
    >>> from norse.torch import LIFBoxCell, LIFBoxParameters
    >>> from norse.torch.functional.reset import reset_subtract
    >>> from torch import nn, tensor
    >>> from cvxsnn.exchange import from_norse
    >>> cell = LIFBoxCell(LIFBoxParameters(tau_mem_inv=tensor(100.0), reset_method=reset_subtract), dt=0.001)
    >>> from_norse([nn.Linear(2, 8), cell])
    WitnessSet(pretrained lif, 1 × (2→8))
    """
    return read_stack(library(), model, readout, loss, weight_bits, dtype)


def library() -> Library:
    """Return what is specific to models of Norse."""
    return Library("Norse", import_library("norse.torch.module.snn", "norse").SNNCell, _read_cell, _write_cell)


def _write_cell(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    box = import_library("norse.torch.functional.lif_box", "norse")
    cell = import_library("norse.torch.module.lif_box", "norse").LIFBoxCell
    decay = layer.decay[0]
    if bool((decay == 1).any()):
        raise InvalidInputError(
            f"expected decays below 1 in layer {depth}, got 1: Norse multiplies inputs by 1 − decay; use to_snntorch"
        )
    linear = make_linear(layer.weight[0] / (1 - decay), layer.bias[0] / (1 - decay), dtype)
    parameters = box.LIFBoxParameters(
        tau_mem_inv=shared(((1 - decay) / DT).to(dtype)),
        v_leak=torch.zeros((), dtype=dtype),
        v_th=tilt(torch.zeros((), dtype=dtype), layer.tie),
        v_reset=shared(reset_within_step(layer).to(dtype)),
        reset_method=subtract_v_reset,
    )
    return PeerLayer(linear, cell(parameters, dt=DT), silent_start(layer))


def _read_cell(weight: Tensor, bias: Tensor, cell: Any, membrane: Tensor | None) -> Mapping[str, Any]:
    if type(cell) is not import_library("norse.torch.module.lif_box", "norse").LIFBoxCell:
        raise InvalidInputError(f"expected LIFBoxCell, got {type(cell).__name__}: its dynamics differ from ours")
    p = cell.p
    resets = {
        import_library("norse.torch.functional.reset", "norse").reset_subtract: p.v_th,
        subtract_v_reset: p.v_reset,
    }
    if p.reset_method not in resets:
        raise InvalidInputError(
            "expected reset_method=reset_subtract, got another: our neurons reset by subtraction, not to a value"
        )
    rate = torch.as_tensor(cell.dt * p.tau_mem_inv).double()  # rounded as Norse rounds it
    if bool(((rate < 0) | (rate > 1)).any()):
        raise InvalidInputError(f"expected dt / tau between 0 and 1, got values from {rate.min():g} to {rate.max():g}")
    v_leak = torch.as_tensor(p.v_leak).double()
    v_th, tie = untilt(torch.as_tensor(p.v_th).double(), "gt")
    start = v_leak if membrane is None else membrane
    return {
        "weight": weight * rate,
        "bias": rate * (bias + v_leak - v_th),
        "decay": 1 - rate,
        "threshold": (1 - rate) * torch.as_tensor(resets[p.reset_method]).double(),
        "initial_membrane": start - v_th,
        "tie": tie,
    }
