"""What a model is trained on: sequences with targets and weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from .sequences import Sequences
from .tasks import SequenceData


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Sequences with their targets.

    Parameters
    ----------
    sequences : Sequences, or an array of shape (n_samples, n_steps, n_features)
    targets : mapping of heads to arrays, one entry a sequence or one a step
    sample_weight : array of shape (n_samples,), optional
    """

    sequences: Sequences
    targets: Mapping[str, Array]
    sample_weight: Tensor | None = None

    def __post_init__(self) -> None:
        """Check shapes."""
        object.__setattr__(self, "sequences", Sequences.of(self.sequences))
        if self.sample_weight is not None:
            weight = torch.as_tensor(self.sample_weight, dtype=torch.float64)
            if tuple(weight.shape) != (len(self),):
                raise InvalidInputError(
                    f"expected one sample weight for each of {len(self)} sequences, got shape {tuple(weight.shape)}"
                )
            object.__setattr__(self, "sample_weight", weight)

    @classmethod
    def of(cls, data: "SequenceData | TrainingSet") -> "TrainingSet":
        """The training set of a task's split."""
        return (
            data if isinstance(data, TrainingSet) else TrainingSet(Sequences(torch.from_numpy(data.inputs)), data.heads)
        )

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.sequences)

    @property
    def inputs(self) -> Tensor:
        """The inputs of the sequences, shape (n_samples, n_steps, n_features)."""
        return self.sequences.inputs

    def take(self, samples: Tensor) -> Self:
        """Some of the sequences."""
        weight = None if self.sample_weight is None else self.sample_weight[samples]
        # NumPy would take a tensor of one index for a number, and leave out the axis.
        places = samples.cpu().numpy()
        targets = {name: y[samples] if isinstance(y, Tensor) else y[places] for name, y in self.targets.items()}
        return type(self)(self.sequences.take(samples), targets, weight)

    def to(self, device: torch.device | str | None) -> Self:
        """The sequences on another device."""
        return type(self)(self.sequences.to(device), self.targets, self.sample_weight)
