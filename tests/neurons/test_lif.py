from dataclasses import replace

import naive
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cvxsnn import LIFLayer, gaussian_witnesses, roll_out
from cvxsnn.neurons import gpu_kernels
from cvxsnn.neurons.lif import fire
from cvxsnn.witnesses import Normal, Uniform

# Worked by hand below: inputs 1, 0, 1, 0 into one neuron that starts at −1/2 and has just fired.
INPUTS = torch.tensor([1.0, 0.0, 1.0, 0.0]).reshape(1, 4, 1)
NEURON = LIFLayer(torch.ones(1, 1, 1), bias=0.25, initial_spikes=1.0, decay=0.5, threshold=1.0, initial_membrane=-0.5)


def draw_dyadic_layer(seed, n_features=4, width=6):
    """A float64 layer on a coarse grid: within 16 steps nothing is ever rounded, and ties are frequent."""
    generator = torch.Generator().manual_seed(seed)

    def whole(low, high, *shape):
        return torch.randint(low, high, shape, generator=generator).double()

    return LIFLayer(
        whole(-8, 9, 2, n_features, width) / 8,
        bias=whole(-2, 3, 2, width) / 4,
        initial_spikes=whole(0, 2, 2, width),
        decay=whole(0, 5, 2, width) / 4,
        threshold=whole(0, 9, 2, width) / 4,
        initial_membrane=whole(-4, 5, 2, width) / 4,
    )


def trace(layer):
    """Membranes and spikes of a single neuron driven by ``INPUTS``."""
    state, membranes, spikes = layer.initial_state(1), [], []
    for value in INPUTS[0]:
        layer.step(layer.weight * value + layer.bias, state)
        membranes.append(state.membrane.item())
        spikes.append(state.spikes.item())
    return membranes, spikes


def test_a_tie_fires_and_is_followed_by_leak_and_reset():
    # 1 + ¼ + ½·(−½) − 1 = 0 fires;  0 + ¼ + ½·0 − 1;  1 + ¼ + ½·(−¾);  0 + ¼ + ½·⅞ − 1
    assert trace(NEURON) == ([0, -0.75, 0.875, -0.3125], [1, 0, 1, 0])


def test_a_tie_does_not_fire_where_asked():
    # the tie at 0 is silent, so no reset follows: 0 + ¼ + ½·0;  1 + ¼ + ½·¼ − 1;  0 + ¼ + ½·⅜ − 1
    assert trace(replace(NEURON, tie="gt")) == ([0, 0.25, 0.375, -0.5625], [0, 1, 1, 0])


