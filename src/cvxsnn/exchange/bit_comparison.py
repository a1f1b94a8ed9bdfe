"""Comparing one model at several numbers of bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..convex import Certificate
from ..core.errors import InvalidInputError
from ..core.text_table import align
from ..data.sequences import TrainingSet
from ..network.spiking_network import SpikingNetwork
from ..training.methods import Trained
from .quantisation import proof_of, quantise_and_solve
from .rounding import quantise


@dataclass(frozen=True)
class BitsRow:
    """One number of bits in a comparison.

    Parameters
    ----------
    bits : int
        Bits per hidden weight.
    as_is : float
        Score with the old read-out.
    solved : float
        Score with the optimal read-out.
    rounded : float
        Score with the optimal read-out, rounded.
    as_is_objective : float
        Training objective of the old read-out.
    certificate : Certificate
        Certificate of the optimal read-out.
    rounded_certificate : Certificate
        Certificate of the rounded read-out.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.exchange import compare_bits
    >>> from cvxsnn.training import Settings, TaskScore, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (32,)}))
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> [row] = compare_bits(trained, data, TaskScore(task, task.test), bits=(4,)).rows
    >>> row.certificate.relative_gap <= 1e-6
    True
    """

    bits: int
    as_is: float
    solved: float
    rounded: float
    as_is_objective: float
    certificate: Certificate
    rounded_certificate: Certificate


@dataclass(frozen=True)
class BitsComparison:
    """Scores and objectives of one model at several numbers of bits.

    Parameters
    ----------
    score : float
        Score before rounding.
    objective : float
        Training objective before rounding.
    readout_bits : int
        Bits per output weight, where these are rounded.
    rows : tuple of BitsRow
        One row for each number of bits.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.exchange import compare_bits
    >>> from cvxsnn.training import Settings, TaskScore, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (32,)}))
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> found = compare_bits(trained, data, TaskScore(task, task.test), bits=(8, 4))
    >>> [row.bits for row in found.rows]
    [8, 4]
    """

    score: float
    objective: float
    readout_bits: int
    rows: tuple[BitsRow, ...]

    def __str__(self) -> str:
        """Return a table; objectives are those of the training data."""
        rounded = f"{self.readout_bits}-bit read-out"
        header = ("hidden bits", "score: as is", "solved", rounded, "objective: as is", "solved", rounded, "gap")
        rows: list[tuple[str, ...]] = [
            ("not rounded", f"{self.score:.4f}", "", "", f"{self.objective:.5f}", "", "", "")
        ]
        for row in self.rows:
            objectives = (row.as_is_objective, row.certificate.primal, row.rounded_certificate.primal)
            rows.append(
                (
                    str(row.bits),
                    *(f"{score:.4f}" for score in (row.as_is, row.solved, row.rounded)),
                    *(f"{objective:.5f}" for objective in objectives),
                    f"{row.certificate.relative_gap:.0e}",
                )
            )
        return align(header, rows)


def compare_bits(
    trained: Trained,
    data: TrainingSet,
    score: Callable[[SpikingNetwork], float],
    bits: Sequence[int] = (8, 4, 2),
    *,
    readout_bits: int = 8,
    tol: float = 1e-6,
) -> BitsComparison:
    """Compare a trained network at several numbers of bits, as it is and with its read-out found again.

    Parameters
    ----------
    trained : Trained
        A model whose read-out was found by convex optimisation.
    data : TrainingSet
        The data that it was found on.
    score : callable
        Scores a network, for example by its accuracy on test data.
    bits : sequence of int
        Bits per hidden weight, from 2 to 16.
    readout_bits : int
        Bits per output weight, where these are rounded too.
    tol : float
        Relative gap to certify.

    Returns
    -------
    BitsComparison
        One row for each number of bits; prints as a table.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.exchange import compare_bits
    >>> from cvxsnn.training import Settings, TaskScore, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (32,)}))
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> found = compare_bits(trained, data, TaskScore(task, task.test), bits=(8, 4))
    >>> [row.bits for row in found.rows]
    [8, 4]
    """
    if not isinstance(trained, Trained):
        raise InvalidInputError(f"expected what train returns, got {type(trained).__name__}: train a model first")
    if not callable(score):
        raise InvalidInputError(f"expected score to be a function of a network, got {type(score).__name__}")
    if not isinstance(bits, Sequence) or isinstance(bits, str):
        raise InvalidInputError(f"expected bits to be a sequence of integers such as (8, 4, 2), got {bits!r}")
    proof = proof_of(trained)
    rows = []
    for number in bits:
        solved = quantise_and_solve(proof, data, number, tol=tol)
        rounded = solved.with_readout_bits(readout_bits)
        rows.append(
            BitsRow(
                number,
                score(quantise(trained.network, number)),
                score(solved.network),
                score(rounded.network),
                # The old coefficients on the new spikes.
                proof.certify(data, solved.solution.problem).primal,
                solved.certificate,
                rounded.certificate,
            )
        )
    return BitsComparison(score(trained.network), proof.certificate.primal, readout_bits, tuple(rows))
