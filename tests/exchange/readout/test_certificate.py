"""The certificate of a read-out is about the weights that the model holds."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from exchange.readout.strangers import CountingNeurons, accuracy, draw_data, draw_static, static_data
from small_models import assert_one_sentence
from tolerances import ROUNDING
from torch import nn

from cvxsnn import InvalidInputError, certify, reconstruct_readout


def exact_objective(features, layer, targets, l1_strength, l2_strength=0.0):
    """The objective of the squared loss at the weights of a layer, in rational numbers; and its penalty alone."""
    weight, bias = ([[Fraction(w) for w in row] for row in own.tolist()] for own in (layer.weight, layer.bias[:, None]))
    total = Fraction(0)
    for row, target in zip(features.tolist(), targets.tolist(), strict=True):
        for own, (constant,), y in zip(weight, bias, target, strict=True):
            total += (sum(w for w, spike in zip(own, row, strict=True) if spike) + constant - Fraction(y)) ** 2
    entries = [w for own in weight for w in own]
    penalty = Fraction(l1_strength) * sum(map(abs, entries)) + Fraction(l2_strength) * sum(w * w for w in entries) / 2
    return total / len(features) / 2 + penalty


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e6])
def test_the_certificate_is_that_of_the_weights_as_the_layer_holds_them(dtype, scale):
    inputs, model = static_data()[0], draw_static().to(dtype)
    targets = scale * np.random.default_rng(0).normal(size=(len(inputs), 3))
    strength = 0.01 * scale
    with torch.no_grad():
        features = model[:2](inputs.to(dtype)).double()
    result = reconstruct_readout(model, inputs.to(dtype), targets, l1_strength=strength)
    objective = exact_objective(features, model[2], targets, strength)
    optimum = result.solution.certificate
    assert result.certificate.dual <= Fraction(optimum.primal)
    assert objective <= Fraction(result.certificate.primal) <= objective * (1 + Fraction(ROUNDING))
    assert objective - Fraction(optimum.primal) <= Fraction(result.certificate.gap)
    is_exact = dtype == torch.float64
    assert (result.certificate == optimum) == is_exact
    assert (result.certificate.primal > optimum.primal) != is_exact
    assert [line for line in str(result).splitlines() if "proven within" in line] == [str(result.certificate)]


@pytest.mark.parametrize("net", [{}, {"penalty": "elastic-net", "l2_strength": 0.5}], ids=["l1", "elastic-net"])
def test_the_certificate_of_weights_that_are_kept_is_theirs(net):
    inputs, model = static_data()[0], draw_static(n_hidden=6).double()
    targets = np.random.default_rng(0).normal(size=(len(inputs), 3))
    inputs = inputs.double()
    reconstruct_readout(model, inputs, targets, l1_strength=1e-6)
    with torch.no_grad():
        features = model[:2](inputs)
    result = reconstruct_readout(model, inputs, targets, l1_strength=0.3, **net)
    assert not result.has_changed
    objective = exact_objective(features, model[2], targets, 0.3, net.get("l2_strength", 0.0))
    assert objective <= Fraction(result.certificate.primal) <= objective * (1 + Fraction(ROUNDING))
    assert result.certificate.gap >= objective - Fraction(result.solution.certificate.primal) > 0
    assert [line for line in str(result).splitlines() if "proven within" in line] == [str(result.certificate)]


def test_weights_driven_into_the_range_of_neurons_are_certified_without_scale_and_shift():
    (inputs, classes), model = draw_data(n_samples=90), CountingNeurons()
    result = reconstruct_readout(model, inputs, classes, l1_strength=0.02)
    assert result.scale != 1.0
    weight = model.out.weight.detach().double() / result.scale
    bias = (model.out.bias.detach().double() - result.shift) / result.scale
    expected, _ = certify(result.solution.problem, weight.T, bias, [result.solution.dual_point])
    assert result.certificate == expected
    scores = result.solution.problem.dictionary.matvec(weight.T) + bias
    assert result.after.loss == pytest.approx(float(nn.functional.cross_entropy(scores, classes)), rel=ROUNDING)
    assert result.after.model_accuracy == accuracy(model, inputs, classes)


def test_a_range_that_the_layer_cannot_hold_is_not_chosen():
    class Saturated(CountingNeurons):
        def forward(self, x):
            return torch.stack([(self.out(spikes) > 6e4).to(x.dtype) for spikes in self.spikes(x)]).sum(0)

    (inputs, classes), model = draw_data(n_samples=90), Saturated().half()
    with torch.no_grad():
        model.out.weight.mul_(6e4 / model.out.weight.abs().max())
    result = reconstruct_readout(model, inputs.half(), classes, l1_strength=0.02)
    assert bool(model.out.weight.isfinite().all())
    assert result.certificate.gap >= 0


def test_an_optimum_that_the_layer_cannot_hold_is_not_written():
    inputs, model = static_data()[0].half(), draw_static().half()
    targets = 1e7 * np.random.default_rng(0).normal(size=(len(inputs), 3))
    result = reconstruct_readout(model, inputs, targets, l1_strength=1.0)
    assert not result.has_changed
    assert "held as torch.float16" in result.notes[-1]
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan
    weight = model[2].weight.detach().clone()
    with pytest.raises(InvalidInputError, match=r"can hold as torch\.float16, got up to") as caught:
        reconstruct_readout(model, inputs, targets, l1_strength=1.0)
    assert_one_sentence(caught.value)
    torch.testing.assert_close(model[2].weight.detach(), weight, rtol=0, atol=0, equal_nan=True)
