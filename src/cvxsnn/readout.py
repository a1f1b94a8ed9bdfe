"""A solution as a model: the witnesses it kept, read out with its coefficients."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .checks import Array
from .convex import Solution
from .errors import InvalidInputError
from .neurons import Stepper, roll_out


class SpikingReadout:
    """Scores ``D·W + b`` on any sequences, from the witnesses behind a solution's active atoms.

    It can be stepped, so it fits :class:`cvxsnn.evaluation.SequenceModel`.

    Parameters
    ----------
    solution : Solution
        Of a problem whose dictionary was built from witnesses.
    """

    def __init__(self, solution: Solution) -> None:
        dictionary = solution.problem.dictionary
        if dictionary.witnesses is None:
            raise InvalidInputError("expected a dictionary built from witnesses, got one made from a plain array")
        self.witnesses = dictionary.witnesses
        self.readout = dictionary.readout
        self._columns = dictionary.witness_of_atom[solution.support]
        self._coef = solution.coef[solution.support]
        self._intercept = solution.intercept
        self._heads = {head.name: (head.columns, head.loss.name) for head in solution.problem.heads}

    def scores(self, inputs: Array) -> Tensor:
        """Scores of shape (n_samples, n_outputs), or (n_samples, n_steps, n_outputs) for a trajectory read-out."""
        spikes = roll_out(self.witnesses.layers, inputs, "last" if self.readout == "last" else "all")[
            ..., self._columns
        ]
        features = spikes.to(torch.float64)
        if self.readout == "mean":
            features = features.mean(1)
        return features @ self._coef + self._intercept

    def predict(self, inputs: Array) -> dict[str, npt.NDArray[np.int64]]:
        """The predicted class for each head."""
        return self._decide(self.scores(inputs))

    def start(self, n_samples: int) -> Stepper:
        """The state before the first step."""
        return Stepper(self.witnesses.layers, n_samples)

    def step(self, state: Stepper, inputs: Array) -> tuple[Stepper, Mapping[str, npt.NDArray[np.int64]]]:
        """Advance by one step of inputs (n_samples, n_features); give the predicted class for each head."""
        spikes = state.step(inputs)[:, self._columns]
        return state, self._decide(spikes.to(torch.float64) @ self._coef + self._intercept)

    def _decide(self, scores: Tensor) -> dict[str, npt.NDArray[np.int64]]:
        decisions = {}
        for name, (columns, loss) in self._heads.items():
            own = scores[..., columns]
            classes = own.argmax(-1) if loss == "softmax" else (own[..., 0] >= 0).to(torch.int64)
            decisions[name] = classes.cpu().numpy()
        return decisions
