"""A read-out that is drawn to the layer's own weights."""

import pytest
import torch
from exchange.readout.strangers import Looped, draw_data, draw_static, static_data
from tolerances import SINGLE_PRECISION

import cvxsnn.exchange.readout.data
from cvxsnn import InvalidInputError, SpikeDictionary, reconstruct_readout

NETS = ["elastic-net", "group-elastic-net"]


@pytest.mark.parametrize("penalty", NETS)
@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared", "hinge"])
def test_strong_quadratic_gives_the_weights_back(loss, penalty):
    (inputs, classes), model = draw_data(), Looped()
    weight = model.out.weight.detach().clone()
    result = reconstruct_readout(
        model, inputs, classes, loss=loss, penalty=penalty, l1_strength=0.0, l2_strength=1e8, centre=True
    )
    assert result.solution.has_converged
    torch.testing.assert_close(model.out.weight.detach(), weight, rtol=0, atol=SINGLE_PRECISION)


@pytest.mark.parametrize("penalty", NETS)
@pytest.mark.parametrize("l1_strength", [0.0, 1e-3])
def test_moderate_quadratic_is_certified_and_nearer_to_the_weights_than_without_centre(l1_strength, penalty):
    inputs, classes = static_data()
    terms = {"penalty": penalty, "l1_strength": l1_strength, "l2_strength": 0.1}
    distances = []
    for centre in (False, True):
        model = draw_static()
        weight = model[2].weight.detach().clone()
        result = reconstruct_readout(model, inputs, classes, centre=centre, **terms)
        assert 0 <= result.certificate.relative_gap <= 1e-6
        assert result.has_changed
        distances.append(float((result.solution.coef.T - weight).norm()))
    assert distances[1] < distances[0]
    torch.testing.assert_close(result.solution.problem.centre, weight.T.double(), rtol=0, atol=0)


def test_chosen_strengths_keep_the_centre_and_lower_the_loss():
    (inputs, classes), model = static_data(), draw_static()
    weight = model[2].weight.detach().double().T
    result = reconstruct_readout(model, inputs, classes, penalty="elastic-net", centre=True)
    assert result.solution.has_converged
    assert torch.equal(result.solution.problem.centre, weight)
    assert result.after.loss < result.before.loss


def test_weights_of_neurons_with_equal_spikes_add_up(monkeypatch):
    monkeypatch.setattr(cvxsnn.exchange.readout.data, "DENSE_BYTES", 0)
    (inputs, classes), model = static_data(), draw_static()
    with torch.no_grad():  # the second neuron copies the first
        model[0].weight[1], model[0].bias[1] = model[0].weight[0], model[0].bias[0]
        weight = model[2].weight.double()
    terms = {"penalty": "elastic-net", "l1_strength": 0.0, "l2_strength": 1e8}
    result = reconstruct_readout(model, inputs, classes, centre=True, **terms)
    problem = result.solution.problem
    assert isinstance(problem.dictionary, SpikeDictionary)
    merged = problem.dictionary.atom_of_column
    assert merged[0] == merged[1]
    expected = torch.stack([weight[:, merged == atom].sum(1) for atom in range(problem.dictionary.n_atoms)])
    torch.testing.assert_close(result.solution.coef, expected, rtol=0, atol=SINGLE_PRECISION)


@pytest.mark.parametrize("penalty", ["l1", "group"])
def test_penalty_without_a_quadratic_is_refused(penalty):
    inputs, classes = static_data()
    with pytest.raises(InvalidInputError, match=r"elastic-net.* with centre=True, got '"):
        reconstruct_readout(draw_static(), inputs, classes, penalty=penalty, centre=True)
