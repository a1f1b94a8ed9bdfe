import pytest
import torch

from cvxsnn import LIFLayer, ThresholdLayer, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.neurons.exact import snap_weights
from cvxsnn.neurons.layer import MAX_DELAY, stack_layers

WEIGHT = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
INPUTS = torch.linspace(-1, 2, 30).reshape(2, 5, 3)


def draw_layers():
    generator = torch.Generator().manual_seed(0)
    recurrent = torch.randn(2, 4, 4, generator=generator)
    return [
        LIFLayer(WEIGHT, bias=0.1, decay=torch.linspace(0, 1, 8).reshape(2, 4), initial_spikes=1.0),
        ThresholdLayer(WEIGHT, bias=torch.linspace(-1, 1, 4), recurrent_weight=recurrent),
    ]


def test_sizes_are_read_from_the_weights():
    layer = LIFLayer(WEIGHT)
    assert (layer.n_subnetworks, layer.n_inputs, layer.width) == (2, 3, 4)


def test_weights_are_kept_on_their_grid():
    assert torch.equal(LIFLayer(WEIGHT, weight_bits=5).weight, snap_weights(WEIGHT, bits=5))
    recurrent = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0))
    layer = ThresholdLayer(WEIGHT, weight_bits=5, recurrent_weight=recurrent)
    assert torch.equal(layer.recurrent_weight, snap_weights(recurrent, bits=5))


def test_scalars_and_rows_are_expanded_to_every_neuron_in_the_dtype_of_the_weights():
    layer = LIFLayer(WEIGHT, bias=torch.arange(4), decay=0.25)
    assert layer.decay.tolist() == [[0.25] * 4] * 2
    assert layer.bias.tolist() == [[0, 1, 2, 3]] * 2
    assert {value.dtype for value in layer.tensors().values()} == {torch.float32}


def test_the_defaults_are_the_papers():
    layer = LIFLayer(WEIGHT)
    values = {name: value.unique().item() for name, value in layer.tensors().items() if name != "weight"}
    expected = {"bias": 0.0, "decay": 0.9, "initial_membrane": 0.0, "initial_spikes": 0.0, "threshold": 1.0}
    assert values == {name: torch.tensor(value).item() for name, value in expected.items()}
    assert layer.tie == "ge"


