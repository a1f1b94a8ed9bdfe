"""The same stages on a GPU: the same spikes, and certificates as good."""

import numpy as np
import pytest
import torch
from tolerances import ROUNDING

import cvxsnn as cs

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
