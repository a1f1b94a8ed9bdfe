"""Weight decay of rebuilt networks, and membranes on another scale."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import CASES, Case, draw_inputs
from tolerances import ROUNDING

from cvxsnn import ConvexProblem, InvalidInputError, LIFLayer, WitnessSet, build_dictionary, reconstruct, solve
from cvxsnn.theory import rescale_hidden, weight_decay_objective
from cvxsnn.theory.weight_decay import weight_decay
from cvxsnn.witnesses import Provenance

SCALES = [2.0**power for power in (4, 0, -1, -8, -30)]


@pytest.mark.parametrize("width", [1, 3])
@given(case=CASES)
@settings(max_examples=30)
def test_weight_decay_falls_to_the_convex_value_as_the_membranes_shrink(width, case):
    case = replace(case, penalty="group")
    solution = case.solve()
    network = reconstruct(solution, "parallel", width)
    values = [weight_decay_objective(rescale_hidden(network, s), solution.problem, case.inputs) for s in SCALES]
    primal, dual = solution.certificate.primal, solution.certificate.dual
    rounding = ROUNDING * max(1.0, primal)
    assert all(upper >= lower - rounding for upper, lower in pairwise(values))
    assert all(value >= dual - rounding for value in values)
    assert all(value >= primal - rounding for value in values)
    limit = weight_decay_objective(rescale_hidden(network, 2.0**-60), solution.problem, case.inputs)
    assert limit == pytest.approx(primal, rel=ROUNDING, abs=ROUNDING)


@given(case=CASES, width=st.sampled_from([1, 2]))
@settings(max_examples=20)
def test_weight_decay_of_several_outputs_is_at_most_the_l1_value(case, width):
    case = replace(case, loss="squared", n_outputs=2)
    solution = case.solve()
    network = rescale_hidden(reconstruct(solution, "parallel", width), 2.0**-60)
    value = weight_decay_objective(network, solution.problem, case.inputs)
    assert value <= solution.certificate.primal + ROUNDING * max(1.0, solution.certificate.primal)


def test_weight_decay_counts_every_parameter_of_a_hand_made_network():
    # loss 0, s = 0.1, one neuron that is read: 0.1 / 2 · (2·|w_out| + 2·|w_2| + w_1² + b² + U_thr² + U_0² of both)
    lower = LIFLayer(torch.full((1, 1, 1), 2.0), bias=0.5, threshold=3.0, initial_membrane=0.25, decay=0.5)
    upper = LIFLayer(torch.full((1, 1, 1), -4.0), bias=5.0, threshold=1.0, decay=0.5)
    inputs = torch.tensor([[[1.0]], [[-2.0]]])
    dictionary = build_dictionary(WitnessSet((lower, upper), Provenance("pretrained")), inputs)
    assert dictionary.columns().flatten().tolist() == [1.0, 1.0]
    solution = solve(ConvexProblem(dictionary, np.array([1.0, 1.0]), "squared", 0.1))
    network = reconstruct(solution, "parallel")
    weight = float(network.weight.detach())
    hidden = 2 * 4 + 4 + 0.25 + 9 + 0.0625 + 25 + 1
    expected = 0.5 * (weight - 1) ** 2 + 0.05 * (2 * weight + hidden)
    value = weight_decay_objective(network, solution.problem, inputs)
    assert value == pytest.approx(expected, rel=ROUNDING)


def test_the_quadratic_of_an_elastic_net_stands_for_no_weight_decay_of_the_network():
    case = Case(penalty="elastic-net", intercept=False)
    solution = case.solve()
    network = reconstruct(solution, "parallel")
    value = weight_decay_objective(rescale_hidden(network, 2.0**-60), solution.problem, case.inputs)
    assert value == pytest.approx(solution.certificate.primal, rel=ROUNDING)
    with pytest.raises(InvalidInputError, match=r"a problem with l2_strength=0, got 0\.1: the quad") as caught:
        weight_decay_objective(network, solution.problem.with_strength(0.1, 0.1), case.inputs)
    assert "\n" not in str(caught.value)


def test_weight_decay_grows_with_the_root_of_the_width():
    assert weight_decay(0.5, 1) == 0.5
    assert weight_decay(0.5, 4) == 1.0


@given(case=CASES, power=st.integers(-40, 20))
@settings(max_examples=30)
def test_rescaling_changes_no_spike(case, power):
    network = reconstruct(case.solve(), "full")
    scaled = rescale_hidden(network, 2.0**power)
    inputs = draw_inputs(13, 7, case.seed + 1)
    assert torch.equal(scaled.features(inputs), network.features(inputs))
    assert torch.equal(scaled(inputs), network(inputs))
    assert torch.equal(scaled.layers[-1].weight, network.layers[-1].weight * 2.0**power)


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, 0.1, float("inf"), float("nan")])
def test_rescaling_by_anything_but_a_power_of_two_is_refused(scale):
    with pytest.raises(InvalidInputError, match="scale to be a power of two, got"):
        rescale_hidden(reconstruct(Case().solve()), scale)
