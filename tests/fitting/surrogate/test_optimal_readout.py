"""Hidden neurons that are trained under a read-out that is always optimal."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from fitting.surrogate.runs import DATA, LOGISTIC, QUICK, XOR, are_same, delayed, draw_network
from tolerances import ROUNDING

import cvxsnn as cs
from cvxsnn.convex import Objective
from cvxsnn.data import TrainingSet
from cvxsnn.dictionary import DenseDictionary
from cvxsnn.fitting import Program
from cvxsnn.fitting.surrogate.optimal_readout import OPENING, TOLERANCE, OptimalReadout, with_open_taps
from cvxsnn.fitting.surrogate.trainer import SurrogateJob, train_jobs
from cvxsnn.witnesses import sample_witnesses

LABELS = XOR.train.heads["label"]
TARGETS = {"logistic": LABELS, "softmax": (LABELS + torch.arange(40).numpy() % 2) % 3, "squared": 3.0 * LABELS - 1}
CASES = [("logistic", "last"), ("softmax", "mean"), ("squared", "windows-2")]


def make(loss, readout="mean", intercept=True):
    data = TrainingSet(XOR.train.inputs, {"label": TARGETS[loss]})
    network = draw_network(data, Objective(loss, readout))
    return Program(Objective(loss, readout), intercept=intercept), network, data


def train_with(program, network, data, **options):
    score = options.pop("score", lambda network: -1.0)
    job = SurrogateJob(network, data, program.objective, QUICK, score, options.pop("checkpoint", None), program)
    return train_jobs([job], **options)[0]


def optimal_value(columns, program, data, strength):
    """The optimum if spikes were these numbers."""
    fixed = replace(program, penalty="elastic-net", l1_strength=0.0, l2_strength=strength)
    problem = fixed.problem(DenseDictionary(columns), data)
    return cs.solve(fixed.at(problem, (0.0, strength)), 1e-10).certificate.primal


def objective_of(network, problem):
    """The objective of a network's own read-out."""
    dictionary = problem.dictionary
    coef = network.weight.detach().double()[dictionary.column_of_atom] / dictionary.units[:, None]
    return problem.objective(coef, dictionary.matvec(coef) + network.intercept.detach().double())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("loss", "readout"), CASES)
def test_the_gradient_under_a_fixed_readout_is_that_of_the_optimal_value(loss, readout, intercept):
    program, network, data = make(loss, readout, intercept)
    # Strong enough for the value to be smooth on the scale of the differences below.
    problem = OptimalReadout.of(program, data).problem(network).with_strength(0.0, 0.01)
    columns, solution = problem.dictionary.columns(), cs.solve(problem, 1e-10)
    held = columns.clone().requires_grad_()
    with torch.enable_grad():
        problem.loss_value(held @ solution.coef + solution.intercept).backward()
    direction = torch.randn(columns.shape, dtype=columns.dtype, generator=torch.Generator().manual_seed(0))
    above, below = (
        optimal_value(columns + step * direction, program, data, problem.l2_strength) for step in (3e-4, -3e-4)
    )
    assert float((held.grad * direction).sum()) == pytest.approx((above - below) / 6e-4, rel=1e-3)


@pytest.mark.parametrize(("loss", "readout"), CASES)
def test_solving_again_does_not_raise_the_objective(loss, readout):
    program, network, data = make(loss, readout)
    readouts = OptimalReadout.of(program, data)
    for _ in range(2):
        problem = readouts.problem(network)
        before = objective_of(network, problem)
        solution = readouts.solve(network)
        assert solution.certificate.primal <= (1 + ROUNDING) * before
        assert solution.certificate.relative_gap <= TOLERANCE
        network = cs.reconstruct(solution, "full")


@pytest.mark.parametrize(("loss", "readout"), CASES)
def test_every_network_that_is_scored_has_the_optimal_readout(loss, readout):
    program, network, data = make(loss, readout)
    readouts, gaps = OptimalReadout.of(program, data), []

    def score(scored):
        problem = readouts.problem(scored)
        gaps.append(objective_of(scored, problem) / cs.solve(problem, 1e-9).certificate.primal - 1)
        return len(gaps)

    run = train_with(program, network, data, score=score)
    assert len(gaps) == len(run.history) == QUICK.epochs + 1
    assert max(gaps) <= 2 * TOLERANCE
    assert not are_same(run.network, network)


def test_the_readout_is_fixed_within_an_epoch(monkeypatch):
    program, network, data = make("softmax")
    found, solve = [], OptimalReadout.solve

    def solve_and_note(self, network):
        solution = solve(self, network)
        found.append((network.weight.clone(), cs.reconstruct(solution, "full").weight.float()))
        return solution

    monkeypatch.setattr(OptimalReadout, "solve", solve_and_note)
    train_with(program, network, data)
    assert len(found) == QUICK.epochs + 1
    for (_, solved), (began, _) in pairwise(found):
        assert torch.equal(began, solved)


def test_hidden_layers_of_every_kind_are_trained():
    program = Program(LOGISTIC)
    for network in (draw_network(hidden=(6, 8)), delayed(draw_network())):
        run = train_with(program, network, DATA, score=len_of_history())
        for layer, start in zip(run.network.layers, network.layers, strict=True):
            assert not torch.equal(layer.weight, start.weight)


def len_of_history():
    """A score that rises with every call."""
    calls = []
    return lambda network: calls.append(network) or float(len(calls))


def test_a_checkpoint_of_gradients_alone_is_refused(tmp_path):
    program, network, data = make("logistic")
    file = tmp_path / "file"
    train_with(program, network, data, checkpoint=file)
    with pytest.raises(cs.InvalidInputError, match="other settings"):
        train_jobs([SurrogateJob(network, data, LOGISTIC, QUICK, lambda network: -1.0, file)])


def test_taps_without_a_weight_are_opened_and_others_stay():
    inputs = np.random.default_rng(0).standard_normal((30, 10, 2))
    family = {"hidden": (20,), "geometry": "box", "box": (10, 2), "fan_in": None, "weights": "differences"}
    (layer,) = sample_witnesses(family, inputs, seed=0).layers
    opened = with_open_taps(layer)
    was_open = layer.weight != 0
    assert not bool(was_open.all())
    assert bool((opened.weight != 0).all())
    assert torch.equal(opened.weight[was_open], layer.weight[was_open])
    assert bool(
        (opened.weight.abs() >= 0.9 * OPENING * layer.weight.abs().amax(1, keepdim=True)).logical_or(was_open).all()
    )
    assert with_open_taps(opened) is opened
