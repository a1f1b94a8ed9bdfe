"""Sequences of equal or unequal length as one value, and sequences with targets to train on."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, as_array, as_real, as_tensor, check_fields, check_number, check_sequences
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from .task import SequenceData

FILL_SEQUENCES = "fill the gaps with SequenceImputer first"
"""Advice in errors about NaN in sequences."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """A batch of sequences, padded at the end where they differ in length.

    Parameters
    ----------
    inputs : array or Tensor of shape (n_samples, n_steps, n_features)
        Finite numbers. The values in the padding do not matter.
    lengths : integer array of shape (n_samples,), optional
        The number of steps of each sequence. None if every sequence has ``n_steps`` steps.

    Attributes
    ----------
    n_samples : int
        Number of sequences.
    n_steps : int
        Number of steps of the longest sequence.
    n_features : int
        Number of inputs per step.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import Sequences
    >>> Sequences(np.zeros((2, 5, 3)), lengths=[5, 4])
    Sequences(2 × 5 steps × 3 features, lengths 4 to 5)
    """

    inputs: Tensor
    lengths: Tensor | None = None
    n_samples: int = field(init=False)
    n_steps: int = field(init=False)
    n_features: int = field(init=False)

    def __post_init__(self) -> None:
        """Check both, once."""
        inputs, lengths = as_inputs(self.inputs), self.lengths
        if lengths is not None:
            lengths = check_lengths(lengths, tuple(inputs.shape)).to(inputs.device, torch.int64, copy=True)
            # None allows the paths without masks.
            lengths = None if bool((lengths == inputs.shape[1]).all()) else lengths
        self._set(inputs, lengths)

    @classmethod
    def of(cls, data: "Sequences | Array") -> "Sequences":
        """Return sequences as they are, and an array as sequences of equal length.

        Parameters
        ----------
        data : Sequences, array or Tensor
            An array must have shape (n_samples, n_steps, n_features).

        Returns
        -------
        Sequences
            The data, checked.
        """
        return data if isinstance(data, Sequences) else Sequences(data)  # type: ignore[arg-type]

    @classmethod
    def from_raw(cls, data: Any) -> "Sequences":
        """Convert a user's data to sequences, in float64, padded with zeros at the end.

        Parameters
        ----------
        data : array, Tensor or sequence of arrays
            One array of shape (n_samples, n_steps, n_features), or one array of shape (n_steps_i, n_features) per
            sequence.

        Returns
        -------
        Sequences
            The data on the CPU.

        Examples
        --------
        >>> import numpy as np
        >>> from cvxsnn.data import Sequences
        >>> Sequences.from_raw([np.ones((4, 3)), np.ones((2, 3))])
        Sequences(2 × 4 steps × 3 features, lengths 2 to 4)
        """
        data, lengths = as_array("sequences", data), None
        if not isinstance(data, np.ndarray) or data.dtype == object:
            parts = as_matrices(data)
            lengths = torch.tensor([len(part) for part in parts])
            data = np.zeros((len(parts), int(lengths.max()), parts[0].shape[1]))
            for row, part in zip(data, parts, strict=True):
                row[: len(part)] = part
        values = _as_real(data)
        check_finite(values, "sequences", FILL_SEQUENCES)
        return Sequences(torch.from_numpy(values), lengths)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return self.n_samples

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

    def trim(self) -> Self:
        """Return the sequences without steps that are padding in all of them.

        Returns
        -------
        Sequences
            As many steps as the longest sequence has; a view.
        """
        if self.lengths is None:
            return self
        longest = int(self.lengths.max())
        return self._trusted(self.inputs[:, :longest], None if bool((self.lengths == longest).all()) else self.lengths)

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
        """Return where there are steps and not padding.

        Returns
        -------
        Tensor or None
            A mask of shape (n_samples, n_steps) that is False in the padding; None if there is no padding.
        """
        if self.lengths is None:
            return None
        return torch.arange(self.n_steps, device=self.device) < self.lengths[:, None]

    def _trusted(self, inputs: Tensor, lengths: Tensor | None) -> Self:
        """Return parts of checked sequences without a second check."""
        return object.__new__(type(self))._set(inputs, lengths)

    def _set(self, inputs: Tensor, lengths: Tensor | None) -> Self:
        """Set all attributes; the sizes are read far too often for properties."""
        sizes = zip(("n_samples", "n_steps", "n_features"), inputs.shape, strict=True)
        vars(self).update(sizes, inputs=inputs, lengths=lengths)
        return self

    def __repr__(self) -> str:
        """Return the sizes on one line."""
        sizes = f"{len(self)} × {plural(self.n_steps, 'step')} × {plural(self.n_features, 'feature')}"
        if self.lengths is None:
            return f"Sequences({sizes})"
        return f"Sequences({sizes}, lengths {int(self.lengths.min())} to {int(self.lengths.max())})"


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Sequences with their targets.

    Parameters
    ----------
    sequences : Sequences or array
        The inputs; an array must have shape (n_samples, n_steps, n_features).
    targets : mapping from str to array
        The targets of each head, with one entry per sequence or per step.
    sample_weight : array of shape (n_samples,), optional
        The weight of each sequence. None weighs all alike.
    groups : integer array of shape (n_samples,), optional
        The group of each sequence: those of one group are left out together, whoever judges. None if each is its own.

    Attributes
    ----------
    inputs : Tensor of shape (n_samples, n_steps, n_features)
        Inputs of the sequences.
    n_samples : int
        Number of sequences.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import TrainingSet
    >>> data = TrainingSet(np.zeros((4, 5, 3)), {"label": np.array([0, 1, 1, 0])})
    >>> len(data), data.sequences.n_steps
    (4, 5)
    """

    sequences: Sequences
    targets: Mapping[str, Array]
    sample_weight: Tensor | None = None
    groups: Tensor | None = None
    inputs: Tensor = field(init=False)
    n_samples: int = field(init=False)

    def __post_init__(self) -> None:
        """Check shapes."""
        sequences = Sequences.of(self.sequences)
        n_samples = sequences.n_samples
        vars(self).update(sequences=sequences, inputs=sequences.inputs, n_samples=n_samples)
        if self.sample_weight is not None:
            weight = torch.tensor(as_real("sample_weight", self.sample_weight))  # a copy: data may be read-only
            if weight.shape != (n_samples,):
                raise InvalidInputError(
                    f"expected one sample weight for each of {plural(n_samples, 'sequence')}, got shape "
                    f"{tuple(weight.shape)}"
                )
            vars(self).update(sample_weight=weight)
        if self.groups is not None:
            groups = torch.tensor(as_array("groups", self.groups))
            if groups.shape != (n_samples,) or groups.dtype.is_floating_point:
                raise InvalidInputError(
                    f"expected one integer for the group of each of {plural(n_samples, 'sequence')}, got "
                    f"{groups.dtype} of shape {tuple(groups.shape)}"
                )
            # If each sequence is its own group, there is nothing to leave out together.
            vars(self).update(groups=None if len(torch.unique(groups)) == n_samples else groups)

    @classmethod
    def of(cls, data: "SequenceData | TrainingSet") -> "TrainingSet":
        """Return the training set of a task's split.

        Parameters
        ----------
        data : SequenceData or TrainingSet
            A split of a task; a training set is returned as it is.

        Returns
        -------
        TrainingSet
            The same sequences and targets.
        """
        return data if isinstance(data, TrainingSet) else TrainingSet(Sequences.of(data.inputs), data.heads)

    def __len__(self) -> int:
        """Return the number of sequences."""
        return self.n_samples

    def take(self, samples: Tensor) -> Self:
        """Return some of the sequences, with their targets, weights and groups.

        Parameters
        ----------
        samples : Tensor
            Indices of the sequences.

        Returns
        -------
        TrainingSet
            The chosen sequences, in that order.
        """
        weight, groups = (None if own is None else own[samples] for own in (self.sample_weight, self.groups))
        # NumPy reads a tensor with a single index as a number, and drops the axis.
        indices = samples.cpu().numpy()
        targets = {name: y[samples] if isinstance(y, Tensor) else y[indices] for name, y in self.targets.items()}
        return type(self)(self.sequences.take(samples), targets, weight, groups)

    def to(self, device: torch.device | str | None) -> Self:
        """Return the training set with its inputs on another device.

        Parameters
        ----------
        device : torch.device, str or None
            The device; None leaves them where they are.

        Returns
        -------
        TrainingSet
            The same values.
        """
        return type(self)(self.sequences.to(device), self.targets, self.sample_weight, self.groups)


