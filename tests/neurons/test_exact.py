import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvxsnn import LIFLayer
from cvxsnn.core import gpu
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.neurons.exact import (
    INPUT_UNIT,
    WEIGHT_BITS,
    ScratchArrays,
    exact_product,
    input_levels,
    product_dtype,
    snap_inputs,
    snap_weights,
    weight_levels,
)
from cvxsnn.neurons.layer import with_taps
from cvxsnn.neurons.weights import ByteWeights

seeds = st.integers(0, 2**32 - 1)


def draw_weights(seed, dtype=torch.float32):
    """Gaussian weights whose neurons differ in scale by many powers of two."""
    generator = torch.Generator().manual_seed(seed)
    scale = 2.0 ** torch.randint(-30, 30, (2, 1, 5), generator=generator)
    return (torch.randn(2, 6, 5, generator=generator, dtype=torch.float64) * scale).to(dtype)


def draw_inputs(seed, n_rows=7):
    generator = torch.Generator().manual_seed(seed)
    return snap_inputs(torch.randn(n_rows, 6, generator=generator, dtype=torch.float64) * 100)


def multiply(inputs, weight, dtype=torch.float64):
    out = torch.empty(len(weight), inputs.shape[-2], weight.shape[2], dtype=dtype)
    exact_product(inputs.to(weight.dtype), weight, out, ScratchArrays())
    return out


@given(seeds, st.integers(2, 32), st.sampled_from([torch.float32, torch.float64]))
def test_snapping_twice_changes_nothing(seed, bits, dtype):
    snapped = snap_weights(draw_weights(seed, dtype), bits)
    assert torch.equal(snap_weights(snapped, bits), snapped)


@pytest.mark.parametrize("largest", [1.0, 0.99999, 0.50001, 0.5, 3.0, 2.0**-40, 1e-38, 1e-44, 0.0])
def test_snapping_twice_changes_nothing_where_the_largest_weight_rounds_to_a_power_of_two(largest):
    snapped = snap_weights(torch.tensor([[largest], [-largest / 3]]), bits=4)
    assert torch.equal(snap_weights(snapped, bits=4), snapped)


@given(seeds, st.integers(2, 24))
def test_snapping_moves_a_weight_by_at_most_two_units_in_bits_places_of_its_neurons_largest(seed, bits):
    weight = draw_weights(seed, torch.float64)
    error = (snap_weights(weight, bits) - weight).abs()
    assert bool((error <= 2.0 ** (1 - bits) * weight.abs().amax(-2, keepdim=True)).all())


@given(seeds, st.integers(2, 24))
def test_snapped_weights_are_integers_of_so_many_bits_times_a_power_of_two_of_their_neuron(seed, bits):
    for neuron in snap_weights(draw_weights(seed), bits).movedim(1, 2).flatten(0, 1).tolist():
        top = Fraction(2) ** math.ceil(math.log2(max(map(abs, neuron))))
        assert all((Fraction(weight) / top * 2 ** (bits - 1)).denominator == 1 for weight in neuron)


@given(seeds, st.integers(-40, 40))
def test_snapping_commutes_with_powers_of_two(seed, power):
    weight = draw_weights(seed)
    assert torch.equal(snap_weights(weight * 2.0**power), snap_weights(weight) * 2.0**power)


@given(seeds, st.integers(2, 16))
def test_weight_levels_is_the_largest_sum_of_integers_of_a_neuron(seed, bits):
    weight = snap_weights(draw_weights(seed), bits)
    levels = []
    for neuron in weight.movedim(1, 2).flatten(0, 1).tolist():
        numbers = [Fraction(value) for value in neuron]
        # The unit is the largest power of two of which all are multiples.
        units = (Fraction(2) ** power for power in range(60, -60, -1))
        unit = next(unit for unit in units if all((value / unit).denominator == 1 for value in numbers))
        levels.append(sum(map(abs, numbers)) / unit)
    assert weight_levels(weight, bits) == max(levels)


@given(seeds)
def test_inputs_are_read_to_the_nearest_multiple_of_their_unit(seed):
    inputs = torch.randn(50, generator=torch.Generator().manual_seed(seed))
    snapped = snap_inputs(inputs)
    assert snapped.dtype == torch.float64
    assert torch.equal(snapped / INPUT_UNIT, (snapped / INPUT_UNIT).round())
    assert bool(((snapped - inputs).abs() <= INPUT_UNIT / 2).all())


@pytest.mark.parametrize(
    ("inputs", "levels"),
    [([0.0, 1.0, 0.0], 1), ([-3.0, 2.0], 3), ([0.0, 0.0], 1), ([0.5, -2.0], 2 / INPUT_UNIT + 0.5)],
)
def test_whole_inputs_need_no_fractional_bits(inputs, levels):
    assert input_levels(torch.tensor(inputs)) == levels


@given(seeds, st.sampled_from([torch.float32, torch.float64]))
def test_a_product_is_the_exact_sum_rounded_once(seed, dtype):
    weight, inputs = snap_weights(draw_weights(seed)), draw_inputs(seed)
    product = multiply(inputs, weight.double(), dtype)
    for k, i, j in [(0, 0, 0), (1, 3, 2), (1, 6, 4)]:
        terms = zip(inputs[i].tolist(), weight[k, :, j].tolist(), strict=True)
        exact = sum(Fraction(value) * Fraction(factor) for value, factor in terms)
        assert product[k, i, j].item() == torch.tensor(float(exact), dtype=torch.float64).to(dtype).item()


