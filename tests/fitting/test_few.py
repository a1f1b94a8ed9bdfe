"""Few neurons for ridge regression: which enter, how many, and how they are judged."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cvxsnn import ConvexProblem, InvalidInputError, build_dictionary, gaussian_witnesses
from cvxsnn.convex.left_out import Validation
from cvxsnn.dictionary.dense import DenseDictionary
from cvxsnn.fitting import Verdict, few, program
from cvxsnn.fitting.few import FEW, order_neurons, select_neurons
from cvxsnn.fitting.program import QUADRATIC_RATIOS


def draw(seed, n_rows=40, n_columns=60, n_outputs=2, n_planted=4, noise=0.3, **options):
    """Ridge on random 0/1 columns, of which the first ones explain the targets in part."""
    rng = np.random.default_rng(seed)
    columns = rng.random((n_rows, n_columns)) < rng.uniform(0.1, 0.9, n_columns)
    targets = columns[:, :n_planted] @ rng.normal(size=(n_planted, n_outputs)) + noise * rng.normal(
        size=(n_rows, n_outputs)
    )
    options = {"intercept": True, "l2_strength": 1.0, **options}
    return ConvexProblem(columns, targets, "squared", 0.0, penalty="elastic-net", **options)


DENSE = Verdict((0.0, 0.1), 0.0)
"""Ridge over all neurons, at a tenth of the mean eigenvalue."""


@pytest.fixture
def folds(monkeypatch):
    """The folds that selections have dealt."""
    dealt, deal = [], few.deal_rows
    monkeypatch.setattr(few, "deal_rows", lambda *given: dealt.append(deal(*given)) or dealt[-1])
    return dealt


def objective_of(problem, atoms, ridge):
    """The least value of half the mean squared error plus half the squares of the weights."""
    weight, targets = problem.row_weight, problem.heads[0].targets
    columns = problem.dictionary.columns(torch.tensor(atoms))
    if problem.intercept:
        columns, targets = columns - weight @ columns, targets - weight @ targets
    gram = columns.T @ (weight[:, None] * columns) + ridge * torch.eye(len(atoms), dtype=torch.float64)
    linear = columns.T @ (weight[:, None] * targets)
    return float(weight @ targets.square().sum(1) - (linear * torch.linalg.solve(gram, linear)).sum()) / 2


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("is_weighted", [True, False])
def test_each_neuron_that_enters_lowers_the_objective_the_most(intercept, is_weighted):
    weight = np.random.default_rng(5).uniform(0.1, 2.0, 40) if is_weighted else None
    problem = draw(1, intercept=intercept, row_weight=weight)
    columns = problem.dictionary.columns()
    middle = problem.row_weight @ columns if intercept else 0.0
    ridge = FEW.shrinkage * float((problem.row_weight @ (columns - middle).square()).mean())
    order = order_neurons(problem, 12)
    atoms = problem.dictionary.atom_of_column[order].tolist()
    for size in range(12):
        others = [atom for atom in range(problem.dictionary.n_atoms) if atom not in atoms[:size]]
        values = [objective_of(problem, [*atoms[:size], atom], ridge) for atom in others]
        assert objective_of(problem, atoms[: size + 1], ridge) <= min(values) + 1e-7


def test_many_neurons_are_different_and_as_many_as_asked_for():
    problem = draw(2, n_rows=60, n_columns=300)
    order = order_neurons(problem, 120)
    assert len(order) == len(set(order.tolist())) == 120
    assert set(range(4)) <= set(order[:20].tolist())
    assert len(order_neurons(problem, 10_000)) == problem.dictionary.n_atoms


def test_a_dictionary_that_is_not_unpacked_gives_the_same_neurons(monkeypatch):
    problem = draw(3)
    expected = order_neurons(problem, 15)
    monkeypatch.setattr(few, "FEW", replace(FEW, max_unpacked=0))
    assert torch.equal(order_neurons(problem, 15), expected)


def test_neurons_are_judged_on_rows_that_took_no_part_in_their_choice():
    problem = draw(4, n_columns=1500, n_outputs=1, n_planted=0, noise=1.0)
    selection = select_neurons(problem, 8, DENSE)
    assert len(selection.order) == selection.n_chosen == 8
    assert torch.equal(selection.verdicts[8].rows, torch.arange(40))
    # Eight of 1,500 columns of noise explain most of the noise on rows that chose them, and none on others.
    variance = float(problem.heads[0].targets.var())
    assert 2 * float(selection.verdicts[8].validation.mean()[0]) > 0.9 * variance
    assert selection.verdicts[8].rank == -float(selection.verdicts[8].validation.mean()[0])


@pytest.mark.parametrize("n_chosen", [5, 40])  # fewer than rows, and more
def test_scores_are_those_of_neurons_and_read_outs_without_the_fold(folds, monkeypatch, n_chosen):
    problem, ratio = draw(6, n_rows=30), QUADRATIC_RATIOS[6]
    monkeypatch.setattr(program, "QUADRATIC_RATIOS", (ratio,))
    selection = select_neurons(problem, n_chosen, DENSE)
    (fold_of_row,) = folds
    verdict = selection.verdicts[n_chosen]
    assert verdict.point == (0.0, ratio)
    for fold in range(FEW.n_folds):
        left, kept = (torch.nonzero(rows).squeeze(1) for rows in (fold_of_row == fold, fold_of_row != fold))
        without = problem.take_rows(kept)
        columns = problem.dictionary.columns(problem.dictionary.atom_of_column[order_neurons(without, n_chosen)])
        inner, targets = columns[kept] - columns[kept].mean(0), problem.heads[0].targets[kept]
        gram = inner.T @ inner / len(kept)
        gram.diagonal().add_(ratio * float(gram.trace()) / len(kept))
        coef = torch.linalg.solve(gram, inner.T @ (targets - targets.mean(0)) / len(kept))
        expected = (columns[left] - columns[kept].mean(0)) @ coef + targets.mean(0)
        assert torch.allclose(verdict.scores[left], expected)


def test_the_strength_is_the_best_of_those_to_choose_from(monkeypatch):
    problem = draw(6, n_rows=50)
    losses = {}
    for ratio in (10.0, 0.3, 1e-3):
        monkeypatch.setattr(program, "QUADRATIC_RATIOS", (ratio,))
        losses[ratio] = -select_neurons(problem, 5, DENSE).verdicts[5].rank
    monkeypatch.setattr(program, "QUADRATIC_RATIOS", tuple(losses))
    selection = select_neurons(problem, 5, DENSE)
    assert selection.verdicts[5].point == (0.0, min(losses, key=losses.get))


def test_too_few_samples_to_choose_neurons_are_refused():
    problem = draw(6, n_rows=9)
    with pytest.raises(InvalidInputError, match="at least 10 samples with weight to choose neurons, got 9"):
        select_neurons(problem, 5, DENSE)


def test_few_are_the_fewest_within_one_standard_error_of_the_best():
    weight = torch.full((100,), 0.01, dtype=torch.float64)
    wrong = torch.zeros(4, 100, dtype=torch.float64)
    wrong[0, :9], wrong[1, :1], wrong[2, :0], wrong[3, :5] = 1.0, 1.0, 1.0, 1.0
    # One row is a difference of one standard error; nine rows are three of them.
    assert few._fewest(Validation("", wrong, 1 - wrong, weight)) == 1
    assert few._fewest(Validation("", wrong, None, weight)) == 1
    assert few._fewest(Validation("", wrong.flip(0), 1 - wrong.flip(0), weight)) == 1


def test_all_neurons_are_read_if_few_are_much_worse():
    problem = draw(8, n_rows=200, n_columns=60, n_planted=60, noise=0.0, n_outputs=1)
    weak = replace(DENSE, point=(0.0, 1e-6))  # all neurons explain the targets
    selection = select_neurons(problem, "few", weak)
    assert selection.n_chosen is None
    assert list(selection.verdicts) == [8, 16, 32]
    assert selection.verdicts[8].rank < selection.verdicts[16].rank < selection.verdicts[32].rank
    assert select_neurons(problem, problem.dictionary.n_atoms, weak) is None
    easy = draw(9, n_rows=200, n_columns=60, n_planted=3, noise=0.01, n_outputs=1)
    selection = select_neurons(easy, "few", DENSE)
    assert selection.n_chosen == 8
    assert {0, 1, 2} <= set(selection.order[:8].tolist())


@pytest.mark.parametrize("scale", [1e153, 1e155, 1e200])
def test_columns_whose_squares_overflow_are_chosen_without_an_exception(scale):
    rng = np.random.default_rng(0)
    columns, targets = torch.from_numpy(scale * rng.normal(size=(30, 12))), rng.normal(size=30)
    problem = ConvexProblem(DenseDictionary(columns), targets, "squared", 0.0, penalty="elastic-net", l2_strength=1.0)
    assert len(set(order_neurons(problem, 8).tolist())) == 8


def test_columns_that_do_not_vary_do_no_harm():
    problem = ConvexProblem(np.ones((20, 30)), np.arange(20.0), "squared", 0.0, l2_strength=1.0, penalty="elastic-net",
                            intercept=True)  # fmt: skip
    assert len(order_neurons(problem, 3)) == 1


def test_neurons_with_windows_are_distinct_in_some_window():
    inputs = np.random.default_rng(1).normal(size=(80, 12, 2))
    dictionary = build_dictionary(gaussian_witnesses(2, (50,), seed=0), inputs, "windows-3")
    neurons, atoms = few._distinct_neurons(dictionary)
    assert atoms.shape == (len(neurons), 3)
    assert len(torch.unique(atoms, dim=0)) == len(neurons)
    columns = dictionary.atom_of_column.reshape(-1, 3)
    assert torch.equal(columns[neurons], atoms)
