import json
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer
from small_models import assert_one_sentence
from theory.families import SEEDS

from cvxsnn import ConvexProblem
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.theory import LIFFamily, solve_complete, write_certificate
from cvxsnn.theory import check_certificate as checker
from cvxsnn.theory.box_search import BoxSearch
from cvxsnn.theory.certificate_file import whole_dual

FAMILY = LIFFamily(0.5, bias=True)


def draw_result(n_samples=20, **options):
    rng = np.random.default_rng(0)
    inputs = rng.integers(-5, 6, (n_samples, 1, 2)).astype(float)
    targets = np.sign(rng.normal(size=n_samples))
    return inputs, solve_complete(inputs, targets, FAMILY, l1_strength=0.02, tol=1e-4, n_start=8, **options)


def test_a_larger_tolerance_takes_fewer_boxes_and_proves_prices_up_to_it(tmp_path):
    inputs, result = draw_result()
    files, bounds = [], []
    for number, tol in enumerate((0.0, 0.1, 0.5)):
        path = tmp_path / f"{number}.json"
        bounds.append(write_certificate(path, result, inputs, tol=tol).dual)
        files.append(json.loads(path.read_text()))
        checker.check(files[-1])
        largest = files[-1]["price_bound"] * 2.0 ** files[-1]["dual_exponent"]
        assert files[-1]["is_finished"]
        assert (1 + 0.2 * tol) * 0.02 * (1 - 1e-3) < largest <= (1 + tol) * 0.02 * (1 + 1e-3)
    n_boxes = [len(file["proofs"][-1]["code"]) for file in files]
    assert n_boxes[0] > n_boxes[1] > n_boxes[2]
    assert bounds[0] > bounds[1] > bounds[2]


@pytest.mark.parametrize(
    ("n_components", "strength", "has_line_search"),
    [(3, 0.07, True), (3, 0.07, False), (2, 0.02, False), (4, 0.1, True)],
)
def test_a_search_of_all_samples_of_breast_cancer_that_finds_better_neurons_is_accepted(
    tmp_path, monkeypatch, n_components, strength, has_line_search
):
    # Without lines, boxes find the better neurons one after the other, and the prices to prove grow with them.
    if not has_line_search:
        monkeypatch.setattr(BoxSearch, "_climb", lambda *_: None)
    values, label = load_breast_cancer(return_X_y=True)
    values = (values - values.mean(0)) / values.std(0)
    axes = np.linalg.svd(values, full_matrices=False)[2][:n_components]
    inputs, targets = np.rint(256 * values @ axes.T)[:, None] / 256, 2.0 * label - 1
    first = solve_complete(
        inputs, targets, FAMILY, "logistic", strength, intercept=True, n_start=64, pulse=lambda *_: True
    )
    certificate = write_certificate(tmp_path / "proof.json", first, inputs)
    file = json.loads((tmp_path / "proof.json").read_text())
    assert file["is_finished"]
    assert file["violators"]
    assert file["proofs"][-1]["code"].count(",") > 100
    found = checker.check(file)
    assert found.bound >= Fraction(certificate.dual) > 0


@settings(max_examples=30)
@given(SEEDS, st.integers(5, 9), st.booleans(), st.integers(1, 2))
@example(0, 7, True, 1)
@example(1, 7, True, 1)
def test_a_whole_dual_point_of_the_logistic_loss_is_in_its_domain(seed, n_rows, intercept, n_outputs):
    rng = np.random.default_rng(seed)
    signs = (-1.0) ** np.arange(n_rows)[:, None] * np.ones(n_outputs)
    problem = ConvexProblem(rng.random((n_rows, 4)) < 0.5, signs.squeeze(), "logistic", 0.01, intercept=intercept)
    shares = rng.random((n_rows, n_outputs))
    # At the borders of the domain, up to rounding; an intercept asks for sums of zero.
    shares[0], shares[1] = (0.0, 0.0) if intercept else (1 + 1e-12, -1e-12)
    if intercept:
        for side in (slice(0, None, 2), slice(1, None, 2)):
            shares[side] *= 0.5 / shares[side].sum(0)
        shares *= 1 + (1 - 2 * (seed % 2)) * 1e-12 * (signs > 0)  # up to rounding, in either direction
    dual, unit = whole_dual(problem, torch.tensor(shares * signs / n_rows))
    for column, sign in zip(dual.T, signs.T, strict=True):
        exact = [Fraction(int(x)) * Fraction(unit) * n_rows * int(y) for x, y in zip(column, sign, strict=True)]
        assert all(0 <= x <= 1 for x in exact)
        assert not intercept or sum(int(x) for x in column) == 0
    assert np.allclose(dual * unit, shares * signs / n_rows, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [
        {"penalty": "elastic-net", "l2_strength": 0.1},
        {"penalty": "group-elastic-net", "l2_strength": 0.1, "loss": "logistic"},
        {"loss": "squared_hinge"},
    ],
)
def test_other_objectives_are_refused_before_anything_is_written(tmp_path, options):
    inputs, result = draw_result(8, **options)
    with pytest.raises(InvalidInputError, match="the squared or the logistic loss with the L1 penalty") as caught:
        write_certificate(tmp_path / "proof.json", result, inputs)
    assert_one_sentence(caught.value)
    assert not list(tmp_path.iterdir())


def test_several_heads_are_refused_before_anything_is_written(tmp_path):
    rng = np.random.default_rng(0)
    inputs = rng.integers(-5, 6, (8, 1, 2)).astype(float)
    targets = {"a": np.sign(rng.normal(size=8)), "b": np.sign(rng.normal(size=8))}
    result = solve_complete(inputs, targets, FAMILY, {"a": "squared", "b": "logistic"}, 0.05, n_start=8)
    with pytest.raises(InvalidInputError, match="the squared or the logistic loss with the L1 penalty") as caught:
        write_certificate(tmp_path / "proof.json", result, inputs)
    assert_one_sentence(caught.value)
    assert not list(tmp_path.iterdir())


def test_inputs_of_too_many_bits_are_refused_in_one_sentence(tmp_path):
    rng = np.random.default_rng(0)
    inputs, targets = rng.integers(-(2**36), 2**36, (8, 1, 2)).astype(float), np.sign(rng.normal(size=8))
    result = solve_complete(inputs, targets, FAMILY, l1_strength=0.05, n_start=8)
    with pytest.raises(InvalidInputError, match="inputs of fewer bits for a certificate in a file") as caught:
        write_certificate(tmp_path / "proof.json", result, inputs)
    assert_one_sentence(caught.value)
    assert not list(tmp_path.iterdir())
