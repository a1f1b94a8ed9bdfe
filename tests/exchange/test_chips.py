"""Files for chips; tests/reference/test_chips.py compares them with simulators, where these are installed."""

import numpy as np
import pytest
import torch
from chips import draw_loihi, draw_xylo
from cli.commands import run, succeed
from small_models import classifier

import cvxsnn as cs
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.exchange.chips import layer_arrays
from cvxsnn.network import OutputHead, SpikingNetwork
from cvxsnn.neurons import roll_out
from cvxsnn.witnesses import Provenance, WitnessSet


@pytest.fixture(scope="module")
def counts():
    generator = np.random.default_rng(0)
    return generator.integers(0, 10, (60, 12, 5)) * (generator.random((60, 12, 5)) < 0.4)


@pytest.fixture(scope="module")
def fitted(counts):
    labels = np.where(counts[:, :6, 0].sum(1) > counts[:, 6:, 1].sum(1), "up", "down")

    def fit(target, **parameters):
        return cs.SpikingClassifier(target=target, sparsity=9, random_state=0, **parameters).fit(counts, labels)

    return {target: fit(target, readout="mean") for target in ("loihi", "xylo-audio2", "xylo-imu")}


def read(path):
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def test_a_file_for_xylo_has_the_integers_of_the_layer(fitted, tmp_path):
    model = fitted["xylo-audio2"]
    cs.export_xylo(model, tmp_path / "chip.npz")
    arrays, layer = read(tmp_path / "chip.npz"), model.network_.layers[0]
    assert arrays["weights_in"].dtype == np.int8
    assert np.array_equal(arrays["weights_in"], layer.weight[0])
    assert np.array_equal(arrays["threshold"], layer.threshold[0])
    assert np.array_equal(arrays["dash_syn"], layer.synapse_decay[0])
    assert np.array_equal(arrays["dash_mem"], layer.membrane_decay[0])
    assert (arrays["core"], arrays["target"]) == ("v1", "xylo-audio2")
    assert arrays["classes"].tolist() == ["down", "up"]


@pytest.mark.parametrize("target", ["xylo-audio2", "xylo-imu"])
def test_scores_follow_from_the_spikes_as_the_documentation_says(fitted, counts, target, tmp_path):
    model = fitted[target]
    cs.export_xylo(model, tmp_path / "chip.npz")
    arrays = read(tmp_path / "chip.npz")
    assert arrays["readout"] == "mean"
    rates = roll_out(model.network_.layers, model.as_sequences(counts), "all").double().mean(1).numpy()
    scores = rates[:, arrays["readout_neurons"]] @ arrays["readout_weight"] + arrays["readout_intercept"]
    chosen = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
    assert np.array_equal(arrays["classes"][chosen], model.predict(counts))


def test_a_file_is_for_the_chip_of_its_model(fitted, tmp_path):
    cs.export_xylo(fitted["xylo-imu"], tmp_path / "chip.npz")
    assert str(read(tmp_path / "chip.npz")["target"]) == "xylo-imu"


def test_a_file_for_loihi_has_an_axon_for_each_input_and_delay_that_is_read(fitted, tmp_path):
    model = fitted["loihi"]
    cs.export_loihi(model, tmp_path / "chip.npz")
    arrays, layer = read(tmp_path / "chip.npz"), model.network_.layers[0]
    place = {pair: number for number, pair in enumerate(zip(arrays["axon_source"], arrays["axon_delay"], strict=True))}
    assert len(place) == len(arrays["weights"])
    found = np.zeros_like(arrays["weights"])
    for tap, neuron in zip(*np.nonzero(layer.weight[0].numpy()), strict=True):
        pair = int(layer.source[0, tap, neuron]), int(layer.delay[0, tap, neuron])
        found[place[pair], neuron] = layer.weight[0, tap, neuron]
    assert np.array_equal(arrays["weights"], found)


def test_subnetworks_stand_side_by_side():
    layer = draw_xylo(0, width=6)
    twice = layer.with_valid(lambda value: torch.cat((value, value)))
    arrays, one = layer_arrays(twice), layer_arrays(layer)
    assert np.array_equal(arrays["weights_in"], np.tile(one["weights_in"], 2))


def test_commands_write_the_same_files(fitted, tmp_path):
    for name, target, write in (("loihi", "loihi", cs.export_loihi), ("xylo", "xylo-imu", cs.export_xylo)):
        model, own, other = (tmp_path / f"{part}-{name}.npz" for part in ("model", "own", "other"))
        cs.save(fitted[target], model.with_suffix(".safetensors"))
        assert "saved: " in succeed("export", model.with_suffix(".safetensors"), "--to", name, "-o", own).stdout
        succeed("export", model.with_suffix(".safetensors"), "--to", name, "-o", own)  # an own file is replaced
        write(fitted[target], other)
        for key, value in read(other).items():
            assert np.array_equal(value, read(own)[key])


def test_commands_refuse_options_of_other_formats_and_files_of_others(fitted, tmp_path):
    model = tmp_path / "model.safetensors"
    cs.save(fitted["loihi"], model)
    np.savez(tmp_path / "mine.npz", a=[1])
    for options, message in (
        (("-o", tmp_path / "a.npz", "--lossy"), "expected --lossy with --to nir"),
        (("-o", tmp_path / "a.npz", "--integers"), "with --to c, got --to loihi"),
        (("-o", tmp_path / "mine.npz"), "which holds something else"),
    ):
        outcome = run("export", model, "--to", "loihi", *options)
        assert outcome.exit_code == 1
        assert message in " ".join(outcome.stderr.split())


def as_network(layer):
    head = OutputHead("label", "logistic", 0, 1)
    return SpikingNetwork([layer], torch.ones(layer.n_subnetworks * layer.width, 1), [head])


def test_what_a_chip_cannot_run_is_refused(fitted, counts, tmp_path):
    path = tmp_path / "chip.npz"
    lif = cs.gaussian_witnesses(5, (4,)).layers[0]
    standardising = classifier().fit(counts, counts[:, 0, 0] > 3)
    scaled = cs.SpikingClassifier(witnesses=WitnessSet((draw_xylo(0, "v1", 5),), Provenance("pretrained")))
    scaled.standardize = False
    scaled.readout = "mean"
    scaled.fit(counts.clip(max=1), counts[:, 0, 0] > 3)
    scaled.input_scale_ = np.zeros(5), np.full(5, 2.0)
    for call, message in (
        (lambda: cs.export_xylo(fitted["loihi"], path), "xylo neurons for xylo-audio2, got loihi neurons"),
        (lambda: cs.export_loihi(fitted["xylo-imu"], path), "loihi neurons for loihi, got xylo neurons"),
        (lambda: cs.export_xylo(as_network(lif), path), "xylo neurons for xylo-audio2, got lif neurons"),
        (lambda: cs.export_xylo(standardising, path), "got lateral neurons: fit an estimator with target="),
        (lambda: cs.export_loihi(as_network(draw_loihi(0)), path), "every bias of loihi among"),
        (lambda: cs.export_xylo(fitted["xylo-imu"], path, target="xylo-audio2"), "expected core='v1'"),
        (lambda: cs.export_xylo(fitted["xylo-imu"], path, target="loihi"), "expected target to be one of"),
        (lambda: cs.export_loihi(fitted["loihi"], tmp_path / "chip.h5"), "ends in .npz"),
        (lambda: cs.export_c(fitted["loihi"], tmp_path / "chip.c"), "export_xylo and export_loihi write neurons of"),
        (lambda: cs.export_xylo(scaled, path), "one that standardises"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            call()
    assert not path.exists()
