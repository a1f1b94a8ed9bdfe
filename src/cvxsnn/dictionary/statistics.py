"""A dictionary of several statistics of spikes, each column in a unit of its own."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ..core import bits
from ..data.sequences import Sequences
from ..neurons.reading import read_columns, roll_statistics
from ..neurons.statistics import entries
from ..witnesses import WitnessSet
from .base import Dictionary, ParsedReadout, group_labelled
from .products import self_product

_BLOCK = 2**22
"""Numbers of a block of columns: 32 MiB."""


@dataclass(frozen=True, eq=False)
class StatisticsDictionary(Dictionary):
    r"""Columns of statistics of spikes (:mod:`cvxsnn.neurons.statistics`), standardised, with kinds of equal weight.

    A kind is a statistic. An atom is a column that varies; equal columns stay two atoms. The entries of a column are
    those of its statistic times its unit, a power of two, so that weights of the program and weights of the network
    differ by no rounding. The unit is the power of two closest, on a logarithmic scale, to
    :math:`1 / (\sigma_j \sqrt{m_k})`: one over the standard deviation of the entries on the training data and over the
    root of the number of columns of the kind that vary. So every kind has a kernel with about the same mean diagonal,
    one, and there is no weight to choose. Columns that do not vary have unit zero and share one atom of zeros.

    Parameters
    ----------
    numbers : Tensor of shape (n_atoms, n_rows), of an integer dtype
        The whole numbers of the statistics.
    kind : Tensor of shape (n_atoms,), dtype int64
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
    kind: Tensor
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
        kind, n_columns = columns % parsed.n_windows, witnesses.n_witnesses * parsed.n_windows
        if unit is None:
            steps = sequences.n_steps if sequences.lengths is None else sequences.lengths
            unit = torch.zeros(n_columns, dtype=torch.float64, device=numbers.device)
            unit[columns] = _units(numbers, kind, parsed, steps)
        # Every kind in turn; the atom of zeros, which other columns share, comes first.
        varying = torch.nonzero(unit[columns] != 0).squeeze(1)
        varying = varying[torch.argsort(kind[varying], stable=True)]
        constant = torch.nonzero(unit == 0).flatten()[:1]
        atom_of_column = torch.zeros(n_columns, dtype=torch.int64, device=numbers.device)
        atom_of_column[columns[varying]] = torch.arange(len(varying), device=numbers.device) + len(constant)
        zeros = numbers.new_zeros(len(constant), numbers.shape[1])
        return cls(
            numbers=torch.cat((zeros, numbers[varying])),
            kind=torch.cat((constant.new_zeros(len(constant)), kind[varying])),
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
    def _unit_of_atom(self) -> Tensor:
        return self.unit[self.column_of_atom]

    @cached_property
    def largest_entry(self) -> float:
        return max(float(block.abs().max()) for _, block in self._iterate_atoms())

    def _entries(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype = torch.float64) -> Tensor:
        """Return entries, of shape (atoms, rows)."""
        values, kind = self.numbers[:, rows][atoms].to(dtype), self.kind[atoms]
        steps = self.n_steps if self.lengths is None else self.lengths[rows]
        for number, name in enumerate(self._read.statistics):
            mine = kind == number
            if bool(mine.all()):
                values = entries(values, name, steps)
            elif bool(mine.any()):
                values[mine] = entries(values[mine], name, steps)
        return values.mul_(self._unit_of_atom[atoms, None])

    def _numbers(self, atoms: Tensor | slice, rows: slice, dtype: torch.dtype) -> Tensor:
        return self._entries(atoms, rows, dtype).T

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
        return self._derived(numbers=self.numbers[atoms], kind=self.kind[atoms], **self._renumbered(atoms))

    def take_rows(self, rows: Tensor) -> Self:
        lengths = None if self.lengths is None else self.lengths[rows]
        return self._derived(numbers=self.numbers[:, rows], n_rows=len(rows), lengths=lengths)

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
        shape = f"{self.n_rows} rows × {self.n_atoms} atoms"
        return f"StatisticsDictionary({shape}, readout={self.readout!r}, from {self.witnesses!r})"


def _units(numbers: Tensor, kind: Tensor, parsed: ParsedReadout, n_steps: Tensor | int) -> Tensor:
    """Return the unit of each column: a power of two, or zero for columns that do not vary."""
    deviation = numbers.new_zeros(len(numbers), dtype=torch.float64)
    size = max(1, _BLOCK // numbers.shape[1])
    for number, name in enumerate(parsed.statistics):
        for columns in torch.nonzero(kind == number).squeeze(1).split(size):
            values = entries(numbers[columns].double(), name, n_steps)
            varies = values.amax(1) > values.amin(1)
            deviation[columns] = torch.where(varies, values.std(1, correction=0), 0.0)
    varies = deviation > 0
    n_varying = torch.bincount(kind[varies], minlength=parsed.n_windows).clamp_min(1)
    exponent = -(deviation.clamp_min(1e-300).log2() + n_varying[kind].double().log2() / 2).round()
    return torch.where(varies, torch.ldexp(torch.ones_like(deviation), exponent.to(torch.int32)), 0.0)
