import numpy as np
import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    Looped,
    Spike,
    assert_same_tensors,
    draw_data,
    draw_static,
    unharmed,
    weights_apart_from,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import HALF_PRECISION, REFITTED, ROUNDING, SINGLE_PRECISION
from torch import nn

import cvxsnn.exchange.readout.solving
from cvxsnn import InvalidInputError, SpikeDictionary, reconstruct_readout
from cvxsnn.core.errors import ConvergenceWarning
from cvxsnn.dictionary import DenseDictionary
from cvxsnn.exchange import ReadoutResult
from cvxsnn.exchange.readout.batches import Batches
from cvxsnn.exchange.readout.options import ReadoutOptions
from cvxsnn.exchange.readout.reconstruct import reconstruct_with


def cross_entropy(model, inputs, classes):
    with torch.no_grad():
        return float(nn.functional.cross_entropy(model(inputs).double(), classes))


def accuracy(model, inputs, classes):
    with torch.no_grad():
        return float((model(inputs).argmax(1) == classes).double().mean())


def static_data(n_classes=N_CLASSES, seed=0):
    inputs, classes = draw_data(n_steps=1, n_classes=n_classes, seed=seed)
    return inputs[:, 0], classes


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


@pytest.mark.parametrize("penalty", ["l1", "group"])
@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared", "hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_certificate_is_of_the_loss_plus_the_norm_of_the_solution(loss, penalty, bias):
    (inputs, classes), model = static_data(), draw_static(bias=bias)
    with torch.no_grad():
        features = model[:2](inputs).double()
    result = reconstruct_readout(model, inputs, classes, loss=loss, penalty=penalty, l1_strength=0.02)
    coef, intercept = result.solution.coef, result.solution.intercept
    scores = features @ coef + intercept
    truth = nn.functional.one_hot(classes, N_CLASSES).double()
    margins = (2 * truth - 1) * scores
    value = {
        "softmax": lambda: nn.functional.cross_entropy(scores, classes),
        "logistic": lambda: nn.functional.softplus(-margins).sum(1).mean(),
        "squared": lambda: 0.5 * (scores - truth).square().sum(1).mean(),
        "hinge": lambda: (1 - margins).clamp_min(0).sum(1).mean(),
        "squared_hinge": lambda: (1 - margins).clamp_min(0).square().sum(1).mean(),
    }[loss]()
    factor = float(value) / float(result.solution.problem.loss_value(scores))
    assert factor in (pytest.approx(1.0), pytest.approx(2.0))  # a half in front is a convention
    norm = coef.abs().sum() if penalty == "l1" else coef.norm(dim=1).sum()
    assert result.certificate.primal == pytest.approx(float(value) / factor + 0.02 * float(norm), rel=ROUNDING)
    assert 0 <= result.certificate.relative_gap <= 1e-6
    assert result.has_changed
    torch.testing.assert_close(model[2].weight.double(), coef.T, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    if bias:
        torch.testing.assert_close(model[2].bias.double(), intercept, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    else:
        assert not intercept.any()


def test_the_group_penalty_leaves_fewer_neurons_to_read():
    inputs, classes = static_data()
    results = [
        reconstruct_readout(draw_static(), inputs, classes, penalty=penalty, l1_strength=0.05)
        for penalty in ("l1", "group")
    ]
    assert results[1].after.n_read < results[1].before.n_read
    assert results[1].after.n_weights == N_CLASSES * results[1].after.n_read
    assert results[0].after.n_weights < N_CLASSES * results[0].after.n_read


@settings(max_examples=25)
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
    (inputs, classes), model = static_data(), draw_static().double()
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
    result = reconstruct_readout(model, inputs, classes)
    assert result.after.n_weights == 0
    assert result.after.loss == pytest.approx(np.log(N_CLASSES), rel=REFITTED)


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


def test_copy_model_leaves_the_original_alone():
    (inputs, classes), model = draw_data(), Looped()
    with unharmed(model):
        result = reconstruct_readout(model, inputs, classes, copy_model=True)
    assert result.model is not model
    in_place = reconstruct_readout(model, inputs, classes)
    assert_same_tensors(result.model.state_dict(), model.state_dict())
    assert in_place.after == result.after


def test_the_same_seed_gives_the_same_weights():
    inputs, classes = draw_data()
    weights = [
        reconstruct_readout(Looped(), inputs, classes, seed=seed, batch_size=size).model.out.weight
        for seed, size in ((0, 128), (0, 128), (0, 7))
    ]
    assert torch.equal(weights[0], weights[1])
    torch.testing.assert_close(weights[0], weights[2], rtol=REFITTED, atol=REFITTED)


class PoissonCoded(Looped):
    def forward(self, x):
        return super().forward(torch.bernoulli(torch.sigmoid(x)))


def test_a_random_encoder_draws_from_the_seed_and_leaves_the_global_numbers_alone():
    inputs, classes = draw_data()
    state = torch.get_rng_state()
    weights = []
    for seed in (0, 0, 1):
        model = PoissonCoded()
        torch.set_rng_state(state)
        weights.append(reconstruct_readout(model, inputs, classes, seed=seed).model.out.weight)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_features_that_are_no_spikes_are_solved_for_with_a_note():
    inputs, classes = static_data()
    model = nn.Sequential(nn.Linear(N_FEATURES, N_HIDDEN), nn.Tanh(), nn.Linear(N_HIDDEN, N_CLASSES))
    result = reconstruct_readout(model, inputs, classes)
    assert result.notes == (
        "what enters the layer are not spikes but real numbers; the program is convex all the same",
    )
    assert result.after.loss < result.before.loss
    assert result.solution.has_converged


def test_features_that_stop_being_spikes_in_a_later_batch_are_real():
    inputs, classes = static_data()
    model = nn.Sequential(nn.Identity(), nn.Linear(N_FEATURES, N_CLASSES))
    inputs = (inputs > 0).float()
    inputs[-1, 0] = 0.5
    result = reconstruct_readout(model, inputs, classes, batch_size=8)
    assert "real numbers" in result.notes[0]
    assert torch.equal(result.solution.problem.dictionary.columns(), inputs.double())


def test_counts_that_would_not_fit_as_numbers_are_packed_and_give_the_same():
    inputs, classes = draw_data()
    batches = Batches(inputs, classes, 128)
    dense, packed = (
        reconstruct_with(Looped(), batches, ReadoutOptions(l1_strength=0.01, dense_bytes=n_bytes))
        for n_bytes in (2**30, 1)
    )
    assert isinstance(dense.solution.problem.dictionary, DenseDictionary)
    assert isinstance(packed.solution.problem.dictionary, SpikeDictionary)
    gap = max(dense.certificate.gap, packed.certificate.gap)
    assert abs(dense.certificate.primal - packed.certificate.primal) <= gap
    assert packed.before.loss == pytest.approx(dense.before.loss, rel=ROUNDING)
    assert accuracy(packed.model, inputs, classes) == packed.after.accuracy


def test_readout_last_takes_the_spikes_of_the_last_step():
    (inputs, classes), model = draw_data(), Looped()
    with torch.no_grad():
        last = model.spikes(inputs)[-1]
    result = reconstruct_readout(model, inputs, classes, readout="last")
    assert torch.equal(result.solution.problem.dictionary.columns(), last.double())
    assert result.after.loss == pytest.approx(cross_entropy(model.out, last, classes), abs=SINGLE_PRECISION)


def test_the_mean_is_over_all_of_many_steps():
    inputs, classes = draw_data(n_samples=12, n_steps=700)
    model = Looped()
    with torch.no_grad():
        mean = model.spikes(inputs).double().mean(0)
    result = reconstruct_readout(model, inputs, classes, batch_size=5)
    torch.testing.assert_close(result.solution.problem.dictionary.columns(), mean, rtol=ROUNDING, atol=0)


def test_one_output_is_logistic_and_decides_by_its_sign():
    inputs, classes = static_data(n_classes=2)
    model = draw_static(1)
    result = reconstruct_readout(model, inputs, classes)
    with torch.no_grad():
        scores = model(inputs)[:, 0].double()
    loss = nn.functional.binary_cross_entropy_with_logits(scores, classes.double())
    assert result.after.loss == pytest.approx(float(loss), abs=SINGLE_PRECISION)
    assert result.after.accuracy == result.after.model_accuracy == float(((scores >= 0) == classes).double().mean())


def test_one_output_may_be_given_without_its_axis():
    inputs, classes = static_data(n_classes=2)
    result = reconstruct_readout(nn.Sequential(draw_static(1), nn.Flatten(0)), inputs, classes)
    assert result.after.model_accuracy == result.after.accuracy


def test_the_sign_of_a_probability_decides_nothing():
    inputs, classes = static_data(n_classes=2)
    result = reconstruct_readout(nn.Sequential(draw_static(1), nn.Sigmoid()), inputs, classes)
    assert result.after.model_accuracy is None
    assert "pass decide=" in result.notes[-1]
    told = reconstruct_readout(
        nn.Sequential(draw_static(1), nn.Sigmoid()), inputs, classes, decide=lambda output: output[:, 0] > 0.5
    )
    assert told.after.model_accuracy == told.after.accuracy


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "squared"])
def test_one_output_takes_every_loss_but_softmax(loss):
    inputs, classes = static_data(n_classes=2)
    result = reconstruct_readout(draw_static(1), inputs, classes.bool(), loss=loss)
    assert result.after.loss < result.before.loss
    assert result.after.n_weights <= N_HIDDEN


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_real_targets_are_a_regression(n_outputs, dtype):
    inputs, _ = static_data()
    targets = inputs[:, :n_outputs].squeeze(1).to(dtype)
    result = reconstruct_readout(draw_static(n_outputs), inputs, targets)
    assert result.solution.problem.heads[0].loss.name == "squared"
    assert result.after.loss < result.before.loss
    assert result.after.accuracy is None
    assert result.after.model_accuracy is None
    assert result.notes == ()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loss", ["softmax", "logistic", "hinge"])
