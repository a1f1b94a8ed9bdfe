"""Heads with their losses and targets, and the weights of rows and steps."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tolerances import FLOAT64_MEAN, ROUNDING

from cvxsnn import ConvexProblem, InvalidInputError, build_dictionary, gaussian_witnesses, solve
from cvxsnn.convex import Objective
from cvxsnn.convex.objective import timestep_weights
from cvxsnn.data import TrainingSet

COLUMNS = np.eye(4, dtype=bool)
LABELS = np.array([0, 1, 0, 1])
INPUTS = torch.randn(6, 4, 3, generator=torch.Generator().manual_seed(0))
CLASSES = np.array([0, 1, 0, 1, 1, 0])
STEPS = np.arange(24).reshape(6, 4) % 2


def trajectory_problem(**options: object) -> tuple[ConvexProblem, np.ndarray]:
    """Five samples of four steps, and their labels of shape (n_samples, n_steps)."""
    rng = np.random.default_rng(0)
    witnesses = gaussian_witnesses(3, (4, 6), 2, seed=0)
    dictionary = build_dictionary(witnesses, rng.integers(0, 2, (5, 4, 3)).astype(float), readout="all")
    labels = np.r_[0, 1, rng.integers(0, 2, 18)].reshape(5, 4)
    return ConvexProblem(dictionary, labels, "logistic", 0.01, **options), labels


def test_row_weights_sum_to_one_and_are_uniform_by_default() -> None:
    assert ConvexProblem(COLUMNS, LABELS).row_weight.tolist() == [0.25] * 4
    weighted = ConvexProblem(COLUMNS, LABELS, row_weight=np.array([1, 1, 0, 2]))
    assert weighted.row_weight.tolist() == [0.25, 0.25, 0, 0.5]


def test_heads_share_the_outputs_in_their_order() -> None:
    targets = {"digit": np.array([0, 1, 2, 0]), "carry": LABELS, "amount": np.zeros((4, 2))}
    losses = {"carry": "logistic", "digit": "softmax", "amount": "squared"}
    problem = ConvexProblem(COLUMNS, targets, losses, head_weights={"carry": 3.0})
    assert problem.shape == (4, 4, 6)
    assert [(h.name, h.weight, h.columns) for h in problem.heads] == [
        ("digit", 1.0, slice(0, 3)),
        ("carry", 3.0, slice(3, 4)),
        ("amount", 1.0, slice(4, 6)),
    ]


@pytest.mark.parametrize("targets", [[0, 1, 0, 1], (0.0, 1.0, 0.0, 1.0), [False, True] * 2, LABELS[::-1][::-1]])
def test_targets_may_be_any_sequence_of_numbers(targets: object) -> None:
    assert ConvexProblem(COLUMNS, targets).heads[0].targets[:, 0].tolist() == [-1, 1, -1, 1]


def test_timestep_weights_are_equal_or_count_the_steps() -> None:
    assert timestep_weights("uniform", 3).tolist() == [1, 1, 1]
    assert timestep_weights("ramped", 3).tolist() == [1, 2, 3]


def test_ramped_timesteps_are_row_weights_that_count_the_steps() -> None:
    ramped, labels = trajectory_problem(timestep_weighting="ramped")
    weighted, _ = trajectory_problem(row_weight=np.tile([1, 2, 3, 4], 5))
    torch.testing.assert_close(ramped.row_weight, weighted.row_weight, rtol=ROUNDING, atol=0)
    assert ramped.heads[0].targets[:, 0].tolist() == (2 * labels.ravel() - 1).tolist()
    assert solve(ramped).certificate.primal == pytest.approx(solve(weighted).certificate.primal, rel=ROUNDING)


def test_row_weights_and_ramped_timesteps_multiply() -> None:
    both, _ = trajectory_problem(timestep_weighting="ramped", row_weight=np.arange(20.0))
    expected = np.arange(20.0) * np.tile([1, 2, 3, 4], 5)
    torch.testing.assert_close(both.row_weight, torch.from_numpy(expected / expected.sum()), rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("readout", ["last", "all"])
@pytest.mark.parametrize("weight", [None, np.arange(6)])
def test_gradients_and_the_convex_program_see_one_objective(readout, weight):
    targets = {"a": CLASSES if readout == "last" else STEPS, "b": 1 - (CLASSES if readout == "last" else STEPS)}
    weighting = "ramped" if readout == "all" else "uniform"
    objective = Objective({"a": "logistic", "b": "softmax"}, readout, {"a": 3.0}, weighting)
    data = TrainingSet(INPUTS, targets, weight)
    heads, row_weight = objective.heads(data)
    dictionary = build_dictionary(gaussian_witnesses(3, (5,)), INPUTS, readout)
    problem = ConvexProblem.of(objective, dictionary, data, l1_strength=0.7, penalty="group", intercept=True)
    assert torch.equal(problem.row_weight, row_weight)
    assert (problem.l1_strength, problem.penalty.name, problem.intercept) == (0.7, "group", True)
    for one, other in zip(heads, problem.heads, strict=True):
        assert (one.name, one.weight, one.columns) == (other.name, other.weight, other.columns)
        assert torch.equal(one.targets, other.targets)


def test_row_weights_of_steps_are_those_of_their_sequence_times_the_step():
    objective = Objective("logistic", "all", timestep_weighting="ramped")
    _, row_weight = objective.heads(TrainingSet(INPUTS, {"label": STEPS}, np.arange(6.0)))
    expected = np.outer(np.arange(6), np.arange(1, 5)).ravel() / (15 * 10)
    np.testing.assert_allclose(row_weight.numpy(), expected, rtol=FLOAT64_MEAN)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConvexProblem(COLUMNS, LABELS[:3]), r"each of 4 rows in head 'label', got shape \(3,\)"),
        (lambda: ConvexProblem(COLUMNS, np.array(1.0)), r"each of 4 rows in head 'label', got shape \(\)"),
        (lambda: ConvexProblem(COLUMNS, {"a": LABELS, "b": LABELS[:3]}), "rows in head 'b'"),
        (lambda: ConvexProblem(COLUMNS, np.full(4, np.nan), "squared"), "finite targets, got NaN"),
        (
            lambda: ConvexProblem(COLUMNS, ["a", "b", "a", "b"]),
            "targets to be real numbers, got text: encode labels as numbers first",
        ),
        (lambda: ConvexProblem(COLUMNS, np.array([["a", 1]] * 4, dtype=object)), "got text: encode labels as numbers"),
        (lambda: ConvexProblem(COLUMNS, [0, 1, None, 1]), "targets to be real numbers, got objects"),
        (lambda: ConvexProblem(COLUMNS, [0, 1, 1j, 1]), "targets to be real numbers, got complex ones"),
        (
            lambda: ConvexProblem(COLUMNS, [[0], [1], [0, 1], [1]]),
            "targets to be numbers in rows of equal length, got others",
        ),
        (lambda: ConvexProblem(COLUMNS, {}), "targets for at least one head, got none"),
        (lambda: ConvexProblem(COLUMNS, {"a": LABELS}, {"b": "hinge"}), r"for heads \['a'\], got \['b'\] too"),
        (lambda: ConvexProblem(COLUMNS, LABELS, head_weights={"b": 1}), r"for heads \['label'\], got \['b'\] too"),
        (lambda: ConvexProblem(COLUMNS, {"a": LABELS, "b": LABELS}, {"a": "hinge"}), "loss for head 'b', got none"),
        (lambda: ConvexProblem(COLUMNS, LABELS, head_weights={"label": 0}), "weight of head 'label' to be above zero"),
        (lambda: ConvexProblem(COLUMNS, LABELS, row_weight=np.ones(3)), r"row_weight of shape \(4,\), got \(3,\)"),
        (lambda: ConvexProblem(COLUMNS, LABELS, row_weight=np.zeros(4)), "finite, non-negative and not all zero"),
        (lambda: ConvexProblem(COLUMNS, LABELS, row_weight=-np.ones(4)), "finite, non-negative and not all zero"),
        (lambda: ConvexProblem(COLUMNS, LABELS, row_weight=np.full(4, np.inf)), "finite, non-negative and not all"),
        (
            lambda: ConvexProblem(COLUMNS, LABELS, timestep_weighting="ramped"),
            r"trajectory dictionary \(readout='all'\)",
        ),
        (lambda: ConvexProblem(COLUMNS, LABELS, timestep_weighting="last"), "one of 'uniform', 'ramped', got 'last'"),
    ],
)
def test_targets_and_weights_that_mean_nothing_are_refused(build: Callable[[], ConvexProblem], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        build()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Objective("logistic").heads(TrainingSet(INPUTS, {"label": CLASSES[:3]})), "each of 6 rows"),
        (lambda: Objective("logistic").heads(TrainingSet(INPUTS, {})), "targets for at least one head, got none"),
        (lambda: Objective("logistic").heads(TrainingSet(INPUTS, {"label": CLASSES}, -np.ones(6))), "non-negative"),
        (
            lambda: Objective("logistic", timestep_weighting="ramped").heads(TrainingSet(INPUTS, {"label": CLASSES})),
            "readout='all'",
        ),
        (lambda: Objective({"a": "hinge"}).heads(TrainingSet(INPUTS, {"label": CLASSES})), r"got \['a'\] too"),
    ],
)
def test_an_objective_that_does_not_fit_its_data_is_refused_in_one_sentence(call, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
