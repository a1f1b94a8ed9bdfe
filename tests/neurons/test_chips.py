from dataclasses import replace

import numpy as np
import pytest
import torch
from chips import draw_counts, draw_loihi, draw_xylo, loihi_spikes, loihi_step, parameters_of, xylo_spikes, xylo_step

import cvxsnn as cs
from cvxsnn import roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.exchange import quantise
from cvxsnn.neurons import LoihiLayer, Stepper, XyloLayer
from cvxsnn.witnesses import Provenance, WitnessSet

DRAWN = [draw_loihi(3), draw_xylo(3, "v1"), draw_xylo(3, "v2")]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("core", ["v1", "v2"])
def test_xylo_is_its_equation(seed, core):
    layer = draw_xylo(seed, core)
    counts = draw_counts(layer, seed)
    assert np.array_equal(roll_out([layer], counts, "all").numpy(), xylo_spikes(layer, counts))


@pytest.mark.parametrize("seed", range(6))
def test_loihi_is_its_equation(seed):
    layer = draw_loihi(seed)
    counts = draw_counts(layer, seed)
    assert np.array_equal(roll_out([layer], counts, "all").numpy(), loihi_spikes(layer, counts))


def draw_states(seed, bits, width, n_samples=40):
    """Integers of any size, some of them the extremes, zero and its neighbours."""
    generator = np.random.default_rng(seed)
    ends = np.array([-(2**bits), 1 - 2**bits, -1, 0, 1, 2**bits - 1])
    shape = (n_samples, width)
    drawn = generator.integers(-(2**bits), 2**bits, shape) >> generator.integers(0, bits, shape)
    return np.where(generator.random(shape) < 0.3, generator.choice(ends, shape), drawn)


def assert_one_step(layer, arriving, states, expected):
    """Compare one step from given states, for each sample and neuron, with that of the chip."""
    others = tuple(torch.from_numpy(state)[None].double() for state in states)
    fires = layer.advance(torch.from_numpy(arriving)[None].double(), others) >= 0
    found = [*(value[0].numpy() for value in others[:2]), fires[0].numpy()]
    for number, values in enumerate(found):
        assert np.array_equal(values, [[neuron[number] for neuron in row] for row in expected])


@pytest.mark.parametrize("core", ["v1", "v2"])
@pytest.mark.parametrize("seed", range(5))
def test_one_step_of_xylo_is_that_of_the_chip_from_any_state(seed, core):
    layer = draw_xylo(seed, core, width=60)
    current, voltage = (draw_states(2 * seed + number, 15, 60) for number in (0, 1))
    # Ties at the threshold, of neurons without a bias whose current decays by one.
    voltage[::4] = 0
    current[::4] = np.minimum(layer.threshold[0].long().numpy() + 1, 2**15 - 1)
    is_even = torch.arange(60) % 2 == 0
    layer = replace(
        layer,
        weight=torch.zeros_like(layer.weight),
        synapse_decay=torch.where(is_even, 15.0, layer.synapse_decay),
        bias=torch.where(is_even, 0.0, layer.bias),
    )
    none = np.zeros_like(current)
    rows = zip(current.tolist(), voltage.tolist(), strict=True)
    expected = [
        [xylo_step(core, *state, *p) for *state, p in zip(*row, parameters_of(layer), strict=True)] for row in rows
    ]
    assert_one_step(layer, none, (current, voltage), expected)


@pytest.mark.parametrize("seed", range(5))
def test_one_step_of_loihi_is_that_of_the_chip_from_any_state(seed):
    layer = draw_loihi(seed, width=60)
    arriving, current, voltage = (draw_states(3 * seed + number, 23, 60) for number in (0, 1, 2))
    voltage = np.maximum(voltage, 1 - 2**23)
    waiting = np.random.default_rng(seed).integers(0, 3, voltage.shape)
    # Ties at the threshold.
    arriving[::4], current[::4], waiting[::4] = 0, 0, 0
    voltage[::4] = 64 * layer.threshold[0].long().numpy()
    layer = replace(
        layer,
        voltage_decay=torch.where(torch.arange(60) % 2 == 0, 0.0, layer.voltage_decay),
        bias=torch.where(torch.arange(60) % 2 == 0, 0.0, layer.bias),
    )
    rows = zip(arriving.tolist(), current.tolist(), voltage.tolist(), (waiting > 0).tolist(), strict=True)
    expected = [[loihi_step(*state, *p) for *state, p in zip(*row, parameters_of(layer), strict=True)] for row in rows]
    assert_one_step(layer, arriving, (current, voltage, waiting), expected)


@pytest.mark.parametrize("layer", DRAWN)
def test_a_batch_is_the_same_as_each_sequence_step_by_step(layer):
    counts = draw_counts(layer, 0)
    together = roll_out([layer], counts, "all", chunk_bytes=2**14)
    stepper = Stepper([layer])
    for sample, sequence in enumerate(counts):
        state = stepper.start(1)
        for t, row in enumerate(sequence):
            state, spikes = stepper.step(state, row[None].astype(float))
            assert torch.equal(spikes[0], together[sample, t])
            assert torch.equal(state[0].membrane >= 0, state[0].spikes != 0)


@pytest.mark.parametrize("layer", DRAWN)
def test_padding_is_not_read(layer):
    counts = draw_counts(layer, 0).astype(float)
    lengths = [60, 31, 7, 1]
    padding = np.arange(60) >= np.array(lengths)[:, None]
    spikes = roll_out([layer], cs.Sequences(np.where(padding[:, :, None], -0.5, counts), lengths), "all")
    for sample, length in enumerate(lengths):
        assert torch.equal(spikes[sample, :length], roll_out([layer], counts[sample : sample + 1, :length], "all")[0])


