"""Small models and their summaries, for the tests of pages about them."""

import numpy as np
from small_models import classes_of, make_lists, make_sequences, regressor, sums

from cvxsnn import SpikingClassifier
from cvxsnn.explore.subject import Subject
from cvxsnn.explore.view import view_model

SEQUENCES = make_sequences(90, 6, 3)
LABELS = np.array(["low", "<script>alert(1)</script>", "high & mighty"])[classes_of(SEQUENCES, 3)]
OTHER = make_sequences(60, 6, 3, seed=1)
OTHER_LABELS = np.array(["low", "<script>alert(1)</script>", "high & mighty"])[classes_of(OTHER, 3)]


def sparse_classifier(**parameters):
    """Return a classifier with an L1 penalty."""
    settings = {"hidden": (64,), "witnesses": "gaussian", "l1_strength": 0.003, "random_state": 0, **parameters}
    return SpikingClassifier(**settings).fit(SEQUENCES, LABELS)


def ridge_classifier():
    """Return a classifier as it is by default, with few neurons."""
    return SpikingClassifier(n_neurons=60, random_state=0).fit(SEQUENCES, LABELS)


def fitted_regressor():
    """Return a regressor."""
    return regressor(hidden=(32,)).fit(SEQUENCES, sums(SEQUENCES))


def list_classifier():
    """Return a classifier of sequences of unequal length that reads windows, with its data."""
    lists = make_lists()
    lists = [own for own in lists if len(own) > 1]
    labels = classes_of(lists)
    model = SpikingClassifier(hidden=(24,), witnesses="gaussian", l1_strength=0.003, readout="windows-2")
    model.set_params(random_state=0)
    return model.fit(lists, labels), lists, labels


def view(model, sequences=SEQUENCES, labels=LABELS, training=None, max_seconds=0.0):
    """Return the summary of a model, without its path."""
    return view_model(Subject.of_estimator(model, sequences, labels, training), max_seconds=max_seconds)
