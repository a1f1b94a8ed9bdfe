"""Few neurons for ridge regression: which enter, how many, and how they are judged."""

import numpy as np
import pytest
import torch

from cvxsnn import ConvexProblem, build_dictionary
from cvxsnn.convex.objective import Objective
from cvxsnn.convex.validation import Validation
from cvxsnn.data import Sequences, TrainingSet
from cvxsnn.dictionary.dense import DenseDictionary
from cvxsnn.training import mixture, selection
from cvxsnn.training.mixture import RATIOS, Mixing, fit_mixture
from cvxsnn.training.selection import order_neurons, select_neurons


def draw(seed, n_rows=40, n_columns=60, n_outputs=2, n_planted=4, noise=0.3, **options):
    """Ridge on random 0/1 columns, of which the first ones explain the targets in part."""
    rng = np.random.default_rng(seed)
    columns = rng.random((n_rows, n_columns)) < rng.uniform(0.1, 0.9, n_columns)
    targets = columns[:, :n_planted] @ rng.normal(size=(n_planted, n_outputs)) + noise * rng.normal(
        size=(n_rows, n_outputs)
    )
    options = {"intercept": True, "l2_strength": 1.0, **options}
    return ConvexProblem(columns, targets, "squared", 0.0, penalty="elastic-net", **options)


def dealt(problem, n_folds=5, seed=0):
    n_rows = problem.dictionary.n_rows
    return torch.from_numpy(np.random.default_rng(seed).permutation(np.arange(n_rows) % n_folds))


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
    ridge = selection._SHRINKAGE * float((problem.row_weight @ (columns - middle).square()).mean())
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
    monkeypatch.setattr(selection, "_NUMBERS", 0)
    assert torch.equal(order_neurons(problem, 15), expected)


def test_neurons_are_judged_on_rows_that_took_no_part_in_their_choice():
    problem = draw(4, n_columns=1500, n_outputs=1, n_planted=0, noise=1.0)
    folds = dealt(problem)
    found = select_neurons(problem, 8, folds, torch.zeros(40, 1, dtype=torch.float64), RATIOS)
    assert len(found.neurons) == 8
    assert torch.equal(found.rows, torch.arange(40))
    # Eight of 1,500 columns of noise explain most of the noise on rows that chose them, and none on others.
    variance = float(problem.heads[0].targets.var())
    assert 2 * float(found.validation.mean()[0]) > 0.9 * variance


def test_scores_are_those_of_neurons_and_read_outs_without_the_fold():
    problem = draw(6, n_rows=30)
    folds = dealt(problem, 3)
    found = select_neurons(problem, 5, folds, torch.zeros(30, 2, dtype=torch.float64), RATIOS[6:7])
    for fold in range(3):
        left, kept = torch.nonzero(folds == fold).squeeze(1), torch.nonzero(folds != fold).squeeze(1)
        without = problem.take_rows(kept)
        columns = problem.dictionary.columns(problem.dictionary.atom_of_column[order_neurons(without, 5)])
        inner, targets = columns[kept] - columns[kept].mean(0), problem.heads[0].targets[kept]
        gram = inner.T @ inner / len(kept)
        gram.diagonal().add_(RATIOS[6] * float(gram.trace()) / len(kept))
        coef = torch.linalg.solve(gram, inner.T @ (targets - targets.mean(0)) / len(kept))
        expected = (columns[left] - columns[kept].mean(0)) @ coef + targets.mean(0)
        assert torch.allclose(found.scores[left], expected)


def test_read_outs_of_more_atoms_than_rows_are_the_same_by_rows_and_by_columns():
    problem = draw(7, n_rows=25, n_columns=20)
    few, many = torch.arange(20), torch.arange(20).repeat(2)
    coef, intercept = selection._ridge(problem, few, [0.1])
    doubled, other = selection._ridge(problem, many, [0.1])  # twice the columns and eigenvalues: the same scores
    columns = problem.dictionary.columns()
    assert torch.allclose(columns @ coef[0] + intercept[0], columns @ (doubled[0, :20] + doubled[0, 20:]) + other[0])


def test_few_are_the_fewest_within_one_standard_error_of_the_best():
    weight = torch.full((100,), 0.01, dtype=torch.float64)
    wrong = torch.zeros(4, 100, dtype=torch.float64)
    wrong[0, :9], wrong[1, :1], wrong[2, :0], wrong[3, :5] = 1.0, 1.0, 1.0, 1.0
    # One row is a difference of one standard error; nine rows are three of them.
    assert selection._fewest(Validation("", wrong, 1 - wrong, weight)) == 1
    assert selection._fewest(Validation("", wrong, None, weight)) == 1
    assert selection._fewest(Validation("", wrong.flip(0), 1 - wrong.flip(0), weight)) == 1


def test_all_neurons_are_read_if_few_are_much_worse():
    problem = draw(8, n_rows=200, n_columns=60, n_planted=60, noise=0.0, n_outputs=1)
    perfect = problem.heads[0].targets
    assert select_neurons(problem, "few", dealt(problem), perfect, RATIOS) is None
    assert select_neurons(problem, problem.dictionary.n_atoms, dealt(problem), perfect, RATIOS) is None
    easy = draw(9, n_rows=200, n_columns=60, n_planted=3, noise=0.01, n_outputs=1)
    found = select_neurons(easy, "few", dealt(easy), 0 * easy.heads[0].targets, RATIOS)
    assert len(found.neurons) == 8
    assert {0, 1, 2} <= set(found.neurons.tolist())


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


def training_set(n_samples=80):
    inputs = np.random.default_rng(1).normal(size=(n_samples, 12, 2))
    targets = inputs[:, :, 0].mean(1) + 0.1 * np.random.default_rng(2).normal(size=n_samples)
    return TrainingSet(Sequences(inputs), {"label": targets})


@pytest.mark.parametrize("readout", ["mean", "windows-3"])
def test_a_fit_reads_few_neurons_and_certifies_them(readout):
    data = training_set()
    found = fit_mixture(data, Objective("squared"), Mixing(100, (readout,), sparsity=7))
    dictionary = found.solution.problem.dictionary
    assert dictionary.witnesses.n_witnesses == found.chosen.n_witnesses == 7
    assert dictionary.n_columns == (7 if readout == "mean" else 21)
    assert found.n_sampled == 100
    assert found.solution.certificate.relative_gap <= 1e-6
    assert found.solution.certificate.scope == "selected"
    assert 2 * found.chosen.loss < np.var(data.targets["label"])


def test_neurons_with_windows_are_distinct_in_some_window():
    witnesses = fit_mixture(training_set(), Objective("squared"), Mixing(50, ("mean",))).solution.problem.dictionary
    dictionary = build_dictionary(witnesses.witnesses, training_set().sequences, "windows-3")
    neurons, atoms = selection._distinct_neurons(dictionary)
    assert atoms.shape == (len(neurons), 3)
    assert len(torch.unique(atoms, dim=0)) == len(neurons)
    columns = dictionary.atom_of_column.reshape(-1, 3)
    assert torch.equal(columns[neurons], atoms)


def test_many_rows_are_judged_by_a_fifth_that_is_held_out(monkeypatch):
    monkeypatch.setattr(mixture, "_MAX_ROWS", 50)
    monkeypatch.setattr(mixture, "ROWS_COMPARED", 40)
    found = fit_mixture(training_set(), Objective("squared"), Mixing(60, ("mean",), sparsity=5))
    assert len(found.rows) == len(found.scores) == found.chosen.n_rows == 16
    assert found.chosen.n_witnesses == 5