@dataclass(frozen=True)
class DataFingerprint:
    """A fingerprint of training data, to recognise them later.

    It does not depend on padding, on the unit of the weights, or on differences between inputs below the resolution of
    neurons.

    Parameters
    ----------
    n_samples : int
        Number of sequences.
    inputs : str
        A hash of the sequences.
    targets : str
        A hash of the targets.
    samples : str
        A hash of the pairs of both, independent of their order.
    weights : float
        The weighted mean of fixed numbers, one per sequence.
    """

    n_samples: int
    inputs: str
    targets: str
    samples: str
    weights: float

    def __post_init__(self) -> None:
        """Check the types."""
        check_fields(self, "n_samples")
        check_number("weights", self.weights)
        if not all(isinstance(value, str) for value in (self.inputs, self.targets, self.samples)):
            raise InvalidInputError("expected hashes of training data as text, got other types")

    @classmethod
    def of(cls, data: TrainingSet) -> "DataFingerprint":
        """Return the fingerprint of a training set.

        Parameters
        ----------
        data : TrainingSet
            The data.

        Returns
        -------
        DataFingerprint
            Its fingerprint.
        """
        n_samples, lengths = data.n_samples, data.sequences.lengths
        ends = [data.sequences.n_steps] * n_samples if lengths is None else lengths.tolist()
        inputs = []
        for start in range(0, n_samples, 4096):  # blocks, so that no copy of all inputs is needed
            block = data.inputs[start : start + 4096].cpu().double().numpy()
            with np.errstate(over="ignore"):
                # Neurons round inputs to this grid; adding zero turns -0.0 into 0.0, which has other bits.
                block = np.round(block * 2.0**16) + 0.0
            inputs += [_hash(row[:end]) for row, end in zip(block, ends[start:], strict=False)]
        columns = [as_real("targets", head).reshape(n_samples, -1) for head in data.targets.values()]
        targets = [_hash(row) for row in np.hstack(columns) + 0.0]
        weight = np.ones(n_samples) if data.sample_weight is None else data.sample_weight.cpu().numpy()
        # Multiples of the golden ratio modulo one: all different, so that exchanged weights change the mean.
        numbers = np.modf(np.arange(1, n_samples + 1) * 0.6180339887498949)[0]
        return cls(
            n_samples,
            _hash(*inputs),
            _hash(*targets),
            _hash(*sorted(sequence + target for sequence, target in zip(inputs, targets, strict=True))),
            float(weight @ numbers / weight.sum()),
        )

    def differences(self, other: "DataFingerprint") -> list[str]:
        """Return the differences from other data in words.

        Parameters
        ----------
        other : DataFingerprint
            The fingerprint of the other data.

        Returns
        -------
        list of str
            The differences; empty if there are none.
        """
        if other.n_samples != self.n_samples:
            return [f"the number of samples ({other.n_samples} instead of {self.n_samples})"]
        # The hash of the pairs ignores their order, the other two do not.
        if self.samples == other.samples and (self.inputs, self.targets) != (other.inputs, other.targets):
            return ["the order of the samples"]
        different = [name for name in ("inputs", "targets") if getattr(self, name) != getattr(other, name)]
        if abs(self.weights - other.weights) > 1e-9:  # weights in another unit are rounded differently
            different.append("sample weights")
        return different


