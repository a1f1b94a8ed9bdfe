import numpy as np
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

import cvxsnn
import cvxsnn.exchange.readout.solving
from cvxsnn import reconstruct_readout
from cvxsnn.convex.left_out import mean_eigenvalue
from cvxsnn.core.errors import ConvergenceWarning
from cvxsnn.core.seeds import child_generator
from cvxsnn.fitting.choosing import choose
from cvxsnn.fitting.judges import HeldOut

NET = {"penalty": "elastic-net"}


@pytest.mark.parametrize("penalty", ["l1", "group"])
@pytest.mark.parametrize("loss", ["softmax", "logistic", "squared", "hinge", "squared_hinge"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_certificate_is_of_the_loss_plus_the_norm_of_the_weights(loss, penalty, bias):
    (inputs, classes), model = static_data(), draw_static(bias=bias)
    with torch.no_grad():
        features = model[:2](inputs).double()
    result = reconstruct_readout(model, inputs, classes, loss=loss, penalty=penalty, l1_strength=0.02)
    coef, intercept = (own.detach().double() for own in (model[2].weight.T, model[2].bias if bias else torch.zeros(3)))
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
    solved = result.solution
    torch.testing.assert_close(coef, solved.coef, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)
    torch.testing.assert_close(intercept, solved.intercept, rtol=SINGLE_PRECISION, atol=SINGLE_PRECISION)


def test_the_group_penalty_leaves_fewer_neurons_to_read():
    inputs, classes = static_data()
    results = [
        reconstruct_readout(draw_static(), inputs, classes, penalty=penalty, l1_strength=0.05)
        for penalty in ("l1", "group")
    ]
    assert results[1].after.n_read < results[1].before.n_read
    assert results[1].after.n_weights == N_CLASSES * results[1].after.n_read
    assert results[0].after.n_weights < N_CLASSES * results[0].after.n_read


@pytest.mark.parametrize("penalty", ["elastic-net", "group-elastic-net"])
@pytest.mark.parametrize("l1_strength", [0.02, 0.0])
@pytest.mark.parametrize("loss", ["softmax", "squared"])
def test_the_certificate_of_an_elastic_net_has_its_squares(loss, l1_strength, penalty):
    inputs, classes = static_data()
    options = {"penalty": penalty, "l1_strength": l1_strength, "l2_strength": 0.05}
    model = draw_static()
    result = reconstruct_readout(model, inputs, classes, loss=loss, **options)
    problem, coef = result.solution.problem, model[2].weight.detach().double().T
    assert (problem.penalty.name, problem.l1_strength, problem.l2_strength) == (penalty, l1_strength, 0.05)
    norm = coef.abs().sum() if penalty == "elastic-net" else coef.norm(dim=1).sum()
    scores = problem.dictionary.matvec(coef) + model[2].bias.detach()
    value = problem.loss_value(scores) + l1_strength * norm + 0.025 * coef.square().sum()
    assert result.certificate.primal == pytest.approx(float(value), rel=ROUNDING)
    assert 0 <= result.certificate.relative_gap <= 1e-6


def test_an_elastic_net_without_squares_is_its_norm():
    inputs, classes = static_data()
    plain = reconstruct_readout(draw_static(), inputs, classes, l1_strength=0.02)
    net = reconstruct_readout(draw_static(), inputs, classes, **NET, l1_strength=0.02, l2_strength=0)
    assert net.certificate.primal == pytest.approx(plain.certificate.primal, rel=2e-6)


@pytest.mark.parametrize(
    "given",
    [{}, {"l2_strength": 0.001}, {"l1_strength": 0.001}, {"l1_strength": 0.0}, {"l2_strength": 0.0}],
    ids=str,
)
def test_strengths_of_an_elastic_net_that_are_not_given_are_chosen(given):
    (inputs, classes), steps = draw_data(), []
    result = reconstruct_readout(Looped(), inputs, classes, **NET, **given, callback=lambda *step: steps.append(step))
    problem = result.solution.problem
    for name, value in given.items():
        assert getattr(problem, name) == value
    assert problem.l1_strength + problem.l2_strength > 0
    assert problem.l2_strength > 0 or "l2_strength" in given
    assert result.certificate.relative_gap <= 1e-6
    assert result.after.loss < result.before.loss
    choosing = [step for step in steps if step[0] == "choosing the strength"]
    assert all(0 < done <= total for _, done, total in choosing)
    assert [done for _, done, _ in choosing] == sorted(done for _, done, _ in choosing)
    assert len({total for *_, total in choosing}) == 1


def divide(problem, classes, n_seen):
    """Return what strengths are compared with: the problem of the samples that are seen, and a score on the others."""
    order = torch.from_numpy(child_generator(0, "readout", "held out").permutation(len(classes)))
    held, seen = order[: len(classes) // 10], order[len(classes) // 10 :][:n_seen]
    rows = problem.dictionary.take_rows(seen)
    part = cvxsnn.ConvexProblem(rows, classes[seen], "softmax", penalty="elastic-net", intercept=problem.intercept)
    (head,) = problem.heads

    def score(l1_strength, l2_strength):
        solution = cvxsnn.solve(part.with_strength(l1_strength, l2_strength), 1e-3)
        outputs = problem.dictionary.take_rows(held).matvec(solution.coef) + solution.intercept
        return -float(head.loss.value(outputs, head.targets[held]).mean())

    return part, score


def test_strengths_that_are_chosen_do_best_on_samples_held_out():
    inputs, classes = draw_data(n_samples=120)
    problem = reconstruct_readout(Looped(), inputs, classes, **NET).solution.problem
    part, score = divide(problem, classes, 108)
    ratio = problem.l1_strength / problem.critical_strength
    best = score(ratio * part.critical_strength, problem.l2_strength)
    scores = [
        score(ratio * part.critical_strength, l2_strength)
        for ratio in (0.1, 0.01, 0.001, 0.0)
        for l2_strength in mean_eigenvalue(part) * part.dictionary.n_rows * np.geomspace(1e-1, 1e-3, 3)
    ]
    assert best >= max(scores) - 1e-3
    assert best > min(scores) + 1e-2


def test_strengths_fall_with_the_noise_where_a_part_of_the_samples_has_chosen_them(monkeypatch):
    def judge_few(*given, **options):
        return HeldOut(*given, **{**options, "max_rows": 54})

    monkeypatch.setattr(cvxsnn.exchange.readout.solving, "HeldOut", judge_few)
    inputs, classes = draw_data(n_samples=120)
    problem = reconstruct_readout(Looped(), inputs, classes, penalty="l1").solution.problem
    ratio = problem.l1_strength / problem.critical_strength / (54 / 120) ** 0.5
    assert min(abs(ratio / own - 1) for own in np.geomspace(1, 1e-4, 9)) <= ROUNDING


@pytest.mark.parametrize("n_samples", [120, 400])
def test_the_default_is_ridge_that_is_as_good_on_samples_left_out_or_the_weights_of_the_model(n_samples, monkeypatch):
    chosen = []

    def spy(problem, program, judge, **options):
        chosen.append((program.centre is not None, choose(problem, program, judge, **options)))
        return chosen[-1][1]

    monkeypatch.setattr(cvxsnn.exchange.readout.solving, "choose", spy)
    inputs, classes = draw_data(n_samples=n_samples)
    model = Looped()
    result = reconstruct_readout(model, inputs, classes)
    problem = result.solution.problem
    assert (problem.penalty.name, problem.l1_strength) == ("elastic-net", 0.0)
    assert [is_centred for is_centred, _ in chosen] == [True, False]
    best = max(chosen, key=lambda one: one[1].rank)
    assert (problem.centre is not None) == best[0]
    counts, loss = best[1].rank
    assert (counts, result.has_changed) == (True, True)
    assert loss == pytest.approx(-float(best[1].validation.mean()))
    # Weights that have seen the samples, almost without a penalty, are the best there are for them.
    overfitted = Looped()
    reconstruct_readout(overfitted, inputs, classes, l1_strength=1e-7)
    weight = overfitted.out.weight.detach().clone()
    kept = reconstruct_readout(overfitted, inputs, classes)
    assert not kept.has_changed
    assert torch.equal(overfitted.out.weight, weight)
    assert kept.after == kept.before
    assert "on samples left out no optimum is as good" in str(kept)


def test_a_read_out_of_few_samples_has_strengths_without_a_choice():
    inputs, classes = static_data()
    result = reconstruct_readout(draw_static(), inputs[:3], classes[:3], **NET)
    assert result.after.loss < result.before.loss
    assert result.solution.problem.l2_strength > 0


def test_ridge_at_a_given_strength_that_cannot_lower_the_loss_keeps_the_weights():
    inputs, classes = draw_data()
    model = Looped()
    reconstruct_readout(model, inputs, classes, l1_strength=1e-6, tol=1e-9)
    before = model.out.weight.detach().clone()
    result = reconstruct_readout(model, inputs, classes, **NET, l2_strength=1e3)
    assert not result.has_changed
    assert torch.equal(model.out.weight, before)


@pytest.mark.parametrize("seed", range(2))  # two of 21 samples are held out, so a class is missing
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
    assert result.solution.certificate.relative_gap <= 1e-9


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
