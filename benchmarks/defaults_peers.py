"""Who learns the tasks: the classifier as it comes, the paper's family, surrogate gradients, and other libraries."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegressionCV, RidgeClassifierCV
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cvxsnn as cs
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.witnesses import Normal, Uniform

from .defaults_tasks import Data, Inputs

Labels = npt.NDArray[Any]

SHORTEST = 10
"""Steps that MultiRocket needs: its kernels have 9, and differences of a sequence one step less than itself."""

STRENGTHS = np.logspace(-3, 3, 10)
"""Strengths of the ridge that reads a reservoir: those of MiniRocket."""

SURROGATE_SECONDS = 120.0
"""Surrogate gradients that would take more processor time are left out."""

VALIDATION_SHARE = 0.2


class TooSlowError(Exception):
    """A contender would take longer than it may."""


@dataclass(frozen=True)
class Fitted:
    """What has been learned, and facts for the record."""

    predict: Callable[[Any], Labels]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A way to learn: ``fit(inputs, labels, seed, n_threads)``, with data as it wants them."""

    fit: Callable[[Any, Labels, int, int], Fitted]
    prepare: Callable[[Data], Data] = lambda data: data


def ours(inputs: Inputs, labels: Labels, seed: int, n_threads: int, **parameters: Any) -> Fitted:
    """Fit the classifier, with parameters or without."""
    model = cs.SpikingClassifier(**parameters, random_state=seed).fit(inputs, labels)
    certificate = model.certificate_
    gap = None if certificate is None else certificate.relative_gap
    return Fitted(model.predict, {"gap": gap, "neurons": model.network_.n_active})


EPOCHS, STEPS, BATCH = 20, 300, 32
"""Passes over the data and steps of the optimiser, both at least, and sequences per step."""

RATES, READOUTS = (3e-3, 1e-2), ("last", "mean")
TRAINED: dict[str, Any] = {
    "method": "sg",
    "hidden": (256,),
    "witnesses": {"decay": Uniform(0.5, 1.0), "threshold": 0.5, "bias": Normal(0.0, 0.3)},
}


def surrogate(inputs: Inputs, labels: Labels, seed: int, n_threads: int) -> Fitted:
    """Train 256 neurons by surrogate gradients; held-out data choose epoch, rate and read-out."""
    epochs = max(EPOCHS, math.ceil(STEPS * BATCH / len(labels)))

    def train(readout: str, rate: float, epochs: int) -> cs.SpikingClassifier:
        settings = SurrogateSettings(epochs=epochs, learning_rate=rate, batch_size=BATCH, seed=seed)
        return cs.SpikingClassifier(**TRAINED, readout=readout, surrogate=settings, random_state=seed).fit(
            inputs, labels
        )

    begin = time.process_time()  # the same on a busy machine
    train(READOUTS[0], RATES[0], 1)
    expected = (time.process_time() - begin) * epochs * len(RATES) * len(READOUTS)
    if expected > SURROGATE_SECONDS:
        raise TooSlowError(f"about {expected:.0f} s")
    tried = {choice: train(*choice, epochs) for choice in product(READOUTS, RATES)}
    choice, model = max(tried.items(), key=lambda item: item[1].history_[-1].score)
    return Fitted(model.predict, {"neurons": model.network_.n_active, "readout": choice[0], "learning_rate": choice[1]})


def aeons(name: str, inputs: Inputs, labels: Labels, seed: int, n_threads: int) -> Fitted:
    """Fit a classifier of aeon with its default parameters."""
    from aeon.classification.convolution_based import MiniRocketClassifier, MultiRocketHydraClassifier
    from aeon.classification.interval_based import QUANTClassifier

    if name == "QUANT":
        model = QUANTClassifier(random_state=seed)
    else:
        kind = MiniRocketClassifier if name == "MiniRocket" else MultiRocketHydraClassifier
        model = kind(n_jobs=n_threads, random_state=seed)
    return Fitted(model.fit(inputs, labels).predict)


def channels_first(data: Data) -> Data:
    """Arrays of shape (n_cases, n_channels, n_timepoints), of the length that aeon's classifiers need."""
    data = data.of_equal_length(SHORTEST)
    return data._replace(X=data.X.transpose(0, 2, 1).copy(), X_test=data.X_test.transpose(0, 2, 1).copy())


