import numpy as np
import pytest
import torch
from convex.linear_program import LinearProgram
from naive import assert_groups_equal
from tolerances import FLOAT64_MEAN, FLOAT64_SUM

from cvxsnn import ConvexProblem, InvalidInputError, build_dictionary, solve, solve_path
from cvxsnn.convex.solvers import Newton
from cvxsnn.core.errors import BudgetError
from cvxsnn.dictionary import DenseDictionary

SOLVERS = {
    "squared": ("auto", Newton(), "reference"),
    "logistic": ("auto", "reference"),
    "squared_hinge": ("auto", "reference"),
    "softmax": ("auto", "reference"),
    "hinge": ("auto", LinearProgram()),
}


def draw_spikes(n_rows=40, n_atoms=15, seed=0):
    """No two columns equal; some rows equal."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.random((n_rows // 2, n_atoms)) < 0.5).repeat(2, 1)


def draw_real(n_rows=30, n_atoms=9):
    return torch.randn(n_rows, n_atoms, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def draw_targets(loss, n_rows=40, n_outputs=1):
    rng = np.random.default_rng(2)
    if loss == "softmax":
        return rng.integers(0, 3, n_rows)
    shape = n_rows if n_outputs == 1 else (n_rows, n_outputs)
    return rng.normal(size=shape) if loss == "squared" else rng.integers(0, 2, shape)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("loss", "solver"), [(loss, own) for loss, solvers in SOLVERS.items() for own in solvers])
def test_it_agrees_with_spikes_for_every_loss_and_solver(loss, solver, intercept):
    spikes, targets = draw_spikes(), draw_targets(loss)
    problems = [
        ConvexProblem(columns, targets, loss, 0.02, intercept=intercept)
        for columns in (build_dictionary(spikes), DenseDictionary(spikes))
    ]
    assert problems[1].critical_strength == pytest.approx(problems[0].critical_strength, rel=FLOAT64_MEAN)
    packed, dense = (solve(problem, 1e-5, solver) for problem in problems)
    assert dense.has_converged
    assert dense.coef.any()
    gap = max(packed.certificate.gap, dense.certificate.gap)
    assert abs(packed.certificate.primal - dense.certificate.primal) <= gap + FLOAT64_MEAN


@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "hinge", "softmax"])
def test_it_agrees_with_spikes_under_the_group_penalty(loss):
    spikes, targets = draw_spikes(), draw_targets(loss, n_outputs=2)
    packed, dense = (
        solve(ConvexProblem(columns, targets, loss, 0.05, penalty="group"), 1e-5)
        for columns in (build_dictionary(spikes), DenseDictionary(spikes))
    )
    assert dense.has_converged
    gap = max(packed.certificate.gap, dense.certificate.gap)
    assert abs(packed.certificate.primal - dense.certificate.primal) <= gap + FLOAT64_MEAN


def test_it_agrees_with_spikes_along_a_path():
    spikes, targets = draw_spikes(), draw_targets("logistic")
    strengths = [0.1, 0.03, 0.01]
    paths = [
        solve_path(ConvexProblem(columns, targets, "logistic"), strengths)
        for columns in (build_dictionary(spikes), DenseDictionary(spikes))
    ]
    for packed, dense in zip(*(path.solutions for path in paths), strict=True):
        gap = max(packed.certificate.gap, dense.certificate.gap)
        assert abs(packed.certificate.primal - dense.certificate.primal) <= gap


@pytest.mark.parametrize("loss", SOLVERS)
def test_real_columns_are_solved_to_a_certificate(loss):
    solution = solve(ConvexProblem(DenseDictionary(draw_real()), draw_targets(loss, 30), loss, 0.02, intercept=True))
    assert solution.has_converged
    assert 0 <= solution.certificate.relative_gap <= 1e-6


def test_products_are_those_of_the_matrix():
    values = draw_real()
    dictionary = DenseDictionary(values.float())
    values = values.float().double()
    coef = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    sparse = coef.clone()
    sparse[:7] = 0
    rows = torch.randn(30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for ours, plain in (
        (dictionary.matvec(coef), values @ coef),
        (dictionary.matvec(sparse), values @ sparse),
        (dictionary.matvec(torch.zeros_like(coef)), torch.zeros(30, 2, dtype=torch.float64)),
        (dictionary.rmatvec(rows), values.T @ rows),
        (dictionary.gram(), values.T @ values),
        (dictionary.row_gram(), values @ values.T),
    ):
        torch.testing.assert_close(ours, plain, rtol=0, atol=FLOAT64_SUM)


def test_its_parts_are_those_of_the_matrix():
    values = draw_real()
    dictionary = DenseDictionary(values)
    atoms = torch.tensor([4, 1])
    assert dictionary.shape == (dictionary.n_rows, dictionary.n_atoms) == (30, 9)
    assert dictionary.n_columns == 9
    assert dictionary.device == values.device
    assert dictionary.witnesses is None
    assert not dictionary.is_complete
    assert torch.equal(dictionary.column_of_atom, torch.arange(9))
    assert torch.equal(dictionary.atom_of_column, torch.arange(9))
    assert torch.equal(dictionary.columns(), values)
    assert torch.equal(dictionary.columns(atoms, torch.float32), values[:, atoms].float())
    assert torch.equal(dictionary.take_rows(torch.tensor([3, 0])).columns(), values[[3, 0]])
    assert "30 rows × 9 real columns" in repr(dictionary)


@pytest.mark.parametrize("n_rows", [1, 7, 30, 100])
def test_row_blocks_are_the_rows_in_order(n_rows):
    values = draw_real()
    dictionary = DenseDictionary(values)
    blocks = list(dictionary.iterate_rows(n_rows, torch.float32))
    assert torch.equal(torch.cat([block for _, block in blocks]), values.float())
    assert [row for rows, _ in blocks for row in range(rows.start, rows.stop)] == list(range(30))
    chosen = torch.tensor([2, 0])
    assert torch.equal(
        torch.cat([block for _, block in dictionary.iterate_rows(n_rows, atoms=chosen)]), values[:, [2, 0]]
    )


def test_equal_rows_are_grouped_with_their_labels():
    values = draw_real(6, 3).repeat(2, 1)
    values[0, 0], values[6, 0] = 0.0, -0.0
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1])
    assert_groups_equal(DenseDictionary(values).group_rows(), values + 0.0)
    assert_groups_equal(DenseDictionary(values).group_rows(labels), torch.cat([values + 0.0, labels[:, None]], 1))


@pytest.mark.parametrize("shape", [(3,), (0, 3), (3, 0), (2, 2, 2)])
def test_what_is_no_matrix_is_refused(shape):
    with pytest.raises(InvalidInputError, match=r"shape \(n_rows, n_columns\)"):
        DenseDictionary(torch.zeros(shape))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_not_finite_is_refused(value):
    values = draw_real()
    values[3, 2] = value
    with pytest.raises(InvalidInputError, match="expected finite columns"):
        DenseDictionary(values)


def test_what_does_not_fit_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr("cvxsnn.core.memory.available_bytes", lambda *_: 2**30)
    rows = torch.zeros(1, 1).expand(2**17, 2**14)  # 16 GiB as numbers, nothing yet
    with pytest.raises(BudgetError, match=r"131,072 rows × 16,384 atoms to fit .* needs 16"):
        DenseDictionary(rows)
