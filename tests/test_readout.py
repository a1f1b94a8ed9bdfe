"""A solution used as a model."""

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.evaluation import predict_teacher_forced
from cvxsnn.readout import SpikingReadout


def solved(readout, loss="logistic", targets=None, **family):
    task = cs.tasks.first_last_xor(5, n_train=200, n_val=50, n_test=100)
    witnesses = cs.gaussian_witnesses(2, (24, 48), 2, decay=0.99, **family)
    dictionary = cs.build_dictionary(witnesses, task.train.inputs, readout)
    labels = task.train.targets if targets is None else targets(task.train.targets)
    if readout == "all":
        labels = np.repeat(labels[:, None], task.train.n_steps, axis=1)
    problem = cs.ConvexProblem(dictionary, labels, loss, intercept=True)
    return task, cs.solve(problem.with_strength(problem.critical_strength / 50))


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("readout", ["last", "all", "mean"])
def test_scores_on_the_training_sequences_are_those_of_the_dictionary(readout, neuron):
    task, solution = solved(readout, neuron=neuron)
    scores = SpikingReadout(solution).scores(task.train.inputs)
    torch.testing.assert_close(scores.reshape(-1, 1), solution.scores(), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_stepping_to_the_end_predicts_what_the_whole_sequence_does(readout):
    task, solution = solved(readout)
    model = SpikingReadout(solution)
    stepped = predict_teacher_forced(model, task.test)["label"]
    assert np.array_equal(stepped[:, -1], model.predict(task.test.inputs)["label"])


def test_stepping_a_trajectory_readout_predicts_every_step():
    task, solution = solved("all")
    model = SpikingReadout(solution)
    assert np.array_equal(predict_teacher_forced(model, task.test)["label"], model.predict(task.test.inputs)["label"])


def test_several_binary_columns_are_decided_by_the_largest():
    task, solution = solved("last", targets=lambda labels: np.stack([1 - labels, labels], axis=1))
    model = SpikingReadout(solution)
    expected = model.scores(task.test.inputs).argmax(1).numpy()
    assert np.array_equal(model.predict(task.test.inputs)["label"], expected)


def test_a_regression_has_scores_and_no_classes():
    task, solution = solved("last", loss="squared", targets=lambda labels: labels.astype(float))
    model = SpikingReadout(solution)
    assert model.scores(task.test.inputs).shape == (100, 1)
    with pytest.raises(cs.InvalidInputError, match=r"use scores\(\)"):
        model.predict(task.test.inputs)


def test_a_plain_array_has_no_neurons_to_read():
    rng = np.random.default_rng(0)
    problem = cs.ConvexProblem(rng.integers(0, 2, (20, 5)), rng.normal(size=20), "squared", 0.01)
    with pytest.raises(cs.InvalidInputError, match="built from witnesses"):
        SpikingReadout(cs.solve(problem))
