"""The data of a read-out's program: one pass over the batches records the layer's inputs and the model's decisions."""

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...convex import ConvexProblem, Solution
from ...core.errors import InvalidInputError
from ...dictionary import DenseDictionary, Dictionary, count_dictionary
from .batches import Batches, Targets, check_targets
from .layers import LinearLayer
from .options import ProgressCallback
from .result import ReadoutScore
from .runner import ModelRunner, largest

DENSE_BYTES = 2**30
"""Spike counts are float64 up to this size: several times as fast as unpacking bits for every product."""


@dataclass(frozen=True, eq=False)
class ReadoutData:
    """The data of a read-out's program.

    Parameters
    ----------
    dictionary : Dictionary
        One row per sample and one column per neuron that the layer reads.
    targets : Targets
        The targets of all samples.
    model_accuracy : float or None
        Accuracy of the model's own decisions.
    notes : tuple of str
        Remarks for readers of the result.
    """

    dictionary: Dictionary
    targets: Targets
    model_accuracy: float | None
    notes: tuple[str, ...]

    def problem(self, penalty: Any, intercept: bool, rows: Tensor | None = None) -> ConvexProblem:
        """Build the convex program over all rows, or over some of them."""
        dictionary = self.dictionary if rows is None else self.dictionary.take_rows(rows)
        values = self.targets.values if rows is None else self.targets.values[rows]
        return ConvexProblem(dictionary, values, self.targets.loss, penalty=penalty, intercept=intercept)

    def outputs(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's output for every row."""
        coef = weight.new_zeros(self.dictionary.n_atoms, len(weight))
        return self.dictionary.matvec(coef.index_add_(0, self.dictionary.atom_of_column, weight.T)) + bias

    def score(self, weight: Tensor, bias: Tensor) -> ReadoutScore:
        """Score the layer with weights of shape (n_outputs, n_inputs)."""
        outputs = self.outputs(weight, bias)
        loss = float(self.problem("l1", False).loss_value(outputs).nan_to_num(inf))  # weights may have diverged
        is_used = weight != 0
        return ReadoutScore(loss, self.accuracy(outputs), None, int(is_used.sum()), int(is_used.any(0).sum()))

    def accuracy(self, outputs: Tensor) -> float | None:
        """Return the share of rows whose largest output is right; None for real targets."""
        if self.targets.classes is None:
            return None
        return float((largest(outputs).cpu() == self.targets.classes).double().mean())

    def has_contrast(self, rows: Tensor) -> bool:
        """Return whether the targets of every output differ in these rows."""
        values = self.targets.values[rows]
        return self.targets.classes is None or bool((values.amin(0) != values.amax(0)).all())

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
    sums, targets, decisions = [], [], []
    are_spikes, n_steps = True, 0
    for number, (inputs, labels) in enumerate(batches, 1):
        output, steps = runner.record(layer, inputs)
        steps = steps[-1:] if readout == "last" else steps
        if n_steps not in (0, len(steps)):
            raise InvalidInputError(f"expected sequences of one length, got {n_steps} and {len(steps)} steps: pad them")
        n_steps = len(steps)
        are_spikes = are_spikes and n_steps < 2**15 and bool(((steps == 0) | (steps == 1)).all())
        # Counts of spikes fit into two bytes.
        sums.append(steps.sum(0, dtype=torch.float64).to(torch.int16 if are_spikes else torch.float64))
        targets.append(labels)
        decisions.append(runner.decisions(output, len(inputs), n_outputs))
        notify("recording", number, max(len(batches), number))
    checked = check_targets(np.concatenate(targets), n_outputs, loss)
    notes, accuracy = checked.notes, None
    if not are_spikes:
        notes += ("the layer reads real numbers, not spikes; the program is convex all the same",)
    known = [classes for classes in decisions if classes is not None]
    if checked.classes is not None and len(known) == len(decisions):
        accuracy = float((torch.cat(known) == checked.classes).double().mean())
    elif checked.classes is not None:
        notes += ("the model's decisions cannot be derived from its output: pass decide=lambda output: ...",)
    # Columns are means over the steps.
    if are_spikes and 8 * sum(batch.numel() for batch in sums) > DENSE_BYTES:
        dictionary: Dictionary = count_dictionary(torch.cat(sums), n_steps)
    else:
        dictionary = DenseDictionary(torch.cat([batch.to(torch.float64) for batch in sums]) / n_steps)
    return ReadoutData(dictionary, checked, accuracy, notes)
