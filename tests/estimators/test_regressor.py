import numpy as np
import pytest
from estimators.samples import LISTS, SEQUENCES, assert_certified_again
from small_models import CONVEX_METHODS, OTHER_METHODS, regressor, sums
from tolerances import EASY_SCORE

from cvxsnn import SpikingRegressor
from cvxsnn.fitting import SurrogateSettings, Tuning


@pytest.mark.parametrize("method", [*CONVEX_METHODS, *OTHER_METHODS])
def test_every_method_regresses(method):
    model = regressor(method).fit(SEQUENCES, sums(SEQUENCES))
    assert model.predict(SEQUENCES).shape == (48,)
    assert (model.certificate_ is None) == (method in OTHER_METHODS)
    if model.certificate_:
        assert_certified_again(model, SEQUENCES, sums(SEQUENCES))


def test_a_regressor_predicts_an_easy_function_in_the_shape_of_its_targets():
    flat = sums(SEQUENCES)
    both = np.stack([flat, SEQUENCES[:, :, 0].sum(1)], axis=1)
    assert regressor(hidden=(128,)).fit(SEQUENCES, flat).score(SEQUENCES, flat) >= EASY_SCORE
    model = regressor(penalty="group", hidden=(64,)).fit(SEQUENCES, both)
    assert model.predict(SEQUENCES).shape == (48, 2)
    assert model.score(SEQUENCES, both) >= EASY_SCORE
    assert_certified_again(model, SEQUENCES, both)
    assert regressor(hidden=(64,)).fit(LISTS, sums(LISTS)).score(LISTS, sums(LISTS)) >= EASY_SCORE


def test_targets_of_any_scale_are_learned_by_gradients():
    targets = 1e4 * sums(SEQUENCES) + 3e5
    model = regressor("sg", surrogate=SurrogateSettings(epochs=60, batch_size=16)).fit(SEQUENCES, targets)
    assert model.score(SEQUENCES, targets) > 0.7


def test_two_rows_are_enough_for_a_regressor():
    model = SpikingRegressor(hidden=(8,), witnesses=Tuning(n_trials=2), random_state=0).fit([[0.0], [1.0]], [0.0, 1.0])
    assert model.predict([[0.0], [1.0]]).shape == (2,)
