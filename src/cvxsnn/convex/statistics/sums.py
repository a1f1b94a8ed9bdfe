"""What the squared loss needs of the rows: sums over them, whose size does not depend on the number of rows.

Spikes are 0 or 1, so their products are counts, which float64 holds without rounding. Sums over targets are formed
without rounding within a block, and blocks have fixed sizes and are added in order. So the sums do not depend on
batches, processes or threads, to the bit.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add

import torch
from torch import Tensor

from ...core import bits
from ...core.checks import Array
from ...core.errors import BudgetError, InvalidInputError
from ...dictionary import Dictionary, Readout
from ...dictionary.blocks import Batch, Block, iterate_blocks, map_in_order
from ...dictionary.fingerprint import fingerprint_witnesses
from ...dictionary.readout import parse_readout
from ...witnesses import WitnessSet
from ..losses import Squared

_BLOCK_ROWS = 2**15
"""Rows that are rolled out and multiplied at once: enough for efficient products, and few enough for memory."""

_GRAM_BUDGET = 4 * 2**30
"""Bytes that a Gram matrix may use."""

_SMALLEST = 2.0**-900
"""Square of the largest entry below which those of others may have vanished."""

_PARTS = 3
"""Parts of a number that is summed without rounding; the third compensates for the bits that many rows need."""


@dataclass(frozen=True, eq=False)
class SquaredStatistics:
    """Sufficient statistics of the squared loss over rows of equal weight; those of two sets of rows can be added.

    Parameters
    ----------
    gram : Tensor of shape (n_columns, n_columns), float64
        The products DᵀD, counts of common spikes for readouts "last" and "all".
    cross : Tensor of shape (n_columns, n_outputs), float64
        The products DᵀY.
    column_sums : Tensor of shape (n_columns,), float64
        The sums of the columns.
    target_squares : Tensor of shape (n_outputs,), float64
        The sums Σ y² over the rows.
    target_sums : Tensor of shape (n_outputs,), float64
        The sums Σ y over the rows.
    n_rows : int
        The number of rows.
    n_roundings : int
        The longest chain of roundings behind any of these sums; spikes' own products have none.
    witnesses : WitnessSet, optional
        The witnesses that made the columns.
    readout : "last", "all", "mean" or "windows-k"
        Which spikes are read.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> statistics.n_rows, statistics.n_columns
    (40, 16)
    """

    gram: Tensor
    cross: Tensor
    column_sums: Tensor
    target_squares: Tensor
    target_sums: Tensor
    n_rows: int
    n_roundings: int
    witnesses: WitnessSet | None = None
    readout: Readout = "last"

    @classmethod
    def of(cls, dictionary: Dictionary, targets: Array) -> "SquaredStatistics":
        """Return the statistics of rows that are in a dictionary, with all of its columns, whether equal or not.

        Parameters
        ----------
        dictionary : Dictionary
            The columns.
        targets : array of shape (n_rows,) or (n_rows, n_outputs)
            Real targets, one per row.

        Returns
        -------
        SquaredStatistics
            The sums.
        """
        encoded = Squared().encode(targets).to(dictionary.device)
        if len(encoded) != dictionary.n_rows:
            raise InvalidInputError(f"expected one target for each of {dictionary.n_rows} rows, got {len(encoded)}")
        squares = encoded.square()
        if not bool(torch.isfinite(squares).all()):
            raise InvalidInputError("expected targets whose squares are finite, got larger ones: standardise them")
        are_spikes = dictionary.is_binary
        # Against 0/1 columns the products of the parts are sums of them, which are exact in whatever order.
        parts = _parts(encoded)
        ones = torch.ones_like(encoded[:, :1])
        products = dictionary.rmatvec(torch.cat((*parts, ones), dim=1))
        atom = dictionary.atom_of_column
        every = slice(None) if len(atom) == dictionary.n_atoms else atom
        gram = dictionary.gram() if are_spikes else _blocked_gram(dictionary)
        entry = dictionary.largest_entry
        if entry and not (entry * entry >= _SMALLEST and bool(gram.isfinite().all())):
            raise InvalidInputError(
                f"expected columns whose squares float64 can hold, got entries of up to {entry:g}: scale them to "
                "numbers around one"
            )
        return cls(
            gram=gram[every][:, every],
            cross=_total(torch.split(products[:, :-1], encoded.shape[1], dim=1))[every],
            column_sums=products[every, -1],
            target_squares=_total(part.sum(0) for part in _parts(squares)),
            target_sums=_total(part.sum(0) for part in parts),
            n_rows=dictionary.n_rows,
            n_roundings=_PARTS + 1 if are_spikes else dictionary.n_rows + _PARTS + 1,
            witnesses=dictionary.witnesses,
            readout=dictionary.readout,
        )

    def __add__(self, other: "SquaredStatistics") -> "SquaredStatistics":
        """Return the statistics of both sets of rows together."""
        if self.cross.shape != other.cross.shape or self.readout != other.readout:
            raise InvalidInputError(
                f"expected statistics of as many columns and outputs {tuple(self.cross.shape)} and readout "
                f"{self.readout!r}, got {tuple(other.cross.shape)} and {other.readout!r}"
            )
        is_same = self.witnesses is other.witnesses
        if not is_same and fingerprint_witnesses(self.witnesses) != fingerprint_witnesses(other.witnesses):
            raise InvalidInputError("expected statistics of the same witnesses, got others: draw them from one seed")
        return SquaredStatistics(
            gram=self.gram + other.gram,
            cross=self.cross + other.cross,
            column_sums=self.column_sums + other.column_sums,
            target_squares=self.target_squares + other.target_squares,
            target_sums=self.target_sums + other.target_sums,
            n_rows=self.n_rows + other.n_rows,
            n_roundings=max(self.n_roundings, other.n_roundings) + 1,
            witnesses=self.witnesses,
            readout=self.readout,
        )

    @property
    def n_columns(self) -> int:
        """Number of columns: one for each witness and window of time."""
        return len(self.gram)

    @property
    def n_outputs(self) -> int:
        """Number of targets per row."""
        return self.cross.shape[1]

    @cached_property
    def atoms(self) -> bits.Groups:
        """Columns that are equal: 0/1 columns d, e with dᵀd = eᵀe = dᵀe. Other columns are left as they are."""
        own = torch.arange(self.n_columns, device=self.gram.device)
        if parse_readout(self.readout).kind == "mean" or not bool((self.column_sums == self.gram.diagonal()).all()):
            return bits.Groups(own, own, torch.ones_like(own))
        diagonal = self.gram.diagonal()
        are_equal = (self.gram == diagonal) & (self.gram == diagonal[:, None])
        return bits.group_equal(are_equal.to(torch.uint8).argmax(1)[:, None])

    def __repr__(self) -> str:
        """Return sizes on one line."""
        return f"SquaredStatistics({self.n_rows} rows × {self.n_columns} columns → {self.n_outputs} outputs)"


def gather_statistics(
    witnesses: WitnessSet,
    batches: Iterable[Batch],
    readout: Readout = "last",
    *,
    windows: int | None = None,
    n_jobs: int = 1,
) -> SquaredStatistics:
    """Roll witnesses through a stream of batches and keep only the statistics of the squared loss.

    Time grows in proportion to the rows, memory does not grow.

    Parameters
    ----------
    witnesses : WitnessSet
        The hidden neurons.
    batches : iterable of (inputs, targets) or (inputs, targets, lengths)
        The data, read once: a DataLoader, a generator. Inputs have shape (n_samples, n_steps, n_features), real targets
        (n_samples,) or (n_samples, n_outputs), with readout "all" (n_samples, n_steps) or
        (n_samples, n_steps, n_outputs).
    readout : "last", "all", "mean" or "windows-k"
        Which spikes are read.
    windows : int, optional
        The number of windows of time for readout "mean", as for :func:`cvxsnn.build_dictionary`.
    n_jobs : int
        Number of processes; -1 for one per core. With spikes the statistics are the same to the bit for any number of
        them, and for any size of the batches.

    Returns
    -------
    SquaredStatistics
        The sums over all rows.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> batches = [(inputs[:20], inputs[:20, -1, 0]), (inputs[20:], inputs[20:, -1, 0])]
    >>> statistics = cs.convex.gather_statistics(cs.gaussian_witnesses(2, (16,), seed=0), batches)
    >>> statistics.n_rows, statistics.n_columns
    (40, 16)
    """
    parsed = parse_readout(readout, windows)
    readout, n_columns = str(parsed), witnesses.n_witnesses * parsed.n_windows
    needed = 8 * n_columns**2
    if needed > _GRAM_BUDGET:
        raise BudgetError(
            f"expected a Gram matrix within {_GRAM_BUDGET / 2**30:.0f} GiB, but {n_columns:,} columns need "
            f"{needed / 2**30:.1f} GiB: use fewer, or stream_dictionary"
        )
    blocks = ((witnesses, block, readout) for block in iterate_blocks(batches, _BLOCK_ROWS, readout))
    return replace(reduce(add, map_in_order(_of_block, blocks, n_jobs)), witnesses=witnesses)


def _of_block(witnesses: WitnessSet, block: Block, readout: Readout) -> SquaredStatistics:
    # The witnesses need not be sent back from another process.
    own = SquaredStatistics.of(block.dictionary(witnesses, readout), block.row_targets(readout))
    return replace(own, witnesses=None)


def _parts(values: Tensor) -> list[Tensor]:
    """Return columns as sums of parts on grids so coarse that float64 sums each over the rows exactly.

    Of the values 3·(52 − log2 n_rows) bits below the largest are kept, which is more than a sum of them can show.
    """
    n_bits = 52 - len(values).bit_length()
    largest = values.abs().amax(0).tolist()
    # Below 2^-900 the grids would leave the range of float64.
    exponents = [max(math.frexp(value)[1], -900) for value in largest]
    parts, rest = [], values
    for number in range(1, _PARTS + 1):
        unit = values.new_tensor([math.ldexp(1.0, exponent - number * n_bits) for exponent in exponents])
        parts.append(torch.round(rest / unit) * unit)
        rest = rest - parts[-1]
    return parts


def _total(parts: Iterable[Tensor]) -> Tensor:
    """Return the sum of parts, the small ones first."""
    return reduce(add, reversed(list(parts)))


def _blocked_gram(dictionary: Dictionary) -> Tensor:
    gram = torch.zeros(dictionary.n_atoms, dictionary.n_atoms, dtype=torch.float64, device=dictionary.device)
    for _, block in dictionary.iterate_rows():
        gram.addmm_(block.T, block)
    return gram
