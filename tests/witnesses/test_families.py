"""Families: which sampler draws them, and how witnesses are drawn again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence

from cvxsnn import InvalidInputError, LIFLayer, SpikingClassifier, delayed_witnesses, gaussian_witnesses, load, save
from cvxsnn.core.checks import check_positive_int
from cvxsnn.core.seeds import child_generator
from cvxsnn.data import Sequences
from cvxsnn.neurons import NEURON_MODELS, NeuronModel, register_neuron
from cvxsnn.witnesses import (
    Family,
    Provenance,
    Uniform,
    WitnessPool,
    WitnessSet,
    describe_family,
    regenerate,
    sample_witnesses,
)
from cvxsnn.witnesses.families import FAMILIES, as_family, family_kind, is_reproducible
from cvxsnn.witnesses.settings import Check
from cvxsnn.witnesses.tap_sampling import N_CALIBRATION, Calibration

INPUTS = np.random.default_rng(0).normal(size=(30, 10, 3))
UNEQUAL = Sequences(torch.tensor(INPUTS), np.random.default_rng(1).integers(2, 11, size=30))
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
        (
            {"hidden": (3,), "width": 3},
            INPUTS,
            r"unknown settings \['width'\]; a gaussian family has \['balance', .*\]$",
        ),
        (
            {"hidden": (3,), "max_delay": 3, "quantiles": None},
            INPUTS,
            r"unknown settings \['max_delay', 'quantiles'\]; .*\]: add geometry for neurons with delays",
        ),
        (
            {"hidden": (3,), "geometry": "box", "gain": 3},
            INPUTS,
            r"settings \['gain'\]; a delayed family has \[.*'quantiles'.*\]$",
        ),
        ({"hidden": (3,), "seed": 3}, INPUTS, r"unknown settings \['seed'\]"),
        ({"hidden": (3,), "geometry": "box", "inputs": INPUTS}, INPUTS, r"unknown settings \['inputs'\]"),
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
    with pytest.raises(InvalidInputError, match=r"unknown settings \['fatigue'\]"):
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Signed(Family):
    """A family of one's own, every setting of which Gaussian ones have, too: weights are -1, 0 and 1."""

    name = "signed"
    needs_inputs = False
    checks: ClassVar[Mapping[str, Check]] = {**Family.checks, "fan_in": check_positive_int}
    hidden: Sequence[int]
    n_subnetworks: int = 1
    neuron: str = "lif"
    fan_in: int = 2

    def sample(self, inputs, seed=0):
        n_features = inputs if isinstance(inputs, int) else Sequences.of(inputs).n_features
        shape = (self.n_subnetworks, n_features, self.hidden[0])
        signs = child_generator(seed, "signed", 1, "weight").integers(0, 2, shape) * 2.0 - 1
        is_read = child_generator(seed, "signed", 1, "fan_in").random(shape).argsort(1).argsort(1) < self.fan_in
        layer = NEURON_MODELS.find(self.neuron).layer(torch.tensor(signs * is_read).to(self.device, self.dtype))
        return WitnessSet(
            (layer,), Provenance("sampled", {**self.describe(), "seed": seed, "n_features": n_features})
        ).as_drawn()


@dataclass(frozen=True, eq=False, kw_only=True)
class Copied(Family):
    """A family of one's own whose weights are steps of training sequences."""

    name = "copied"
    hidden: Sequence[int]
    n_subnetworks: int = 1
    neuron: str = "lif"

    def sample(self, inputs, seed=0):
        calibration = Calibration.of(Sequences.of(inputs), N_CALIBRATION, seed)
        chosen = child_generator(seed, "copied", 1, "weight").integers(
            0, len(calibration.sequences), (self.n_subnetworks, self.hidden[0])
        )
        weight = calibration.values[0][:, chosen].movedim(0, 1).to(self.device, self.dtype)
        return WitnessSet((NEURON_MODELS.find(self.neuron).layer(weight),), calibration.provenance(self, seed))


@pytest.fixture(params=[Signed(hidden=(16,)), Copied(hidden=(16,))], ids=["signed", "copied"])
def own_family(request, monkeypatch):
    monkeypatch.setitem(FAMILIES, request.param.name, type(request.param))
    return request.param


def test_a_family_of_ones_own_is_drawn_again_and_described(own_family):
    witnesses = own_family.sample(INPUTS, 3)
    assert are_equal(regenerate(witnesses.provenance, inputs=INPUTS), witnesses)
    assert are_equal(as_family(own_family.describe()).sample(INPUTS, 3), witnesses)
    assert len(own_family) == len([*own_family]) == 2


def test_a_family_of_ones_own_is_not_mistaken_for_another_as_a_mapping(own_family):
    settings = {**own_family, "n_subnetworks": 2}
    assert family_kind(settings) is type(own_family)
    pool = WitnessPool(3, own_family, 64, inputs=INPUTS)
    assert pool.block(0).provenance.recipe["sampler"] == own_family.name


@pytest.mark.parametrize("given", ["family", "mapping", "witnesses"])
def test_a_family_of_ones_own_is_fitted_saved_and_loaded(own_family, given, tmp_path):
    labels = (INPUTS[:, :, 0].sum(1) > 0).astype(np.int64)
    sampled = own_family.sample(INPUTS, 0)
    witnesses = {"family": own_family, "mapping": own_family.describe(), "witnesses": sampled}[given]
    model = SpikingClassifier(witnesses=witnesses, random_state=0).fit(INPUTS, labels)
    if own_family.name == "signed":
        assert set(model.network_.layers[0].weight.unique().tolist()) <= {-1.0, 0.0, 1.0}
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.predict(INPUTS), model.predict(INPUTS))
    if given != "witnesses":
        assert as_family(loaded.witnesses).describe() == own_family.describe()


def test_a_recipe_without_a_digest_is_refused_in_one_sentence(monkeypatch):
    monkeypatch.setitem(FAMILIES, "copied", Copied)
    with pytest.raises(InvalidInputError, match="a digest of the training inputs, got one without") as caught:
        regenerate(
            Provenance("sampled", {"sampler": "copied", "hidden": [4], "seed": 0, "n_features": 3}), inputs=INPUTS
        )
    assert_one_sentence(caught)
