"""Neurons that are trained for the dual of the read-out that they join."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence, make_sequences, sums

from cvxsnn import InvalidInputError, reconstruct, solve
from cvxsnn.convex import Objective
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.fitting import PRICING, Program, price_neurons, priced
from cvxsnn.fitting.priced import PRICES

INPUTS = make_sequences(n_samples=80, n_steps=6)
LENGTHS = np.random.default_rng(0).integers(2, 7, len(INPUTS))
SUMS = sums(INPUTS)
BRIEF = replace(PRICING, epochs=4, batch_size=32)
FAMILY = {"decay": 0.5}
TARGETS = {"logistic": (SUMS > 0).astype(int), "softmax": np.digitize(SUMS, [-3, 3]), "squared": SUMS}


def grow(loss="softmax", n_neurons=12, readout="mean", inputs=INPUTS, settings=BRIEF, intercept=True, **options):
    data = TrainingSet(inputs, {"label": TARGETS[loss]})
    objective = Objective(loss, readout)
    objective = objective.for_classes({"label": 3}) if loss == "softmax" else objective
    program = Program(objective, intercept=intercept)
    return price_neurons(
        {**FAMILY, **options.pop("family", {})}, data, program, n_neurons, settings=settings, **options
    )


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("loss", "readout"), [("logistic", "last"), ("softmax", "mean"), ("squared", "windows-2")])
def test_as_many_neurons_as_asked_for_have_a_certified_readout(loss, readout, intercept):
    solution = grow(loss, 12, readout, intercept=intercept)
    assert solution.problem.dictionary.witnesses.n_witnesses == 12
    assert (solution.problem.l1_strength, solution.problem.l2_strength) == (0.0, PRICES.strength)
    assert solution.certificate.relative_gap <= 1e-6
    assert reconstruct(solution)(INPUTS).shape == (80, 3 if loss == "softmax" else 1)


def test_neurons_that_enter_stay_and_lower_the_objective():
    few, more = grow(n_neurons=8), grow(n_neurons=20)
    first, both = few.problem.dictionary.witnesses.layers[0], more.problem.dictionary.witnesses.layers[0]
    assert torch.equal(both.weight[..., :8], first.weight)
    assert more.certificate.primal < few.certificate.primal - few.certificate.gap


def test_candidates_are_priced_by_the_dual_of_the_neurons_before(monkeypatch):
    given, found = [], []
    ascend = priced._ascend
    monkeypatch.setattr(priced, "_ascend", lambda *all: given.append(all[3]) or ascend(*all))
    monkeypatch.setattr(priced, "solve", lambda *all: found.append(solve(*all)) or found[-1])
    last = grow(n_neurons=20)
    assert len(given) == 3
    assert len(found) == 4
    assert last is found[-1]
    assert all(torch.equal(own, solution.dual_point) for own, solution in zip(given, found[:-1], strict=True))
    # The first one is that of the shares of the classes alone, with a row weight of one in 80.
    shares = np.bincount(TARGETS["softmax"], minlength=3) / 80
    expected = (np.eye(3)[TARGETS["softmax"]] - shares) / 80
    assert np.allclose(np.abs(given[0].numpy()), np.abs(expected), atol=1e-6)


def test_the_ascent_raises_prices():
    start = grow(settings=replace(BRIEF, learning_rate=1e-9)).certificate.primal
    assert grow(settings=replace(BRIEF, epochs=15)).certificate.primal < start


def test_padding_changes_nothing():
    padded = np.concatenate((INPUTS, np.full((80, 3, INPUTS.shape[2]), 7.0)), axis=1)
    one = grow(inputs=Sequences(torch.tensor(INPUTS), LENGTHS))
    other = grow(inputs=Sequences(torch.tensor(padded), LENGTHS))
    assert torch.allclose(one.coef, other.coef, atol=1e-3)
    again = grow(inputs=Sequences(torch.tensor(INPUTS), LENGTHS))
    assert torch.equal(one.coef, again.coef)


def test_without_time_there_is_one_round_and_a_certificate():
    done = []
    solution = grow(n_neurons=40, max_seconds=0.0, callback=lambda *numbers: done.append(numbers))
    assert done == [(PRICES.n_entering, 40)]
    assert solution.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neurons": 0}, "n_neurons to be a positive integer"),
        ({"readout": "all"}, "read-out 'last', 'mean' or 'windows-k' to price neurons, got all"),
        ({"readout": "mean+burst"}, "got mean\\+burst"),
        ({"family": {"neuron": "threshold"}}, "neurons that do not read each other"),
    ],
    ids=str,
)
def test_what_cannot_be_priced_is_refused_in_one_sentence(options, message):
    with pytest.raises(InvalidInputError, match=message) as refused:
        grow("squared", **options)
    assert_one_sentence(refused.value)
