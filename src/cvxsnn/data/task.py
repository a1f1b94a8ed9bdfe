"""Sequences with their targets, and the splits of one task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ..core.checks import check_positive_int, check_sequences
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.seeds import child_generator

Targets = npt.NDArray[np.int64] | Mapping[str, npt.NDArray[np.int64]]
"""Classes: one array, or an array for each head by name.

Examples
--------
>>> import cvxsnn as cs
>>> task = cs.tasks.addition(2, seed=0)
>>> sorted(task.train.targets)
['carry', 'sum']
"""

UNNAMED_HEAD = "label"


@dataclass(frozen=True, eq=False)
class SequenceData:
    """Sequences with one target per sequence or one per step, for one head or several.

    Parameters
    ----------
    inputs : array of shape (n_samples, n_steps, n_features)
        Finite numbers, kept as float32.
    targets : integer array, or mapping from head to integer array
        Classes counted from 0, kept as int64; each array has shape (n_samples,) for one label per sequence or
        (n_samples, n_steps) for one per step.

    Attributes
    ----------
    heads : mapping from head to integer array
        Targets of each head; a single unnamed head is called "label".
    n_samples : int
        Number of sequences.
    n_steps : int
        Length of every sequence.
    n_features : int
        Number of inputs per step.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data import SequenceData
    >>> data = SequenceData(np.zeros((5, 3, 2)), np.arange(5) % 2)
    >>> len(data.take(slice(2))), data.n_steps, list(data.heads)
    (2, 3, ['label'])
    """

    inputs: npt.NDArray[np.float32]
    targets: Targets
    heads: Mapping[str, npt.NDArray[np.int64]] = field(init=False)
    n_samples: int = field(init=False)
    n_steps: int = field(init=False)
    n_features: int = field(init=False)

    def __post_init__(self) -> None:
        with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite, and is refused as such
            inputs = np.asarray(self.inputs, dtype=np.float32)
        check_sequences(inputs)
        is_named = isinstance(self.targets, Mapping)
        named: Any = self.targets if is_named else {UNNAMED_HEAD: self.targets}
        heads = {head: _as_classes(head, array, inputs.shape) for head, array in named.items()}
        if not heads:
            raise InvalidInputError("expected targets for at least one head, got an empty mapping")
        sizes = zip(("n_samples", "n_steps", "n_features"), inputs.shape, strict=True)
        vars(self).update(sizes, inputs=inputs, targets=heads if is_named else heads[UNNAMED_HEAD], heads=heads)

    def __len__(self) -> int:
        return self.n_samples

    def take(self, indices: Sequence[int] | npt.NDArray[Any] | slice) -> "SequenceData":
        """Return some of the sequences, in the order of their indices.

        Parameters
        ----------
        indices : sequence of int, mask or slice
            Which sequences.

        Returns
        -------
        SequenceData
            The sequences with their targets.
        """
        targets: Any = {head: targets[indices] for head, targets in self.heads.items()}
        return SequenceData(self.inputs[indices], targets if self.targets is self.heads else targets[UNNAMED_HEAD])

    def split(self, **splits: Any) -> dict[str, Any]:
        """Return some of the sequences for each split, as arguments of :class:`Task`.

        Parameters
        ----------
        **splits : sequence of int, mask or slice
            Which sequences are in each split.

        Returns
        -------
        dict of str to SequenceData
            The sequences of each split.
        """
        return {name: self.take(indices) for name, indices in splits.items()}


def _as_classes(head: str, targets: npt.ArrayLike, inputs_shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    classes = np.asarray(targets)
    per_sequence, per_step = inputs_shape[:1], inputs_shape[:2]
    if classes.shape not in (per_sequence, per_step):
        raise InvalidInputError(
            f"expected targets of head {head!r} to have shape {per_sequence} (one per sequence) or {per_step} "
            f"(one per step) to agree with inputs of shape {inputs_shape}, got shape {classes.shape}"
        )
    if not np.issubdtype(classes.dtype, np.integer):
        raise InvalidInputError(
            f"expected targets of head {head!r} to be integers, got {classes.dtype}: "
            "number the classes first, for example with np.unique(targets, return_inverse=True)"
        )
    if classes.min() < 0:
        raise InvalidInputError(f"expected targets of head {head!r} to count from 0, got {classes.min()}")
    return classes.astype(np.int64, copy=False)


@dataclass(frozen=True)
class Feedback:
    """The loop of an autoregressive task.

    At every step but the first, input number ``feature`` is the class that the model itself predicted for ``head``
    one step before; at the first step it is as given.

    Parameters
    ----------
    head : str
        The head whose predictions are fed back.
    feature : int
        The input that they become.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> cs.tasks.addition(2, seed=0).feedback
    Feedback(head='carry', feature=2)
    """

    head: str
    feature: int

    def check(self, data: SequenceData) -> None:
        """Raise :class:`~cvxsnn.InvalidInputError` if data lack this head or this feature.

        Parameters
        ----------
        data : SequenceData
            The data to check.
        """
        if self.head not in data.heads or self.feature not in range(data.n_features):
            raise InvalidInputError(
                f"expected feedback from one of the heads {sorted(data.heads)} to a feature below {data.n_features}, "
                f"got {self}"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """Splits of a task, and everything else that an experiment needs.

    Parameters
    ----------
    name : str
        The name of the task.
    train : SequenceData
        Data to fit.
    val : SequenceData
        Data for model selection.
    test : SequenceData
        Data for the scores that are reported.
    finetune : SequenceData, optional
        A second training draw, for methods of two stages.
    finetune_val : SequenceData, optional
        A second validation draw, likewise.
    ood : mapping from name to SequenceData
        Test sets with another distribution than ``train``, for example longer sequences.
    n_classes : mapping from head to int
        Number of classes per head.
    feedback : Feedback, optional
        The input that a model must provide for itself when it runs alone.
    settings : mapping from str to object
        The arguments that made this task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=20, n_test=10)
    >>> task.name, task.train.inputs.shape, task.n_classes["label"]
    ('first_last_xor', (40, 3, 2), 2)
    """

    name: str
    train: SequenceData
    val: SequenceData
    test: SequenceData
    finetune: SequenceData | None = None
    finetune_val: SequenceData | None = None
    ood: Mapping[str, SequenceData] = field(default_factory=dict)
    n_classes: Mapping[str, int]
    feedback: Feedback | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for split, data in self.splits.items():
            largest = {head: int(targets.max()) for head, targets in data.heads.items()}
            if data.n_features != self.train.n_features or largest.keys() != self.n_classes.keys():
                raise InvalidInputError(
                    f"expected {plural(self.train.n_features, 'feature')} and heads {sorted(self.n_classes)} in split "
                    f"{split!r}, as in train and n_classes, got {data.n_features} and {sorted(largest)}"
                )
            if any(largest[head] >= n_classes for head, n_classes in self.n_classes.items()):
                raise InvalidInputError(
                    f"expected classes below {dict(self.n_classes)} in split {split!r}, got up to {largest}"
                )
        if self.feedback is not None:
            self.feedback.check(self.train)

    @property
    def splits(self) -> dict[str, SequenceData]:
        """Every split there is, by name; out-of-distribution ones are called "ood 2x" and so on."""
        named = {split: getattr(self, split) for split in ("train", "val", "test", "finetune", "finetune_val")}
        present = {split: data for split, data in named.items() if data is not None}
        return present | {f"ood {key}": data for key, data in self.ood.items()}


def check_sizes(settings: dict[str, Any], *names: str) -> None:
    """Replace the named settings by positive integers, or refuse them."""
    for name in names:
        settings[name] = check_positive_int(name, settings[name])


def draw_splits(draw: Callable[[str, int], SequenceData], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return independent draws for all splits; ``finetune`` and ``finetune_val`` have the sizes of the first ones."""
    n_train, n_val = settings["n_train"], settings["n_val"]
    sizes = {"train": n_train, "val": n_val, "test": settings["n_test"], "finetune": n_train, "finetune_val": n_val}
    return {split: draw(split, size) for split, size in sizes.items()}


def hold_out(groups: npt.NDArray[Any], argument: str, settings: Mapping[str, Any], task: str) -> npt.NDArray[np.bool_]:
    """Return which samples are held out for validation: those of some groups, drawn at random.

    Parameters
    ----------
    groups : array of shape (n_samples,)
        The group of each sample, for example its speaker.
    argument : str
        The setting that is the number of groups to hold out.
    settings : mapping from str to object
        The arguments of the task, with its ``seed``.
    task : str
        The name of the task.

    Returns
    -------
    array of shape (n_samples,), dtype bool
        True for samples that are held out.
    """
    distinct, n_held_out = np.unique(groups), settings[argument]
    if n_held_out >= len(distinct):
        raise InvalidInputError(
            f"expected {argument} below {len(distinct)}, the number in the training data, got {n_held_out}"
        )
    drawn = child_generator(settings["seed"], task, "validation").permutation(distinct)[:n_held_out]
    return np.isin(groups, drawn)
