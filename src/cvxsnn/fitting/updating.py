"""More rows for a ridge read-out: solved again and certified over old and new rows, without the old sequences.

The neurons stay. Of the old rows, the spikes of all neurons are kept as a dictionary stores them, or the sums over the
rows (:mod:`cvxsnn.convex.sums`) once these take less memory.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, Status, solve
from ..convex.linear import MAX_ATOMS, row_products, weigh_products
from ..convex.losses import Squared, make_loss
from ..convex.solving import report_gap
from ..convex.sums import RowSums
from ..core.errors import InvalidInputError
from ..core.memory import symmetric_bytes
from ..data.sequences import TrainingSet
from ..data.task import UNNAMED_HEAD
from ..dictionary import Dictionary, build_dictionary
from ..network import Proof


class Kept(ABC):
    """What is kept of the rows that a ridge read-out was solved on."""

    @abstractmethod
    def add(self, proof: Proof, rows: "KeptRows", tol: float) -> tuple[Solution, "Kept"]:
        """Solve a program again over the rows so far and others.

        Parameters
        ----------
        proof : Proof
            The proof of the solution over the rows so far.
        rows : KeptRows
            The others.
        tol : float
            The relative gap to certify.

        Returns
        -------
        solution : Solution
            The optimum over all rows. From sums, its problem has the new rows alone, and its dual point none.
        kept : Kept
            What to keep for the next time.
        """


@dataclass(frozen=True, eq=False)
class KeptRows(Kept):
    """All rows.

    Parameters
    ----------
    dictionary : Dictionary
        The columns on the rows.
    targets : Tensor of shape (n_rows, n_outputs)
        The targets, with the shifts of the loss.
    weight : Tensor of shape (n_rows,)
        The weights, which need not sum to one.
    """

    dictionary: Dictionary
    targets: Tensor
    weight: Tensor

    @classmethod
    def of(cls, proof: Proof, data: TrainingSet, unit: float, dictionary: Dictionary | None = None) -> "KeptRows":
        """Return the rows of some data.

        Parameters
        ----------
        proof : Proof
            The neurons and how they are read.
        data : TrainingSet
            The data.
        unit : float
            What the weights of the samples are multiples of.
        dictionary : Dictionary, optional
            The columns on these data, if they are known.

        Returns
        -------
        KeptRows
            The rows.
        """
        if dictionary is None:
            dictionary = build_dictionary(proof.witnesses, data.sequences, proof.objective.readout, unit=proof.unit)
        assert not isinstance(proof.objective.loss, Mapping)  # estimators have one head
        targets = make_loss(proof.objective.loss).encode(data.targets[UNNAMED_HEAD]).to(dictionary.device)
        weight = torch.ones(len(targets)) if data.sample_weight is None else data.sample_weight
        # Model files rely on atoms in the order of their columns.
        ordered, _ = dictionary.refine(dictionary.atom_of_column)
        return cls(replace(ordered, witnesses=None), targets, unit * weight.to(targets))

    @cached_property
    def products(self) -> Tensor:
        """The products of all pairs of rows, which take longer to compute than all else in an update."""
        return self.dictionary.row_gram()

    @property
    def has_products(self) -> bool:
        """Whether a solver needs the products of rows."""
        return self.dictionary.n_rows < min(self.dictionary.n_atoms, MAX_ATOMS)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the products."""
        return {name: value for name, value in vars(self).items() if name != "products"}

    def smallest(self, intercept: bool) -> Kept:
        """Return what takes less memory: the rows with their products, or sums over them."""
        n_outputs, n_atoms = self.targets.shape[1], self.dictionary.n_atoms
        tensors = [value for value in vars(self.dictionary).values() if isinstance(value, Tensor)]
        n_bytes = sum(tensor.nbytes for tensor in tensors)
        n_bytes += symmetric_bytes(self.dictionary.n_rows) if self.has_products else 0
        if n_bytes <= RowSums.n_bytes(n_atoms, n_outputs):
            _ = self.products if self.has_products else None  # now, so that updates are fast
            return self
        means = self.weight @ self.targets / self.weight.sum()
        return KeptSums(self.dictionary.atom_of_column, self.sums(means if intercept else torch.zeros_like(means)))

    def sums(self, shift: Tensor) -> RowSums:
        """Return the sums over the rows."""
        return RowSums.of(self.dictionary, self.targets, self.weight, shift)

    def scores(self, proof: Proof) -> Tensor:
        """Return the scores that a proven read-out gives the rows."""
        return self.dictionary.matvec(self.dictionary.coefficients(proof.support, proof.coef)) + proof.intercept

    def problem(self, proof: Proof) -> ConvexProblem:
        """Return the program over these rows."""
        return ConvexProblem(
            replace(self.dictionary, witnesses=proof.witnesses),
            {UNNAMED_HEAD: self.targets},
            "squared",
            0.0,
            l2_strength=proof.l2_strength,
            penalty=proof.penalty,
            intercept=proof.has_intercept,
            row_weight=self.weight,
        )

    def add(self, proof: Proof, rows: "KeptRows", tol: float) -> tuple[Solution, Kept]:
        dictionary = self.dictionary.append(rows.dictionary)
        targets, weight = torch.cat((self.targets, rows.targets)), torch.cat((self.weight, rows.weight))
        every = KeptRows(dictionary, targets, weight)
        problem = every.problem(proof)
        if every.has_products:
            every.__dict__["products"] = self._more_products(dictionary)
            problem.row_workspace.put(row_products, weigh_products(problem, every.products.clone()))
        return solve(problem, tol), every.smallest(proof.has_intercept)

    def _more_products(self, dictionary: Dictionary) -> Tensor:
        """Return the products of the rows of a dictionary that begins with these."""
        n_old, n_rows = self.dictionary.n_rows, dictionary.n_rows
        new = dictionary.take_rows(torch.arange(n_old, n_rows, device=dictionary.device))
        products = self.products.new_empty(n_rows, n_rows)
        products[:n_old, :n_old] = self.products
        # Columns that were one atom and differ on the new rows count once each from now on.
        atoms = torch.bincount(self.dictionary.atom_of_column[dictionary.column_of_atom])
        again = torch.repeat_interleave(torch.arange(len(atoms), device=atoms.device), atoms - 1)
        if len(again):
            products[:n_old, :n_old] += self.dictionary.take_atoms(again).row_gram()
        products[:, n_old:] = dictionary.matvec(new.columns().T)
        products[n_old:, :n_old] = products[:n_old, n_old:].T
        return products


