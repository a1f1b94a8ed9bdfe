"""Data and models of a few milliseconds, for the tests of estimators, files and commands."""

import numpy as np
import pytest
from tolerances import CERTIFIED_AGAIN

from cvxsnn import SpikingClassifier, SpikingRegressor
from cvxsnn.fitting import SurrogateSettings, Tuning
from cvxsnn.witnesses import Normal, Uniform

BRIEF = SurrogateSettings(epochs=2, batch_size=32)
SMALL = {"hidden": (24,), "l1_strength": 0.003, "surrogate": BRIEF, "random_state": 0}
CONVEX_METHODS = ("cvx", "sg-cvx", "varpro")
OTHER_METHODS = ("sg", "sg-sg", "cvx-sg", "r")


def make_sequences(n_samples=48, n_steps=4, n_features=3, seed=0):
    return _read_only(np.random.default_rng(seed).normal(size=(n_samples, n_steps, n_features)))


def make_lists(seed=0):
    """Sequences of one to six steps."""
    lengths = np.random.default_rng(seed).integers(1, 7, 48)
    return [_read_only(np.random.default_rng([seed, i]).normal(size=(length, 3))) for i, length in enumerate(lengths)]


def _read_only(array):
    """Modules share their data: whoever alters them, be it through a view such as a table of pandas, is told."""
    array.flags.writeable = False
    return array


def sums(sequences):
    return np.array([np.sum(sequence) for sequence in sequences])


def classes_of(sequences, n_classes=2):
    """Which share of the samples, ordered by their sums, a sample is in: each class is equally large."""
    order = sums(sequences).argsort().argsort()
    return order * n_classes // len(order)


DYNAMICS = ("n_subnetworks", "neuron", "decay", "threshold", "bias", "gain", "fan_in")


def with_family(parameters):
    """Move the dynamics of neurons, numbers of trials and windows among parameters to where estimators have them."""
    parameters = {**SMALL, **parameters}
    dynamics = {name: parameters.pop(name) for name in DYNAMICS if name in parameters}
    if dynamics:
        spread = {} if "neuron" in dynamics else {"decay": Uniform(0.5, 1.0)}
        parameters["witnesses"] = {**spread, "bias": Normal(0.0, 0.5), **dynamics}
    if "n_trials" in parameters:
        parameters["witnesses"] = Tuning(n_trials=parameters.pop("n_trials"))
    if "windows" in parameters:
        parameters["readout"] = f"windows-{parameters.pop('windows')}"
    return parameters


def classifier(method="cvx", **parameters):
    return SpikingClassifier(method, **with_family(parameters))


def regressor(method="cvx", **parameters):
    return SpikingRegressor(method, **with_family(parameters))


def assert_close_certificates(found, expected):
    """Equal up to the order of sums: the last bits of a product depend on where its arrays lie in memory."""
    assert found.primal == pytest.approx(expected.primal, rel=CERTIFIED_AGAIN)
    assert found.dual == pytest.approx(expected.dual, rel=CERTIFIED_AGAIN)
    assert found.scope == expected.scope


def assert_one_sentence(error):
    assert str(error)
    assert "\n" not in str(error)
