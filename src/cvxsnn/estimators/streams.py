"""Answers of a fitted model while sequences are still arriving, a step at a time."""

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import as_real, check_positive_int
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..data.sequences import check_finite
from ..network.spiking_network import NetworkState
from .inputs import standardise

if TYPE_CHECKING:
    from .answers import FloatArray
    from .base import SpikingEstimator


class Stream:
    """Sequences that arrive a step at a time, side by side, and what a model answers so far.

    :meth:`SpikingClassifier.stream` makes one. It keeps the network and the scale that the model has at that time.

    Parameters
    ----------
    model : SpikingClassifier or SpikingRegressor
        A model that was fitted to sequences.
    n_streams : int, optional
        Number of sequences that arrive together. By default a single one, whose inputs and answers have no axis for
        the streams.
    n_steps : int, optional
        Number of steps that will arrive; required to read windows of time.

    Attributes
    ----------
    n_steps : int
        Steps so far.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import SpikingRegressor
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> model = SpikingRegressor(n_neurons=64, random_state=0).fit(X, X.sum((1, 2)))
    >>> stream = model.stream()
    >>> for x in X[0]:
    ...     answer = stream.step(x)
    >>> stream.n_steps, bool(np.isclose(answer, model.predict(X[:1])[0]))
    (5, True)
    """

    def __init__(self, model: "SpikingEstimator", n_streams: int | None = None, n_steps: int | None = None) -> None:
        if not model.is_sequential_:
            raise InvalidInputError("expected a model of sequences, got one of rows: call its predict for each row")
        axis = () if n_streams is None else (check_positive_int("n_streams", n_streams),)
        self._shape: tuple[int, ...] = (*axis, model.n_features_in_)
        # The attributes of the model as they are now: a later fit replaces them.
        self._model = model.__new__(type(model))
        self._model.__dict__ = dict(vars(model))
        self._start = self._state = model.network_.start(n_streams or 1, n_steps)
        self._outputs: FloatArray | None = None

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return self._state.n_steps

    def step(self, x: Any) -> Any:
        """Read one step of every stream.

        Parameters
        ----------
        x : array of shape (n_features,) or (n_streams, n_features)
            Raw features, in the order and units of ``fit``.

        Returns
        -------
        array of shape () or (n_classes,), (n_outputs,), with an axis for the streams in front if there is one
            What ``decision_function``, or ``predict`` of a regressor, says of the sequences so far.
        """
        values = as_real("a step", x)
        if values.shape != self._shape:
            names = "(n_features,)" if len(self._shape) == 1 else "(n_streams, n_features)"
            raise InvalidInputError(f"expected one step of shape {names} = {self._shape}, got shape {values.shape}")
        check_finite(values, "features", "pass the last value again where one is missing")
        self._state, scores = self._advance(self._state, values)
        outputs = self._outputs = scores.cpu().numpy()
        return self._alone(self._model._margins(outputs))

    def predict(self) -> Any:
        """Return what ``predict`` of the model says of the sequences so far.

        Returns
        -------
        label or number, or an array with one per stream
            The labels of a classifier, or the targets of a regressor.
        """
        if self._outputs is None:
            raise InvalidInputError("expected at least one step before a prediction, got none: call step first")
        return self._alone(self._model._predictions(self._outputs))

    def reset(self) -> None:
        """Forget all steps: the next one begins new sequences."""
        self._state, self._outputs = self._start, None

    def copy(self) -> Self:
        """Return a stream with the same past that goes on independently.

        Returns
        -------
        Stream
            The copy. Nothing is duplicated, since steps replace the state and never write to it.
        """
        return copy(self)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state as tensors, for example to save them with safetensors.

        Returns
        -------
        dict of str to Tensor
            Copies, on the device of the network.
        """
        return {name: value.clone() for name, value in self._state.tensors().items()}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a state, which must be of the same model and number of streams.

        The last scores are no part of it: they are known again after the next step.

        Parameters
        ----------
        tensors : mapping from str to Tensor
            What :meth:`state_dict` returned.
        """
        like = self._start
        if int(tensors.get("n_steps", torch.tensor(0))):
            like, _ = self._advance(like, np.zeros(self._shape))
        own = like.tensors()
        device = self._start.device
        expected, found = ({name: (part.dtype, part.shape) for name, part in each.items()} for each in (own, tensors))
        if expected != found:
            differing = sorted(name for name in {*own, *tensors} if expected.get(name) != found.get(name))
            raise InvalidInputError(
                f"expected the state of {plural(self._start.n_samples, 'stream')} of this model, got other "
                f"tensors {', '.join(differing[:3])}: pass what state_dict returned"
            )
        self._state = like.with_tensors({name: value.to(device, copy=True) for name, value in tensors.items()})
        self._outputs = None

    def _advance(self, state: NetworkState, values: "FloatArray") -> tuple[NetworkState, Tensor]:
        model = self._model
        scaled = standardise(values.reshape(-1, self._shape[-1]), *model.input_scale_)
        return model.network_.step(state, torch.from_numpy(scaled))

    def _alone(self, answers: npt.NDArray[Any]) -> Any:
        """Return the answer of the single stream without its axis, or those of all streams."""
        return answers[0] if len(self._shape) == 1 else answers