@pytest.mark.parametrize(
    ("change", "membranes"),
    [
        ({"bias": 0.0}, [-0.25, -0.125, 0.9375, -0.53125]),
        ({"initial_membrane": 0.0}, [0.25, -0.625, 0.9375, -0.28125]),
        ({"initial_spikes": 0.0}, [1.0, -0.25, 1.125, -0.1875]),
        ({"decay": 0.0}, [0.25, -0.75, 1.25, -0.75]),
        ({"decay": 1.0}, [-0.25, 0.0, 0.25, -0.5]),
        ({"threshold": 0.5}, [0.5, 0.0, 0.75, 0.125]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_parameter_enters_where_the_equation_has_it(change, membranes):
    assert trace(replace(NEURON, **{name: torch.tensor(value) for name, value in change.items()}))[0] == membranes


def test_roll_out_follows_the_same_trace():
    assert roll_out([NEURON], INPUTS, "all").flatten().tolist() == [True, False, True, False]
    assert roll_out([replace(NEURON, tie="gt")], INPUTS, "all").flatten().tolist() == [False, True, True, False]


def test_a_membrane_at_rest_on_a_blank_frame_is_a_tie():
    blank = torch.zeros(3, 1, 2)
    layer = LIFLayer(torch.ones(1, 2, 4))
    assert bool(roll_out([layer], blank).all())
    assert not bool(roll_out([replace(layer, tie="gt")], blank).any())


def test_fire_gives_zeros_and_ones_of_the_membranes_type():
    membrane = torch.tensor([-1.0, -0.0, 0.0, 1e-45, -1e-45], dtype=torch.float64)
    assert torch.equal(fire(membrane), torch.tensor([0.0, 1.0, 1.0, 1.0, 0.0], dtype=torch.float64))
    assert torch.equal(fire(membrane, "gt"), torch.tensor([0.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64))


def test_leak_and_input_are_rounded_one_after_the_other():
    # The drive cancels the rounded leak: a tie. A fused multiply-add would keep the rounding error, often below zero.
    membrane, decay = torch.linspace(-2, -1, 1000), torch.tensor(0.9)
    layer = LIFLayer(torch.ones(1, 1, 1000), bias=-(membrane * decay), decay=decay, initial_membrane=membrane)
    assert bool(roll_out([layer], torch.zeros(1, 1, 1)).all())


@given(st.integers(0, 2**32 - 1))
def test_lif_is_a_recurrent_network_with_a_leak_and_reset_block_on_exact_data(seed):
    layer = draw_dyadic_layer(seed)
    inputs = torch.randint(-4, 5, (5, 16, 4), generator=torch.Generator().manual_seed(seed)) / 4
    assert roll_out([layer], inputs, "all").numpy().tolist() == naive.lif_spikes(layer, inputs).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_lif_is_a_recurrent_network_with_a_leak_and_reset_block_on_random_data(seed):
    witnesses = gaussian_witnesses(
        7,
        (40,),
        2,
        decay=Uniform(0, 1),
        threshold=Uniform(0, 2),
        bias=Normal(0, 0.3),
        initial_membrane=Normal(0, 1),
        seed=seed,
        dtype=torch.float64,
    )
    (layer,) = witnesses.layers
    inputs = torch.randint(-(2**16), 2**16, (20, 50, 7), generator=torch.Generator().manual_seed(seed)) / 2**16
    spikes = roll_out([layer], inputs, "all")
    assert 0.1 < spikes.double().mean() < 0.9
    assert (spikes.numpy() == naive.lif_spikes(layer, inputs)).all()


@given(st.integers(0, 2**32 - 1), st.integers(-30, 30))
def test_rescaling_a_layer_by_one_power_of_two_keeps_its_spikes(seed, power):
    assert_rescaling_keeps_spikes(seed, lambda layer: torch.full((2, layer.width), 2.0**power))


@given(st.integers(0, 2**32 - 1))
def test_rescaling_each_neuron_by_its_own_power_of_two_keeps_the_spikes(seed):
    generator = torch.Generator().manual_seed(seed)
    assert_rescaling_keeps_spikes(
        seed, lambda layer: 2.0 ** torch.randint(-30, 31, (2, layer.width), generator=generator)
    )


def assert_rescaling_keeps_spikes(seed, draw_scale):
    """The paper's lemma "LIF membrane rescaling", with scales that a float multiplies by exactly."""

    def rescaled(layer):
        scale = draw_scale(layer)
        return replace(
            layer,
            weight=layer.weight * scale[:, None, :],
            bias=layer.bias * scale,
            threshold=layer.threshold * scale,
            initial_membrane=layer.initial_membrane * scale,
        )

    layers = gaussian_witnesses(
        4, (9, 7), 2, decay=Uniform(0, 1), bias=Normal(0, 0.3), initial_membrane=Normal(0, 1), seed=seed
    ).layers
    inputs = torch.randn(6, 10, 4, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(roll_out([rescaled(layer) for layer in layers], inputs, "all"), roll_out(layers, inputs, "all"))


def test_a_scan_is_one_step_after_the_other_and_leaves_out_nothing():
    layer = gaussian_witnesses(3, (7,), 2, bias=Normal(0.0, 0.5), seed=3).layers[0]
    drive = torch.randn(2, 5, 11, 7, generator=torch.Generator().manual_seed(0))
    written = torch.zeros(drive.shape, dtype=torch.bool)
    last = layer.scan(drive, layer.initial_state(11), written)
    state = layer.initial_state(11)
    for t in range(5):
        layer.step(drive[:, t], state)
        assert torch.equal(written[:, t], state.spikes != 0)
    assert torch.equal(last, written[:, -1])
    assert torch.equal(layer.scan(drive, layer.initial_state(11)), last)


def test_a_machine_that_cannot_make_the_kernel_is_told_so_and_takes_steps(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(gpu_kernels, "scan_lif", fail)
    with pytest.warns(UserWarning, match="one step at a time on cpu, because the kernels do not run: no C compiler"):
        assert not gpu_kernels._compiles.__wrapped__(torch.device("cpu"))
