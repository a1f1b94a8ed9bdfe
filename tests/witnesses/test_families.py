"""Families: which sampler draws them, and how witnesses are drawn again."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, LIFLayer, delayed_witnesses, gaussian_witnesses
from cvxsnn.data import Sequences
from cvxsnn.neurons import NEURON_MODELS, NeuronModel, register_neuron
from cvxsnn.witnesses import Provenance, Uniform, describe_family, regenerate, sample_witnesses
from cvxsnn.witnesses.families import as_family, family_kind, is_reproducible
from cvxsnn.witnesses.tap_sampling import Calibration

INPUTS = np.random.default_rng(0).normal(size=(30, 10, 3))
UNEQUAL = Sequences(torch.from_numpy(INPUTS), np.random.default_rng(1).integers(2, 11, size=30))
DELAYED = {
    "plain": {"hidden": (9,), "geometry": "scattered"},
    "deep": {
        "hidden": (6, 5),
        "n_subnetworks": 3,
        "geometry": ("box", "scattered"),
        "fan_in": (None, 4),
        "max_delay": (None, 2),
        "weights": ("differences", "centred"),
        "differenced": (True, False),
        "decay": (Uniform(0.1, 0.9), 0.5),
        "threshold": 0.3,
        "box": (3, 2),
    },
    "grid": {"hidden": (8,), "geometry": "box", "feature_shape": (3, 1), "box": (2, 2, 1), "quantiles": (0.5, 0.98)},
    "few": {"hidden": (8,), "geometry": "dilated", "n_calibration": 7, "weights": "two-valued"},
    "bias": {"hidden": (8,), "geometry": "dilated", "quantiles": None, "bias": Uniform(-1, 1), "dtype": torch.float64},
}


def are_equal(one, other):
    return one.hidden == other.hidden and all(
        own.settings() == theirs.settings()
        and all(
            value.dtype == theirs.tensors()[name].dtype and torch.equal(value, theirs.tensors()[name])
            for name, value in own.tensors().items()
        )
        for own, theirs in zip(one.layers, other.layers, strict=True)
    )


def test_a_geometry_decides_for_neurons_with_delays():
    family = {"hidden": (7,), "decay": 0.5, "fan_in": 4}
    assert are_equal(sample_witnesses(family, INPUTS, 3), gaussian_witnesses(3, seed=3, **family))
    assert are_equal(sample_witnesses(family, 3, 3), gaussian_witnesses(3, seed=3, **family))
    family["geometry"] = "box"
    for inputs in (INPUTS, UNEQUAL):
        assert are_equal(sample_witnesses(family, inputs, 3), delayed_witnesses(inputs, seed=3, **family))


@pytest.mark.parametrize(
    ("family", "inputs", "message"),
    [
        ({"hidden": (3,), "width": 3}, INPUTS, r"a family of \['balance', .*\], got \['width'\] too$"),
        (
            {"hidden": (3,), "max_delay": 3, "quantiles": None},
            INPUTS,
            r"got \['max_delay', 'quantiles'\] too: add geometry for neurons with delays",
        ),
        ({"hidden": (3,), "geometry": "box", "gain": 3}, INPUTS, r"of \[.*'quantiles'.*\], got \['gain'\] too$"),
        ({"hidden": (3,), "seed": 3}, INPUTS, r"got \['seed'\] too"),
        ({"hidden": (3,), "geometry": "box", "inputs": INPUTS}, INPUTS, r"got \['inputs'\] too"),
        ({"decay": 0.5}, INPUTS, r"widths of its hidden layers, got none: add hidden=\(256,\)"),
        ({"geometry": "box"}, INPUTS, r"widths of its hidden layers, got none: add hidden=\(256,\)"),
        ({"hidden": (3,), "geometry": "box"}, 3, "training inputs to sample neurons with delays from, got none"),
    ],
)
def test_what_is_no_family_is_refused_in_one_sentence(family, inputs, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        sample_witnesses(family, inputs)
    assert_one_sentence(caught.value)


def test_a_registered_neuron_adds_its_own_names():
    @dataclass(frozen=True, eq=False)
    class TiredLayer(LIFLayer):
        fatigue: torch.Tensor = 0.0

        def _check_dynamics(self):
            super()._check_dynamics()
            self._expand("fatigue")

    register_neuron(NeuronModel("tired", TiredLayer, sampled=("decay", "threshold", "fatigue")))
    try:
        family = {"hidden": (4,), "neuron": "tired", "fatigue": 0.5}
        assert float(sample_witnesses(family, INPUTS).layers[0].fatigue.max()) == 0.5
        assert "fatigue" not in family_kind({"hidden": (4,)}).arguments()
    finally:
        NEURON_MODELS.unregister("tired")
    with pytest.raises(InvalidInputError, match=r"got \['fatigue'\] too"):
        as_family(family)


@pytest.mark.parametrize("name", DELAYED)
@pytest.mark.parametrize("inputs", [INPUTS, UNEQUAL], ids=["equal", "unequal"])
def test_witnesses_with_delays_are_drawn_again_to_the_bit(name, inputs):
    witnesses = sample_witnesses(DELAYED[name], inputs, 5)
    recipe = json.loads(json.dumps(witnesses.provenance.recipe))
    again = regenerate(Provenance("sampled", recipe), inputs=inputs)
    assert are_equal(again, witnesses)
    assert json.loads(json.dumps(again.provenance.recipe)) == recipe
    some = witnesses.take(slice(0, None, 2))
    assert are_equal(regenerate(some.provenance, inputs=inputs), some)


def test_the_sequences_that_thresholds_were_taken_from_are_enough():
    witnesses = sample_witnesses(DELAYED["few"], UNEQUAL, 5)
    assert are_equal(regenerate(witnesses.provenance, inputs=Calibration.of(UNEQUAL, 7, 5).sequences), witnesses)


@pytest.mark.parametrize(
    "inputs", [INPUTS[:, ::-1].copy(), INPUTS[1:], INPUTS[::-1].copy(), INPUTS + 2.0**-16, UNEQUAL]
)
def test_other_inputs_are_refused_in_one_sentence(inputs):
    witnesses = sample_witnesses(DELAYED["plain"], INPUTS)
    with pytest.raises(InvalidInputError, match="inputs that the witnesses were sampled with, got others") as caught:
        regenerate(witnesses.provenance, inputs=inputs)
    assert_one_sentence(caught.value)


def test_without_inputs_there_is_one_sentence():
    witnesses = sample_witnesses(DELAYED["plain"], INPUTS)
    with pytest.raises(InvalidInputError, match="sampled with, got none: pass inputs=") as caught:
        regenerate(witnesses.provenance)
    assert_one_sentence(caught.value)


def test_double_precision_is_an_argument_to_change():
    witnesses = sample_witnesses(DELAYED["plain"], INPUTS)
    again = regenerate(witnesses.provenance, inputs=INPUTS, dtype=torch.float64)
    assert again.dtype == torch.float64
    assert torch.equal(again.layers[0].weight.float(), witnesses.layers[0].weight)


def test_only_what_needs_no_data_is_reproducible():
    plain = gaussian_witnesses(3, (5,))
    assert is_reproducible(plain)
    assert not is_reproducible(plain.to(dtype=torch.float64))
    assert not is_reproducible(replace(plain, provenance=Provenance("pretrained")))
    assert not any(is_reproducible(sample_witnesses(family, INPUTS)) for family in DELAYED.values())


def test_a_family_with_delays_is_described_in_plain_values():
    described = describe_family(DELAYED["deep"])
    assert described["decay"] == [{"distribution": "uniform", "low": 0.1, "high": 0.9}, 0.5]
    assert json.loads(json.dumps(described)) == described
