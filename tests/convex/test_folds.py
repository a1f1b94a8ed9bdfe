"""Folds of rows, which samples share and no class is missing from."""

import numpy as np
import pytest
import torch

from cvxsnn import ConvexProblem, build_dictionary, gaussian_witnesses
from cvxsnn.convex.left_out import deal_rows
from cvxsnn.core.errors import InvalidInputError

RNG = np.random.default_rng(0)


def draw(targets, loss="squared", **options):
    columns = RNG.random((len(next(iter(targets.values())) if isinstance(targets, dict) else targets), 6)) < 0.5
    return ConvexProblem(columns, targets, loss, intercept=True, **options)


def deal(problem, n_folds, seed=0):
    return deal_rows(problem, n_folds, np.random.default_rng(seed)).numpy()


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
def test_every_fold_has_its_share_of_each_class(loss):
    targets = RNG.permutation(np.repeat([0, 1], [10, 30]))
    folds = deal(draw(targets, loss), 5)
    assert np.bincount(folds[targets == 0]).tolist() == [2] * 5
    assert np.bincount(folds[targets == 1]).tolist() == [6] * 5


def test_the_first_head_with_classes_is_the_one_that_is_stratified():
    classes, others = (RNG.permutation(np.repeat([0, 1], [10, 30])) for _ in range(2))
    targets = {"value": RNG.normal(size=40), "class": classes, "other": others}
    folds = deal(draw(targets, {"value": "squared", "class": "logistic", "other": "logistic"}), 5)
    assert np.bincount(folds[classes == 0]).tolist() == [2] * 5
    assert np.bincount(folds[others == 0], minlength=5).tolist() != [2] * 5


def test_all_steps_of_a_sequence_are_in_one_fold():
    inputs = RNG.integers(0, 2, (7, 4, 3)).astype(float)
    dictionary = build_dictionary(gaussian_witnesses(3, (4, 6), 2, seed=0), inputs, readout="all")
    folds = deal(ConvexProblem(dictionary, inputs.sum(2), "squared"), 7)
    assert sorted(folds[::4]) == list(range(7))
    assert np.array_equal(folds, np.repeat(folds[::4], 4))


def test_the_only_sequence_with_steps_of_a_class_is_never_left_out():
    inputs = RNG.integers(0, 2, (8, 3, 3)).astype(float)
    dictionary = build_dictionary(gaussian_witnesses(3, (4, 6), 2, seed=0), inputs, readout="all")
    targets = np.repeat(np.arange(8) % 2, 3).reshape(8, 3)
    targets[5, 0] = 2
    problem = ConvexProblem(dictionary, targets, "softmax", intercept=True)
    assert np.flatnonzero(deal(problem, 7) < 0).tolist() == [15, 16, 17]
    with pytest.raises(InvalidInputError, match="as many folds as samples that can be left out, got n_folds=8 for 7"):
        deal(problem, 8)


def test_rows_without_weight_are_in_no_fold():
    problem = draw(RNG.normal(size=20), row_weight=np.where(np.arange(20) < 12, 2.0, 0.0))
    folds = deal(problem, 12)
    assert sorted(folds[:12]) == list(range(12))
    assert (folds[12:] == -1).all()
    with pytest.raises(InvalidInputError, match="n_folds=13 for 12"):
        deal(problem, 13)


def test_groups_are_in_one_fold_each():
    groups = torch.from_numpy(np.repeat([2, 0, 5], [5, 8, 11]))
    problem = draw(RNG.normal(size=24)).with_groups(groups)
    folds = deal(problem, 3)
    assert [len(set(folds[groups == group])) for group in (2, 0, 5)] == [1, 1, 1]
    assert set(folds) == {0, 1, 2}


def test_folds_depend_on_the_seed():
    problem = draw(RNG.normal(size=24))
    assert np.array_equal(deal(problem, 5), deal(problem, 5))
    assert not np.array_equal(deal(problem, 5), deal(problem, 5, seed=1))
