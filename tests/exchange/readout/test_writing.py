import pytest
import torch
from exchange.readout.strangers import (
    N_FEATURES,
    CountingNeurons,
    accuracy,
    draw_data,
    draw_static,
    static_data,
)
from tolerances import HALF_PRECISION, ROUNDING, SINGLE_PRECISION
from torch import nn

from cvxsnn import reconstruct_readout


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_layers_of_any_precision_are_judged_by_what_they_keep(dtype):
    (inputs, classes), model = static_data(), draw_static().to(dtype)
    result = reconstruct_readout(model, inputs.to(dtype), classes)
    assert model[2].weight.dtype == dtype
    assert result.after.loss <= result.before.loss
    with torch.no_grad():
        features = model[:2](inputs.to(dtype)).double()
        kept = features @ model[2].weight.double().T + model[2].bias.double()
    assert result.after.loss == pytest.approx(float(nn.functional.cross_entropy(kept, classes)), rel=ROUNDING)
    exact = features @ result.solution.coef + result.solution.intercept
    near = HALF_PRECISION if dtype != torch.float64 else ROUNDING
    assert result.after.loss == pytest.approx(float(nn.functional.cross_entropy(exact, classes)), rel=near)


@pytest.mark.parametrize("seed", range(3))
def test_outputs_that_tie_are_not_taken_for_output_neurons(seed):
    # Noise leaves the hinge at constants, and the largest of equal outputs to rounding.
    inputs = torch.randn(60, N_FEATURES, generator=torch.Generator().manual_seed(seed))
    result = reconstruct_readout(draw_static(5, seed=seed), inputs, torch.arange(60) % 5, loss="hinge")
    assert (result.scale, result.shift) == (1.0, 0.0)


def test_a_model_whose_outputs_are_the_layers_keeps_the_solutions_scale_whatever_decides():
    (inputs, classes), model = static_data(), draw_static()

    def decide(output):  # would be right more often, the larger the outputs are
        return torch.where(output.amax(1) > 100.0, output.argmax(1), 0)

    result = reconstruct_readout(model, inputs, classes, decide=decide, l1_strength=0.02)
    assert result.after.model_accuracy < result.after.accuracy
    assert (result.scale, result.shift) == (1.0, 0.0)


def test_output_neurons_are_driven_within_their_range():
    (inputs, classes), model = draw_data(n_samples=90), CountingNeurons()
    result = reconstruct_readout(model, inputs, classes, l1_strength=0.02)
    assert result.after.model_accuracy == accuracy(model, inputs, classes)
    held = model.out.weight.detach().double()
    expected = result.scale * result.solution.coef.T
    torch.testing.assert_close(held, expected, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    bias = result.scale * result.solution.intercept + result.shift
    torch.testing.assert_close(model.out.bias.detach().double(), bias, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    assert (result.scale != 1.0) == any("output neurons follow" in note for note in result.notes)
    unscaled = CountingNeurons()
    with torch.no_grad():
        unscaled.out.weight.copy_(result.solution.coef.T)
        unscaled.out.bias.copy_(result.solution.intercept)
    assert result.after.model_accuracy >= accuracy(unscaled, inputs, classes)
