"""Pools of witnesses that do not fit into memory: they are stored as seeds, and drawn again block by block."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..core.checks import Array, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.seeds import check_seed, child_seed
from ..data.sequences import Sequences
from .families import as_family, sample_witnesses
from .tap_sampling import N_CALIBRATION, Calibration
from .witness_set import Provenance, WitnessSet, check_independent, join_witnesses, single_out


@dataclass(frozen=True)
class WitnessPool:
    """Sampled witnesses that are stored as seeds.

    Parameters
    ----------
    n_features : int
        Input features per step.
    family : mapping of str to object
        A family (:class:`cvxsnn.witnesses.Gaussian` or :class:`cvxsnn.witnesses.Delayed`), or its settings. Each
        subnetwork has a last hidden layer of ``family["hidden"][-1]`` witnesses, which share the layers below.
    n_witnesses : int
        Number of witnesses, rounded up to whole subnetworks.
    seed : int
        The seed from which those of the blocks derive.
    block_size : int
        Number of witnesses that are drawn together, rounded down to whole subnetworks. Another block
        size gives other witnesses.
    inputs : Sequences or array of shape (n_samples, n_steps, n_features), optional
        Training sequences, for a family with delays. The pool keeps those of them that all its blocks are sampled with:
        ``n_calibration`` of them, chosen by the seed.

    Examples
    --------
    >>> from cvxsnn.witnesses import WitnessPool
    >>> pool = WitnessPool(2, {"hidden": (64,)}, n_witnesses=1_000_000, seed=0)
    >>> pool.n_blocks, pool.block(0).n_witnesses
    (245, 4096)
    """

    n_features: int
    family: Mapping[str, Any]
    n_witnesses: int
    seed: int = 0
    block_size: int = 4096
    inputs: Sequences | Array | None = field(default=None, compare=False, repr=False)
    inputs_digest: str | None = field(init=False, default=None, repr=False)
    """Digest of the inputs, which pools compare."""

    def __post_init__(self) -> None:
        """Round up, and check the settings."""
        check_positive_int("n_witnesses", self.n_witnesses)
        check_positive_int("block_size", self.block_size)
        check_seed(self.seed)
        family = as_family(self.family)
        if "hidden" not in family:
            raise InvalidInputError(f"expected a family with hidden layers for a pool, got {family.name!r}")
        check_independent(family["neuron"])
        width = family["hidden"][-1]
        calibration = self._calibration(family.get("n_calibration", N_CALIBRATION)) if family.needs_inputs else None
        n_witnesses = -(-self.n_witnesses // width) * width
        # All blocks are sampled with these sequences, so the others need not be kept.
        kept = (None, None) if calibration is None else (calibration.sequences, calibration.digest)
        names = ("family", "n_witnesses", "inputs", "inputs_digest")
        for name, value in zip(names, (family, n_witnesses, *kept), strict=True):
            object.__setattr__(self, name, value)

    def _calibration(self, n_calibration: int) -> Calibration:
        """Return the sequences that every block is sampled with."""
        if self.inputs is None:
            raise InvalidInputError(
                "expected training inputs for a pool of neurons with delays, got none: pass inputs="
            )
        sequences = Sequences.of(self.inputs)
        if sequences.n_features != self.n_features:
            raise InvalidInputError(
                f"expected inputs of {plural(self.n_features, 'feature')}, got {sequences.n_features}"
            )
        return Calibration.of(sequences, n_calibration, child_seed(self.seed, "pool", "calibration"))

    @property
    def _width(self) -> int:
        width: int = self.family["hidden"][-1]
        return width

    @property
    def _step(self) -> int:
        """Number of witnesses of a whole block."""
        return max(1, self.block_size // self._width) * self._width

    @cached_property
    def starts(self) -> list[int]:
        """The first witness of each block, and the end."""
        return [*range(0, self.n_witnesses, self._step), self.n_witnesses]

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    def block(self, number: int) -> WitnessSet:
        """Draw one block, which depends on its number, the family, the seed and the inputs alone.

        Parameters
        ----------
        number : int
            The number of the block, from 0.

        Returns
        -------
        WitnessSet
            The witnesses from ``starts[number]`` up to ``starts[number + 1]``.
        """
        n_subnetworks = (self.starts[number + 1] - self.starts[number]) // self._width
        # A seed of its own: workers draw blocks in any order and get the same witnesses.
        seed = child_seed(self.seed, "pool", number)
        if self.inputs is None:
            return sample_witnesses({**self.family, "n_subnetworks": n_subnetworks}, self.n_features, seed)
        # With delays, draws depend on their number, so the last block is the beginning of a full one.
        full_block = sample_witnesses({**self.family, "n_subnetworks": self._step // self._width}, self.inputs, seed)
        return full_block.take(slice(0, n_subnetworks))

    def take(self, witnesses: Tensor) -> WitnessSet:
        """Return some of the witnesses, each with a subnetwork of its own.

        Parameters
        ----------
        witnesses : Tensor of shape (n_chosen,), dtype int64
            The witnesses to keep, in this order.

        Returns
        -------
        WitnessSet
            As many subnetworks as witnesses were chosen.
        """
        blocks = torch.searchsorted(torch.tensor(self.starts), witnesses.cpu(), right=True) - 1
        parts, order = [], []
        # Block by block, so that no block is drawn twice.
        for number in sorted(set(blocks.tolist())):
            positions = torch.nonzero(blocks == number).squeeze(1)
            parts.append(single_out(self.block(number), witnesses.cpu()[positions] - self.starts[number]))
            order.append(positions)
        recipe = {"pool": {"n_witnesses": self.n_witnesses, "seed": self.seed}}
        joined = join_witnesses(parts).take(torch.argsort(torch.cat(order)))
        return replace(joined, provenance=Provenance("pretrained", recipe))
