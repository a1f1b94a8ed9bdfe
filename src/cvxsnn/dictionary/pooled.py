"""The spikes of a pool of witnesses on some data, block by block.

Blocks are drawn and judged wherever joblib runs tasks. A task receives the pool, which is a few numbers, and the data;
it returns the verdict on its block.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from ..core.parallel import Shared, run_tasks
from ..data.sequences import Sequences
from ..witnesses import WitnessSet
from ..witnesses.pool import WitnessPool
from .base import Readout, parse_readout
from .building import build_spikes
from .spikes import SpikeDictionary, dictionary_bytes

Verdict = TypeVar("Verdict")

Judge = Callable[[SpikeDictionary, int], Verdict]
"""A function of a block's spikes and of the number of its first witness in the pool."""


class PoolSpikes:
    """The dictionaries of a pool's blocks. They are kept up to a memory budget, and otherwise drawn again.

    Parameters
    ----------
    pool : WitnessPool
        The pool.
    sequences : Sequences
        The data.
    readout : "last", "all", "mean" or "windows-k"
        The content of a row.
    memory_budget : int
        Bytes of spikes to keep.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.dictionary import PoolSpikes
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> pool = cs.witnesses.WitnessPool(2, {"hidden": (16,)}, n_witnesses=64, seed=0)
    >>> spikes = PoolSpikes(pool, cs.Sequences(inputs), "last")
    >>> spikes.readout
    'last'
    """

    def __init__(self, pool: WitnessPool, sequences: Sequences, readout: Readout, memory_budget: int = 2**30) -> None:
        self.pool = pool
        self.sequences = sequences
        self.readout = readout
        self._room = memory_budget
        self._source = Shared(_Source(pool, sequences, readout))
        self._kept: dict[int, SpikeDictionary] = {}

    def of(self, witnesses: WitnessSet) -> SpikeDictionary:
        """Return the spikes of any witnesses on the data.

        Parameters
        ----------
        witnesses : WitnessSet
            The witnesses.

        Returns
        -------
        SpikeDictionary
            Their distinct spikes.
        """
        return self._source.value.of(witnesses)

    def block(self, number: int) -> SpikeDictionary:
        """Return the distinct spikes of a block; ``column_of_atom`` counts from the block's start.

        Parameters
        ----------
        number : int
            The number of the block, from 0.

        Returns
        -------
        SpikeDictionary
            The spikes, without the witnesses.
        """
        if number in self._kept:
            return self._kept[number]
        spikes = self._source.value.block(number)
        if spikes.patterns.nbytes <= self._room:
            self._keep(number, spikes)
        return spikes

    def judge_blocks(self, judge: Judge[Verdict], n_blocks: int) -> Iterator[Verdict]:
        """Judge each of the first blocks, in any order.

        Blocks that are kept are judged in this process. The others are drawn and judged wherever joblib runs tasks,
        and their spikes are returned only if they can be kept. Blocks on a GPU stay in this process.

        Parameters
        ----------
        judge : function
            Called with the spikes of a block and the number of its first witness.
        n_blocks : int
            Number of blocks to judge.

        Yields
        ------
        object
            The verdict on a block.
        """
        missing = [number for number in range(n_blocks) if number not in self._kept]
        for number in sorted(self._kept.keys() - set(missing)):
            if number < n_blocks:
                yield judge(self._kept[number], self.pool.starts[number])
        shared = Shared(judge)
        # By their largest possible size: how many columns are distinct is known only after the block is drawn.
        n_fitting = self._room // self._source.value.block_bytes
        tasks = [(self._source, shared, number, index < n_fitting) for index, number in enumerate(missing)]
        n_jobs = None if self.sequences.device.type == "cpu" else 1
        for index, (verdict, spikes) in run_tasks(_draw_and_judge, tasks, n_jobs=n_jobs):
            if spikes is not None:
                self._keep(missing[index], spikes)
            yield verdict

    def _keep(self, number: int, spikes: SpikeDictionary) -> None:
        self._room -= spikes.patterns.nbytes
        self._kept[number] = spikes


@dataclass(frozen=True, eq=False)
class _Source:
    """The data from which any process can draw a block's spikes."""

    pool: WitnessPool
    sequences: Sequences
    readout: Readout

    @property
    def block_bytes(self) -> int:
        """The most bytes that the spikes of a block can need."""
        parsed, n_steps = parse_readout(self.readout), self.sequences.n_steps
        n_rows = parsed.n_rows(len(self.sequences), n_steps)
        n_columns = self.pool.starts[1] * parsed.n_windows
        return dictionary_bytes(n_rows, n_columns, self.readout, n_steps)

    def of(self, witnesses: WitnessSet) -> SpikeDictionary:
        return build_spikes(witnesses.to(self.sequences.device), self.sequences, self.readout)

    def block(self, number: int) -> SpikeDictionary:
        drawn = self.of(self.pool.block(number))
        # The witnesses can be drawn again quickly when they are needed; their spikes cannot.
        return replace(drawn, witnesses=None, atom_of_column=drawn.column_of_atom.new_empty(0))


def _draw_and_judge(
    source: Shared[_Source], judge: Shared[Judge[Verdict]], number: int, is_wanted: bool
) -> tuple[Verdict, SpikeDictionary | None]:
    """Return the verdict on a block and, if wanted, its spikes."""
    spikes = source.value.block(number)
    return judge.value(spikes, source.value.pool.starts[number]), spikes if is_wanted else None
