"""Spikes with a price."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fitting.surrogate.runs import DATA, LOGISTIC, QUICK, draw_network, train
from small_models import make_sequences, sums
from tolerances import SINGLE_PRECISION

from cvxsnn import SpikingClassifier, SpikingRegressor
from cvxsnn.convex import Objective
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.fitting import PROJECTION
from cvxsnn.fitting.surrogate.networks import TrainableNetwork
from cvxsnn.fitting.surrogate.trainer import SurrogateJob
from cvxsnn.network import count_operations

SEQUENCES = make_sequences(n_samples=60, n_steps=10)
LABELS = np.digitize(sums(SEQUENCES), [-4, 4])


def spikes_of(network, inputs):
    return count_operations(network, inputs).total.n_spikes


def constant(network):
    """A score that all networks share."""
    return 0.0


@pytest.mark.parametrize("lengths", [None, [3, 1, 2, 3] * 10])
def test_the_rate_is_the_share_of_neurons_and_steps_with_a_spike(lengths):
    network = draw_network(hidden=(7, 5))
    model = TrainableNetwork(network, "arctan", 1.0, frozenset())
    counted = None if lengths is None else torch.tensor(lengths)
    scores, fired = model.run(DATA.inputs, counted)
    assert torch.equal(scores, model(DATA.inputs, counted))
    operations = count_operations(network, Sequences(DATA.inputs, counted))
    share = operations.total.n_spikes / (operations.n_steps * 2 * (7 + 5))
    assert float(model.firing_rate(fired, counted).detach()) == pytest.approx(share, rel=SINGLE_PRECISION)


def test_neurons_fire_less_if_spikes_have_a_price_and_the_last_epoch_is_kept():
    def prefers_the_start(network):
        return -float(network.weight.detach().square().sum())

    dear, cheap, free = (train(replace(QUICK, spike_penalty=own), score=prefers_the_start) for own in (3, 0.3, 0))
    assert dear.best.epoch == cheap.best.epoch == QUICK.epochs != free.best.epoch
    last = train(QUICK, score=constant).network
    counts = [spikes_of(network, DATA.inputs) for network in (dear.network, cheap.network, last)]
    assert counts == sorted(counts)
    assert counts[0] < 0.8 * counts[2]


def test_a_checkpoint_knows_the_price():
    jobs = [SurrogateJob(draw_network(), DATA, LOGISTIC, replace(QUICK, spike_penalty=own), constant) for own in (0, 1)]
    assert jobs[0].origin["settings"] != jobs[1].origin["settings"]


def test_the_price_does_not_depend_on_the_unit_of_real_targets():
    data = TrainingSet(DATA.inputs, {"label": 1e6 * np.random.default_rng(0).normal(size=40)})
    runs = (train(replace(QUICK, spike_penalty=own), None, data, Objective("squared"), constant) for own in (3, 0))
    dear, free = (spikes_of(run.network, DATA.inputs) for run in runs)
    assert dear < 0.8 * free


@pytest.mark.parametrize(("kind", "y"), [(SpikingClassifier, LABELS), (SpikingRegressor, sums(SEQUENCES))])
def test_an_optimal_readout_of_neurons_that_fire_less_is_certified(kind, y):
    brief = replace(PROJECTION, epochs=5, batch_size=8, learning_rate=0.03)
    models = [kind("varpro", (12,), surrogate=replace(brief, spike_penalty=own), random_state=0) for own in (0.0, 10.0)]
    free, dear = (model.fit(SEQUENCES, y) for model in models)
    counts = [model.summary(SEQUENCES).operations.total.n_spikes for model in (dear, free)]
    assert counts[0] < 0.8 * counts[1]
    assert dear.certify(SEQUENCES, y).relative_gap <= dear.tol
