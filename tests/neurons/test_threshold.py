from dataclasses import replace

import naive
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cvxsnn import ThresholdLayer, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.neurons import threshold
from cvxsnn.neurons.exact import exact_product


def draw_layer(seed, n_features=3, width=4, **parameters):
    generator = torch.Generator().manual_seed(seed)

    def whole(*shape):
        return torch.randint(-8, 9, shape, generator=generator) / 8

    parameters = {"bias": whole(2, width), "recurrent_weight": whole(2, width, width), **parameters}
    return ThresholdLayer(whole(2, n_features, width), **parameters)


def draw_inputs(seed, n_steps=5):
    return torch.randint(-4, 5, (3, n_steps, 3), generator=torch.Generator().manual_seed(seed)) / 4


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1.0]))
@settings(max_examples=30)
def test_a_recurrent_threshold_layer_is_its_equation(seed, initial_spikes):
    layer, inputs = draw_layer(seed, initial_spikes=initial_spikes), draw_inputs(seed)
    assert roll_out([layer], inputs, "all").tolist() == naive.threshold_spikes(layer, inputs).tolist()


def test_recurrent_weights_lead_from_row_to_column():
    weight = torch.tensor([[[1.0, -1.0]]])
    layer = ThresholdLayer(weight, bias=-0.5, recurrent_weight=torch.tensor([[[0.0, 2.0], [0.0, 0.0]]]))
    # Neuron 0 fires on input 1; its spike lifts neuron 1 over −0.5 one step later, whatever neuron 1 reads then.
    assert roll_out([layer], torch.tensor([[[1.0], [0.0]]]), "all")[0].tolist() == [[True, False], [False, True]]


def test_one_step_is_a_feedforward_threshold_network():
    first, second = draw_layer(0, width=6), draw_layer(1, n_features=6)
    inputs = draw_inputs(2, n_steps=1)
    hidden = (inputs[:, 0] @ first.weight + first.bias[:, None] >= 0).float()
    expected = hidden @ second.weight + second.bias[:, None] >= 0
    assert torch.equal(roll_out([first, second], inputs), expected.movedim(0, 1).flatten(1))


def test_without_recurrent_weights_each_step_stands_alone():
    layer, inputs = draw_layer(0, recurrent_weight=None), draw_inputs(1)
    together = roll_out([layer], inputs, "all")
    for t in range(inputs.shape[1]):
        assert torch.equal(roll_out([layer], inputs[:, t : t + 1]), together[:, t])


def test_ties_fire():
    assert bool(roll_out([ThresholdLayer(torch.ones(1, 2, 3))], torch.zeros(4, 2, 2), "all").all())


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_rescaling_each_neuron_by_its_own_power_of_two_keeps_the_spikes(seed):
    scale = 2.0 ** torch.randint(-30, 31, (2, 4), generator=torch.Generator().manual_seed(seed))
    layer, inputs = draw_layer(seed), draw_inputs(seed)
    rescaled = replace(
        layer,
        weight=layer.weight * scale[:, None],
        bias=layer.bias * scale,
        recurrent_weight=layer.recurrent_weight * scale[:, None],
    )
    assert torch.equal(roll_out([rescaled], inputs, "all"), roll_out([layer], inputs, "all"))


def test_a_layer_in_use_minds_a_change_of_float32_precision(monkeypatch):
    used = []

    def recording_product(inputs, weight, out, workspace):
        used.append(weight.dtype)
        exact_product(inputs, weight, out, workspace)

    monkeypatch.setattr(threshold, "exact_product", recording_product)
    layer = draw_layer(0)
    state = layer.initial_state(3)
    for precision in ("highest", "high"):
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda answer=precision: answer)
        layer.step(torch.zeros(2, 3, 4), state)
    assert used == [torch.float32, torch.float64]
    used.clear()
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    for largest in (2**24 - 1, 2**24):  # float32 holds sums up to 2**24
        recurrent = torch.tensor([[[float(largest), 0.0], [1.0, 0.0]]])
        layer = ThresholdLayer(torch.ones(1, 1, 2), weight_bits=26, recurrent_weight=recurrent)
        layer.step(torch.zeros(1, 1, 2), layer.initial_state(1))
    assert used == [torch.float32, torch.float64]


def test_recurrent_weights_are_rounded_like_the_others_and_of_their_type():
    recurrent = torch.tensor([[[1.0, 0.3], [0.3, 1.0]]], dtype=torch.float64)
    layer = ThresholdLayer(torch.ones(1, 1, 2), weight_bits=3, recurrent_weight=recurrent)
    assert layer.recurrent_weight.dtype == torch.float32
    assert layer.recurrent_weight.tolist() == [[[1.0, 0.25], [0.25, 1.0]]]


@pytest.mark.parametrize("recurrent", [torch.zeros(2, 2), torch.zeros(1, 3, 2), torch.full((1, 2, 2), torch.nan)])
def test_recurrent_weights_that_do_not_fit_are_refused(recurrent):
    with pytest.raises(InvalidInputError, match=r"expected finite recurrent weights of shape \(1, 2, 2\)"):
        ThresholdLayer(torch.ones(1, 1, 2), recurrent_weight=recurrent)
