"""Sequences of equal or unequal length, as one value."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ..core.checks import Array, check_sequences
from ..core.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Sequences:
    """A batch of sequences, padded at the end where they differ in length.

    Parameters
    ----------
    inputs : array or Tensor of shape (n_samples, n_steps, n_features)
        Finite numbers. What stands in the padding does not matter.
    lengths : integer array of shape (n_samples,), optional
        The number of steps of each sequence. None if every sequence has ``n_steps`` steps.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import Sequences
    >>> Sequences(np.zeros((2, 5, 3)), lengths=[5, 4])
    Sequences(2 × 5 steps × 3 features, lengths 4 to 5)
    """

    inputs: Tensor
    lengths: Tensor | None = None

    def __post_init__(self) -> None:
        """Check both, once."""
        inputs = as_inputs(self.inputs)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "lengths", _as_lengths(self.lengths, inputs))

    @classmethod
    def of(cls, data: "Sequences | Array") -> "Sequences":
        """Return ``data`` if it is Sequences, else an array as sequences of equal length."""
        return data if isinstance(data, Sequences) else Sequences(data)  # type: ignore[arg-type]

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.inputs)

    @property
    def n_steps(self) -> int:
        """Number of steps of the longest sequence."""
        return self.inputs.shape[1]

    @property
    def n_features(self) -> int:
        """Number of inputs per step."""
        return self.inputs.shape[2]

    @property
    def device(self) -> torch.device:
        """Device of the inputs."""
        return self.inputs.device

    def take(self, samples: Tensor | slice) -> Self:
        """Return some of the sequences.

        Parameters
        ----------
        samples : Tensor or slice
            Indices, or a slice of them, which copies nothing.

        Returns
        -------
        Sequences
            The chosen sequences, in that order.
        """
        return self._trusted(self.inputs[samples], None if self.lengths is None else self.lengths[samples])

    def to(self, device: torch.device | str | None) -> Self:
        """Return the sequences on another device.

        Parameters
        ----------
        device : torch.device, str or None
            The device; None leaves them where they are.

        Returns
        -------
        Sequences
            The same values.
        """
        return self._trusted(self.inputs.to(device), None if self.lengths is None else self.lengths.to(device))

    def is_inside(self) -> Tensor | None:
        """Return a mask of shape (n_samples, n_steps) that is False in the padding; None if there is no padding."""
        if self.lengths is None:
            return None
        return torch.arange(self.n_steps, device=self.device) < self.lengths[:, None]

    def _trusted(self, inputs: Tensor, lengths: Tensor | None) -> Self:
        """Parts of checked sequences need no second check."""
        other = object.__new__(type(self))
        object.__setattr__(other, "inputs", inputs)
        object.__setattr__(other, "lengths", lengths)
        return other

    def __repr__(self) -> str:
        """Return the sizes on one line."""
        sizes = f"{len(self)} × {self.n_steps} steps × {self.n_features} features"
        if self.lengths is None:
            return f"Sequences({sizes})"
        return f"Sequences({sizes}, lengths {int(self.lengths.min())} to {int(self.lengths.max())})"


def as_inputs(inputs: Array) -> Tensor:
    """Return inputs as a checked tensor of shape (n_samples, n_steps, n_features), on the device where they are."""
    if not isinstance(inputs, Tensor):
        try:
            inputs = torch.from_numpy(np.require(inputs, requirements=["C", "W"]))
        except (TypeError, ValueError):  # torch knows no arrays of objects, and NumPy makes none of ragged lists
            raise InvalidInputError(
                "expected numbers in sequences of equal length, as one array (n_samples, n_steps, n_features), got "
                "ragged or other ones: pad short sequences at the end and pass Sequences(inputs, lengths)"
            ) from None
    check_sequences(inputs)
    return inputs.byte() if inputs.dtype == torch.bool else inputs


def _as_lengths(lengths: Array | None, inputs: Tensor) -> Tensor | None:
    """Return checked lengths on the device of the inputs; None if every sequence fills its array."""
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths)
    n_samples, n_steps, _ = inputs.shape
    if lengths.dtype.is_floating_point or lengths.dtype == torch.bool or tuple(lengths.shape) != (n_samples,):
        raise InvalidInputError(
            f"expected lengths to be {n_samples} integers, got {lengths.dtype} of shape {tuple(lengths.shape)}"
        )
    if int(lengths.min()) < 1 or int(lengths.max()) > n_steps:
        raise InvalidInputError(
            f"expected lengths from 1 to {n_steps}, got values from {int(lengths.min())} to {int(lengths.max())}"
        )
    lengths = lengths.to(inputs.device, torch.int64)
    return None if bool((lengths == n_steps).all()) else lengths
