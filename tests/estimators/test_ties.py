"""Equal scores of two classes mean the first class, wherever a class is decided for."""

import numpy as np
import pytest
import torch
from torch import nn

import cvxsnn as cs
from cvxsnn.convex.left_out import row_hits
from cvxsnn.exchange.readout.runner import ModelRunner
from cvxsnn.explore.quality import Answers
from cvxsnn.explore.subject import Subject

X = np.random.default_rng(0).normal(size=(20, 4, 2))
Y = np.arange(20) % 2


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared", "squared_hinge"])
def test_equal_scores_mean_the_first_class_everywhere(loss):
    model = cs.SpikingClassifier(hidden=(8,), loss=loss, l1_strength=1e3, random_state=0).fit(X, Y)
    scores = model.network_(X).detach()
    n_outputs = scores.shape[1]
    assert not (scores - scores[:, :1]).any()
    assert n_outputs > 1 or not scores.any()
    assert not model.predict(X).any()
    assert not Answers.of(Subject.of_estimator(model, X, Y)).predicted.any()
    assert not ModelRunner(nn.Identity()).decisions(scores, len(Y), n_outputs).any()
    if loss != "squared":  # a network with real outputs decides for no class
        assert not any(classes.any() for classes in model.network_.predict(X).values())
    problem = model.proof_.problem(model.data_of_fit(X, Y))
    assert row_hits(problem.heads, scores).tolist() == (Y == 0).tolist()


@pytest.mark.parametrize(("targets", "middle"), [([-1.0, 1.0], 0.0), ([0.0, 1.0], 0.5), ([3.0, 5.0], 4.0)])
def test_the_middle_between_two_targets_means_the_first_class(targets, middle):
    problem = cs.ConvexProblem([[1, 0], [0, 1]], targets, loss="squared")
    assert row_hits(problem.heads, torch.full((2, 1), middle, dtype=torch.float64)).tolist() == [1, 0]
    above = torch.full((2, 1), np.nextafter(middle, np.inf), dtype=torch.float64)
    assert row_hits(problem.heads, above).tolist() == [0, 1]