def _hash(*parts: Any) -> str:
    """Return a hash of arrays with their shapes, or of texts."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else f"{part.shape}".encode() + part.tobytes())
    return digest.hexdigest()


def stratified_order(labels: npt.NDArray[Any] | None, generator: np.random.Generator, n_samples: int) -> Tensor:
    """Return a random order in which every prefix is approximately stratified by class.

    Parameters
    ----------
    labels : array of shape (n_samples,), or None
        The class of each sample. None if there are no classes.
    generator : Generator
        Random number generator.
    n_samples : int
        The number of samples.

    Returns
    -------
    Tensor of shape (n_samples,), dtype int64
        Indices of the samples. The first ``n_classes`` of them have one of each class.
    """
    order = generator.permutation(n_samples)
    if labels is None:
        return torch.from_numpy(order)
    classes, counts = np.unique(labels[order], return_inverse=True, return_counts=True)[1:]
    by_class = np.argsort(classes, kind="stable")
    # Each class is spread evenly over [0, 1) with a random offset; first members get negative shares and come first.
    rank = np.concatenate([np.arange(count) for count in counts])
    share = (rank + generator.random(len(counts)).repeat(counts)) / counts.repeat(counts)
    return torch.from_numpy(order[by_class[np.argsort(np.where(rank == 0, share - 1, share), kind="stable")]])


def deal_groups(
    groups: npt.NDArray[Any], labels: npt.NDArray[Any], n_folds: int, generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Divide groups of samples among folds, stratified by class as well as whole groups allow.

    Parameters
    ----------
    groups : array of shape (n_samples,)
        The group of each sample.
    labels : array of shape (n_samples,)
        The class of each sample; equal numbers if there are no classes.
    n_folds : int
        The number of folds; fewer groups are as many folds.
    generator : Generator
        Random number generator.

    Returns
    -------
    array of shape (n_samples,), dtype int64
        The fold of each sample. A group that has all samples of a class is in none, which is −1: without it, nothing
        could be learned about the class.
    """
    groups, classes = (np.unique(values, return_inverse=True)[1] for values in (groups, labels))
    counts = np.zeros((groups.max() + 1, classes.max() + 1))
    np.add.at(counts, (groups, classes), 1)
    is_alone = (counts > 0).sum(0) == 1
    order = generator.permutation(np.flatnonzero(counts[:, is_alone].sum(1) == 0))
    n_folds = min(n_folds, len(order))
    if n_folds < 2:
        raise InvalidInputError(
            "expected two groups or more that can be left out, because other groups have their classes too, got "
            f"{len(order)}: divide the samples into more groups"
        )
    fold_of_group, held = np.full(len(counts), -1), np.zeros((n_folds, counts.shape[1]))
    # The largest groups first, each to the fold with the smallest shares of its classes, or else the fewest samples.
    for group in order[np.lexsort((counts.argmax(1)[order], -counts.sum(1)[order]))]:
        shares = held @ (counts[group] / counts.sum(0) ** 2)
        fold_of_group[group] = fold = np.lexsort((held.sum(1), shares))[0]
        held[fold] += counts[group]
    # In random order, or the first fold would always have the largest group.
    fold_of_sample: npt.NDArray[np.int64] = np.append(generator.permutation(n_folds), -1)[fold_of_group[groups]]
    return fold_of_sample


