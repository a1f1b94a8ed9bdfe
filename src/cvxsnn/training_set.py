"""What a learner is given: sequences with targets, and the objective that they are for."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from .checks import Array
from .convex.heads import Head, Rows, TimestepWeighting, make_heads, make_row_weight
from .convex.losses import Loss, Softmax
from .convex.penalties import Penalty
from .convex.problem import ConvexProblem
from .dictionary import Readout, SpikeDictionary
from .errors import InvalidInputError
from .neurons.rollout import as_inputs, as_lengths
from .tasks import SequenceData


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Sequences with their targets.

    Parameters
    ----------
    inputs : array of shape (n_samples, n_steps, n_features)
    targets : mapping of heads to arrays, one entry a sequence or one a step
    sample_weight : array of shape (n_samples,), optional
    lengths : integer array of shape (n_samples,), optional
        Steps of each sequence, where they differ and short ones are padded at the end.
    """

    inputs: Tensor
    targets: Mapping[str, Array]
    sample_weight: Tensor | None = None
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        """Check shapes."""
        inputs = as_inputs(self.inputs)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "lengths", as_lengths(self.lengths, inputs))
        if self.sample_weight is not None:
            weight = torch.as_tensor(self.sample_weight, dtype=torch.float64)
            if tuple(weight.shape) != (len(inputs),):
                raise InvalidInputError(
                    f"expected one sample weight for each of {len(inputs)} sequences, got shape {tuple(weight.shape)}"
                )
            object.__setattr__(self, "sample_weight", weight)

    @classmethod
    def of(cls, data: "SequenceData | TrainingSet") -> "TrainingSet":
        """The training set of a task's split."""
        return data if isinstance(data, TrainingSet) else TrainingSet(torch.from_numpy(data.inputs), data.heads)

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.inputs)

    def take(self, samples: Tensor) -> Self:
        """Some of the sequences."""
        parts = [None if value is None else value[samples] for value in (self.sample_weight, self.lengths)]
        # NumPy would take a tensor of one index for a number, and leave out the axis.
        places = samples.cpu().numpy()
        targets = {name: y[samples] if isinstance(y, Tensor) else y[places] for name, y in self.targets.items()}
        return type(self)(self.inputs[samples], targets, *parts)

    def to(self, device: torch.device | str | None) -> Self:
        """The inputs on another device."""
        lengths = None if self.lengths is None else self.lengths.to(device)
        return type(self)(self.inputs.to(device), self.targets, self.sample_weight, lengths)


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
