"""The demonstration and its command, on one small experiment."""

import pytest

from cvxsnn.app import demo
from cvxsnn.convex import Objective
from cvxsnn.data.tasks import addition
from cvxsnn.training import ConvexSettings, Settings, SurrogateSettings
from cvxsnn.witnesses import Normal

TINY = demo.DemoTask(
    "tiny addition",
    lambda: addition(base=2, n_digits=2, n_train=60, n_val=20, n_test=40, ood_digits=(4,), n_test_ood=10),
    Settings(
        Objective({"sum": "softmax", "carry": "logistic"}, "all"),
        {"hidden": (16, 32), "n_subnetworks": 2, "decay": 0.1, "threshold": 0.1, "bias": Normal(0.0, 0.5)},
        ConvexSettings(n_strengths=3),
    ),
    SurrogateSettings(epochs=2),
)


@pytest.fixture(scope="module")
def results():
    return [demo.run(TINY, method) for method in demo.FIVE_METHODS]


def test_every_method_is_scored_on_all_test_sets(results):
    assert [result.trained.method for result in results] == ["cvx", "sg", "sg-cvx", "sg-sg", "cvx-sg"]
    for result in results:
        assert result.task_name == "tiny addition"
        assert result.accuracy.keys() == {"test", "2x longer"}
        assert all(0 <= value <= 1 for value in result.accuracy.values())
    assert results[0].accuracy["test"] > 0.9


def test_what_ends_in_a_convex_stage_is_certified_and_nothing_else_is(results):
    for result in results:
        certificate = result.trained.certificate
        assert (certificate is not None) == result.trained.method.endswith("cvx")
        assert certificate is None or certificate.relative_gap <= TINY.settings.convex.tol


def test_the_seed_reaches_witnesses_and_batches():
    first = demo.run(TINY, "sg-cvx", seed=3)
    assert first.trained.settings.seed == first.trained.settings.surrogate.seed == 3
    assert TINY.settings.seed == 0


def test_the_experiments_need_no_file_and_name_their_task():
    assert [experiment.name for experiment in demo.DEMO_TASKS] == [
        "base-2 addition",
        "XOR, 6 steps",
        "digits, 8 steps",
    ]
