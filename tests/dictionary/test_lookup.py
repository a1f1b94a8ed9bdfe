import pytest
import torch
from tolerances import FLOAT64_SUM

from cvxsnn import build_dictionary
from cvxsnn.core import bits
from cvxsnn.dictionary import count_dictionary
from cvxsnn.dictionary.lookup import MAX_OUTPUTS, lookup_product

SHAPES = [(1, 1), (7, 3), (64, 5), (513, 40), (3000, 1200), (40_000, 9)]


def random_bits(n_rows, n_columns):
    return torch.rand(n_rows, n_columns, generator=torch.Generator().manual_seed(n_rows)) < 0.4


def random_values(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("n_bits", "n_rows"), SHAPES)
def test_look_ups_give_the_matrix_product(n_bits, n_rows, n_outputs):
    matrix, values = random_bits(n_rows, n_bits), random_values(n_bits, n_outputs)
    found = lookup_product(bits.pack(matrix), values)
    assert found.shape == (n_rows, n_outputs)
    torch.testing.assert_close(found, matrix.double() @ values, rtol=0, atol=FLOAT64_SUM)


@pytest.mark.parametrize(("n_bits", "n_rows"), SHAPES)
def test_sums_of_integers_are_exact(n_bits, n_rows):
    matrix, values = random_bits(n_rows, n_bits), torch.round(1e6 * random_values(n_bits, 2))
    assert torch.equal(lookup_product(bits.pack(matrix), values), matrix.double() @ values)


@pytest.mark.parametrize("n_outputs", [1, MAX_OUTPUTS, MAX_OUTPUTS + 1])
@pytest.mark.parametrize("n_steps", [1, 5])
def test_products_of_a_dictionary_are_those_of_its_columns(n_steps, n_outputs):
    counts = torch.randint(0, n_steps + 1, (300, 70), generator=torch.Generator().manual_seed(0))
    dictionary = count_dictionary(counts, n_steps) if n_steps > 1 else build_dictionary(counts == 1)
    columns = dictionary.columns()
    rows, coef = random_values(300, n_outputs), random_values(dictionary.n_atoms, n_outputs)
    torch.testing.assert_close(dictionary.rmatvec(rows), columns.T @ rows, rtol=0, atol=FLOAT64_SUM)
    torch.testing.assert_close(dictionary.matvec(coef), columns @ coef, rtol=0, atol=FLOAT64_SUM)
    assert dictionary.matvec(coef).is_contiguous()
