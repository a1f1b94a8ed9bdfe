"""Writing a read-out back into its layer, in the range that output neurons need."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from .batches import Batches
from .layers import LinearLayer
from .recording import Recording
from .runner import ModelRunner

_SPREADS = (0.25, 0.5, 1.0, 2.0, 4.0)
_SHIFTS = (-1.0, -0.5, 0.5, 1.0)
"""Spreads of the scores to try for output neurons, and shifts in units of them, relative to the model's own."""

_N_FITTED = 1000
"""Samples on which spreads and shifts are compared."""


@dataclass(frozen=True)
class OutputRange:
    """Scale and shift of what the layer holds, and the accuracy of the model's decisions with them."""

    scale: float = 1.0
    shift: float = 0.0
    model_accuracy: float | None = None


def fit_output_range(
    runner: ModelRunner,
    layer: LinearLayer,
    batches: Batches,
    recording: Recording,
    found: tuple[Tensor, Tensor],
) -> OutputRange:
    """Return the scale and shift, the same for all outputs, with which the model decides best.

    Where the layer's outputs are the model's, both are left alone. Where output neurons follow, the order of the
    layer's outputs is not enough: they must drive the neurons within the range in which firing rates differ. The
    model's own weights do so, and the search starts with the spread and mean of their outputs.

    Parameters
    ----------
    runner : ModelRunner
        Runs the model.
    layer : LinearLayer
        The read-out layer, which still holds the model's own weights. The caller restores it.
    batches : Batches
        The data.
    recording : Recording
        What was recorded on them.
    found : tuple of Tensor
        The weights and bias to write.

    Returns
    -------
    OutputRange
        Scale, shift and the accuracy with them.
    """
    notify, n_outputs = runner.options.notify, len(found[0])
    own, ours = layer.read(), recording.outputs(*found)
    layer.write(*found)
    unscaled = _replay(runner, batches, n_outputs, notify)
    layer_accuracy = recording.accuracy(ours)
    if runner.is_direct or unscaled is None or layer_accuracy is None or unscaled >= layer_accuracy:
        return OutputRange(model_accuracy=unscaled)
    theirs = recording.outputs(*own)
    spread, ratio = float(theirs.std()), float(theirs.std() / ours.std().clamp_min(1e-300))
    few = batches.first(_N_FITTED)

    def best_of(candidates: list[tuple[float, float]]) -> tuple[float, float]:
        scores = []
        for number, (scale, shift) in enumerate(candidates, 1):
            layer.write(*found, scale, shift)
            scores.append(_replay(runner, few, n_outputs) or 0.0)
            notify("fitting output neurons", number, len(candidates))
        return candidates[int(np.argmax(scores))]

    def centred(scale: float) -> float:
        return float(theirs.mean()) - scale * float(ours.mean()) if layer.bias is not None else 0.0

    scales = [relative * ratio for relative in _SPREADS]
    scale, shift = best_of([(1.0, 0.0), *((scale, centred(scale)) for scale in scales)])
    if layer.bias is not None:
        scale, shift = best_of([(scale, shift), *((scale, shift + move * spread) for move in _SHIFTS)])
    layer.write(*found, scale, shift)
    return OutputRange(scale, shift, _replay(runner, batches, n_outputs, notify))


def _replay(
    runner: ModelRunner,
    batches: Iterable[tuple[Tensor, npt.NDArray[Any]]],
    n_outputs: int,
    notify: Callable[[str, int, int], None] = lambda *_: None,
) -> float | None:
    """Return the accuracy of the model's decisions with its present weights; None where it is unknown."""
    n_right, n_samples = 0, 0
    for number, (inputs, labels) in enumerate(batches, 1):
        decisions = runner.decisions(runner.replay(inputs), len(inputs), n_outputs)
        if decisions is None or labels.ndim != 1 or labels.dtype.kind not in "iub":
            return None
        n_right += int((decisions.numpy() == labels).sum())
        n_samples += len(labels)
        notify("checking", number, number)
    return n_right / n_samples