def test_samples_held_out_need_not_show_every_class(loss, seed):
    inputs, classes = draw_data(n_samples=21, n_steps=1)
    result = reconstruct_readout(draw_static(), inputs[:, 0], classes, loss=loss, seed=seed)
    assert result.after.loss <= result.before.loss


def test_classes_that_do_not_occur_are_noted():
    (inputs, classes), model = static_data(n_classes=2), draw_static(5)
    result = reconstruct_readout(model, inputs, classes)
    assert "only 2 of 5 classes occur in the targets" in result.notes
    assert result.solution.has_converged
    with torch.no_grad():
        assert int(model(inputs).argmax(1).max()) < 2


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_one_against_the_rest_needs_every_class(loss):
    (inputs, classes), model = static_data(n_classes=2), draw_static(5)
    with unharmed(model), pytest.raises(InvalidInputError, match=f"all 5 classes for loss '{loss}'"):
        reconstruct_readout(model, inputs, classes, loss=loss)


@pytest.mark.parametrize("seed", range(5))
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


def test_a_class_may_be_held_out_altogether():
    inputs, _ = draw_data(n_samples=23, n_steps=1)
    classes = torch.tensor([0, 1] * 10 + [2, 3, 4])
    for seed in range(12):
        result = reconstruct_readout(draw_static(5), inputs[:, 0], classes, loss="logistic", seed=seed, tol=1e-3)
        assert result.after.loss <= result.before.loss