def test_loihi_reads_delayed_inputs():
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(8, (1, 5, 50), generator=generator)
    delay = torch.randint(4, (1, 5, 50), generator=generator)
    layer = draw_loihi(0, n_inputs=5, source=source, delay=delay, n_sources=8)
    counts = draw_counts(layer, 0)
    lifted = np.zeros((*counts.shape[:2], 4, 8), dtype=np.int64)
    for steps in range(4):
        lifted[:, steps:, steps] = counts[:, : counts.shape[1] - steps]
    weight = torch.zeros(1, 32, 50, dtype=torch.float64)
    weight.scatter_add_(1, delay * 8 + source, layer.weight)
    dense = replace(layer, weight=torch.zeros(1, 32, 50), source=None, delay=None, n_sources=None)
    object.__setattr__(dense, "weight", weight)  # two taps at one place may have a sum beyond 8 bits
    expected = loihi_spikes(dense, lifted.reshape(*counts.shape[:2], 32))
    assert np.array_equal(roll_out([layer], counts, "all").numpy(), expected)


@pytest.mark.parametrize("layer", DRAWN)
def test_a_silenced_neuron_never_fires(layer):
    is_live = torch.arange(layer.width)[None] % 2 == 0
    spikes = roll_out([layer.silence(is_live)], draw_counts(layer, 1), "all")
    assert not bool(spikes[..., 1::2].any())
    assert torch.equal(spikes[..., ::2], roll_out([layer], draw_counts(layer, 1), "all")[..., ::2])


@pytest.mark.parametrize("layer", DRAWN)
@pytest.mark.parametrize("value", [0.5, -1, 300, float("inf")])
def test_inputs_other_than_counts_are_refused(layer, value):
    counts = draw_counts(layer, 0).astype(float)
    counts[1, 2, 3] = value
    with pytest.raises(InvalidInputError, match="expected counts of spikes, whole numbers from 0 to"):
        layer.check_inputs(torch.from_numpy(counts))
    if np.isfinite(value):
        with pytest.raises(InvalidInputError, match=f"got {value:g}"):
            roll_out([layer], counts)
        with pytest.raises(InvalidInputError, match=f"got {value:g}"):
            Stepper([layer]).step(Stepper([layer]).start(4), counts[:, 2])


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (XyloLayer, {"threshold": 0.5}, "every threshold of XyloLayer among whole numbers from 1 to 32767, got 0.5"),
        (XyloLayer, {"weight": torch.full((1, 2, 3), 128.0)}, "from -128 to 127, got 128"),
        (XyloLayer, {"bias": 128}, "from -128 to 127, got 128"),
        (XyloLayer, {"bias": 1, "core": "v1"}, "Xylo Audio 2 has none"),
        (XyloLayer, {"max_count": 16}, "every max_count of XyloLayer .* got 16"),
        (XyloLayer, {"membrane_decay": 16}, "from 0 to 15, got 16"),
        (XyloLayer, {"weight": torch.full((1, 9, 3), 127.0), "synapse_decay": 1}, "currents of up to 34291"),
        (XyloLayer, {"initial_spikes": 1}, "starts from silence"),
        (XyloLayer, {"core": "v3"}, "core"),
        (LoihiLayer, {"weight": torch.full((1, 2, 3), 3.0)}, "multiples of 2 from -256 to 254, got 3"),
        (LoihiLayer, {"threshold": 2**17}, "from 1 to 131071, got 131072"),
        (LoihiLayer, {"voltage_decay": 4096}, "from 0 to 4095, got 4096"),
        (LoihiLayer, {"refractory": 0}, "from 1 to 63, got 0"),
        (LoihiLayer, {"weight_shift": 8}, "weight_shift"),
    ],
)
def test_parameters_that_a_chip_cannot_have_are_refused(kind, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        kind(**{"weight": torch.full((1, 2, 3), 2.0), **changes})


def test_xylo_has_no_delays():
    taps = {"source": torch.zeros(1, 1, 1), "delay": torch.ones(1, 1, 1), "n_sources": 1}
    with pytest.raises(InvalidInputError, match="Xylo has none"):
        XyloLayer(torch.ones(1, 1, 1), **taps)


@pytest.mark.parametrize("layer", DRAWN)
@pytest.mark.parametrize("readout", ["mean", "last"])
def test_neurons_of_chips_are_witnesses_that_files_keep(layer, readout, tmp_path):
    counts = np.concatenate([draw_counts(layer, seed) for seed in range(15)])
    labels = np.where(counts[:, :30, 0].sum(1) > counts[:, 30:, 1].sum(1), "up", "down")
    witnesses = WitnessSet((layer,), Provenance("pretrained"))
    model = cs.SpikingClassifier(witnesses=witnesses, readout=readout, standardize=False, random_state=0)
    model.fit(counts, labels)
    assert model.certificate_.relative_gap <= model.tol
    cs.save(model, tmp_path / "model")
    again = cs.load(tmp_path / "model")
    assert type(again.network_.layers[0]) is type(layer)
    assert again.network_.layers[0].settings() == model.network_.layers[0].settings()
    assert np.array_equal(again.decision_function(counts), model.decision_function(counts))
    state = again.network_.start(len(counts))
    for t in range(counts.shape[1]):
        state, scores = again.network_.step(state, torch.from_numpy(counts[:, t]).double())
    assert torch.equal(scores, model.network_(counts))
    with pytest.raises(InvalidInputError, match="whose weights are integers of a chip"):
        quantise(model.network_, 4)
