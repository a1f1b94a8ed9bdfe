"""What training minimises on a training set, for gradients and for the convex program alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from torch import Tensor

from ..data.sequences import TrainingSet
from ..dictionary import Readout, SpikeDictionary
from .heads import Head, Rows, TimestepWeighting, make_heads, make_row_weight
from .losses import Loss, Softmax
from .penalties import Penalty
from .problem import ConvexProblem


@dataclass(frozen=True)
class Objective:
    """What training minimises, up to the penalty.

    Parameters
    ----------
    loss : str, Loss, or a mapping of heads to them
    readout : "last", "all" or "mean"
    head_weights : mapping of heads to float
    timestep_weighting : "uniform" or "ramped"
    """

    loss: str | Loss | Mapping[str, str | Loss]
    readout: Readout = "last"
    head_weights: Mapping[str, float] = field(default_factory=dict)
    timestep_weighting: TimestepWeighting = "uniform"

    def for_classes(self, n_classes: Mapping[str, int]) -> Self:
        """The objective with as many softmax outputs as there are classes, whether all occur in the data or not."""
        named = self.loss if isinstance(self.loss, Mapping) else dict.fromkeys(n_classes, self.loss)
        known = {
            head: Softmax(n_classes[head]) if loss == "softmax" and head in n_classes else loss
            for head, loss in named.items()
        }
        return replace(self, loss=known)

    def heads(self, data: TrainingSet) -> tuple[tuple[Head, ...], Tensor]:
        """The losses with their targets, one row for each value that the network puts out, and the rows' weights."""
        n_samples, n_steps, _ = data.inputs.shape
        are_steps = self.readout == "all"
        rows = Rows(
            n_samples * n_steps if are_steps else n_samples, n_steps if are_steps else 1, are_steps, data.inputs.device
        )
        heads = make_heads(rows, data.targets, self.loss, self.head_weights)
        return heads, make_row_weight(rows, self._row_weight(data, rows), self.timestep_weighting)

    def problem(
        self,
        dictionary: SpikeDictionary,
        data: TrainingSet,
        *,
        l1_strength: float = 1.0,
        penalty: str | Penalty = "l1",
        intercept: bool = False,
    ) -> ConvexProblem:
        """The convex program over a dictionary that was built from these sequences."""
        rows = Rows(dictionary.n_rows, dictionary.n_rows // len(data), self.readout == "all", dictionary.device)
        return ConvexProblem(
            dictionary,
            data.targets,
            self.loss,
            l1_strength,
            penalty=penalty,
            intercept=intercept,
            row_weight=self._row_weight(data, rows),
            timestep_weighting=self.timestep_weighting,
            head_weights=self.head_weights,
        )

    def _row_weight(self, data: TrainingSet, rows: Rows) -> Tensor | None:
        return None if data.sample_weight is None else data.sample_weight.repeat_interleave(rows.n_steps)
