from functools import cache

import numpy as np
import pytest
import torch
from theory.families import draw_parameters, draw_sequences, float_spikes
from tolerances import CERTIFIED_AGAIN, ROUNDING, STRONG_DUALITY, UNMISTAKABLE

from cvxsnn import ConvexProblem, build_dictionary, gaussian_witnesses, solve
from cvxsnn.network import reconstruct
from cvxsnn.theory import LIFFamily, complete_dictionary, rescale_hidden, weight_decay_objective

LEAKY = LIFFamily(0.5)
INPUTS = draw_sequences(np.random.default_rng(5), 5, 2, 1)
DICTIONARIES = {
    "feedforward": lambda x, r: complete_dictionary(x, None, (), r),
    "lif": lambda x, r: complete_dictionary(x, LEAKY, (), r),
    "lif with bias": lambda x, r: complete_dictionary(x, LIFFamily(1.0, bias=True), (), r),
    "deep lif": lambda x, r: complete_dictionary(x[:3], LEAKY, (2,), r),
}


@cache
def complete(kind, readout):
    return DICTIONARIES[kind](INPUTS, readout)


def draw_problem(kind, readout="last", loss="squared", n_outputs=1, strength=0.02):
    dictionary = complete(kind, readout)
    n_samples = 3 if kind == "deep lif" else 5
    targets = np.random.default_rng(0).normal(size=(dictionary.n_rows, n_outputs))
    if loss != "squared":
        targets[:2] = [[1], [-1]]
        targets = (targets > 0).astype(float)
    penalty = "group" if n_outputs > 1 else "l1"
    return ConvexProblem(dictionary, targets, loss, strength, penalty=penalty), INPUTS[:n_samples]


def dual_of(problem, inputs, width=1):
    """Return the dual value, which that of the convex program and the weight decay of the network must equal."""
    solution = solve(problem, 1e-10)
    # At this scale the hidden weights are negligible, and no spike has changed.
    network = rescale_hidden(reconstruct(solution, "parallel", width), 2.0**-60)
    assert network.layers[-1].width == width
    assert solution.certificate.scope == ("complete" if problem.dictionary.is_complete else "sampled")
    values = (weight_decay_objective(network, problem, inputs), solution.certificate.primal, solution.certificate.dual)
    assert max(values) - min(values) <= STRONG_DUALITY * max(values)
    return solution.certificate.dual


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", DICTIONARIES)
def test_network_convex_program_and_dual_have_one_value(kind, width, n_outputs):
    problem, inputs = draw_problem(kind, n_outputs=n_outputs)
    assert dual_of(problem, inputs, width) > 0


@pytest.mark.parametrize("readout", ["all", "mean"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "squared_hinge"])
def test_the_three_values_agree_for_every_loss_and_read_out(loss, readout):
    problem, inputs = draw_problem("lif", readout, loss)
    assert dual_of(problem, inputs) > 0


def test_over_sampled_witnesses_the_values_agree():
    dictionary = build_dictionary(gaussian_witnesses(1, (9,), decay=0.5, seed=0), INPUTS)
    problem = ConvexProblem(dictionary, np.random.default_rng(0).normal(size=5), "squared", 0.02)
    assert dual_of(problem, INPUTS) > 0


def objective(problem, columns, weights):
    """Loss plus strength times the norms of the output weights, for neurons (n_rows, n_neurons)."""
    loss = float(problem.loss_value(torch.from_numpy(columns.astype(float) @ weights)))
    return loss + problem.l1_strength * np.linalg.norm(weights, axis=1).sum()


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("n_lower", [0, 2])
def test_no_random_network_gets_below_the_certified_dual(n_lower, n_outputs):
    problem, inputs = draw_problem("deep lif" if n_lower else "lif", n_outputs=n_outputs)
    dual = dual_of(problem, inputs)
    targets = problem.heads[0].targets.numpy()
    rng, lowest = np.random.default_rng(0), np.inf
    for number in range(1500):
        columns = []
        for _ in range(int(rng.integers(1, 6))):  # subnetworks of one neuron each in the last layer
            values, kind = inputs, "ties" if number % 2 else "generic"
            for width in (n_lower, 1) if n_lower else (1,):
                parameters = draw_parameters(rng, LEAKY, width, values.shape[2], kind)
                values = float_spikes(LEAKY, parameters, values).transpose(1, 2, 0).astype(float)
            columns.append(values[:, -1, 0])
        columns = np.stack(columns, axis=1)
        fitted = np.linalg.lstsq(columns, targets, rcond=None)[0]
        for weights in (fitted, rng.uniform(0.5, 1) * fitted, 0.1 * rng.normal(size=fitted.shape)):
            lowest = min(lowest, objective(problem, columns, weights))
    assert lowest >= dual * (1 - ROUNDING)
    assert lowest <= dual * 2


def test_no_surrogate_gradient_search_gets_below_the_certified_dual():
    problem, inputs = draw_problem("lif")
    dual = dual_of(problem, inputs)
    x = torch.from_numpy(inputs)
    lowest = np.inf
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        hidden = torch.randn(2, 12, generator=generator, dtype=torch.float64, requires_grad=True)
        weight = (0.1 * torch.randn(12, 1, generator=generator, dtype=torch.float64)).requires_grad_()
        optimiser = torch.optim.Adam([hidden, weight], 0.05)
        for _ in range(150):
            membrane = spikes = torch.zeros(5, 12, dtype=torch.float64)
            for t in range(x.shape[1]):
                membrane = 0.5 * membrane + x[:, t] * hidden[0] - hidden[1].abs() * spikes
                smooth = torch.sigmoid(4 * membrane)
                spikes = (membrane >= 0).double() + smooth - smooth.detach()
            value = problem.loss_value(spikes @ weight) + problem.l1_strength * weight.abs().sum()
            lowest = min(lowest, float(value.detach()))
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
    assert lowest >= dual * (1 - ROUNDING)
    assert lowest <= dual * 3


def test_the_complete_optimum_is_below_that_of_every_sample_of_neurons():
    problem, inputs = draw_problem("lif")
    dual = dual_of(problem, inputs)
    targets = problem.heads[0].targets.numpy()
    for seed in range(20):
        sampled = build_dictionary(gaussian_witnesses(1, (4,), decay=0.5, seed=seed), inputs)
        value = dual_of(ConvexProblem(sampled, targets, "squared", 0.02), inputs)
        assert value >= dual * (1 - CERTIFIED_AGAIN)
    # With no more than two neurons' worth of patterns something is missing.
    poor = build_dictionary(gaussian_witnesses(1, (2,), decay=0.5, seed=0), inputs)
    assert dual_of(ConvexProblem(poor, targets, "squared", 0.02), inputs) > dual * (1 + UNMISTAKABLE)
