import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    Looped,
    draw_data,
    draw_static,
    static_data,
)
from tolerances import REFITTED, ROUNDING, SINGLE_PRECISION
from torch import nn

import cvxsnn.exchange.readout.solving
from cvxsnn import reconstruct_readout
from cvxsnn.core.errors import ConvergenceWarning
from cvxsnn.core.seeds import child_generator


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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loss", ["softmax", "logistic", "hinge"])
def test_samples_held_out_need_not_show_every_class(loss, seed):
    inputs, classes = draw_data(n_samples=21, n_steps=1)
    result = reconstruct_readout(draw_static(), inputs[:, 0], classes, loss=loss, seed=seed)
    assert result.after.loss <= result.before.loss


def test_a_class_may_be_held_out_altogether():
    inputs, _ = draw_data(n_samples=23, n_steps=1)
    classes = torch.tensor([0, 1] * 10 + [2, 3, 4])
    permutations = {seed: child_generator(seed, "readout", "held out").permutation(23) for seed in range(40)}
    seeds = [seed for seed, order in permutations.items() if order[:2].max() >= 20]
    for seed in seeds[:2]:
        result = reconstruct_readout(draw_static(5), inputs[:, 0], classes, loss="logistic", seed=seed, tol=1e-3)
        assert result.after.loss <= result.before.loss


def test_the_same_seed_gives_the_same_weights():
    inputs, classes = draw_data()
    weights = [
        reconstruct_readout(Looped(), inputs, classes, seed=seed, batch_size=size).model.out.weight
        for seed, size in ((0, 128), (0, 128), (0, 7))
    ]
    assert torch.equal(weights[0], weights[1])
    torch.testing.assert_close(weights[0], weights[2], rtol=REFITTED, atol=REFITTED)


def test_strength_that_is_named_is_the_strength_that_is_used():
    inputs, classes = draw_data()
    for strength in (0.3, 1):
        result = reconstruct_readout(Looped(), inputs, classes, l1_strength=strength)
        assert result.solution.problem.l1_strength == strength


def test_a_tolerance_that_is_asked_for_is_certified():
    inputs, classes = draw_data()
    result = reconstruct_readout(Looped(), inputs, classes, l1_strength=0.01, tol=1e-9)
    assert result.certificate.relative_gap <= 1e-9


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
