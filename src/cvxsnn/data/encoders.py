"""From numbers to spikes: encoders that turn features into sequences of zeros and ones.

Arrays stay arrays and tensors stay tensors, on their device and in their float type; other types become float32.
"""

import math
from typing import Literal, TypeVar

import torch
from torch import Tensor

from ..core.checks import Array, as_tensor, check_choice, check_positive_int, check_sequences
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator

_Values = TypeVar("_Values", bound=Array)


def encode_rate(values: _Values, n_steps: int, *, seed: int = 0) -> _Values:
    """Return random spikes: at each step, independently, with the value as probability.

    Parameters
    ----------
    values : array or Tensor of shape (n_samples, n_features)
        Probabilities, within [0, 1].
    n_steps : int
        Number of steps.
    seed : int, default=0
        Seed of the draws. They depend on it and on the shape alone, so they are the same on every device.

    Returns
    -------
    array or Tensor of shape (n_samples, n_steps, n_features)
        Zeros and ones.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import encode_rate
    >>> encode_rate(np.array([[0.0, 0.5, 1.0]]), n_steps=400).mean(1).round(1)
    array([[0. , 0.5, 1. ]])
    """
    probability = _check_unit(values)
    n_samples, n_features = probability.shape
    shape = (n_samples, check_positive_int("n_steps", n_steps), n_features)
    # Draws are from [0, 1), so that a value of 0 never fires and a value of 1 always does.
    draws = torch.from_numpy(child_generator(seed, "encoders", "rate").random(shape)).to(probability.device)
    return _like(values, draws < probability[:, None], probability.dtype)


def encode_latency(
    values: _Values, n_steps: int, *, scale: Literal["linear", "logarithmic"] = "linear", threshold: float = 0.01
) -> _Values:
    r"""Return one spike per value, the earlier the larger the value is; values below the threshold never fire.

    With x the value, θ the threshold and T the number of steps, the spike comes at the step, counted from 0, that is
    nearest to

    .. math:: (T - 1)(1 - x) \text{ for "linear"}, \qquad (T - 1) \log x / \log θ \text{ for "logarithmic"};

    halves go to the even step. Either way 1 fires at the first step. On the logarithmic scale θ fires at the last, and
    equal ratios of values are equal times.

    Parameters
    ----------
    values : array or Tensor of shape (n_samples, n_features)
        Numbers within [0, 1].
    n_steps : int
        Number of steps.
    scale : {"linear", "logarithmic"}, default="linear"
        How values become times.
    threshold : float, default=0.01
        The smallest value that fires, above 0 and below 1.

    Returns
    -------
    array or Tensor of shape (n_samples, n_steps, n_features)
        Zeros and ones.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import encode_latency
    >>> encode_latency(np.array([[1.0, 0.5, 0.0]]), n_steps=3)[0]
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 0.]])
    """
    unit = _check_unit(values)
    n_steps = check_positive_int("n_steps", n_steps)
    check_choice("scale", scale, ("linear", "logarithmic"))
    if not 0 < threshold < 1:
        raise InvalidInputError(f"expected threshold above 0 and below 1, got {threshold!r}")
    # Values below the threshold are lifted to it, so that their logarithm exists.
    delay = 1 - unit if scale == "linear" else unit.clamp_min(threshold).log() / math.log(threshold)
    step = torch.round((n_steps - 1) * delay)[:, None]
    steps = torch.arange(n_steps, device=unit.device)[:, None]
    return _like(values, (step == steps) & (unit >= threshold)[:, None], unit.dtype)


def encode_delta(sequences: _Values, threshold: float) -> _Values:
    """Return spikes where a feature changes by at least the threshold from one step to the next.

    Parameters
    ----------
    sequences : array or Tensor of shape (n_samples, n_steps, n_features)
        Any real numbers.
    threshold : float
        Smallest change that causes a spike, above zero. A slower drift, step by step, causes none.

    Returns
    -------
    array or Tensor of shape (n_samples, n_steps, 2 * n_features)
        Zeros and ones: first the ON spikes of all features, for rises, then their OFF spikes, for falls. Nothing fires
        at the first step.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import encode_delta
    >>> encode_delta(np.array([[[0.0], [1.0], [1.1], [0.2]]]), threshold=0.5)[0]
    array([[0., 0.],
           [1., 0.],
           [0., 0.],
           [0., 1.]])
    """
    if not 0 < threshold < math.inf:
        raise InvalidInputError(f"expected threshold to be a number above zero, got {threshold!r}")
    values = _as_float(sequences)
    check_sequences(values, "sequences")
    # The first step is compared with itself, so that it never fires.
    change = torch.diff(values, dim=1, prepend=values[:, :1])
    return _like(sequences, torch.cat((change >= threshold, change <= -threshold), dim=2), values.dtype)


def _as_float(values: Array) -> Tensor:
    tensor = as_tensor("values", values)
    return tensor if tensor.is_floating_point() else tensor.to(torch.float32)


def _check_unit(values: Array) -> Tensor:
    """Return the values as a float tensor if all of them are within [0, 1]."""
    unit = _as_float(values)
    if unit.ndim != 2 or 0 in unit.shape:
        raise InvalidInputError(f"expected values of shape (n_samples, n_features), got shape {tuple(unit.shape)}")
    # Written so that NaN is refused too.
    if not bool(((unit >= 0) & (unit <= 1)).all()):
        raise InvalidInputError(
            f"expected values within [0, 1], got some from {unit.min():.3g} to {unit.max():.3g}: scale them first, "
            "for example with sklearn.preprocessing.MinMaxScaler"
        )
    return unit


def _like(values: _Values, spikes: Tensor, dtype: torch.dtype) -> _Values:
    """Return zeros and ones of that type, as an array or a tensor like ``values``."""
    encoded = spikes.to(dtype)
    return encoded if isinstance(values, Tensor) else encoded.numpy()  # type: ignore[return-value]