UNITS = 500
LEAKS, SCALES = (0.1, 0.3, 1.0), (0.1, 1.0)


class EchoState:
    """States of a reservoir after a sequence, and their mean."""

    def __init__(self, inputs: Inputs, leak: float, scale: float, seed: int) -> None:
        from reservoirpy.nodes import Reservoir

        steps = np.concatenate(list(inputs))
        self.mean, self.spread = steps.mean(0), steps.std(0)
        self.spread[self.spread == 0] = 1.0
        self.reservoir = Reservoir(UNITS, lr=leak, sr=0.9, input_scaling=scale, seed=seed)

    def features(self, inputs: Inputs) -> dict[str, npt.NDArray[np.float64]]:
        """Last and mean states, each of shape (n_samples, n_units)."""
        last, mean = [], []
        for sequence in inputs:
            if self.reservoir.initialized:
                self.reservoir.reset()
            states = self.reservoir.run((sequence - self.mean) / self.spread)
            last.append(states[-1])
            mean.append(states.mean(0))
        return {"last": np.stack(last), "mean": np.stack(mean)}


def reservoir(inputs: Inputs, labels: Labels, seed: int, n_threads: int) -> Fitted:
    """Fit ridge to a reservoir of reservoirpy; held-out data choose leak, scale of inputs and what is read."""
    n_held = max(round(VALIDATION_SHARE * len(labels)), len(np.unique(labels)))
    kept, held = train_test_split(np.arange(len(labels)), test_size=n_held, random_state=seed, stratify=labels)
    tried = []
    for leak, scale in product(LEAKS, SCALES):
        echo = EchoState(inputs, leak, scale, seed)
        for readout, features in echo.features(inputs).items():
            model = ridge().fit(features[kept], labels[kept])
            tried.append((model.score(features[held], labels[held]), leak, scale, readout, echo, features))
    _, leak, scale, readout, echo, features = max(tried, key=lambda own: own[0])
    model = ridge().fit(features, labels)
    return Fitted(
        lambda tested: model.predict(echo.features(tested)[readout]),
        {"neurons": UNITS, "leak": leak, "input_scaling": scale, "readout": readout},
    )


def ridge() -> Any:
    """Ridge regression on the classes, its strength chosen by leaving rows out."""
    return make_pipeline(StandardScaler(), RidgeClassifierCV(alphas=STRENGTHS))


def logistic(inputs: Inputs, labels: Labels, seed: int, n_threads: int) -> Fitted:
    """Fit logistic regression to all values of a sequence, its strength chosen by cross-validation."""
    folds = StratifiedKFold(
        min(5, int(np.unique(labels, return_counts=True)[1].min())), shuffle=True, random_state=seed
    )
    regression = LogisticRegressionCV(
        Cs=np.logspace(-4, 2, 7), cv=folds, max_iter=1000, use_legacy_attributes=False, l1_ratios=(0.0,), n_jobs=None
    )
    model = make_pipeline(StandardScaler(), regression).fit(inputs, labels)
    return Fitted(model.predict, {"strength": float(np.ravel(regression.C_)[0])})


def flat(data: Data) -> Data:
    """One row of values a sequence."""
    data = data.of_equal_length()
    return data._replace(X=data.X.reshape(len(data.X), -1), X_test=data.X_test.reshape(len(data.X_test), -1))


DEFAULT, MINIROCKET = "default", "MiniRocket"
CONTENDERS: dict[str, Contender] = {
    DEFAULT: Contender(ours),
    "gaussian": Contender(partial(ours, witnesses="gaussian")),
    "gaussian-2": Contender(partial(ours, witnesses={"n_subnetworks": 4}, hidden=(512, 1024))),
    "surrogate": Contender(surrogate),
    MINIROCKET: Contender(partial(aeons, MINIROCKET), channels_first),
    "MR-Hydra": Contender(partial(aeons, "MR-Hydra"), channels_first),
    "QUANT": Contender(partial(aeons, "QUANT"), channels_first),
    "reservoir": Contender(reservoir),
    "logistic": Contender(logistic, flat),
}
"""By name: ours as it comes, the paper's family in one layer and in two, and the others."""
