r"""Exchange with Norse's ``LIFBoxCell``.

Its Euler step :math:`v + \Delta t\, \tau^{-1} (x + v_{leak} - v)` is ours with :math:`\beta = 1 - \Delta t\, \tau^{-1}`
and inputs :math:`x = I / (1 - \beta)`. It resets within the step, by a method that can be chosen, so that its
membrane can be measured from the threshold as ours is: :math:`v_{th} = v_{leak} = 0`, and :math:`U_{thr} / \beta` is
subtracted.
"""

from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInputError
from ..core.libraries import import_library
from ..neurons import LIFLayer
from .library import Library, PeerLayer, make_linear, reset_within_step, run_steps, shared, silent_start, tilt, untilt

DT = 1e-3
"""Time step that Norse uses by default, in seconds. Only dt / tau matters."""


def subtract_v_reset(spikes: Tensor, membrane: Tensor, v_reset: Tensor, v_th: Tensor) -> Tensor:
    """Subtract ``v_reset`` after a spike: a reset method for Norse."""
    return membrane - spikes * v_reset


def library() -> Library:
    """Return the description of Norse."""
    base = import_library("norse.torch.module.snn", "norse").SNNCell
    cell = import_library("norse.torch.module.lif_box", "norse").LIFBoxCell
    return Library("Norse", base, (cell,), _read, _write, _scan)


def _scan(cell: Any, drive: Tensor, membrane: Tensor) -> Tensor:
    box = import_library("norse.torch.functional.lif_box", "norse")
    return run_steps(cell, drive, box.LIFBoxFeedForwardState(v=membrane))


def _write(layer: LIFLayer, depth: int, dtype: torch.dtype) -> PeerLayer:
    box = import_library("norse.torch.functional.lif_box", "norse")
    rate = 1 - layer.decay[0]
    if bool((rate == 0).any()):  # weights and biases are divided by it
        raise InvalidInputError(f"expected decays below 1 in layer {depth}, got 1: use to_snntorch")
    parameters = box.LIFBoxParameters(
        tau_mem_inv=shared((rate / DT).to(dtype)),
        v_leak=torch.zeros((), dtype=dtype),
        v_th=tilt(torch.zeros((), dtype=dtype), layer.tie),
        v_reset=shared(reset_within_step(layer).to(dtype)),
        reset_method=subtract_v_reset,
    )
    cell = import_library("norse.torch.module.lif_box", "norse").LIFBoxCell(parameters, dt=DT)
    linear = make_linear(layer.weight[0] / rate, layer.bias[0] / rate, dtype)
    return PeerLayer(linear, cell, silent_start(layer).to(dtype))


def _read(weight: Tensor, bias: Tensor, cell: Any, membrane: Tensor | None) -> dict[str, Any]:
    p = cell.p
    reset_subtract = import_library("norse.torch.functional.reset", "norse").reset_subtract
    resets = {reset_subtract: p.v_th, subtract_v_reset: p.v_reset}
    if p.reset_method not in resets:
        raise InvalidInputError("expected reset_method=reset_subtract, got another: our neurons reset by subtraction")
    rate = torch.as_tensor(cell.dt * p.tau_mem_inv).double()  # rounded as Norse rounds it
    if bool(((rate < 0) | (rate > 1)).any()):
        raise InvalidInputError(f"expected dt / tau between 0 and 1, got values from {rate.min():g} to {rate.max():g}")
    v_leak = torch.as_tensor(p.v_leak).double()
    v_th, tie = untilt(torch.as_tensor(p.v_th).double(), "gt")
    return {
        "weight": weight * rate,
        "bias": rate * (bias + v_leak - v_th),
        "decay": 1 - rate,
        "threshold": (1 - rate) * torch.as_tensor(resets[p.reset_method]).double(),
        "initial_membrane": (v_leak if membrane is None else membrane) - v_th,
        "tie": tie,
    }
