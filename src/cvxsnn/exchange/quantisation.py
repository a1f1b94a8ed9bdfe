"""Networks of few bits: round the hidden neurons, then solve for the read-out again, with a proof.

Rounding changes spikes, and a read-out that was optimal for the old ones need not be good for the new ones. But the
read-out is the solution of a convex program for any hidden neurons, so it is solved for and certified again.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sklearn.pipeline import Pipeline

from ..convex import Certificate, Solution, certify, solve
from ..core.checks import check_type
from ..core.errors import InvalidInputError
from ..data.sequences import TrainingSet
from ..estimators import SpikingClassifier, SpikingRegressor
from ..estimators.pipelines import replace_last, split_pipeline
from ..fitting.methods import Trained
from ..network.reconstruction import Proof, reconstruct
from ..network.spiking_network import SpikingNetwork
from .readout.result import ReadoutResult
from .rounding import quantise, round_readout

Estimator = TypeVar("Estimator", SpikingClassifier, SpikingRegressor, Pipeline)


@dataclass(frozen=True, eq=False)
class Quantised:
    """A network of few bits with its proof.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    solution : Solution
        The optimal read-out of the rounded hidden neurons, before it is rounded itself.
    proof : Proof
        The proof for the read-out that the network has.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.exchange import quantise_and_solve
    >>> from cvxsnn.fitting import Settings, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (32,)}))
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> small = quantise_and_solve(trained, data, bits=4)
    >>> small.certificate.relative_gap <= 1e-6
    True
    """

    network: SpikingNetwork
    solution: Solution
    proof: Proof

    @property
    def certificate(self) -> Certificate:
        """A bound on how far the network's read-out, rounded or not, is from the optimum over its rounded neurons."""
        return self.proof.certificate

    def with_readout_bits(self, bits: int) -> "Quantised":
        """Round the optimal read-out and certify the rounded one; neurons that it does not read are dropped.

        Parameters
        ----------
        bits : int
            Bits per output weight, from 2 to 16.

        Returns
        -------
        Quantised
            The network with the rounded read-out.
        """
        problem = self.solution.problem
        coef, intercept = round_readout(self.solution.coef, self.solution.intercept, bits)
        certificate, dual_point = certify(problem, coef, intercept, [self.solution.dual_point])
        rounded = replace(self.solution, coef=coef, intercept=intercept, certificate=certificate, dual_point=dual_point)
        return Quantised(reconstruct(rounded), self.solution, Proof.of(rounded, self.proof.objective))


def quantise_and_solve(
    trained: Trained | Proof | ReadoutResult,
    data: TrainingSet,
    bits: int = 8,
    *,
    readout_bits: int | None = None,
    tol: float = 1e-6,
) -> Quantised:
    """Round all hidden neurons that a model was trained over, and find their optimal read-out at the same strengths.

    Parameters
    ----------
    trained : Trained, Proof or ReadoutResult
        A model with a read-out from convex optimisation; of a :class:`ReadoutResult`, the network of ``to_network``.
    data : TrainingSet
        The data that it was trained on.
    bits : int
        Bits per hidden weight, from 2 to 16.
    readout_bits : int, optional
        Bits per output weight; float64 if not given. The certificate includes what rounding them costs.
    tol : float
        Relative gap to certify, before the read-out is rounded.

    Returns
    -------
    Quantised
        The network, the solution and the proof.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.exchange import quantise_and_solve
    >>> from cvxsnn.fitting import Settings, train_task
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> trained = train_task("cvx", task, Settings(cs.convex.Objective("logistic"), {"hidden": (32,)}))
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> small = quantise_and_solve(trained, data, bits=4)
    >>> small.certificate.relative_gap <= 1e-6
    True
    """
    before = _proof_of(trained)
    check_type(data, TrainingSet, "the TrainingSet that the model was trained on")
    solution = solve(replace(before, witnesses=quantise(before.witnesses, bits)).problem(data), tol)
    quantised = Quantised(reconstruct(solution), solution, Proof.of(solution, before.objective))
    return quantised if readout_bits is None else quantised.with_readout_bits(readout_bits)


def quantise_estimator(
    model: Estimator,
    X: Any,  # noqa: N803  # scikit-learn calls the data X
    y: Any,
    bits: int = 8,
    *,
    sample_weight: Any = None,
    readout_bits: int | None = None,
) -> Estimator:
    """Return a copy of a fitted estimator with few bits, its read-out found again on the data of the fit.

    The copy can be saved, loaded and certified like the original.

    Parameters
    ----------
    model : SpikingClassifier, SpikingRegressor or Pipeline
        A fitted estimator with a read-out from convex optimisation, or a pipeline that ends in one.
    X : array or sequence of arrays
        The inputs that it was fitted to.
    y : array of shape (n_samples,) or (n_samples, n_outputs)
        The targets that it was fitted to.
    bits : int
        Bits per hidden weight, from 2 to 16.
    sample_weight : array of shape (n_samples,), optional
        The weights that it was fitted with.
    readout_bits : int, optional
        Bits per output weight; float64 if not given.

    Returns
    -------
    SpikingClassifier, SpikingRegressor or Pipeline
        The copy, with ``network_`` and ``certificate_`` as of :func:`quantise_and_solve`.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    >>> model = cs.SpikingClassifier(hidden=(32,), l1_strength=0.01, random_state=0).fit(X, y)
    >>> small = cs.exchange.quantise_estimator(model, X, y, bits=4)
    >>> small.certificate_.relative_gap <= small.tol
    True
    """
    transformers, estimator = split_pipeline(model)
    kinds = (SpikingClassifier, SpikingRegressor)
    check_type(estimator, kinds, "a fitted SpikingClassifier or SpikingRegressor", "see quantise")
    for transformer in transformers:
        X = transformer.transform(X)
    proof, data = estimator.proof_, estimator.data_of_fit(X, y, sample_weight)
    quantised = quantise_and_solve(proof, data, bits, readout_bits=readout_bits, tol=estimator.tol)
    copy: Estimator = replace_last(model, estimator.with_readout(quantised.network, quantised.proof))
    return copy


def _proof_of(trained: Trained | Proof | ReadoutResult) -> Proof:
    """Return the proof of a trained model, or refuse one whose read-out is the optimum of no program."""
    if isinstance(trained, Proof):
        return trained
    if isinstance(trained, ReadoutResult):
        return trained.to_proof()
    check_type(trained, Trained, "what train returns, or a Proof")
    if trained.solution is None:
        raise InvalidInputError(
            f"expected a model whose read-out is the optimum of a convex program, got method {trained.method!r} with a "
            "trained read-out: use 'cvx'"
        )
    return Proof.of(trained.solution, trained.settings.objective)