_STEP_ROWS = 4
"""A step has a fixed cost, as much as this many sequences add to it."""


def similar_lengths(lengths: Tensor) -> list[Tensor]:
    """Divide sequences into groups of similar length, so that little of a group is padding.

    Lengths between two powers of two belong together. Shorter sequences join them if their padding costs less than the
    steps of a group of their own.

    Parameters
    ----------
    lengths : Tensor of shape (n_samples,), dtype int64
        The number of steps of each sequence.

    Returns
    -------
    list of Tensor
        The sequences of each group in rising order, the group of the longest first.
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    sorted_lengths = lengths[order].tolist()
    powers = [(length - 1).bit_length() for length in sorted_lengths]
    edges = [index for index in range(1, len(powers)) if powers[index] < powers[index - 1]]
    starts = [0]
    for start, stop in pairwise([*edges, len(powers)]):
        if (stop - start) * (sorted_lengths[starts[-1]] - sorted_lengths[start]) > _STEP_ROWS * sorted_lengths[start]:
            starts.append(start)
    return [order[start:stop].sort().values for start, stop in pairwise([*starts, len(powers)])]


def window_of_step(step: Any, n_windows: int, n_steps: Any) -> Any:
    """Return the window of time that contains a step, if the steps of a sequence are divided into equal windows.

    Parameters
    ----------
    step : int or Tensor
        Steps, from 0.
    n_windows : int
        Number of windows.
    n_steps : int or Tensor
        The number of steps of the sequence. Steps beyond it are in windows from ``n_windows`` on.

    Returns
    -------
    int or Tensor
        The window, from 0: step t of n is in window ⌊t · n_windows / n⌋.
    """
    return step * n_windows // n_steps


def window_shares(n_windows: int, n_steps: int, lengths: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight of a spike at each step in the mean of each window, for differentiable sums.

    Parameters
    ----------
    n_windows : int
        Number of windows.
    n_steps : int
        Number of steps, padding included.
    lengths : Tensor of shape (...), dtype int64
        The number of steps of each sequence.
    dtype : torch.dtype
        Type of the result.

    Returns
    -------
    Tensor of shape (..., n_steps, n_windows)
        ``n_windows / n`` in the window of a step of a sequence of n steps, and zero elsewhere.
    """
    steps = torch.arange(n_steps, device=lengths.device)
    window = window_of_step(steps, n_windows, lengths[..., None])
    is_inside = window[..., None] == torch.arange(n_windows, device=lengths.device)
    return torch.where(is_inside, n_windows / lengths.to(dtype)[..., None, None], 0.0)


