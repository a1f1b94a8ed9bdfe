import pytest
import torch
from dictionary.brute import random_bits, random_values
from tolerances import FLOAT64_SUM

from cvxsnn.core import bits
from cvxsnn.dictionary.products import lookup_product

SHAPES = [(1, 1), (7, 3), (64, 5), (513, 40), (3000, 1200), (40_000, 9)]


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
