"""What a learner is given."""

import numpy as np
import pytest
import torch
from tolerances import FLOAT64_MEAN

import cvxsnn as cs
from cvxsnn import InvalidInputError, build_dictionary, gaussian_witnesses
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences

INPUTS = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
LABELS = np.array([0, 1, 0, 1, 1, 0])
STEPS = np.arange(24).reshape(6, 4) % 2


def test_a_split_of_a_task_becomes_a_training_set():
    task = cs.tasks.addition(2, 3, n_train=5, n_val=2, n_test=2, n_test_ood=2)
    data = TrainingSet.of(task.train)
    assert len(data) == 5
    assert np.array_equal(data.inputs.numpy(), task.train.inputs)
    assert data.targets.keys() == {"sum", "carry"}
    assert TrainingSet.of(data) is data


def test_some_of_the_sequences_keep_their_targets_weights_and_lengths():
    data = TrainingSet(Sequences(INPUTS, [1, 2, 3, 4, 1, 2]), {"label": LABELS}, torch.arange(6.0))
    taken = data.take(torch.tensor([4, 1]))
    assert torch.equal(taken.inputs, INPUTS[[4, 1]])
    assert taken.targets["label"].tolist() == [1, 1]
    assert taken.sample_weight.tolist() == [4.0, 1.0]
    assert taken.sequences.lengths.tolist() == [1, 2]


def test_moving_keeps_everything():
    data = TrainingSet(Sequences(INPUTS, [1, 2, 3, 4, 1, 2]), {"label": LABELS}, torch.arange(6.0)).to("cpu")
    assert torch.equal(data.inputs, INPUTS)
    assert data.sample_weight.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.sequences.lengths.tolist() == [1, 2, 3, 4, 1, 2]


def test_lengths_that_fill_every_sequence_are_none():
    assert TrainingSet(Sequences(INPUTS, np.full(6, 4)), {"label": LABELS}).sequences.lengths is None


@pytest.mark.parametrize("readout", ["last", "all"])
@pytest.mark.parametrize("weight", [None, np.arange(6)])
def test_gradients_and_the_convex_program_see_one_objective(readout, weight):
    targets = {"a": LABELS if readout == "last" else STEPS, "b": 1 - (LABELS if readout == "last" else STEPS)}
    weighting = "ramped" if readout == "all" else "uniform"
    objective = Objective({"a": "logistic", "b": "softmax"}, readout, {"a": 3.0}, weighting)
    data = TrainingSet(INPUTS, targets, weight)
    heads, row_weight = objective.heads(data)
    dictionary = build_dictionary(gaussian_witnesses(3, (5,)), INPUTS, readout)
    problem = objective.problem(dictionary, data, l1_strength=0.7, penalty="group", intercept=True)
    assert torch.equal(problem.row_weight, row_weight)
    assert (problem.l1_strength, problem.penalty.name, problem.intercept) == (0.7, "group", True)
    for one, other in zip(heads, problem.heads, strict=True):
        assert (one.name, one.weight, one.columns) == (other.name, other.weight, other.columns)
        assert torch.equal(one.targets, other.targets)


def test_row_weights_of_steps_are_those_of_their_sequence_times_the_step():
    objective = Objective("logistic", "all", timestep_weighting="ramped")
    _, row_weight = objective.heads(TrainingSet(INPUTS, {"label": STEPS}, np.arange(6.0)))
    expected = np.outer(np.arange(6), np.arange(1, 5)).ravel() / (15 * 10)
    np.testing.assert_allclose(row_weight.numpy(), expected, rtol=FLOAT64_MEAN)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TrainingSet(INPUTS[0], {"label": LABELS}), "got 2 dimensions"),
        (lambda: TrainingSet(INPUTS, {"label": LABELS}, np.ones(5)), r"each of 6 sequences, got shape \(5,\)"),
        (lambda: TrainingSet(INPUTS, {"label": LABELS}, np.ones((6, 1))), r"got shape \(6, 1\)"),
        (lambda: TrainingSet(Sequences(INPUTS, np.zeros(6, int)), {"label": LABELS}), "lengths from 1 to 4"),
        (lambda: TrainingSet(Sequences(INPUTS, np.ones(5, int)), {"label": LABELS}), "lengths to be 6 integers"),
        (lambda: Objective("logistic").heads(TrainingSet(INPUTS, {"label": LABELS[:3]})), "each of 6 rows"),
        (lambda: Objective("logistic").heads(TrainingSet(INPUTS, {})), "targets for at least one head, got none"),
        (lambda: Objective("logistic").heads(TrainingSet(INPUTS, {"label": LABELS}, -np.ones(6))), "non-negative"),
        (
            lambda: Objective("logistic", timestep_weighting="ramped").heads(TrainingSet(INPUTS, {"label": LABELS})),
            "readout='all'",
        ),
        (lambda: Objective({"a": "hinge"}).heads(TrainingSet(INPUTS, {"label": LABELS})), r"got \['a'\] too"),
    ],
)
def test_misuse_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
