"""Writing a read-out back into its layer, in the range that output neurons need."""

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from .data import Batch, Batches, ProgressCallback, ReadoutData
from .layers import LinearLayer
from .runner import ModelRunner


def fit_output_range(
    runner: ModelRunner,
    layer: LinearLayer,
    batches: Batches,
    data: ReadoutData,
    solved: tuple[Tensor, Tensor],
    notify: ProgressCallback,
) -> tuple[float, float, float | None]:
    """Find the scale and shift, common to all outputs, that make the model's decisions most accurate.

    If the layer's outputs are the model's, both are left alone. If output neurons follow, the order of the layer's
    outputs is not enough: they must drive the neurons within the range in which firing rates differ. The model's own
    weights do so, and the search starts with the spread and mean of their outputs.

    Parameters
    ----------
    runner : ModelRunner
        Runs the model.
    layer : LinearLayer
        The read-out layer, which still has the model's own weights. The caller restores it.
    batches : Batches
        The batches of inputs and targets.
    data : ReadoutData
        The inputs of the layer for them.
    solved : tuple of Tensor
        The weights and bias to write.
    notify : callable
        Called as ``notify(stage, done, total)``.

    Returns
    -------
    scale, shift : float
        The factor of weights and bias, and the constant added to every output.
    accuracy : float or None
        Accuracy of the model's decisions with them; None if they are unknown.
    """
    before, after = data.outputs(*layer.read()), data.outputs(*solved)

    def accuracy_with(scale: float, shift: float, some: Iterable[Batch], report: bool = True) -> float | None:
        """Return the accuracy of the model's decisions; 0 with weights that overflow, None if it is unknown."""
        layer.write(*solved, scale, shift)
        if not all(bool(values.isfinite().all()) for values in layer.read()):
            return 0.0
        n_right, n_samples = 0, 0
        for number, (inputs, labels) in enumerate(some, 1):
            decisions = runner.decisions(runner.replay(inputs), len(inputs), len(solved[0]))
            if decisions is None or labels.ndim != 1 or labels.dtype.kind not in "iub":
                return None
            n_right += int((decisions.numpy() == labels).sum())
            n_samples += len(labels)
            if report:
                notify("checking", number, number)
        return n_right / n_samples

    unscaled, layer_accuracy = accuracy_with(1.0, 0.0, batches), data.accuracy(after)
    if runner.is_direct or unscaled is None or layer_accuracy is None or unscaled >= layer_accuracy:
        return 1.0, 0.0, unscaled
    # The solution may be constant, for example at a strength at which all weights vanish.
    spread, ratio = float(before.std()), float(before.std() / after.std().clamp_min(1e-300))
    few = batches.first(1000)

    def best_of(ranges: list[tuple[float, float]]) -> tuple[float, float]:
        scores = []
        for number, (scale, shift) in enumerate(ranges, 1):
            scores.append(accuracy_with(scale, shift, few, report=False) or 0.0)
            notify("fitting output neurons", number, len(ranges))
        return ranges[int(np.argmax(scores))]

    def centred(scale: float) -> tuple[float, float]:
        """Return a scale with the shift that keeps the mean output, which needs a bias."""
        return scale, float(before.mean()) - scale * float(after.mean()) if layer.bias is not None else 0.0

    # Spreads of the outputs relative to the model's own, then shifts in units of that spread.
    scale, shift = best_of([(1.0, 0.0), *(centred(relative * ratio) for relative in (0.25, 0.5, 1.0, 2.0, 4.0))])
    if layer.bias is not None:
        scale, shift = best_of([(scale, shift + move * spread) for move in (0.0, -1.0, -0.5, 0.5, 1.0)])
    return scale, shift, accuracy_with(scale, shift, batches)