@pytest.mark.parametrize("layer", draw_layers(), ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("subnetworks", [slice(1, 2), slice(0, 2), torch.tensor([1, 0, 1])], ids=str)
def test_take_keeps_the_spikes_of_the_subnetworks_taken(layer, subnetworks):
    spikes = roll_out([layer], INPUTS, "all").unflatten(-1, (2, 4))
    taken = roll_out([layer.take(subnetworks)], INPUTS, "all").unflatten(-1, (-1, 4))
    assert torch.equal(taken, spikes[:, :, subnetworks])


@pytest.mark.parametrize("numbers", [2, torch.tensor(2), torch.tensor([3, 0])], ids=str)
def test_one_neuron_of_each_subnetwork_keeps_its_spikes(numbers):
    layer, _ = draw_layers()
    spikes = roll_out([layer], INPUTS, "all").unflatten(-1, (2, 4))
    single = layer.take_neuron(numbers)
    assert (single.n_subnetworks, single.n_inputs, single.width) == (2, 3, 1)
    first, second = torch.as_tensor(numbers).expand(2).tolist()
    expected = torch.stack((spikes[:, :, 0, first], spikes[:, :, 1, second]), dim=-1)
    assert torch.equal(roll_out([single], INPUTS, "all"), expected)
    for name, value in layer.tensors().items():
        assert torch.equal(single.tensors()[name][0, ..., 0], value[0, ..., first])
        assert torch.equal(single.tensors()[name][1, ..., 0], value[1, ..., second])


@pytest.mark.parametrize("layer", draw_layers(), ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("subnetworks", [slice(1, 2), torch.tensor([1, 0, 1])], ids=str)
def test_what_is_taken_or_moved_without_checks_is_what_the_checks_would_give(layer, subnetworks):
    for part in (layer.take(subnetworks), layer.to("cpu"), layer.to(dtype=torch.float32)):
        checked = type(layer)(**part.tensors(), **part.settings())
        assert checked.settings() == part.settings() == layer.settings()
        for name, value in checked.tensors().items():
            assert torch.equal(value, part.tensors()[name])


@pytest.mark.parametrize("layer", draw_layers(), ids=lambda layer: type(layer).__name__)
def test_silenced_neurons_never_fire_and_the_others_fire_as_before(layer):
    is_live = torch.tensor([[True, False, True, True], [False, True, True, True]])
    if layer.recurrence is not None:
        layer = layer.with_tensors({"recurrent_weight": layer.recurrence * is_live[:, :, None]})
    spikes = roll_out([layer.silence(is_live)], INPUTS, "all").unflatten(-1, (2, 4))
    assert torch.equal(spikes, roll_out([layer], INPUTS, "all").unflatten(-1, (2, 4)) & is_live)


def test_silenced_neurons_start_at_rest():
    start = torch.linspace(1, 2, 8).reshape(2, 4)
    layer = LIFLayer(WEIGHT, initial_spikes=1.0, initial_membrane=start)
    is_live = torch.tensor([[True, False, True, True], [False, True, True, True]])
    silent = layer.silence(is_live)
    assert torch.equal(silent.initial_spikes, is_live.float())
    assert torch.equal(silent.initial_membrane, start * is_live)


def test_neurons_are_taken_from_the_subnetworks_that_are_asked_for():
    layer, _ = draw_layers()
    taken = layer.take_neuron(torch.tensor([3, 0, 1]), torch.tensor([1, 1, 0]))
    for name, value in layer.tensors().items():
        expected = torch.stack((value[1, ..., 3], value[1, ..., 0], value[0, ..., 1]))
        assert torch.equal(taken.tensors()[name][..., 0], expected)


def test_a_move_to_another_device_moves_every_parameter():
    moved = draw_layers()[1].to("meta")
    assert {value.device.type for value in moved.tensors().values()} == {"meta"}


def test_layers_of_different_precision_share_the_finer_one():
    coarse, fine = LIFLayer(WEIGHT, weight_bits=4), LIFLayer(WEIGHT, weight_bits=9)
    for layers in ((coarse, fine), (fine, coarse)):
        stacked = stack_layers(layers)
        assert stacked.weight_bits == 9
        assert torch.equal(stacked.weight, torch.cat([layer.weight for layer in layers]))


def test_delays_have_a_limit():
    places = torch.zeros(2, 3, 4, dtype=torch.int32)
    layer = LIFLayer(WEIGHT, source=places, delay=places + MAX_DELAY, n_sources=1)
    assert layer.max_delay == MAX_DELAY
    with pytest.raises(InvalidInputError, match=f"delay from 0 to {MAX_DELAY}, got values from"):
        LIFLayer(WEIGHT, source=places, delay=places + MAX_DELAY + 1, n_sources=1)


def test_neurons_that_read_each_other_are_not_taken_out_of_their_layer():
    with pytest.raises(InvalidInputError, match="neurons that do not read each other, got a ThresholdLayer"):
        draw_layers()[1].take_neuron(0)


@pytest.mark.parametrize("layer", draw_layers(), ids=lambda layer: type(layer).__name__)
def test_a_move_to_a_wider_type_and_back_changes_no_parameter(layer):
    wide = layer.to(dtype=torch.float64)
    assert {value.dtype for value in wide.tensors().values()} == {torch.float64}
    for name, value in wide.to("cpu", torch.float32).tensors().items():
        assert torch.equal(value, layer.tensors()[name])


@pytest.mark.parametrize("layer", draw_layers(), ids=lambda layer: type(layer).__name__)
def test_changing_a_state_changes_no_layer(layer):
    before = roll_out([layer], INPUTS)
    for value in layer.initial_state(3)[:2]:
        assert value.shape == (2, 3, 4)
        value.fill_(7)
    assert torch.equal(roll_out([layer], INPUTS), before)


def test_trained_parameters_are_taken_as_they_are_without_their_graph():
    layer = LIFLayer(torch.nn.Parameter(WEIGHT), bias=torch.nn.Parameter(torch.ones(4)))
    assert not any(value.requires_grad for value in layer.tensors().values())
    assert torch.equal(roll_out([layer], INPUTS), roll_out([LIFLayer(WEIGHT, bias=1.0)], INPUTS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LIFLayer(WEIGHT[0]), r"\(n_subnetworks, n_taps, width\), got torch.float32 of shape \(3, 4\)"),
        (lambda: LIFLayer(WEIGHT).take(slice(0)), r"got torch.float32 of shape \(0, 3, 4\)"),
        (lambda: LIFLayer(WEIGHT[:, :0]), r"got torch.float32 of shape \(2, 0, 4\)"),
        (lambda: LIFLayer(WEIGHT.long()), "weights in float32 or float64 .* got torch.int64"),
        (lambda: LIFLayer(WEIGHT * torch.nan), "finite weight, got NaN or infinite"),
        (lambda: LIFLayer(WEIGHT, weight_bits=1), "weight_bits between 2 and 32, got 1"),
        (lambda: LIFLayer(WEIGHT, weight_bits=33), "weight_bits between 2 and 32, got 33"),
        (lambda: LIFLayer(WEIGHT, weight_bits=15.5), "weight_bits between 2 and 32, got 15.5"),
        (lambda: LIFLayer(WEIGHT.half()), "weights in float32 or float64 .* got torch.float16"),
        (lambda: LIFLayer(WEIGHT, bias=torch.ones(3)), r"bias of shape \(2, 4\) or a scalar, got shape \(3,\)"),
        (lambda: LIFLayer(WEIGHT, bias=torch.inf), "finite bias"),
        (lambda: LIFLayer(WEIGHT, threshold=torch.nan), "finite threshold"),
        (lambda: LIFLayer(WEIGHT, initial_membrane=torch.nan), "finite initial_membrane"),
        (lambda: LIFLayer(WEIGHT, initial_spikes=0.5), "initial_spikes to be 0 or 1"),
        (lambda: LIFLayer(WEIGHT, decay=-0.1), "decay between 0 and 1, got values from -0.1 to -0.1"),
        (lambda: LIFLayer(WEIGHT, decay=torch.tensor([0, 0.5, 1, 1.1])), "got values from 0 to 1.1: 0 forgets at once"),
        (lambda: LIFLayer(WEIGHT, tie="eq"), "tie to be one of 'ge', 'gt', got 'eq'"),
        (
            lambda: ThresholdLayer(WEIGHT, recurrent_weight=torch.ones(2, 3, 4)),
            r"recurrent weights of shape \(2, 4, 4\), got shape \(2, 3, 4\)",
        ),
        (lambda: ThresholdLayer(WEIGHT, recurrent_weight=torch.full((2, 4, 4), torch.nan)), "finite recurrent weights"),
    ],
)
def test_parameters_that_make_no_layer_are_refused_in_one_sentence(make, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