class CountingNeurons(Looped):
    """Output neurons that fire above a threshold of their own."""

    def forward(self, x):
        return torch.stack([(self.out(spikes) > 0.3).float() for spikes in self.spikes(x)]).sum(0)


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


def test_progress_is_reported_stage_by_stage():
    (inputs, classes), told = draw_data(), []
    reconstruct_readout(CountingNeurons(), inputs, classes, batch_size=20, report=lambda *news: told.append(news))
    stages = list(dict.fromkeys(stage for stage, _, _ in told))
    assert stages[:4] == ["recording", "choosing the strength", "solving", "checking"]
    assert [news for news in told if news[0] == "recording"] == [("recording", number, 3) for number in (1, 2, 3)]
    assert all(0 <= done <= total for _, done, total in told)


def test_a_tolerance_that_is_asked_for_is_certified():
    inputs, classes = draw_data()
    result = reconstruct_readout(Looped(), inputs, classes, l1_strength=0.01, tol=1e-9)
    assert result.certificate.relative_gap <= 1e-9


def test_a_result_prints_as_a_table():
    (inputs, classes), model = draw_data(), Looped()
    text = str(reconstruct_readout(model, inputs, classes))
    for part in ("layer 'out'", "before", "after", "loss", "accuracy of the layer", "weights", "neurons read"):
        assert part in text
    real = str(reconstruct_readout(draw_static(1), inputs[:, 0], inputs[:, 0, 0]))
    assert " -" in real


