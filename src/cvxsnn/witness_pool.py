"""Pools of witnesses far too many to hold, which exist as seeds, and their spikes on some data.

A pool is drawn in blocks, each the same every time. Blocks are drawn and judged wherever joblib carries tasks: what
goes out is the pool, which is a few numbers, and the data; what comes back is what was asked about each block.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import bits
from .checks import check_positive_int
from .dictionary import Readout, SpikeDictionary, build_dictionary
from .errors import InvalidInputError
from .parallel import Shared, carry_out
from .seeds import check_seed, child_seed
from .training_set import Objective, TrainingSet
from .witnesses import Provenance, WitnessSet, gaussian_witnesses, join_witnesses, single_out

_BLOCK = 4096
"""Witnesses drawn at once."""

Verdict = TypeVar("Verdict")

Judge = Callable[[SpikeDictionary, int], Verdict]
"""Says something of a block, from its spikes and the number of its first witness."""


@dataclass(frozen=True)
class WitnessPool:
    """Sampled witnesses that exist as seeds.

    Parameters
    ----------
    n_features : int
    family : mapping
        Arguments of :func:`cvxsnn.gaussian_witnesses` other than ``n_features``, ``n_subnetworks`` and ``seed``. Each
        subnetwork has a last hidden layer of ``family["hidden"][-1]`` witnesses, which share the layers below.
    n_witnesses : int
        Rounded up to whole subnetworks.
    seed : int
    """

    n_features: int
    family: Mapping[str, Any]
    n_witnesses: int
    seed: int = 0

    def __post_init__(self) -> None:
        """Round up, and refuse what no pool can be drawn from."""
        check_positive_int("n_witnesses", self.n_witnesses)
        check_seed(self.seed)
        hidden = self.family.get("hidden")
        if not isinstance(hidden, Sequence) or not hidden:
            raise InvalidInputError(
                f"expected a family with the widths of its hidden layers, got hidden={hidden!r}: pass (64, 128)"
            )
        if self.family.get("neuron", "lif") != "lif":
            raise InvalidInputError("expected LIF neurons in a pool, got threshold neurons, which read each other")
        object.__setattr__(self, "n_witnesses", -(-self.n_witnesses // self._width) * self._width)

    @property
    def _width(self) -> int:
        return int(self.family["hidden"][-1])

    @cached_property
    def starts(self) -> list[int]:
        """The first witness of each block, and the end."""
        step = max(1, _BLOCK // self._width) * self._width
        return [*range(0, self.n_witnesses, step), self.n_witnesses]

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.starts) - 1

    def block(self, number: int) -> WitnessSet:
        """One block, which depends on its number, the family and the seed alone."""
        n_witnesses = self.starts[number + 1] - self.starts[number]
        family = {name: value for name, value in self.family.items() if name != "n_subnetworks"}
        seed = child_seed(self.seed, "pool", number)
        return gaussian_witnesses(self.n_features, n_subnetworks=n_witnesses // self._width, seed=seed, **family)

    def take(self, witnesses: Tensor) -> WitnessSet:
        """Some of the witnesses, each with a subnetwork of its own."""
        blocks = torch.searchsorted(torch.tensor(self.starts), witnesses.cpu(), right=True) - 1
        parts, places = [], []
        for number in sorted(set(blocks.tolist())):
            own = torch.nonzero(blocks == number).squeeze(1)
            parts.append(single_out(self.block(number), witnesses.cpu()[own] - self.starts[number]))
            places.append(own)
        recipe = {"pool": {"n_witnesses": self.n_witnesses, "seed": self.seed}}
        joined = join_witnesses(parts).take(torch.argsort(torch.cat(places)))
        return replace(joined, provenance=Provenance("pretrained", recipe))


class PoolSpikes:
    """The dictionaries of a pool's blocks, kept while there is room, drawn again when there is none."""

    def __init__(self, pool: WitnessPool, data: TrainingSet, objective: Objective, memory_budget: int = 2**30) -> None:
        self.pool, self.data, self.readout, self._room = pool, data, objective.readout, memory_budget
        self._source = Shared(_Source(pool, data.inputs, data.lengths, objective.readout))
        self._kept: dict[int, SpikeDictionary] = {}

    def of(self, witnesses: WitnessSet) -> SpikeDictionary:
        """The spikes of any witnesses on the data."""
        return self._source.value.of(witnesses)

    def block(self, number: int) -> SpikeDictionary:
        """The distinct spikes of a block; ``witness_of_atom`` counts from the block's start."""
        if number in self._kept:
            return self._kept[number]
        spikes = self._source.value.block(number)
        if spikes.packed.numel() <= self._room:
            self._keep(number, spikes)
        return spikes

    def judge_blocks(self, judge: Judge[Verdict], n_blocks: int) -> Iterator[Verdict]:
        """Yield what ``judge`` says of each of the first blocks, in any order.

        Blocks that are kept are judged here. The others are drawn and judged wherever joblib carries tasks, and their
        spikes come back only if there is room for them. What lies on a GPU is left to this process.
        """
        missing = [number for number in range(n_blocks) if number not in self._kept]
        for number in sorted(self._kept.keys() - set(missing)):
            if number < n_blocks:
                yield judge(self._kept[number], self.pool.starts[number])
        shared = Shared(judge)
        n_fitting = self._room // self._source.value.block_bytes
        tasks = [(self._source, shared, number, place < n_fitting) for place, number in enumerate(missing)]
        n_jobs = None if self.data.inputs.device.type == "cpu" else 1
        for place, (verdict, spikes) in carry_out(_draw_and_judge, tasks, n_jobs=n_jobs):
            if spikes is not None:
                self._keep(missing[place], spikes)
            yield verdict

    def _keep(self, number: int, spikes: SpikeDictionary) -> None:
        self._room -= spikes.packed.numel()
        self._kept[number] = spikes


@dataclass(frozen=True, eq=False)
class _Source:
    """All that it takes to draw a block's spikes, anywhere."""

    pool: WitnessPool
    inputs: Tensor
    lengths: Tensor | None
    readout: Readout

    @property
    def block_bytes(self) -> int:
        """The most that the spikes of a block can take."""
        n_samples, n_steps, _ = self.inputs.shape
        n_rows = n_samples * n_steps if self.readout == "all" else n_samples
        n_planes = n_steps.bit_length() if self.readout == "mean" else 1
        return self.pool.starts[1] * n_planes * bits.packed_bytes(n_rows)

    def of(self, witnesses: WitnessSet) -> SpikeDictionary:
        return build_dictionary(witnesses.to(self.inputs.device), self.inputs, self.readout, lengths=self.lengths)

    def block(self, number: int) -> SpikeDictionary:
        drawn = self.of(self.pool.block(number))
        # The witnesses themselves are drawn again when they are needed; their spikes are what costs time.
        return replace(drawn, witnesses=None, atom_of_witness=drawn.witness_of_atom.new_empty(0))


def _draw_and_judge(
    source: Shared[_Source], judge: Shared[Judge[Verdict]], number: int, is_wanted: bool
) -> tuple[Verdict, SpikeDictionary | None]:
    """The verdict on a block and, where they are wanted, its spikes."""
    spikes = source.value.block(number)
    return judge.value(spikes, source.value.pool.starts[number]), spikes if is_wanted else None
