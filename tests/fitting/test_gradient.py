"""A gradient stage, called alone."""

import torch

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.fitting import (
    GradientPlan,
    Settings,
    Split,
    SurrogateSettings,
    TaskScore,
    gradient_stage,
    sample,
    train_task,
)
from cvxsnn.fitting.surrogate.settings import initial_network

XOR = cs.tasks.first_last_xor(3, n_train=24, n_val=16, n_test=4)
SPLIT = Split(TrainingSet.of(XOR.train), TaskScore(XOR, XOR.val))
LOGISTIC = Objective("logistic")
FAMILY = {"hidden": (6, 8), "n_subnetworks": 2}
CANDIDATES = [SurrogateSettings(epochs=2, batch_size=20, learning_rate=rate) for rate in (1e-3, 0.1)]
WITNESSES = sample(FAMILY, SPLIT.data, 0)


def assert_same_network(one, other):
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.intercept, other.intercept)
    for layer, own in zip(one.layers, other.layers, strict=True):
        assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())


def test_a_gradient_stage_alone_is_the_method_of_that_stage():
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    calls = []
    run = gradient_stage(
        GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES), lambda done, total: calls.append((done, total))
    )
    trained = train_task("sg", XOR, Settings(LOGISTIC, FAMILY, surrogate=CANDIDATES))
    assert_same_network(run.network, trained.network)
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_gradient_stage_averages_as_many_networks_as_asked_for():
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    run = gradient_stage(GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES, n_networks=3, family=FAMILY))
    trained = train_task("sg", XOR, Settings(LOGISTIC, FAMILY, surrogate=CANDIDATES, n_networks=3))
    assert run.network.n_subnetworks == 6
    assert_same_network(run.network, trained.network)


def test_the_files_of_a_gradient_stage_are_named_after_its_checkpoint(tmp_path):
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    file = tmp_path / "stage.safetensors"
    gradient_stage(GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES, 2, FAMILY, checkpoint=file))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["stage-1.safetensors", "stage-network-1.safetensors", "stage.safetensors"]


def test_no_epoch_begins_when_time_is_over():
    start = initial_network(WITNESSES.layers, LOGISTIC, SPLIT.data)
    run = gradient_stage(GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES), max_seconds=0)
    whole = gradient_stage(GradientPlan(start, SPLIT, LOGISTIC, CANDIDATES))
    assert len(run.history) < len(whole.history) == 3
