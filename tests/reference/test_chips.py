"""Neurons of chips, spike by spike, against the simulators of their makers: ``pip install "cvxsnn[chips]"``."""

import warnings

import numpy as np
import pytest
from chips import draw_counts, draw_loihi, draw_xylo

import cvxsnn as cs
from cvxsnn.core.errors import MissingLibraryError
from cvxsnn.core.libraries import import_library
from cvxsnn.exchange import run_nengo_loihi, run_xylosim
from cvxsnn.exchange.chips import layer_arrays


def need(module):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import_library(module, "chips")
    except MissingLibraryError as error:
        pytest.skip(str(error))


def draw_data(n_samples=60):
    generator = np.random.default_rng(0)
    counts = generator.integers(0, 10, (n_samples, 12, 5)) * (generator.random((n_samples, 12, 5)) < 0.4)
    return counts, counts[:, :6, 0].sum(1) > counts[:, 6:, 1].sum(1)


@pytest.mark.parametrize("core", ["v1", "v2"])
def test_a_million_spikes_are_those_of_xylosim(core):
    need("xylosim.v2")
    n_spikes = 0
    for seed in range(24):
        layer = draw_xylo(seed, core, width=200)
        counts = draw_counts(layer, seed, n_samples=8, n_steps=200)
        expected = run_xylosim(layer_arrays(layer), counts)
        assert np.array_equal(cs.roll_out([layer], counts, "all").numpy(), expected)
        n_spikes += int(expected.sum())
    assert n_spikes > 10**6


def test_a_million_spikes_are_those_of_nengo_loihi():
    need("nengo_loihi")
    n_spikes = 0
    for seed in range(18):
        layer = draw_loihi(seed, width=1600)
        counts = draw_counts(layer, seed, n_samples=3, n_steps=120)
        counts[:, 0] = 0  # the emulator begins one step before the first input arrives
        expected = run_nengo_loihi(layer_arrays(layer), counts[:, 1:])
        assert np.array_equal(cs.roll_out([layer], counts, "all").numpy()[:, 1:], expected)
        n_spikes += int(expected.sum())
    assert n_spikes > 10**6


@pytest.mark.parametrize("target", ["xylo-audio2", "xylo-imu"])
@pytest.mark.parametrize("readout", ["mean", "windows-4"])
def test_an_exported_model_has_the_spikes_of_xylosim(target, readout, tmp_path):
    need("xylosim.v2")
    counts, labels = draw_data()
    model = cs.SpikingClassifier(target=target, sparsity=16, readout=readout, random_state=0).fit(counts, labels)
    cs.export_xylo(model, tmp_path / "chip.npz")
    assert_same(model, counts, tmp_path / "chip.npz", run_xylosim)


@pytest.mark.parametrize("readout", ["mean", "last"])
def test_an_exported_model_has_the_spikes_of_nengo_loihi(readout, tmp_path):
    need("nengo_loihi")
    counts, labels = draw_data()
    model = cs.SpikingClassifier(target="loihi", sparsity=16, readout=readout, random_state=0).fit(counts, labels)
    assert model.network_.layers[0].max_delay
    cs.export_loihi(model, tmp_path / "chip.npz")
    assert_same(model, counts, tmp_path / "chip.npz", run_nengo_loihi)


def assert_same(model, counts, path, run):
    """Compare spikes to the bit, and the scores that follow from those of the chip and from the file alone."""
    with np.load(path) as arrays:
        chip = dict(arrays)
    spikes = run(chip, counts)
    assert np.array_equal(spikes, cs.roll_out(model.network_.layers, counts, "all").numpy())
    n_windows = {"mean": 1, "last": 12, "windows-4": 4}[str(chip["readout"])]
    means = spikes.reshape(len(spikes), n_windows, -1, spikes.shape[2]).mean(2)
    window = chip.get("readout_windows", n_windows - 1)
    scores = means[:, window, chip["readout_neurons"]] @ chip["readout_weight"] + chip["readout_intercept"]
    np.testing.assert_allclose(scores, model.network_(counts).detach().numpy(), rtol=1e-9, atol=1e-9)
