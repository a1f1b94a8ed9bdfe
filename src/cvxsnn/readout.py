"""A solution as a model: the witnesses it kept, read out with its coefficients."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
        steps: Literal["last", "all"] = "last" if self.readout == "last" else "all"
        spikes = roll_out(self.witnesses.layers, inputs, steps)
        features = spikes[..., self._columns.to(spikes.device)].to(torch.float64)
        return self._read(features.mean(1) if self.readout == "mean" else features)

    def predict(self, inputs: Array) -> dict[str, npt.NDArray[np.int64]]:
        """The predicted class for each head."""
        return self._decide(self.scores(inputs))

    def start(self, n_samples: int) -> "ReadoutState":
        """The state before the first step."""
        return ReadoutState(Stepper(self.witnesses.layers, n_samples), torch.zeros(n_samples, len(self._columns)), 0)

    def step(self, state: "ReadoutState", inputs: Array) -> tuple["ReadoutState", Mapping[str, npt.NDArray[np.int64]]]:
        """Advance by one step of inputs (n_samples, n_features); give the class each head predicts so far."""
        spikes = state.stepper.step(inputs)[:, self._columns.to(self.witnesses.layers[0].weight.device)]
        counts, n_steps = state.counts.to(spikes.device) + spikes, state.n_steps + 1
        features = counts / n_steps if self.readout == "mean" else spikes
        return ReadoutState(state.stepper, counts, n_steps), self._decide(self._read(features))

    def _read(self, features: Tensor) -> Tensor:
        return features.to(self._coef.device, torch.float64) @ self._coef + self._intercept

    def _decide(self, scores: Tensor) -> dict[str, npt.NDArray[np.int64]]:
        decisions = {}
        for name, (columns, loss) in self._heads.items():
            if loss == "squared":
                raise InvalidInputError(f"expected a loss for classes, got head {name!r} with 'squared': use scores()")
            own = scores[..., columns]
            # Several binary columns are one class against the rest each.
            classes = own.argmax(-1) if own.shape[-1] > 1 else (own[..., 0] >= 0).to(torch.int64)
            decisions[name] = classes.cpu().numpy()
        return decisions


@dataclass(frozen=True, eq=False)
class ReadoutState:
    """The neurons between two steps, and how often each has fired."""

    stepper: Stepper
    counts: Tensor
    n_steps: int