def as_inputs(inputs: "Sequences | Array") -> Tensor:
    """Return inputs as a checked tensor of shape (n_samples, n_steps, n_features), on the device where they are."""
    if isinstance(inputs, Sequences):
        if inputs.lengths is None:
            return inputs.inputs
        raise InvalidInputError(
            f"expected sequences of equal length, got {inputs!r}: crop them, or drop those of other lengths"
        )
    tensor = as_tensor("inputs", inputs, "use Sequences.from_raw, which pads sequences of unequal length")
    check_sequences(tensor)
    return tensor.byte() if tensor.dtype == torch.bool else tensor


def check_lengths(lengths: Array, shape: tuple[int, ...]) -> Tensor:
    """Return lengths of sequences as a tensor, if they agree with inputs of this shape."""
    tensor = as_tensor("lengths", lengths)
    is_whole = not (tensor.dtype.is_floating_point or tensor.dtype == torch.bool)
    if len(shape) != 3 or not is_whole or tuple(tensor.shape) != shape[:1] or 0 in shape:
        raise InvalidInputError(
            f"expected lengths to be {shape[0]} integers, got {tensor.dtype} of shape {tuple(tensor.shape)} for inputs "
            f"of shape {shape}: pass inputs (n_samples, n_steps, n_features) and one length per sequence"
        )
    if int(tensor.min()) < 1 or int(tensor.max()) > shape[1]:
        raise InvalidInputError(
            f"expected lengths from 1 to {shape[1]}, got values from {int(tensor.min())} to {int(tensor.max())}"
        )
    return tensor


def as_matrices(data: Any) -> list[npt.NDArray[np.float64]]:
    """Convert a user's data to one matrix of shape (n_steps_i, n_features) per sequence; it may have NaN."""
    data = as_array("sequences", data)
    if isinstance(data, np.ndarray) and data.dtype != object:
        return list(_as_real(data))
    parts = [as_matrix(number, part) for number, part in enumerate(data)]
    features = {part.shape[1] for part in parts}
    if len(features) > 1:
        raise InvalidInputError(
            f"expected every sequence to have the same number of features per step, got {sorted(features)}"
        )
    lengths = [len(part) for part in parts]
    if min(lengths) == 0:
        raise InvalidInputError(f"expected at least one step per sequence, got none in sequence {lengths.index(0)}")
    return parts


def check_finite(data: npt.NDArray[np.float64], name: str, remedy: str | None) -> None:
    """Refuse infinite values, and NaN unless ``remedy``, the advice about NaN, is None."""
    if np.isinf(data).any():
        raise InvalidInputError(f"expected finite {name}, got infinite values: replace or drop them first")
    if remedy is not None and np.isnan(data).any():
        raise InvalidInputError(f"expected finite {name}, got NaN: {remedy}")


def as_matrix(key: Any, part: Any) -> npt.NDArray[np.float64]:
    """Return one sequence as numbers of shape (n_steps, n_features); ``key`` names it in messages."""
    if hasattr(part, "iloc"):  # a table, whose missing values may be pandas' own
        kinds = {dtype.kind for dtype in (part.dtypes if part.ndim == 2 else [part.dtype])}
        part = part.to_numpy(dtype=np.float64 if kinds <= {*"biuf"} else object, na_value=np.nan)
    matrix = as_real(f"sequence {key!r}", part)
    if matrix.ndim != 2:
        raise InvalidInputError(f"expected sequence {key!r} to have shape (n_steps, n_features), got {matrix.shape}")
    return matrix


def _as_real(data: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if 0 in data.shape:
        raise InvalidInputError(f"expected non-empty sequences, got shape {data.shape}")
    return np.require(as_real("sequences", data), requirements="W")  # torch warns of read-only arrays
