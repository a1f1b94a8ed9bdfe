"""NIR's nodes as torch modules that advance step by step, by forward Euler."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..core.errors import InvalidInputError
from ..core.libraries import import_library

DT = 1e-4
"""Seconds per step, as in snnTorch and SpikingJelly."""

_SHORTEST, _LONGEST = 1e-12, 1e6

NodeMap = dict[type, Callable[[Any], nn.Module]]


def nirtorch_node_map(dt: float = DT) -> NodeMap:
    """Return a map of node types for ``nirtorch.nir_to_torch(graph, nirtorch_node_map(), dtype=...)``.

    It has all types. Affine and convolutions are included because nirtorch 2.6 gets them wrong: it never sets
    the bias of an Affine, so that a random one remains, and it swaps the channels of a convolution.

    Parameters
    ----------
    dt : float
        Seconds per step: NIR's equations are in continuous time, and its files do not contain a step.

    Returns
    -------
    dict of type to callable
        For each type of node, a function that converts it to a module.

    Examples
    --------
    >>> import nir
    >>> from cvxsnn.exchange import nirtorch_node_map
    >>> nir.LIF in nirtorch_node_map()
    True
    """
    check_step(dt)
    nir = import_library("nir", "nir")
    return {
        nir.Affine: _affine,
        nir.Linear: _affine,
        nir.Scale: lambda node: Scale(node.scale),
        nir.Threshold: lambda node: Threshold(node.threshold),
        nir.Delay: lambda node: Delay(node.delay, dt),
        nir.Conv1d: lambda node: _convolution(nn.Conv1d, node),
        nir.Conv2d: lambda node: _convolution(nn.Conv2d, node),
        nir.Flatten: lambda node: nn.Flatten(*map(_after_batch, (node.start_dim, node.end_dim))),
        nir.AvgPool2d: _pooling,
        nir.SumPool2d: lambda node: _pooling(node, divisor=1),
        nir.I: lambda node: Neuron([_integrator(node.r, dt)]),
        nir.LI: lambda node: Neuron([_leak(node.tau, node.r, node.v_leak, dt)]),
        nir.IF: lambda node: Neuron([_integrator(node.r, dt)], node.v_threshold, node.v_reset),
        nir.LIF: lambda node: Neuron([_leak(node.tau, node.r, node.v_leak, dt)], node.v_threshold, node.v_reset),
        nir.CubaLI: lambda node: Neuron(_synapse_and_leak(node, dt)),
        nir.CubaLIF: lambda node: Neuron(_synapse_and_leak(node, dt), node.v_threshold, node.v_reset),
    }


class Integrator(nn.Module):
    """One Euler step of a leaky integrator: ``decay · level + gain · input + shift``."""

    decay: Tensor
    gain: Tensor
    shift: Tensor

    def __init__(self, decay: Any, gain: Any, shift: Any) -> None:
        super().__init__()
        for name, value in {"decay": decay, "gain": gain, "shift": shift}.items():
            self.register_buffer(name, parameter_of(value))

    def forward(self, inputs: Tensor, level: Tensor) -> Tensor:
        """Return the level one step later."""
        return self.decay * level + self.gain * inputs + self.shift


class Neuron(nn.Module):
    """A chain of integrators that start at zero; with a threshold, the output is spikes.

    Parameters
    ----------
    stages : sequence of Integrator
        The synapse, if there is one, and the membrane.
    threshold : array, optional
        The neuron fires strictly above it.
    v_reset : array, optional
        The membrane after a spike.
    """

    threshold: Tensor | None
    v_reset: Tensor

    def __init__(self, stages: Sequence[Integrator], threshold: Any = None, v_reset: Any = None) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.register_buffer("threshold", None if threshold is None else parameter_of(threshold))
        self.register_buffer("v_reset", None if v_reset is None else parameter_of(v_reset))

    def forward(self, inputs: Tensor, state: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        """Return output and state one step later."""
        levels = []
        value = inputs
        for stage, level in zip(self.stages, state or [torch.zeros_like(inputs)] * len(self.stages), strict=True):
            value = stage(value, level)
            levels.append(value)
        if self.threshold is None:
            return value, levels
        fires = value > self.threshold
        levels[-1] = torch.where(fires, self.v_reset, value)
        return fires.to(value.dtype), levels


class Threshold(nn.Module):
    """1 strictly above the threshold, 0 elsewhere."""

    threshold: Tensor

    def __init__(self, threshold: Any) -> None:
        super().__init__()
        self.register_buffer("threshold", parameter_of(threshold))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return spikes."""
        return (inputs > self.threshold).to(inputs.dtype)


