"""A fit succeeds as a whole or changes nothing."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Estimator = TypeVar("Estimator")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_NAMED_BY_SCIKIT_LEARN = ("n_features_in_", "feature_names_in_")


def all_or_nothing(
    fit: Callable[Concatenate[Estimator, Arguments], Result],
) -> Callable[Concatenate[Estimator, Arguments], Result]:
    """Let a method that fits an estimator work on an unfitted copy, whose state becomes the estimator's in one step.

    Whatever the method raises, an interrupt included, the estimator stays as it was, fitted or not. If it succeeds,
    nothing of an earlier fit is left. Attributes that others set meanwhile, such as parameters, are kept.

    Parameters
    ----------
    fit : method
        It may set any attributes. Those that its class lists as ``_learned`` are not set when it begins.

    Returns
    -------
    method
        The method for the estimator itself.
    """

    @wraps(fit)
    def fit_a_copy(estimator: Estimator, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        own: Any = estimator
        learned = {*_NAMED_BY_SCIKIT_LEARN, *own._learned}
        before = dict(vars(own))
        learner = own.__new__(type(own))
        vars(learner).update((name, value) for name, value in before.items() if name not in learned)
        result = fit(learner, *args, **kwargs)
        after = vars(learner)
        kept = {name: value for name, value in vars(own).items() if name in after or name not in before}
        new = {name: value for name, value in after.items() if name not in before or value is not before[name]}
        own.__dict__ = kept | new  # one assignment: an interrupt comes before or after it
        return own if result is learner else result

    return fit_a_copy
