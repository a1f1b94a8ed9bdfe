"""scikit-learn's own checks."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from cvxsnn import SpikingClassifier, SpikingRegressor
from cvxsnn.fitting import Tuning

EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": (
        "A weight of two and a row that comes twice pose the same convex problem, which test_base.py checks on "
        "its objective. Predictions differ all the same: rows are held out to choose the strength, and which depends "
        "on how many there are; and minimisers over collinear 0/1 atoms are not unique, so that rounding in the "
        "standardised features may lead to another one."
    ),
}


SMALL_NET = {
    "hidden": (32,),
    "witnesses": {"decay": 0.8},
    "penalty": "elastic-net",
    "l1_strength": 0.001,
    "l2_strength": 0.001,
}


@parametrize_with_checks(
    [
        SpikingClassifier(hidden=(32,), witnesses=Tuning(n_trials=8)),
        SpikingRegressor(hidden=(32,), witnesses=Tuning(n_trials=8)),
        SpikingClassifier(**SMALL_NET),
        SpikingRegressor(**SMALL_NET),
    ],
    expected_failed_checks=lambda _: EXCEPTIONS,
)
def test_estimators_pass_scikit_learns_checks(estimator, check):
    check(estimator)