class Delay(nn.Module):
    """Returns each value some steps after it came, and zero before the first has come.

    Parameters
    ----------
    delay : array
        Seconds, in whole steps, for each value.
    dt : float
        Seconds per step.
    """

    steps: Tensor

    def __init__(self, delay: Any, dt: float) -> None:
        super().__init__()
        self.register_buffer("steps", torch.from_numpy(whole_steps(delay, dt)))
        self._longest = int(self.steps.max())

    def forward(self, inputs: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return output and state, which is the last inputs, one step later."""
        past = inputs.new_zeros(len(inputs), self._longest, *inputs.shape[1:]) if state is None else state
        values = torch.cat((past, inputs[:, None]), dim=1)
        output = values.gather(1, (self._longest - self.steps).expand_as(inputs)[:, None])[:, 0]
        return output, values[:, 1:]


class Scale(nn.Module):
    """Multiplies each value by a factor."""

    scale: Tensor

    def __init__(self, scale: Any) -> None:
        super().__init__()
        self.register_buffer("scale", parameter_of(scale))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the scaled values."""
        return inputs * self.scale


def check_step(dt: Any) -> float:
    """Return the seconds per step, or refuse a number with which time constants lose digits or overflow."""
    try:
        step = float(dt)
    except (OverflowError, TypeError, ValueError):
        step = np.nan
    if not _SHORTEST <= step <= _LONGEST:
        raise InvalidInputError(f"expected dt to be a number of seconds from {_SHORTEST:g} to {_LONGEST:g}, got {dt!r}")
    return step


def whole_steps(delay: Any, dt: float) -> npt.NDArray[np.int64]:
    """Return delays in steps, and refuse those that are no whole number of them."""
    exact = np.asarray(delay, dtype=np.float64) / dt
    steps = np.rint(exact)
    # Files may have seconds in float32.
    if not np.all((exact >= 0) & (np.abs(exact - steps) <= 1e-6 * np.maximum(steps, 1))):
        raise InvalidInputError(
            f"expected delays of whole steps of {dt:g} seconds, got delays from {exact.min() * dt:g} to "
            f"{exact.max() * dt:g} seconds: pass a dt that divides them"
        )
    return steps.astype(np.int64)


def _integrator(r: npt.NDArray[Any], dt: float) -> Integrator:
    return Integrator(np.ones_like(r), r * dt, np.zeros_like(r))


def _leak(tau: npt.NDArray[Any], r: npt.NDArray[Any], v_leak: npt.NDArray[Any], dt: float) -> Integrator:
    rate = dt / tau
    return Integrator(1 - rate, r * rate, v_leak * rate)


def _synapse_and_leak(node: Any, dt: float) -> list[Integrator]:
    synapse = _leak(node.tau_syn, node.w_in, np.zeros_like(node.tau_syn), dt)
    return [synapse, _leak(node.tau_mem, node.r, node.v_leak, dt)]


def _affine(node: Any) -> nn.Module:
    width, fan_in = node.weight.shape[-2:]
    bias = getattr(node, "bias", None)
    linear = nn.Linear(fan_in, width, bias=bias is not None)
    return _filled(linear, node.weight, bias)


def _convolution(kind: type[nn.Conv1d | nn.Conv2d], node: Any) -> nn.Module:
    n_out, n_in, *kernel = node.weight.shape
    groups = int(node.groups)
    convolution = kind(
        n_in * groups,
        n_out,
        tuple(kernel),
        stride=_sizes(node.stride),
        padding=_sizes(node.padding),
        dilation=_sizes(node.dilation),
        groups=groups,
    )
    return _filled(convolution, node.weight, node.bias)


def _pooling(node: Any, divisor: int | None = None) -> nn.Module:
    kernel, stride, padding = map(_sizes, (node.kernel_size, node.stride, node.padding))
    return nn.AvgPool2d(kernel, stride, padding, divisor_override=divisor)


def _filled(module: nn.Module, weight: Any, bias: Any) -> nn.Module:
    module.get_parameter("weight").data = parameter_of(weight)
    if bias is not None:
        module.get_parameter("bias").data = parameter_of(bias)
    return module


def _sizes(value: Any) -> Any:
    """Return a string, an int or a tuple of ints from any form in which it was read."""
    if isinstance(value, (str, bytes)):
        return value if isinstance(value, str) else value.decode()
    plain = np.asarray(value).tolist()
    return tuple(plain) if isinstance(plain, list) else plain


def _after_batch(axis: Any) -> int:
    """Convert an axis of a sample, as in NIR, to one of a batch, as in torch."""
    return int(axis) + 1 if axis >= 0 else int(axis)


def parameter_of(value: Any) -> Tensor:
    """Return a parameter of a node in float64; refuse what is no number."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or bool(np.isnan(array).any()):
        raise InvalidInputError(f"expected numbers as parameters of nodes, got {array.dtype} or NaN")
    return torch.from_numpy(array.astype(np.float64))
