import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.tasks import mackey_glass, smape
from cvxsnn.data.tasks.mackey_glass import POINTS


def euler(tau, initial, time, n_per_unit):
    """x(time) by tiny steps of Euler's method."""
    past = [initial] * (tau * n_per_unit + 1)
    for _ in range(round(time * n_per_unit)):
        old = past[-tau * n_per_unit - 1]
        past.append(past[-1] + (0.2 * old / (1 + old**10) - 0.1 * past[-1]) / n_per_unit)
    return past[-1]


def test_series_solve_the_equation():
    lyapunov_time, initial = 197, 0.7206597
    series = mackey_glass(17, n_train=20).train
    assert series[0] == pytest.approx(initial, abs=1e-12)
    for point in (3, 8, 19):
        time = point * lyapunov_time / POINTS
        coarse, fine = (euler(17, initial, time, n) for n in (300, 600))
        assert series[point] == pytest.approx(2 * fine - coarse, abs=2e-5)


def test_parts_follow_each_other_and_starts_shift_the_series():
    whole = mackey_glass(22, n_train=200, n_test=50)
    later = mackey_glass(22, start=0.5, n_train=100, n_test=50)
    np.testing.assert_array_equal(later.train, whole.train[37:137])
    np.testing.assert_array_equal(later.test, np.concatenate((whole.train, whole.test))[137:187])


def test_errors_grow_by_e_in_a_lyapunov_time():
    """A small change of the past has grown by about exp(5) after five Lyapunov times."""
    from cvxsnn.data.tasks.mackey_glass import _integrate

    one, other = (np.array(_integrate(17, 0.9 + change, 197 * 10 * 12)) for change in (0, 1e-9))
    gap = np.abs(one - other)
    window = 1970 * 2
    early, late = (gap[start : start + window].max() for start in (1970 * 3, 1970 * 8))
    assert np.exp(2.5) < late / early < np.exp(7.5)


def test_smape_is_that_of_neurobench():
    forecast, truth = np.array([1.0, -2.0, 0.0]), np.array([2.0, 2.0, 0.0])
    assert smape(forecast, truth) == pytest.approx(200 * (1 / 3 + 1 + 0) / 3)
    assert smape([np.nan], [1.0]) == 200.0
    assert smape([np.inf], [1.0]) == 200.0


@pytest.mark.parametrize("arguments", [{"tau": 16}, {"tau": 17, "start": -1}, {"tau": 17, "n_test": 0}])
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InvalidInputError) as error:
        mackey_glass(**arguments)
    assert_one_sentence(error.value)


def test_forecasts_of_other_shapes_are_refused():
    with pytest.raises(InvalidInputError, match="shape"):
        smape([1.0], [1.0, 2.0])
