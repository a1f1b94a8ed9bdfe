import pytest
import torch
from exchange.cases import train_xor
from networks import Case
from small_models import assert_one_sentence, classifier
from tolerances import EASY_SCORE
from torch import nn

from cvxsnn import InvalidInputError, reconstruct
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.data.tasks import digits_seq
from cvxsnn.exchange import compare_bits
from cvxsnn.training import ConvexSettings, Settings, TaskScore, train_task

TOL = 1e-7


@pytest.fixture(scope="module")
def xor():
    return train_xor()


def test_ternary_neurons_with_a_new_readout_learn_what_the_old_readout_has_lost(xor):
    task, trained = xor
    comparison = compare_bits(trained, TrainingSet.of(task.train), TaskScore(task, task.test), (15, 2))
    fine, coarse = comparison.rows
    assert comparison.score >= EASY_SCORE
    assert fine.as_is >= EASY_SCORE
    assert coarse.solved >= EASY_SCORE > coarse.as_is
    for row in comparison.rows:
        assert row.certificate.primal <= row.as_is_objective + row.certificate.gap
        assert row.rounded_certificate.primal >= row.certificate.dual
    assert [line.split()[0] for line in str(comparison).splitlines()] == ["hidden", "not", "15", "2"]


def test_on_digits_a_new_readout_keeps_what_four_bits_leave():
    task = digits_seq()
    family = {"hidden": (96,), "decay": 0.9}
    settings = Settings(Objective("softmax", "mean"), family, ConvexSettings(l1_strength=0.002))
    trained = train_task("cvx", task, settings)
    comparison = compare_bits(trained, TrainingSet.of(task.train), TaskScore(task, task.test), (4, 2), tol=TOL)
    for row in comparison.rows:
        assert row.solved > row.as_is
        assert row.certificate.relative_gap <= TOL


@pytest.mark.parametrize(
    "stranger",
    [nn.Sequential(nn.Linear(2, 2)), reconstruct(Case().solve()), classifier(), torch.ones(2, 2), None],
    ids=lambda own: type(own).__name__,
)
def test_what_was_not_trained_is_refused_in_one_sentence(stranger):
    data = TrainingSet(torch.ones(1, 1, 1), {"label": torch.ones(1)})
    with pytest.raises(
        InvalidInputError, match=f"expected what train returns, got {type(stranger).__name__}"
    ) as caught:
        compare_bits(stranger, data, lambda network: 0.0)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"score": 3}, "expected score to be a function"),
        ({"bits": 4}, "expected bits to be a sequence"),
        ({"bits": "84"}, "expected bits to be a sequence"),
        ({"bits": (1,)}, "from 2 to 16"),
        ({"data": None}, "expected the TrainingSet"),
    ],
    ids=["score", "one number", "text", "one bit", "data"],
)
def test_arguments_of_another_type_are_refused_in_one_sentence(xor, changes, complaint):
    task, trained = xor
    arguments = {"data": TrainingSet.of(task.train), "score": TaskScore(task, task.test), **changes}
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        compare_bits(trained, **arguments)
    assert_one_sentence(caught.value)
