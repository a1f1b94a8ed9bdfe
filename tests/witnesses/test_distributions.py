import json

import numpy as np
import pytest

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.witnesses import Constant, LogUniform, Normal, Uniform
from cvxsnn.witnesses.distributions import as_distribution


def draw(distribution, n=10_000):
    return distribution.sample(np.random.default_rng(0), (n,))


@pytest.mark.parametrize("distribution", [Uniform(-2, 3), Uniform(1, 1), LogUniform(1e-3, 1), LogUniform(0.1, 0.1)])
def test_draws_stay_within_the_bounds(distribution):
    draws = draw(distribution)
    assert draws.min() >= distribution.low
    assert draws.max() <= distribution.high


def test_uniform_draws_fill_the_interval_evenly():
    counts, _ = np.histogram(draw(Uniform(-2, 3)), bins=5, range=(-2, 3))
    assert counts.min() > 1800


def test_log_uniform_draws_fill_the_decades_evenly():
    counts, _ = np.histogram(np.log10(draw(LogUniform(1e-3, 1e2))), bins=5, range=(-3, 2))
    assert counts.min() > 1800


def test_normal_draws_have_the_mean_and_spread_asked_for():
    standardised = (draw(Normal(3, 0.5)) - 3) / 0.5
    # 68.3 % of a Gaussian lies within one standard deviation, 95.4 % within two.
    assert abs(standardised.mean()) < 0.05
    assert 0.66 < (abs(standardised) < 1).mean() < 0.70
    assert 0.94 < (abs(standardised) < 2).mean() < 0.97


def test_a_constant_is_always_the_same():
    assert (draw(Constant(0.3)) == 0.3).all()


@pytest.mark.parametrize("number", [2, 0.5, np.float32(0.5), np.int64(2)])
def test_a_number_means_a_constant(number):
    assert as_distribution("decay", number) == Constant(float(number))


@pytest.mark.parametrize("high", [1, 1.0, np.float32(1), np.int64(1)])
def test_a_description_is_plain_json(high):
    described = json.loads(json.dumps(LogUniform(0.5, high).describe()))
    assert described == {"distribution": "loguniform", "low": 0.5, "high": 1.0}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(1, 0), "low <= high, got low=1 and high=0"),
        (lambda: LogUniform(1, 0.5), "low <= high"),
        (lambda: LogUniform(0, 1), "start above zero, got low=0"),
        (lambda: Normal(0, -1), "non-negative standard deviation, got sd=-1"),
        (lambda: Normal(np.nan, 1), "finite mean, got nan"),
        (lambda: Constant(np.inf), "finite value, got inf"),
        (lambda: Uniform(0, np.inf), "finite high, got inf"),
        (lambda: as_distribution("decay", "0.9"), r"decay to be a number or a distribution such as .* got '0.9'"),
        (lambda: as_distribution("decay", True), "decay to be a number or a distribution"),
    ],
)
def test_distributions_that_mean_nothing_are_refused(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()
