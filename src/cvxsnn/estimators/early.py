"""Early answers: a sequence is classified as soon as more steps would hardly change whether the answer is right."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import floor, inf
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..convex import Certificate
from ..convex.losses import make_loss
from ..convex.objective import logits
from ..core.checks import check_number, check_type
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.seeds import child_generator
from ..data import Sequences
from ..data.sequences import deal_groups
from ..dictionary.base import parse_readout
from ..fitting import fit
from ..network import OutputHead, Proof, SpikingNetwork
from ..neurons.reading import read_columns
from .answers import FloatArray
from .base import all_or_nothing
from .classifier import SpikingClassifier, fit_scale
from .inputs import read_groups
from .streams import Stream

CONFIDENCE = 0.99
"""Confidence of early answers, unless there are too few samples to show it."""

ONE_LEFT_OUT = 5
"""One in this many samples is left out at a time to learn when to stop."""

MAX_FOLDED = 1000
"""Samples up to which each is left out once; of more, one part is enough."""


class EarlyClassifier(BaseEstimator):  # type: ignore[misc]
    """Classifies sequences before they end, if stopping is unlikely to cost a right answer.

    At each of a few numbers of steps, the same neurons have a read-out of their own: the certified optimum over what
    they did so far, on all training sequences cut there. A sequence is answered at the first of them at which the two
    most likely classes are far enough apart, and else at its end, by the read-out of complete sequences.

    How far is chosen on samples left out of everything: a fifth at a time, of up to 1,000 samples each once, by copies
    of the classifier that are fitted to the others. Let sample i lose its right answer to an early wrong one only at
    thresholds below :math:`c_i`. With n samples left out, the threshold is the r-th largest :math:`c_i`, where r is
    (1 − confidence)(n + 1), rounded down. As in conformal prediction, a new sequence that is exchangeable with those
    left out then loses a right answer with a probability of about 1 − confidence at most, on average over training
    sets. With few samples, single training sets differ much.

    Parameters
    ----------
    estimator : SpikingClassifier
        The classifier, with a method that ends with a convex read-out. A copy of it is fitted; ``max_seconds`` limits
        the time of this fit alone.
    fractions : sequence of float
        When to read, as shares of the longest training sequence, above 0 and at most 1.

    Attributes
    ----------
    model_ : SpikingClassifier
        The classifier of complete sequences.
    steps_ : tuple of int
        The numbers of steps at which there is a read-out; the last is that of the longest training sequence.
    network_ : SpikingNetwork
        The neurons with all read-outs, a head for each.
    proofs_ : tuple of Proof
        The read-outs with what is needed to certify them again, except for the data.
    certificates_ : tuple of Certificate
        The certificates of the read-outs.
    critical_ : array of shape (n_left_out,)
        The values :math:`c_i` in falling order; minus infinity for samples that lose nothing.
    classes_ : array
        The labels, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import EarlyClassifier, SpikingClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 2
    >>> X = rng.normal(size=(80, 20, 1)) + 2 * y[:, None, None]
    >>> early = EarlyClassifier(SpikingClassifier(n_neurons=64, random_state=0)).fit(X, y)
    >>> labels, n_steps = early.predict_early(X, confidence=0.9)
    >>> bool(n_steps.mean() < 20), max(own.relative_gap for own in early.certificates_) <= 1e-6
    (True, True)
    """

    _learned = ("model_", "steps_", "network_", "proofs_", "certificates_", "critical_", "classes_", "_scales")

    def __init__(
        self,
        estimator: SpikingClassifier,
        *,
        fractions: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    ) -> None:
        self.estimator = estimator
        self.fractions = fractions

    @all_or_nothing
    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Fit the classifier and a read-out for each number of steps, and learn when to stop.

        Parameters
        ----------
        X : array or list of arrays
            Sequences, as for :class:`SpikingClassifier`.
        y : array of shape (n_samples,)
            The labels.
        groups : array of shape (n_samples,), optional
            The group of each sample; samples of one group are left out together.

        Returns
        -------
        EarlyClassifier
            The fitted classifier.
        """
        check_type(self.estimator, SpikingClassifier, "a SpikingClassifier to answer early")
        shares = [check_number("fractions", fraction) for fraction in self.fractions]
        if not all(0 < share <= 1 for share in shares):
            raise InvalidInputError(f"expected fractions above 0 and at most 1, got {self.fractions!r}")
        X = list(X.values()) if isinstance(X, Mapping) else X
        self.model_ = model = clone(self.estimator).fit(X, y, groups=groups)
        if not model.is_sequential_:
            raise InvalidInputError("expected sequences to answer early, got rows, which have a single step")
        self.classes_ = model.classes_
        sequences, readout = model.as_sequences(X), parse_readout(model.network_.readout)
        fewest = readout.n_windows if readout.kind == "mean" else 1
        cuts = {round(share * sequences.n_steps) for share in shares}
        self.steps_ = (*sorted(cut for cut in cuts if fewest <= cut < sequences.n_steps), sequences.n_steps)
        proofs = self._read_out(model, X, y, groups)
        names = model.read_targets(y)
        labels, numbers = np.searchsorted(self.classes_, names), read_groups(groups, len(names))
        alone = np.arange(len(labels))
        fold_of = deal_groups(alone if numbers is None else numbers, labels, ONE_LEFT_OUT, child_generator(0, "early"))
        rows, scores = [], []
        for fold in range(fold_of.max() + 1 if len(labels) <= MAX_FOLDED else 1):
            kept, held = (np.flatnonzero(some) for some in (fold_of != fold, fold_of == fold))
            part = _safe_indexing(X, kept), names[kept], None if numbers is None else numbers[kept]
            judge = clone(self.estimator).fit(part[0], part[1], groups=part[2])
            network = _join(self._read_out(judge, *part), self.steps_)
            left_out = judge.as_sequences(_safe_indexing(X, held))
            scores.append(torch.stack([self._scores(network, left_out, number) for number in range(len(self.steps_))]))
            rows.append(held)
        judged = np.concatenate(rows)
        scales, critical = self._calibrate(torch.cat(scores, 1), labels[judged], _lengths(sequences)[judged])
        self._restore(model, self.steps_, proofs, scales, critical)
        return self

    def stream(self, confidence: float | None = None) -> "EarlyStream":
        """Return a stream that answers one sequence while it arrives.

        Parameters
        ----------
        confidence : float, optional
            As for :meth:`predict_early`.

        Returns
        -------
        EarlyStream
            The stream.
        """
        return EarlyStream(self, self.threshold(confidence))

    def certify(self, X: Any, y: Any) -> tuple[Certificate, ...]:
        """Certify all read-outs again on the data that the classifier was fitted to.

        If the data differ, an :class:`OtherDataWarning` names the differences, and the certificates apply to the data
        passed in. A network other than the one of the proofs is refused.

        Parameters
        ----------
        X : array or list of arrays
            The sequences.
        y : array of shape (n_samples,)
            Their labels.

        Returns
        -------
        tuple of Certificate
            Bounds on the optimum over the sampled neurons, for each number of steps.
        """
        check_is_fitted(self)
        data = self.model_.data_of_fit(list(X.values()) if isinstance(X, Mapping) else X, y)
        certificates = []
        for n_steps, proof, head in zip(self.steps_, self.proofs_, self.network_.heads, strict=True):
            proof.check_network(_part(self.network_, head))
            certificates.append(proof.certify(replace(data, sequences=_cut(data.sequences, n_steps))))
        return tuple(certificates)

    def predict_early(self, X: Any, confidence: float | None = None) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Predict labels, and return how many steps each took.

        Parameters
        ----------
        X : array or list of arrays
            The sequences.
        confidence : float, optional
            Probability with which stopping early costs no right answer, so that the accuracy is lower than that of
            complete sequences by at most ``1 - confidence``. By default 0.99; with n < 99 samples left out the most
            that they can show, ``n / (n + 1)``.

        Returns
        -------
        labels : array of shape (n_samples,)
            The labels.
        n_steps : array of shape (n_samples,), dtype int64
            The number of steps that were read.
        """
        threshold = self.threshold(confidence)
        sequences = self.model_.as_sequences(X)
        used = _lengths(sequences)
        rows = np.arange(len(sequences))
        outputs = np.empty((len(sequences), self.network_.heads[0].stop))
        last = len(self.steps_) - 1
        for number, n_steps in enumerate(self.steps_[:last]):
            running = rows[used[rows] > n_steps]
            if len(running) == 0:
                break
            scores = self._scores(self.network_, sequences.take(torch.from_numpy(running)), number)
            stops = _margins(scores, self._scales[number]) > threshold
            outputs[running[stops]] = scores.numpy()[stops]
            used[running[stops]] = n_steps
            rows = np.setdiff1d(rows, running[stops])
        if len(rows):
            outputs[rows] = self._scores(self.network_, sequences.take(torch.from_numpy(rows)), last).numpy()
        return self.model_._predictions(outputs), used

    def threshold(self, confidence: float | None = None) -> float:
        """Return by how much the most likely class must be ahead of the next to stop, in log-odds.

        Parameters
        ----------
        confidence : float, optional
            As for :meth:`predict_early`.

        Returns
        -------
        float
            The threshold.
        """
        check_is_fitted(self)
        n_samples = len(self.critical_)
        most = n_samples / (n_samples + 1)
        confidence = min(CONFIDENCE, most) if confidence is None else check_number("confidence", confidence)
        if not 0 < confidence <= most:
            raise InvalidInputError(
                f"expected confidence above 0 and at most {most:.4g}, which {plural(n_samples, 'sample')} left out can "
                f"show, got {confidence!r}: fit to more samples, or read sequences to their end with model_.predict"
            )
        rank = floor((1 - confidence) * (n_samples + 1) + 1e-9)  # 1 - 0.95 is a little above 0.05
        return float(self.critical_[rank - 1])

    def _restore(
        self,
        model: SpikingClassifier,
        steps: tuple[int, ...],
        proofs: tuple[Proof, ...],
        scales: list[float],
        critical: FloatArray,
    ) -> None:
        """Restore the fitted state."""
        self.model_, self.classes_ = model, model.classes_
        self.steps_, self.proofs_ = steps, proofs
        self.certificates_ = tuple(proof.certificate for proof in proofs)
        self.network_ = _join(proofs, steps)
        self._scales, self.critical_ = scales, critical

    def _read_out(self, model: SpikingClassifier, X: Any, y: Any, groups: Any) -> tuple[Proof, ...]:
        """Return an optimal read-out of the neurons of a model for each number of steps."""
        data, proof = model._read(X, y, None, reset=False, groups=groups), model.proof_
        program = model._program(proof.objective)
        cuts = (replace(data, sequences=_cut(data.sequences, n_steps)) for n_steps in self.steps_)
        return tuple(Proof.of(fit(cut, proof.witnesses, program).solution, proof.objective) for cut in cuts)

    def _scores(self, network: SpikingNetwork, sequences: Sequences, number: int) -> Tensor:
        """Return the scores of a read-out for sequences that are cut where it reads; the last reads all of them."""
        is_last = number == len(self.steps_) - 1
        with torch.no_grad():
            scores: Tensor = network(sequences if is_last else _cut(sequences, self.steps_[number]))
        return scores[:, network.heads[number].columns].cpu()

    def _calibrate(
        self, scores: Tensor, labels: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> tuple[list[float], FloatArray]:
        """Return scales and critical values from scores of samples left out, (n_readouts, n_samples, n_outputs)."""
        weight = torch.full((len(labels),), 1 / len(labels), dtype=torch.float64)
        scales = [fit_scale(own, labels, weight) for own in scores]
        is_right = np.stack([self.model_.decide(own.numpy()) == labels for own in scores])
        is_running = lengths > np.array(self.steps_)[:, None]
        is_running[-1] = False
        margins = np.stack([_margins(own, scale) for own, scale in zip(scores, scales, strict=True)])
        margins = np.where(is_running, margins, -inf)
        # A sequence stops at a read-out for some threshold only if it is clearer there than at all before.
        before = np.maximum.accumulate(np.vstack((np.full(len(labels), -inf), margins[:-1])), axis=0)
        is_lost = (margins > before) & ~is_right & is_right[-1]
        return scales, -np.sort(-np.where(is_lost, margins, -inf).max(0))


class EarlyStream:
    """One sequence that arrives a step at a time, and is answered as soon as its class is clear.

    :meth:`EarlyClassifier.stream` makes one.

    Parameters
    ----------
    early : EarlyClassifier
        A fitted classifier without windows of time, whose length a stream does not know.
    threshold : float
        By how much the most likely class must be ahead of the next, in log-odds.

    Attributes
    ----------
    n_steps : int
        Steps so far.
    is_answered : bool
        Whether there is an answer.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import EarlyClassifier, SpikingClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 2
    >>> X = rng.normal(size=(80, 20, 1)) + 2 * y[:, None, None]
    >>> early = EarlyClassifier(SpikingClassifier(n_neurons=64, random_state=0)).fit(X, y)
    >>> stream = early.stream(confidence=0.9)
    >>> for x in X[1]:
    ...     label = stream.step(x)
    ...     if stream.is_answered:
    ...         break
    >>> int(label), stream.n_steps < 20
    (1, True)
    """

    def __init__(self, early: EarlyClassifier, threshold: float) -> None:
        model = copy(early.model_)
        model.network_ = early.network_
        if model.network_.readout.startswith("windows"):
            raise InvalidInputError("expected a classifier without windows of time to stream, got one that reads some")
        self._model, self._threshold, self._steps = model, threshold, early.steps_
        self._scales, self._stream = early._scales, Stream(model)
        self.reset()

    def reset(self) -> None:
        """Forget all steps: the next one begins another sequence."""
        self._stream.reset()
        self.n_steps, self.is_answered = 0, False
        self._label: Any = None

    def step(self, x: Any) -> Any:
        """Read one step, unless there is an answer already.

        Parameters
        ----------
        x : array of shape (n_features,)
            Raw features, in the order and units of ``fit``.

        Returns
        -------
        label or None
            The answer, or None if the class is not clear yet.
        """
        if not self.is_answered:
            self._stream.step(x)
            number = self._steps.index(self.n_steps + 1) if self.n_steps + 1 in self._steps[:-1] else -1
            if number >= 0 and _margins(self._scores(number), self._scales[number])[0] > self._threshold:
                self._label, self.is_answered = self._decide(number), True
        self.n_steps += 1
        return self._label

    def end(self) -> Any:
        """Return the answer to a sequence that has ended.

        Returns
        -------
        label
            The answer to a step before the last one, if there is any, or else that of complete sequences: as
            :meth:`EarlyClassifier.predict_early` has it.
        """
        if self.n_steps == 0:
            raise InvalidInputError("expected at least one step before the end, got none: call step first")
        return self._label if self.n_steps > self._stream.n_steps else self._decide(-1)

    def _scores(self, number: int) -> Tensor:
        """Return the scores of a read-out."""
        outputs = self._stream._outputs
        assert outputs is not None
        return torch.from_numpy(outputs[:, self._model.network_.heads[number].columns])

    def _decide(self, number: int) -> Any:
        return self._model._predictions(self._scores(number).numpy())[0]


def _margins(scores: Tensor, scale: float) -> FloatArray:
    """Return by how much the most likely class is ahead of the next, in log-odds."""
    first, second = logits(scores, scale).topk(2, dim=1).values.unbind(1)
    margins: FloatArray = (first - second).numpy()
    return margins


def _lengths(sequences: Sequences) -> npt.NDArray[np.int64]:
    lengths = sequences.lengths
    return np.full(len(sequences), sequences.n_steps) if lengths is None else lengths.cpu().numpy().copy()


def _cut(sequences: Sequences, n_steps: int) -> Sequences:
    """Return sequences that end after some steps, or earlier."""
    lengths = sequences.lengths
    return Sequences(sequences.inputs[:, :n_steps], None if lengths is None else lengths.clamp(max=n_steps))


def _join(proofs: Sequence[Proof], steps: Sequence[int]) -> SpikingNetwork:
    """Return one network of all neurons with a head for each of several read-outs."""
    first, layers = proofs[0], proofs[0].witnesses.layers
    readout, n_outputs = parse_readout(first.objective.readout), first.coef.shape[1]
    every = torch.arange(first.witnesses.n_witnesses * readout.n_windows)
    every = read_columns(layers, readout.statistics).cpu() if readout.statistics else every
    weight = torch.zeros(len(every), len(proofs) * n_outputs, dtype=torch.float64)
    heads = []
    for number, (n_steps, proof) in enumerate(zip(steps, proofs, strict=True)):
        loss = proof.objective.loss
        assert not isinstance(loss, Mapping)  # classifiers have one head
        first_output = number * n_outputs
        heads.append(OutputHead(f"step {n_steps}", make_loss(loss).name, first_output, first_output + n_outputs))
        weight[torch.searchsorted(every, proof.support.cpu()), heads[-1].columns] = proof.coef.cpu()
    intercept = torch.cat([proof.intercept.cpu() for proof in proofs])
    return SpikingNetwork(layers, weight, heads, intercept, readout=str(readout))


def _part(network: SpikingNetwork, head: OutputHead) -> SpikingNetwork:
    """Return the network of one read-out."""
    alone = replace(head, start=0, stop=head.stop - head.start)
    weight, intercept = network.weight[:, head.columns], network.intercept[head.columns]
    return SpikingNetwork(
        network.layers, weight, [alone], intercept, network.neurons, network.readout, network.windows_read
    )
