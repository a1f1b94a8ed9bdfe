"""What happens inside a network, step by step."""

import numpy as np
import pytest
import torch
from small_models import classes_of, classifier, make_lists, make_sequences

from cvxsnn import InvalidInputError, Sequences
from cvxsnn.network.tracing import trace
from cvxsnn.neurons import roll_out

SEQUENCES = make_sequences()


@pytest.mark.parametrize("parameters", [{}, {"readout": "last"}, {"windows": 2}, {"hidden": (8, 24)}], ids=str)
def test_a_trace_ends_with_the_scores_and_has_the_spikes_of_a_roll_out(parameters):
    network = classifier(**parameters).fit(SEQUENCES, classes_of(SEQUENCES)).network_
    found = trace(network, SEQUENCES)
    np.testing.assert_allclose(found.scores[:, -1], network(SEQUENCES).detach(), rtol=1e-12)
    assert torch.equal(found.spikes, roll_out(network.layers, SEQUENCES, "all").bool())
    assert torch.equal(found.membranes >= 0, found.spikes)


def test_threshold_neurons_have_no_membranes():
    network = classifier(neuron="threshold").fit(SEQUENCES, classes_of(SEQUENCES)).network_
    assert trace(network, SEQUENCES[:2]).membranes is None


def test_padded_sequences_are_refused():
    network = classifier().fit(SEQUENCES, classes_of(SEQUENCES)).network_
    with pytest.raises(InvalidInputError, match="expected sequences of equal length"):
        trace(network, Sequences.from_raw(make_lists()))
