"""Sequences with easy labels, a model fitted to them, and comparisons of models."""

import numpy as np
from small_models import assert_close_certificates, classes_of, classifier, make_lists, make_sequences
from tolerances import REFITTED

SEQUENCES = make_sequences()
LISTS = make_lists()
LABELS = classes_of(SEQUENCES)
THREE_LABELS = classes_of(SEQUENCES, 3)


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=REFITTED, atol=REFITTED)


def assert_certified_again(model, data, targets, sample_weight=None):
    assert model.certificate_.scope == "sampled"
    assert_close_certificates(model.certify(data, targets, sample_weight), model.certificate_)


FITTED = classifier().fit(SEQUENCES, LABELS)
