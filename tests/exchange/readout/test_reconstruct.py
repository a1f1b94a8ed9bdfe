import numpy as np
import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    CountingNeurons,
    Looped,
    accuracy,
    assert_same_tensors,
    cross_entropy,
    draw_data,
    draw_static,
    static_data,
    unharmed,
    weights_apart_from,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import REFITTED, SINGLE_PRECISION
from torch import nn

from cvxsnn import reconstruct_readout
from cvxsnn.exchange import ReadoutResult


@pytest.mark.parametrize("as_given", [torch.as_tensor, np.asarray], ids=["tensor", "array"])
def test_the_layer_that_is_written_has_the_loss_and_accuracy_that_are_reported(as_given):
    (inputs, classes), model = draw_data(), Looped()
    losses, rights = [cross_entropy(model, inputs, classes)], [accuracy(model, inputs, classes)]
    result = reconstruct_readout(model, as_given(inputs), as_given(classes))
    losses.append(cross_entropy(model, inputs, classes))
    rights.append(accuracy(model, inputs, classes))
    assert isinstance(result, ReadoutResult)
    assert result.model is model
    assert (result.layer, result.has_changed, result.scale, result.shift, result.notes) == ("out", True, 1.0, 0.0, ())
    assert [result.before.loss, result.after.loss] == pytest.approx(losses, abs=SINGLE_PRECISION)
    assert result.after.loss < result.before.loss
    assert [result.before.accuracy, result.after.accuracy] == rights
    assert [result.before.model_accuracy, result.after.model_accuracy] == rights
    assert result.before.n_weights == N_CLASSES * N_HIDDEN
    weight = model.out.weight.detach()
    assert result.after.n_weights == int((weight != 0).sum())
    assert result.after.n_read == int((weight != 0).any(0).sum())
    assert result.solution.has_converged


def test_only_the_last_layer_changes_and_keeps_its_parameter_objects():
    (inputs, classes), model = draw_data(), Looped()
    others, weight = weights_apart_from(model, "out"), model.out.weight
    model.out.weight.requires_grad = False
    result = reconstruct_readout(model, inputs, classes)
    assert_same_tensors(weights_apart_from(model, "out"), others)
    assert model.out.weight is weight
    assert not model.out.weight.requires_grad
    assert model.out.bias.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert result.has_changed


@settings(max_examples=15)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["softmax", "logistic", "squared", "hinge", "squared_hinge"]),
    st.booleans(),
    st.sampled_from(["auto", 1e-3, 0.1, 10.0]),
    st.integers(12, 40),
)
def test_the_training_loss_never_rises(seed, loss, bias, strength, n_samples):
    inputs, classes = draw_data(n_samples, 1, seed=seed)
    model = draw_static(bias=bias, seed=seed, n_hidden=6)
    before = model[2].weight.detach().clone()
    result = reconstruct_readout(model, inputs[:, 0], classes, loss=loss, l1_strength=strength, tol=1e-4)
    assert result.after.loss <= result.before.loss
    assert result.has_changed or torch.equal(before, model[2].weight)
    if strength == "auto":
        assert result.has_changed


@pytest.mark.parametrize("strength", ["auto", 1e-6, 0.3])
def test_weights_that_are_optimal_already_never_get_worse(strength):
    (inputs, classes), model = static_data(), draw_static(n_hidden=6).double()
    inputs = inputs.double()
    reconstruct_readout(model, inputs, classes, l1_strength=1e-6, tol=1e-9)
    weight = model[2].weight.detach().clone()
    result = reconstruct_readout(model, inputs, classes, l1_strength=strength)
    assert result.after.loss <= result.before.loss
    if strength == 0.3:
        assert not result.has_changed
        assert result.after == result.before
        assert torch.equal(model[2].weight, weight)
        assert "higher training loss" in result.notes[-1]


def test_diverged_weights_are_replaced():
    (inputs, classes), model = static_data(), draw_static()
    with torch.no_grad():
        model[2].weight[0, 0] = torch.nan
    result = reconstruct_readout(model, inputs, classes)
    assert result.before.loss == torch.inf
    assert result.has_changed
    assert cross_entropy(model, inputs, classes) == pytest.approx(result.after.loss, abs=SINGLE_PRECISION)


def test_a_network_that_never_fires_gets_the_best_constants():
    (inputs, classes), model = static_data(), draw_static()
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].bias.fill_(-1)
    result = reconstruct_readout(model, inputs, classes, penalty="l1")
    assert result.after.n_weights == 0
    assert result.after.loss == pytest.approx(np.log(N_CLASSES), rel=REFITTED)


def test_copy_model_leaves_the_original_alone():
    (inputs, classes), model = draw_data(), Looped()
    with unharmed(model):
        result = reconstruct_readout(model, inputs, classes, copy_model=True)
    assert result.model is not model
    in_place = reconstruct_readout(model, inputs, classes)
    assert_same_tensors(result.model.state_dict(), model.state_dict())
    assert in_place.after == result.after


def test_one_output_is_logistic_and_decides_by_its_sign():
    inputs, classes = static_data(n_classes=2)
    model = draw_static(1)
    result = reconstruct_readout(model, inputs, classes)
    with torch.no_grad():
        scores = model(inputs)[:, 0].double()
    loss = nn.functional.binary_cross_entropy_with_logits(scores, classes.double())
    assert result.after.loss == pytest.approx(float(loss), abs=SINGLE_PRECISION)
    assert result.after.accuracy == result.after.model_accuracy == float(((scores > 0) == classes).double().mean())


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "squared"])
def test_one_output_takes_every_loss_but_softmax(loss):
    inputs, classes = static_data(n_classes=2)
    result = reconstruct_readout(draw_static(1), inputs, classes.bool(), loss=loss)
    assert result.after.loss < result.before.loss
    assert result.after.n_weights <= N_HIDDEN
    assert result.after.accuracy == result.after.model_accuracy >= 0.8


def test_progress_is_reported_stage_by_stage():
    (inputs, classes), told = draw_data(), []
    reconstruct_readout(CountingNeurons(), inputs, classes, batch_size=20, callback=lambda *news: told.append(news))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages[:4] == ["recording", "choosing the strength", "solving", "checking"]
    assert [news for news in told if news[0] == "recording"] == [("recording", number, 3) for number in (1, 2, 3)]
    assert all(0 <= done <= total for _, done, total in told)


def test_a_linear_layer_alone_is_a_model():
    inputs, classes = static_data()
    result = reconstruct_readout(nn.Linear(N_FEATURES, N_CLASSES), inputs, classes)
    assert result.layer == ""
    assert result.after.loss < result.before.loss