@given(seeds, st.permutations(range(6)))
def test_a_product_does_not_depend_on_the_order_of_the_features(seed, order):
    weight, inputs = snap_weights(draw_weights(seed)).double(), draw_inputs(seed)
    assert torch.equal(multiply(inputs[:, order], weight[:, order]), multiply(inputs, weight))


@pytest.mark.parametrize("n_rows", [1, 2000, 5000])
def test_small_and_large_products_shared_or_separate_inputs_are_the_same_sums(n_rows):
    weight, inputs = snap_weights(draw_weights(0)).double(), draw_inputs(1, n_rows)
    expected = torch.einsum("if,kfj->kij", inputs, weight)
    assert torch.equal(multiply(inputs, weight), expected)
    assert torch.equal(multiply(inputs.expand(2, -1, -1), weight), expected)


def test_float32_is_enough_up_to_its_mantissa_and_float64_up_to_its_own():
    assert product_dtype(2.0**14, 2.0**10) == torch.float32
    assert product_dtype(2.0**14 + 1, 2.0**10) == torch.float64
    assert product_dtype(2.0**53 - 1, 1.0) == torch.float64
    for levels in (2.0**53, 2.0**53 + 2):  # 2**53 + 1 would be rounded to 2**53
        with pytest.raises(InvalidInputError, match=r"got 54 bits: scale the inputs down by 2\*\*1 or more"):
            product_dtype(levels, 1.0)


def test_levels_beyond_float32_are_counted_exactly():
    assert weight_levels(torch.tensor([[[2.0**24], [1.0]]]), bits=26) == 2**24 + 1
    assert weight_levels(torch.tensor([[[1.0], [0.0]]])) == 1  # a weight of zero is a multiple of everything


def test_sums_beyond_float64_are_refused_with_the_power_of_two_to_scale_by():
    with pytest.raises(InvalidInputError, match=r"fit into 53 bits.*got 57 bits: scale the inputs down by 2\*\*4"):
        product_dtype(2.0**26, 2.0**30)
    with pytest.raises(InvalidInputError, match=r"fit into 53 bits.*got 1100 bits: scale the inputs down by 2\*\*1047"):
        product_dtype(2.0**26, math.inf)


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_are_float64_when_float32_products_may_lose_bits(precision):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        assert product_dtype(2.0, 2.0) == torch.float64
    finally:
        torch.set_float32_matmul_precision(before)


def test_products_are_float64_when_torch_cannot_tell_the_precision_of_float32(monkeypatch):
    def refuse():
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    assert product_dtype(2.0, 2.0) == torch.float64


def test_a_workspace_array_takes_the_place_of_the_last_of_its_name_and_type():
    workspace, cpu = ScratchArrays(), torch.device("cpu")
    large = workspace.array("a", (4, 5), torch.float32, cpu)
    assert workspace.array("a", (2, 3), torch.float32, cpu).data_ptr() == large.data_ptr()
    assert workspace.array("b", (2, 3), torch.float32, cpu).data_ptr() != large.data_ptr()
    assert workspace.array("a", (2, 3), torch.float64, cpu).data_ptr() != large.data_ptr()
    assert workspace.array("a", (5, 5), torch.float32, cpu).shape == (5, 5)


def test_products_of_bytes_are_those_of_floats():
    top = 2 ** (WEIGHT_BITS - 1)
    levels = [
        top,
        -top,
        top - 1,
        1 - top,
        *(256 * k + low for k in (0, 3, -5) for low in (0, 1, 126, 127, 128, 129, -129)),
    ]
    units = torch.tensor([1.0, 2.0**-20])
    weight = torch.tensor(levels, dtype=torch.float32)[None, :, None] * units
    weight = torch.stack((weight[0], -weight[0]))
    spikes = torch.cat((torch.eye(len(levels)), torch.ones(1, len(levels)))).bool().expand(2, -1, -1).contiguous()
    out = torch.full((2, len(levels) + 1, 2), torch.nan)
    ByteWeights(LIFLayer(weight)).product(spikes, out, ScratchArrays())
    assert torch.equal(out, spikes.float() @ weight)


def test_products_of_bytes_pay_where_the_processor_has_them_and_they_hold_the_weights(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True, raising=False)
    sizes = {1: False, 63: False, 64: True, 2**16 - 1: True, 2**16: False}
    assert {size: ByteWeights.pays(LIFLayer(torch.zeros(1, size, 1))) for size in sizes} == sizes
    wide = LIFLayer(torch.zeros(1, 64, 1))
    assert not ByteWeights.pays(replace(wide, weight_bits=WEIGHT_BITS + 1))
    assert not ByteWeights.pays(with_taps(wide, 64))
    with monkeypatch.context() as patch:
        patch.setattr(gpu, "is_gpu", lambda device: True)
        assert not ByteWeights.pays(wide)
    with monkeypatch.context() as patch:
        patch.delattr(torch, "_int_mm")
        assert not ByteWeights.pays(wide)
    with monkeypatch.context() as patch:
        patch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
        assert not ByteWeights.pays(wide)
    monkeypatch.delattr(torch.cpu, "_is_vnni_supported")
    assert not ByteWeights.pays(wide)
