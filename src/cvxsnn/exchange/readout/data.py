"""The data of a read-out's program: batches of a user's data, their targets, and the inputs of the layer for them.

A model accepts inputs of any shape, in batches as its user makes them, and they are read several times. That is unlike
:mod:`cvxsnn.dictionary.streaming`, which reads sequences once and cuts them into blocks of equal size.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf
from operator import length_hint
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ...convex import Certificate, ConvexProblem, Solution, certify
from ...convex.losses import LOSSES, Loss, Softmax
from ...convex.objective import decide_class
from ...core.checks import Array, as_array, as_tensor
from ...core.errors import InvalidInputError
from ...core.formatting import plural
from ...dictionary import DenseDictionary, Dictionary, count_dictionary
from ...fitting.program import Program
from .layers import LinearLayer
from .result import ReadoutScore
from .runner import ModelRunner

Batch = tuple[Tensor, npt.NDArray[Any]]
ProgressCallback = Callable[[str, int, int], None]

DENSE_BYTES = 2**30
"""Spike counts are float64 up to this size: several times as fast as unpacking bits for every product."""

_PLACEHOLDER = 1e-100
"""A strength beside which everything else is large."""


class Batches:
    """Batches of inputs and targets, from arrays or from a loader.

    Parameters
    ----------
    inputs : array of shape (n_samples, ...), or an iterable of batches ``(inputs, targets)``
        The inputs, or a loader that yields them with their targets.
    targets : array of shape (n_samples, ...), optional
        The targets of an array of inputs.
    batch_size : int
        Batch size for an array of inputs.
    """

    def __init__(self, inputs: Any, targets: Array | None, batch_size: int) -> None:
        kind = type(inputs).__name__
        if isinstance(inputs, (np.ndarray, Tensor)):
            if targets is None:
                raise InvalidInputError("expected targets y with an array of inputs, got none")
            _check_lengths(inputs, targets)
            parts = [slice(start, start + batch_size) for start in range(0, len(inputs), batch_size)]
            inputs = [(inputs[part], targets[part]) for part in parts]
        elif targets is not None:
            raise InvalidInputError(f"expected an array or a tensor with targets y, got {kind}: leave y out")
        # An iterator is exhausted after the first of several passes.
        elif not isinstance(inputs, Iterable) or isinstance(inputs, Iterator):
            raise InvalidInputError(f"expected an array, or batches that can be read more than once, got {kind}")
        self._batches = inputs

    def __iter__(self) -> Iterator[Batch]:
        """Yield pairs of inputs and targets."""
        for batch in self._batches:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise InvalidInputError(f"expected batches (inputs, targets), got {type(batch).__name__}")
            _check_lengths(*batch)
            yield _as_inputs(batch[0]), np.asarray(as_array("targets", batch[1]))

    def __len__(self) -> int:
        """Return the number of batches; 0 if it is unknown."""
        return length_hint(self._batches)  # loaders of streams have a len() that raises

    def opening(self) -> Tensor:
        """Return a few samples for trial runs."""
        for inputs, _ in self:
            return inputs[:7]
        raise InvalidInputError("expected at least one batch, got an empty loader")

    def first(self, n_samples: int) -> list[Batch]:
        """Return the batches that contain about the first ``n_samples`` samples."""
        size = len(next(iter(self))[0])
        return list(islice(self, -(-n_samples // size)))


Targets = tuple[Tensor, str | Loss, Tensor | None, list[str]]
"""Values for a convex program, the loss for them, the classes (None for real targets), and notes for users."""


def check_targets(targets: npt.NDArray[Any], n_outputs: int, loss: str) -> Targets:
    """Return the targets for a layer with ``n_outputs`` outputs; ``loss="auto"`` depends on their type."""
    n_classes, shape = max(n_outputs, 2), targets.shape
    if targets.dtype.kind in "OSU":
        raise InvalidInputError(
            f"expected classes from 0 to {n_classes - 1}, got {targets.flat[0]!r}: use sklearn's LabelEncoder"
        )
    are_classes = targets.dtype.kind in "iub" and targets.ndim == 1
    if loss == "auto":
        loss = "squared" if not are_classes else "softmax" if n_outputs > 1 else "logistic"
    is_regression = LOSSES[loss].is_regression
    if not are_classes:
        if not is_regression:
            got = f"{targets.dtype} of shape {shape}"
            raise InvalidInputError(f"expected one integer per sample for loss {loss!r}, got {got}")
        values = torch.from_numpy(targets.astype(np.float64)).reshape(len(targets), -1)
        if values.shape[1] != n_outputs or not bool(torch.isfinite(values).all()):
            raise InvalidInputError(f"expected {n_outputs} finite targets per sample, one per output, got {shape}")
        return values, loss, None, []
    classes = torch.from_numpy(targets.astype(np.int64))
    lowest = int(classes.min())
    highest = int(classes.max())
    n_seen = len(np.unique(targets))
    if lowest < 0 or highest >= n_classes:
        raise InvalidInputError(f"expected classes from 0 to {n_classes - 1}, got {lowest} to {highest}")
    if n_seen < 2:
        raise InvalidInputError("expected samples of at least two classes, got one class only")
    if n_outputs > 1 and n_seen < n_classes and loss != "softmax" and not is_regression:
        raise InvalidInputError(
            f"expected all {plural(n_classes, 'class', 'classes')} for loss {loss!r}, got {n_seen}: use loss='softmax'"
        )
    notes = (
        []
        if n_seen == n_classes
        else [f"only {n_seen} of {plural(n_classes, 'class', 'classes')} occur in the targets"]
    )
    if loss == "softmax":
        return classes, Softmax(n_classes), classes, notes
    # One class against the rest for each of several outputs. The sign of a single one decides: the middle is zero.
    values = one_hot(classes, n_outputs) if n_outputs > 1 else 2 * classes - 1
    return values.to(torch.float64) if is_regression else values, loss, classes, notes


def _check_lengths(inputs: Any, targets: Any) -> None:
    n_inputs, n_targets = (len(values) if np.ndim(values) else 0 for values in (inputs, targets))
    if n_inputs == 0 or n_inputs != n_targets:
        raise InvalidInputError(
            f"expected one target per sample and at least one sample, got {plural(n_inputs, 'sample')} and "
            f"{plural(n_targets, 'target')}"
        )


def _as_inputs(values: Any) -> Tensor:
    inputs = values if isinstance(values, Tensor) else as_tensor("inputs", values)
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        raise InvalidInputError("expected finite inputs, got NaN or infinite values: impute or drop them first")
    return inputs


@dataclass(frozen=True, eq=False)
class ReadoutData:
    """The data of a read-out's program.

    Parameters
    ----------
    dictionary : Dictionary
        One row per sample and one column per neuron that the layer reads.
    values, loss, classes
        The targets of all samples, as :func:`check_targets` returns them.
    model_accuracy : float or None
        Accuracy of the model's own decisions.
    notes : list of str
        Remarks for readers of the result.
    """

    dictionary: Dictionary
    values: Tensor
    loss: str | Loss
    classes: Tensor | None
    model_accuracy: float | None
    notes: list[str]

    def problem(self, program: Program) -> ConvexProblem:
        """Build the convex program over all rows, at strengths that still have to be set."""
        centre = program.centre_of(self.dictionary)
        problem = ConvexProblem(
            self.dictionary, self.values, self.loss, penalty=program.kind, intercept=program.intercept
        )
        if centre is None:
            return problem
        # So weak that the critical strength, the unit of strengths that are chosen, is that of the loss alone.
        return problem.with_strength(problem.l1_strength, _PLACEHOLDER).with_centre(centre)

    def coef(self, weight: Tensor) -> Tensor:
        """Return the layer's weights as coefficients; neurons with equal spikes add up."""
        coef = weight.new_zeros(self.dictionary.n_atoms, len(weight))
        return coef.index_add_(0, self.dictionary.atom_of_column, weight.T)

    def certify(self, solution: Solution, weight: Tensor, bias: Tensor) -> Certificate:
        """Certify the layer's weights in the program of a solution."""
        coef = self.coef(weight)
        if torch.equal(coef, solution.coef) and torch.equal(bias, solution.intercept):
            return solution.certificate
        return certify(solution.problem, coef, bias, [solution.dual_point])[0]

    def outputs(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's output for every row."""
        return self.dictionary.matvec(self.coef(weight)) + bias

    def score(self, weight: Tensor, bias: Tensor) -> ReadoutScore:
        """Score the layer with weights of shape (n_outputs, n_inputs)."""
        outputs = self.outputs(weight, bias)
        problem = ConvexProblem(self.dictionary, self.values, self.loss)
        loss = float(problem.loss_value(outputs).nan_to_num(inf))  # weights may have diverged
        is_used = weight != 0
        return ReadoutScore(loss, self.accuracy(outputs), None, int(is_used.sum()), int(is_used.any(0).sum()))

    def accuracy(self, outputs: Tensor) -> float | None:
        """Return the share of rows whose largest output is right; None for real targets."""
        if self.classes is None:
            return None
        return float((decide_class(outputs).cpu() == self.classes).double().mean())

    def layer_weights(self, solution: Solution) -> tuple[Tensor, Tensor]:
        """Return a solution as weights and bias of the layer; of neurons with equal spikes, the first is read."""
        weight = solution.coef.new_zeros(solution.coef.shape[1], self.dictionary.n_columns)
        weight[:, self.dictionary.column_of_atom] = solution.coef.T
        return weight, solution.intercept


def record(
    runner: ModelRunner,
    layer: LinearLayer,
    batches: Batches,
    readout: Literal["mean", "last"],
    loss: str,
    notify: ProgressCallback,
) -> ReadoutData:
    """Run the model on every batch once and record the inputs of the layer."""
    n_outputs = layer.weight.shape[0]
    sums = []
    targets = []
    decisions = []
    are_spikes, n_steps = True, 0
    for number, (inputs, labels) in enumerate(batches, 1):
        output, calls = runner.record(layer, inputs)
        steps = runner.as_steps(calls, len(inputs))
        steps = steps[-1:] if readout == "last" else steps
        if n_steps not in (0, len(steps)):
            raise InvalidInputError(
                f"expected sequences of one length, got {n_steps} and {plural(len(steps), 'step')}: pad them"
            )
        n_steps = len(steps)
        are_spikes = are_spikes and n_steps < 2**15 and bool(((steps == 0) | (steps == 1)).all())
        # Counts of spikes fit into two bytes.
        sums.append(steps.sum(0, dtype=torch.float64).to(torch.int16 if are_spikes else torch.float64))
        targets.append(labels)
        decisions.append(runner.decisions(output, len(inputs), n_outputs))
        notify("recording", number, max(len(batches), number))
    values, checked_loss, classes, notes = check_targets(np.concatenate(targets), n_outputs, loss)
    if not are_spikes:
        notes.append("the layer reads real numbers, not spikes; the program is convex all the same")
    known, accuracy = [chosen for chosen in decisions if chosen is not None], None
    if classes is not None and len(known) == len(decisions):
        accuracy = float((torch.cat(known) == classes).double().mean())
    elif classes is not None:
        notes.append("the model's decisions cannot be derived from its output: pass decide=lambda output: ...")
    # Columns are means over the steps.
    if are_spikes and 8 * sum(batch.numel() for batch in sums) > DENSE_BYTES:
        dictionary: Dictionary = count_dictionary(torch.cat(sums), n_steps)
    else:
        dictionary = DenseDictionary(torch.cat([batch.to(torch.float64) for batch in sums]) / n_steps)
    return ReadoutData(dictionary, values, checked_loss, classes, accuracy, notes)