@dataclass(frozen=True, eq=False)
class KeptSums(Kept):
    """Sums over the rows.

    Parameters
    ----------
    atom_of_column : Tensor of shape (n_columns,), dtype int64
        Which columns are equal on all rows so far.
    sums : RowSums
        The sums.
    """

    atom_of_column: Tensor
    sums: RowSums

    def add(self, proof: Proof, rows: KeptRows, tol: float) -> tuple[Solution, Kept]:
        begin = time.perf_counter()
        dictionary, atoms = rows.dictionary.refine(self.atom_of_column)
        rows = replace(rows, dictionary=dictionary)
        sums = self.sums.plus(rows.sums(self.sums.shift), atoms)
        scope = proof.certificate.scope
        coef, intercept, certificate = sums.solve_ridge(proof.l2_strength, proof.has_intercept, scope)
        solution = Solution(
            problem=rows.problem(proof),
            coef=coef,
            intercept=intercept,
            dual_point=coef.new_zeros(0, coef.shape[1]),
            status=Status.CONVERGED if certificate.relative_gap <= tol else Status.STALLED,
            certificate=certificate,
            solver="ridge",
            history=(),
            seconds=time.perf_counter() - begin,
        )
        report_gap(solution, tol, strict=False, stacklevel=5)
        return solution, KeptSums(dictionary.atom_of_column, sums)


def check_updatable(proof: Proof) -> None:
    """Refuse a read-out that is not the minimum of a squared loss with ridge towards zero."""
    loss = proof.objective.loss
    is_squared = not isinstance(loss, Mapping) and type(make_loss(loss)) is Squared
    if is_squared and proof.l1_strength == 0 and proof.l2_strength > 0 and proof.centre is None:
        return
    found = f"loss {loss!r}" if not is_squared else f"l1_strength {proof.l1_strength:g}"
    found = "ridge around a trained read-out" if proof.centre is not None else found
    raise InvalidInputError(
        f"expected a read-out by least squares with ridge alone, which more samples can be added to, got {found}: fit "
        "again on all samples"
    )
