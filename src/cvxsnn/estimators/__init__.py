"""The scikit-learn estimators, transformers of sequences, forecasts, and model files."""

from typing import TYPE_CHECKING

from ..core.libraries import names_on_demand

if TYPE_CHECKING:
    from .classifier import SpikingClassifier
    from .early import EarlyClassifier, EarlyStream
    from .explanation import Explanation, PermutationImportance, permutation_importance
    from .files import save
    from .forecasting import forecast, make_windows
    from .predictor import Predictor, load
    from .preprocessing import SequenceImputer, SequenceResampler, SequenceScaler
    from .regressor import SpikingRegressor
    from .streams import Stream

__all__ = [
    "EarlyClassifier",
    "EarlyStream",
    "Explanation",
    "PermutationImportance",
    "Predictor",
    "SequenceImputer",
    "SequenceResampler",
    "SequenceScaler",
    "SpikingClassifier",
    "SpikingRegressor",
    "Stream",
    "forecast",
    "load",
    "make_windows",
    "permutation_importance",
    "save",
]

# A process that only predicts needs no scikit-learn, which takes a second and, with pandas, 130 MB.
__getattr__ = names_on_demand(
    __name__,
    globals(),
    {
        "classifier": "SpikingClassifier",
        "early": "EarlyClassifier EarlyStream",
        "explanation": "Explanation PermutationImportance permutation_importance",
        "files": "save",
        "forecasting": "forecast make_windows",
        "predictor": "Predictor load",
        "preprocessing": "SequenceImputer SequenceResampler SequenceScaler",
        "regressor": "SpikingRegressor",
        "streams": "Stream",
    },
)
