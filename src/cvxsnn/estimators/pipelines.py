"""Functions that accept networks, fitted estimators and pipelines, for plots and the command line."""

from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..network import SpikingNetwork


def network_of(model: Any) -> SpikingNetwork:
    """Return a network as it is, or the network of a fitted estimator.

    Parameters
    ----------
    model : SpikingNetwork or fitted estimator
        Anything else is refused, and so is an :class:`EarlyClassifier`, whose network answers once for each read-out.
    """
    from .early import EarlyClassifier  # which imports the estimators, and they this module

    if isinstance(model, EarlyClassifier):
        raise InvalidInputError(
            "expected a model of one read-out, got an EarlyClassifier, which has one for each of several numbers of "
            "steps: pass its model_, the classifier of complete sequences"
        )
    network = getattr(model, "network_", model)
    if isinstance(network, SpikingNetwork):
        return network
    remedy = ", which is not fitted: call fit first" if hasattr(model, "fit") else ""
    if isinstance(model, Pipeline):
        remedy = ": pass its last step, pipeline[-1], and data that the other steps have transformed"
    raise InvalidInputError(f"expected a SpikingNetwork or a fitted estimator, got {type(model).__name__}{remedy}")


def split_pipeline(model: Any) -> tuple[list[Any], Any]:
    """Return the transformers of a pipeline and its last step; a model that is no pipeline has no transformers."""
    if not isinstance(model, Pipeline):
        return [], model
    *transformers, last = (step for _, step in model.steps)
    return transformers, last


def replace_last(model: Any, last: Any) -> Any:
    """Return a pipeline with another last step; a model that is no pipeline is replaced as a whole."""
    if not isinstance(model, Pipeline):
        return last
    return Pipeline([*model.steps[:-1], (model.steps[-1][0], last)])


def as_the_network_reads(model: Any, sequence: Array) -> Array:
    """Return a sequence as the network reads it: an estimator's is standardised, a network's is left as it is."""
    scale = getattr(model, "input_scale_", None)
    return sequence if scale is None else (np.asarray(sequence) - scale[0]) / scale[1]
