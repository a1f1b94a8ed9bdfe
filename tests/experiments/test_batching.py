"""Many trainings at once are the same trainings one after the other."""

import pytest
import torch

from cvxsnn.convex import Objective
from cvxsnn.data import tasks
from cvxsnn.experiments import batching
from cvxsnn.experiments.batching import PlannedTraining, train_many
from cvxsnn.fitting import Settings, SurrogateSettings, Tuning, train_task
from cvxsnn.fitting.methods import task_splits

XOR = tasks.first_last_xor(3, n_train=24, n_val=16, n_test=4)
CANDIDATES = [SurrogateSettings(epochs=2, batch_size=20, learning_rate=rate) for rate in (1e-3, 0.1)]
FAMILY = {"hidden": (6, 8), "n_subnetworks": 2}


def make_settings(**options):
    return Settings(Objective("logistic"), **{"family": FAMILY, "surrogate": CANDIDATES, **options})


def plan(method, settings, checkpoints=None):
    settings, first, second = task_splits(XOR, settings)
    return PlannedTraining(method, first, settings, second, checkpoints)


def assert_same(one, other):
    assert one.method == other.method
    assert [(stage.name, stage.score) for stage in one.history] == [(own.name, own.score) for own in other.history]
    assert torch.equal(one.network.weight, other.network.weight)
    for layer, own in zip(one.network.layers, other.network.layers, strict=True):
        assert all(torch.equal(value, own.tensors()[name]) for name, value in layer.tensors().items())


@pytest.mark.parametrize("with_files", [False, True])
def test_gradient_trainings_together_are_those_done_alone(tmp_path, with_files):
    wanted = [
        ("sg", make_settings()),
        ("sg-sg", make_settings()),
        ("sg", make_settings(seed=1, n_networks=2)),
        ("sg-sg", make_settings(family=Tuning(n_witnesses=16, n_trials=2))),
    ]
    folders = [tmp_path / str(settings.seed) / str(settings.family) if with_files else None for _, settings in wanted]
    found = train_many([plan(*pair, folder) for pair, folder in zip(wanted, folders, strict=True)])
    for trained, (method, settings) in zip(found, wanted, strict=True):
        assert_same(trained, train_task(method, XOR, settings))


def test_methods_that_begin_alike_share_their_first_stage(tmp_path, monkeypatch):
    sizes = []

    def spy(jobs, **options):
        sizes.append(len(jobs))
        return train_jobs(jobs, **options)

    train_jobs = batching.train_jobs
    monkeypatch.setattr(batching, "train_jobs", spy)
    train_many([plan(method, make_settings(), tmp_path) for method in ("sg", "sg-sg")])
    assert sizes == [2, 0, 2, 0]


def test_other_methods_are_trained_one_after_the_other():
    wanted = [("cvx", make_settings()), ("sg", make_settings()), ("sg-cvx", make_settings())]
    for trained, (method, settings) in zip(train_many([plan(*pair) for pair in wanted]), wanted, strict=True):
        assert_same(trained, train_task(method, XOR, settings))
