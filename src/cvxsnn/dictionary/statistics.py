"""A dictionary of several statistics of spikes, each column in a unit of its own."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from ..core import bits
from ..core.formatting import plural
from ..data.sequences import Sequences
from ..neurons.lateral import LateralLayer
from ..neurons.reading import read_columns, roll_statistics
from ..neurons.statistics import column_entries, entries
from ..witnesses import WitnessSet
from .base import Dictionary, ParsedReadout, group_labelled
from .products import self_product

_BLOCK = 2**22
"""Numbers of a block of columns: 32 MiB."""


@dataclass(frozen=True, eq=False)
class StatisticsDictionary(Dictionary):
    r"""Columns of statistics of spikes (:mod:`cvxsnn.neurons.statistics`), standardised, with kinds of equal weight.

    A kind is the set of neurons of which the same statistics are read. An atom is a column that varies; equal columns
    stay two atoms. The entries of a column are those of its statistic times its unit :math:`u_j`, a power of two, so
    that no rounding comes between weights of the program and weights of the network. With the standard deviation
    :math:`\sigma_j` of the entries on the training data and the number :math:`m` of columns of its kind that vary, the
    unit is one of the two powers of two around :math:`1 / (\sigma_j \sqrt{m})`, such that
    :math:`\sum_j \sigma_j^2 u_j^2` is one, as closely as possible, for the first columns of the kind however many. So
    the kernels of all kinds have the same mean diagonal, and there is no weight to choose. Columns that do not vary
    have unit zero and share one atom of zeros.

    Parameters
    ----------
    numbers : Tensor of shape (n_atoms, n_rows), of an integer dtype
        The whole numbers of the statistics.
    statistic : Tensor of shape (n_atoms,), dtype int64
        The statistic of each atom, as its place in the read-out.
    unit : Tensor of shape (n_columns,), dtype float64
        The unit of every column.
    lengths : Tensor of shape (n_rows,), dtype int64, optional
        Steps of each row's sequence, if they differ.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> cs.build_dictionary(cs.gaussian_witnesses(2, (16,), seed=0), inputs, "mean+burst").n_columns
    32
    """

    numbers: Tensor
    statistic: Tensor
    unit: Tensor
    lengths: Tensor | None = None

    @classmethod
    def roll(
        cls, witnesses: WitnessSet, sequences: Sequences, parsed: ParsedReadout, unit: Tensor | None = None
    ) -> "StatisticsDictionary":
        """Roll witnesses through sequences; without units, these sequences are the training data that decide them."""
        layers = [layer.to(sequences.device) for layer in witnesses.layers]
        numbers = roll_statistics(layers, sequences, parsed.statistics)
        columns = read_columns(layers, parsed.statistics).to(numbers.device)
        statistic, n_columns = columns % parsed.n_windows, witnesses.n_witnesses * parsed.n_windows
        if unit is None:
            steps = sequences.n_steps if sequences.lengths is None else sequences.lengths
            unit = torch.zeros(n_columns, dtype=torch.float64, device=numbers.device)
            unit[columns] = _units(numbers, statistic, _kinds(witnesses, columns // parsed.n_windows), parsed, steps)
        # Every statistic in turn; the atom of zeros, which other columns share, comes first.
        varying = torch.nonzero(unit[columns] != 0).squeeze(1)
        varying = varying[torch.argsort(statistic[varying], stable=True)]
        constant = torch.nonzero(unit == 0).flatten()[:1]
        atom_of_column = torch.zeros(n_columns, dtype=torch.int64, device=numbers.device)
        atom_of_column[columns[varying]] = torch.arange(len(varying), device=numbers.device) + len(constant)
        zeros = numbers.new_zeros(len(constant), numbers.shape[1])
        return cls(
            numbers=torch.cat((zeros, numbers[varying])),
            statistic=torch.cat((constant.new_zeros(len(constant)), statistic[varying])),
            unit=unit,
            lengths=sequences.lengths,
            n_rows=numbers.shape[1],
            atom_of_column=atom_of_column,
            column_of_atom=torch.cat((constant, columns[varying])),
            readout=str(parsed),
            n_steps=sequences.n_steps,
            witnesses=witnesses,
        )

    @property
    def is_binary(self) -> bool:
        return False

    @cached_property
    def units(self) -> Tensor:
        """The unit of each atom."""
        return self.unit[self.column_of_atom]

    @cached_property
    def largest_entry(self) -> float:
        return max(float(block.abs().max()) for _, block in self._iterate_atoms())

    def _entries(self, atoms: Tensor | slice, rows: slice) -> Tensor:
        """Return entries, of shape (atoms, rows)."""
        steps = self.n_steps if self.lengths is None else self.lengths[rows]
        values = column_entries(self.numbers[atoms][:, rows], self.statistic[atoms], self._read.statistics, steps)
        return values.mul_(self.units[atoms, None])

    def _numbers(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype) -> Tensor:
        return self._entries(atoms, rows).T.to(dtype)

    @property
    def _atoms_at_once(self) -> int:
        return max(1, _BLOCK // self.n_rows)

    def _iterate_atoms(self, atoms: Tensor | None = None) -> Iterator[tuple[Tensor | slice, Tensor]]:
        """Yield atoms and their entries, (n_chosen, n_rows)."""
        n_atoms = self.n_atoms if atoms is None else len(atoms)
        for start in range(0, n_atoms, self._atoms_at_once):
            part = slice(start, start + self._atoms_at_once)
            chosen = part if atoms is None or n_atoms == self.n_atoms else atoms[part]
            yield chosen, self._entries(chosen, slice(0, self.n_rows))

    def matvec(self, coef: Tensor) -> Tensor:
        across, scores = coef.T.contiguous(), coef.new_zeros(coef.shape[1], self.n_rows)
        for atoms, block in self._iterate_atoms(torch.nonzero(coef.any(1)).squeeze(1)):
            scores.addmm_(across[:, atoms], block)
        return scores.T.contiguous()

    def rmatvec(self, rows: Tensor) -> Tensor:
        product = rows.new_empty(self.n_atoms, rows.shape[1])
        for atoms, block in self._iterate_atoms():
            product[atoms] = block @ rows
        return product

    def score_roundings(self, n_active: int) -> int:
        return n_active + -(-n_active // self._atoms_at_once)  # sums of blocks are added in turn

    def gram(self) -> Tensor:
        return self_product(self.columns())

    def row_gram(self) -> Tensor:
        total = torch.zeros(self.n_rows, self.n_rows, dtype=torch.float64, device=self.device)
        for _, block in self._iterate_atoms():
            total += self_product(block)
        return total

    def take_atoms(self, atoms: Tensor) -> Self:
        return self._derived(numbers=self.numbers[atoms], statistic=self.statistic[atoms], **self._renumbered(atoms))

    def take_rows(self, rows: Tensor) -> Self:
        lengths = None if self.lengths is None else self.lengths[rows]
        return self._derived(numbers=self.numbers[:, rows], n_rows=len(rows), lengths=lengths)

    def _append_rows(self, other: Self, n_steps: int) -> dict[str, Any]:
        parts = (self, other)
        is_equal = self.lengths is None and other.lengths is None and self.n_steps == other.n_steps
        each = [part.numbers.new_full((part.n_rows,), part.n_steps, dtype=torch.int64) for part in parts]
        steps = [own if part.lengths is None else part.lengths for part, own in zip(parts, each, strict=True)]
        lengths = None if is_equal else torch.cat(steps)
        return {"numbers": torch.cat((self.numbers, other.numbers), dim=1), "lengths": lengths}

    def group_rows(self, labels: Tensor | None = None) -> bits.Groups:
        # Rows are hashed as they are: rows of different lengths differ in their entries.
        own = None if self.lengths is None else self.lengths[:, None].double()
        given = None if labels is None else labels.reshape(self.n_rows, -1).double()
        parts = [part for part in (own, given) if part is not None]
        words = self.numbers.T.to(torch.int32).contiguous()
        words = torch.nn.functional.pad(words, (0, words.shape[1] % 2)).view(torch.int64)
        return group_labelled(words, torch.cat(parts, dim=1) if parts else None)

    def __repr__(self) -> str:
        """Return sizes and origin on one line."""
        shape = f"{plural(self.n_rows, 'row')} × {plural(self.n_atoms, 'atom')}"
        return f"StatisticsDictionary({shape}, readout={self.readout!r}, from {self.witnesses!r})"


def _kinds(witnesses: WitnessSet, neurons: Tensor) -> Tensor:
    """Return the kind of some neurons, from 0: which statistics are read of them."""
    top = witnesses.layers[-1]
    if not isinstance(top, LateralLayer):
        return torch.zeros_like(neurons)
    kind: Tensor = torch.unique(top.statistics.flatten().to(neurons.device)[neurons], return_inverse=True)[1]
    return kind


def _units(numbers: Tensor, statistic: Tensor, kind: Tensor, parsed: ParsedReadout, n_steps: Tensor | int) -> Tensor:
    """Return the unit of each column: a power of two, or zero for columns that do not vary."""
    deviation = numbers.new_zeros(len(numbers), dtype=torch.float64)
    size = max(1, _BLOCK // numbers.shape[1])
    for number, name in enumerate(parsed.statistics):
        for columns in filter(len, torch.split(torch.nonzero(statistic == number).squeeze(1), size)):
            values = entries(numbers[columns].double(), name, n_steps)
            varies = values.amax(1) > values.amin(1)
            deviation[columns] = torch.where(varies, values.std(1, correction=0), 0.0)
    units = torch.zeros_like(deviation)
    for number in range(int(kind.max()) + 1 if len(kind) else 0):
        columns = torch.nonzero((kind == number) & (deviation > 0)).squeeze(1)
        units[columns] = _powers_of_two(deviation[columns])
    return units


def _powers_of_two(deviation: Tensor) -> Tensor:
    """Return a power of two for each deviation, so that squares of their products sum to one, as evenly as possible."""
    ideal = -(deviation.log2() + math.log2(max(1, len(deviation))) / 2)
    lower = ideal.floor()
    # The share of a column, in units of what each should have: between a quarter and one, or four times that.
    shares = torch.exp2(2 * (lower - ideal)).tolist()
    missing = 0.0
    is_higher = []
    for share in shares:
        missing += 1 - share
        is_higher.append(missing > 1.5 * share)  # three more shares are closer to what is missing than none
        missing -= 3 * share * is_higher[-1]
    exponent = lower.to(torch.int32) + torch.tensor(is_higher, dtype=torch.int32, device=lower.device)
    return torch.ldexp(torch.ones_like(deviation), exponent)
