"""The same stages on a GPU: the same spikes, and certificates as good."""

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.crowd import TaskScore
from cvxsnn.surrogate import initial_network
from cvxsnn.surrogate_training import Job, train_jobs

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; run on a machine with one")


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
@pytest.mark.parametrize("hidden", [(300,), (96, 160)])
def test_spikes_on_cuda_equal_those_on_the_cpu(neuron, hidden):
    inputs = torch.randn(257, 9, 20, generator=torch.Generator().manual_seed(0))
    witnesses = cs.gaussian_witnesses(20, hidden, 3, bias=cs.Normal(0.0, 0.3), neuron=neuron, seed=1)
    on_cpu = cs.roll_out(witnesses.layers, inputs, "all")
    on_gpu = cs.roll_out(witnesses.layers, inputs.cuda(), "all")
    assert on_gpu.is_cuda
    assert torch.equal(on_gpu.cpu(), on_cpu)


@pytest.mark.parametrize("readout", ["last", "all", "mean"])
def test_a_dictionary_built_on_cuda_equals_the_one_built_on_the_cpu(readout):
    task = cs.tasks.addition(base=3, n_train=100)
    witnesses = cs.gaussian_witnesses(3, (64, 128), 2)
    here = cs.build_dictionary(witnesses, task.train.inputs, readout)
    there = cs.build_dictionary(witnesses, torch.from_numpy(task.train.inputs).cuda(), readout)
    assert there.packed.is_cuda
    assert torch.equal(there.packed.cpu(), here.packed)
    assert there.health() == here.health()
    assert torch.equal(there.gram().cpu(), here.gram())


@pytest.mark.parametrize("penalty", ["l1", "group"])
@pytest.mark.parametrize("loss", ["squared", "squared_hinge", "logistic", "softmax", "hinge"])
def test_a_problem_solved_on_cuda_has_the_certified_optimum_of_the_cpu(loss, penalty):
    task = cs.tasks.first_last_xor(5, n_train=300)
    witnesses = cs.gaussian_witnesses(2, (32, 64), decay=0.99)
    targets = task.train.targets.astype(np.float64) if loss == "squared" else task.train.targets
    solutions = []
    for inputs in (torch.from_numpy(task.train.inputs), torch.from_numpy(task.train.inputs).cuda()):
        dictionary = cs.build_dictionary(witnesses, inputs)
        problem = cs.ConvexProblem(dictionary, targets, loss, penalty=penalty)
        solutions.append(cs.solve(problem.with_strength(problem.critical_strength / 30), tol=1e-7))
    here, there = solutions
    assert there.coef.is_cuda
    assert (
        abs(here.certificate.primal - there.certificate.primal)
        <= max(here.certificate.gap, there.certificate.gap) + ROUNDING
    )


def test_jobs_side_by_side_on_cuda_are_scored_as_on_the_cpu():
    loss = {"sum": "softmax", "carry": "logistic"}
    jobs = []
    for seed in range(3):
        sizes = {"n_train": 96, "n_val": 64, "n_test": 8, "ood_digits": (6,), "n_test_ood": 4}
        task = cs.tasks.addition(base=3, n_digits=3, **sizes, seed=seed)
        objective = cs.Objective(loss, "all").for_classes(task.n_classes)
        data = cs.TrainingSet.of(task.train)
        network = initial_network(cs.gaussian_witnesses(3, (16, 24), 2, seed=seed).layers, objective, data, seed)
        jobs += [
            Job(network.cuda(), data.to("cuda"), objective, cs.SurrogateSettings(epochs=5, learning_rate=rate), score)
            for rate, score in ((1e-2, TaskScore(task, task.val)), (1e-3, TaskScore(task, task.val)))
        ]
    for run, job in zip(train_jobs(jobs), jobs, strict=True):
        assert run.network.weight.is_cuda
        assert run.best.score == job.score(run.network.cpu())


def test_a_pool_solved_on_cuda_has_the_certified_optimum_of_the_cpu():
    task = cs.tasks.first_last_xor(6, n_train=200, n_val=8, n_test=8)
    pool = cs.WitnessPool(2, {"hidden": (8, 32), "decay": 1.0, "fan_in": 3}, 10_000)
    found = [
        cs.solve_pool(pool, cs.TrainingSet.of(task.train).to(device), cs.Objective("logistic"), 0.01)
        for device in ("cpu", "cuda")
    ]
    here, there = (result.certificate for result in found)
    assert found[1].solution.coef.is_cuda
    assert abs(here.primal - there.primal) <= max(here.gap, there.gap) + ROUNDING
    assert there.n_witnesses == pool.n_witnesses