def test_strength_that_is_named_is_the_strength_that_is_used():
    inputs, classes = draw_data()
    for strength in (0.3, 1):
        result = reconstruct_readout(Looped(), inputs, classes, l1_strength=strength)
        assert result.solution.problem.l1_strength == strength


def test_a_solve_that_stalls_warns_and_still_never_raises_the_loss(monkeypatch):
    inputs, classes = static_data()
    solve = cvxsnn.exchange.readout.solving.solve
    monkeypatch.setattr(
        cvxsnn.exchange.readout.solving, "solve", lambda *args, **more: solve(*args, max_iterations=1, **more)
    )
    model = draw_static()
    with pytest.warns(ConvergenceWarning):
        result = reconstruct_readout(model, inputs, classes, l1_strength=1e-4)
    assert result.after.loss <= result.before.loss


def test_samples_are_not_changed_by_models_that_work_in_place():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = draw_static()

        def forward(self, x):
            return self.net(x.sub_(1.0))

    (inputs, classes), model = static_data(), InPlace()
    kept = inputs.clone()
    result = reconstruct_readout(model, inputs, classes)
    assert torch.equal(inputs, kept)
    assert accuracy(model, inputs.clone(), classes) == result.after.accuracy


def test_spikes_in_memory_that_is_used_again_are_recorded_as_they_were():
    class OneBuffer(Looped):
        def forward(self, x):
            line, outputs = torch.empty(len(x), N_HIDDEN), []
            for spikes in self.spikes(x):
                line.copy_(spikes)
                outputs.append(self.out(line))
            return torch.stack(outputs).mean(0)

    inputs, classes = draw_data()
    results = [reconstruct_readout(kind(), inputs, classes, l1_strength=0.01) for kind in (Looped, OneBuffer)]
    assert results[0].after == results[1].after


def test_layers_may_be_called_by_keyword():
    class ByKeyword(Looped):
        def forward(self, x):
            return torch.stack([self.out(input=spikes) for spikes in self.spikes(x)]).mean(0)

    inputs, classes = draw_data()
    results = [reconstruct_readout(kind(), inputs, classes, l1_strength=0.01) for kind in (Looped, ByKeyword)]
    assert results[0].after == results[1].after


def test_integers_reach_a_model_that_wants_them():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, N_HIDDEN), Spike(), nn.Linear(N_HIDDEN, 2))
    tokens = torch.arange(50) % 10
    result = reconstruct_readout(model, tokens, (tokens > 4).long())
    assert result.after.accuracy == 1.0


def test_a_linear_layer_alone_is_a_model():
    inputs, classes = static_data()
    result = reconstruct_readout(nn.Linear(N_FEATURES, N_CLASSES), inputs, classes)
    assert result.layer == ""
    assert result.after.loss < result.before.loss


def test_an_optimum_is_found_to_be_one_the_second_time():
    (inputs, classes), model = draw_data(), Looped()
    first = reconstruct_readout(model, inputs, classes, l1_strength=0.01, tol=1e-10)
    second = reconstruct_readout(model, inputs, classes, l1_strength=0.01, tol=1e-10)
    assert second.before.loss == first.after.loss
    assert second.certificate.primal == pytest.approx(first.certificate.primal, rel=REFITTED)


def test_one_sample_of_each_class_is_enough():
    inputs, classes = static_data()
    result = reconstruct_readout(draw_static(), inputs[:3], classes[:3])
    assert result.after.loss < result.before.loss
