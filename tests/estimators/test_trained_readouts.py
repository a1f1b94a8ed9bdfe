"""Estimators over trained neurons: the optimum around the trained read-out, or the trained read-out itself."""

import numpy as np
import pytest
import torch
from small_models import assert_close_certificates, assert_one_sentence, classes_of, make_sequences, sums

import cvxsnn.fitting.methods
from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError
from cvxsnn.estimators.base import is_same_objective
from cvxsnn.fitting import Program, SurrogateSettings

SEQUENCES = make_sequences()
LABELS = classes_of(SEQUENCES, 3)
KINDS = {"classifier": (SpikingClassifier, LABELS), "regressor": (SpikingRegressor, sums(SEQUENCES))}


def fit(kind="classifier", method="sg-cvx", **options):
    make, y = KINDS[kind]
    surrogate = SurrogateSettings(epochs=4, batch_size=16)
    return make(method, (12,), **{"surrogate": surrogate, "random_state": 0, **options}).fit(SEQUENCES, y)


@pytest.fixture
def only_around(monkeypatch):
    """Leave nothing but the program around the trained read-out to choose from."""
    original = Program.around
    monkeypatch.setattr(Program, "around", lambda program, network: original(program, network)[:1])


@pytest.fixture
def only_trained(monkeypatch):
    """Let no optimum validate as well as the trained read-out."""
    monkeypatch.setattr(cvxsnn.fitting.methods, "readout_stage", lambda network, *_, **__: (network, None))


@pytest.mark.parametrize("method", ["sg-cvx", "varpro"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_the_score_on_samples_held_out_never_falls(seed, kind, method):
    model = fit(kind, method, random_state=seed)
    first, last = model.history_
    assert last.score >= first.score
    # "varpro" trains again on all samples, where the read-out is an optimum of the strength of the training.
    assert (model.certificate_ is None) == (last.certificate is None and method == "sg-cvx")
    assert (model.certificate_ is None) == ("Proven: nothing" in str(model.summary()))


@pytest.mark.parametrize("readout", ["mean", "windows-2"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("only_around")
def test_an_optimum_around_the_trained_read_out_is_certified_again_after_saving(tmp_path, kind, readout):
    model, y = fit(kind, "sg-cvx", readout=readout), KINDS[kind][1]
    assert bool(model.proof_.centre.any())
    assert model.certificate_.relative_gap <= model.tol
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert torch.equal(loaded.proof_.centre, model.proof_.centre)
    assert np.array_equal(loaded.predict(SEQUENCES), model.predict(SEQUENCES))
    for found in (model.certify(SEQUENCES, y), loaded.certificate_, loaded.certify(SEQUENCES, y)):
        assert_close_certificates(found, model.certificate_)
    assert "a penalty on the distance from the trained read-out" in str(model.summary())


def drop(tensors, header):
    del tensors["proof.centre"]


def move(tensors, header):
    tensors["proof.centre"] += 1.0


def shorten(tensors, header):
    tensors["proof.centre"] = tensors["proof.centre"][:-1]


def widen(tensors, header):
    tensors["proof.centre"] = tensors["proof.centre"].repeat(1, 2)


def spoil(tensors, header):
    tensors["proof.centre"][0, 0] = torch.nan


def narrow(tensors, header):
    tensors["proof.centre"] = tensors["proof.centre"].float()


def weaken(tensors, header):
    header["proof"] |= {"l1_strength": 0.1, "l2_strength": 0.0}


def altered(alter, folder):
    save(fit(), folder / "model")
    tensors, header = storage.read_tensors(folder / "model", "model")
    alter(tensors, header)
    storage.write_tensors(folder / "altered", "model", tensors, header)
    return folder / "altered"


@pytest.mark.parametrize("alter", [drop, move])
@pytest.mark.usefixtures("only_around")
def test_a_file_with_another_centre_is_noticed_on_the_data(tmp_path, alter):
    loaded = load(altered(alter, tmp_path))
    found, stated = loaded.certify(SEQUENCES, LABELS), loaded.certificate_
    assert not is_same_objective(found, stated)
    assert found.relative_gap > 100 * loaded.tol


@pytest.mark.parametrize(
    ("alter", "complaint"),
    [
        (shorten, "a centre of 12 columns, got one of 11"),
        (widen, "another type or shape of"),
        (spoil, "a finite proof.centre"),
        (narrow, "another type or shape of proof.centre"),
        (weaken, "l2_strength above zero for a centre"),
    ],
)
@pytest.mark.usefixtures("only_around")
def test_a_centre_that_does_not_fit_is_refused(tmp_path, alter, complaint):
    path = altered(alter, tmp_path)
    with pytest.raises(DataFileError, match=complaint) as caught:
        load(path)
    assert_one_sentence(caught.value)


@pytest.mark.usefixtures("only_trained")
def test_a_trained_read_out_that_is_kept_claims_nothing(tmp_path):
    model = fit(method="sg-cvx")
    assert model.certificate_ is None
    assert model.history_[-1].certificate is None
    summary = str(model.summary())
    assert "Proven: nothing." in summary
    assert "Chosen: the read-out as it was trained, which validated better than every optimum." in summary
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert np.array_equal(loaded.predict(SEQUENCES), model.predict(SEQUENCES))
    for one in (model, loaded):
        with pytest.raises(
            InvalidInputError, match="got one that kept its trained read-out, which validated"
        ) as caught:
            one.certify(SEQUENCES, LABELS)
        assert_one_sentence(caught.value)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge", "squared"])
def test_a_loss_that_is_given_is_kept(loss):
    model = fit(loss=loss)
    assert [head.loss for head in model.network_.heads] == [loss]
    assert model.certificate_ is None or model.proof_.objective.loss == loss


@pytest.mark.parametrize(
    "options",
    [{"penalty": "l1"}, {"l1_strength": 0.01}, {"penalty": "elastic-net", "l2_strength": 0.1}, {"l2_strength": 0.1}],
)
def test_a_penalty_or_a_strength_that_is_given_is_solved_for(options):
    model = fit(**options)
    assert model.certificate_.relative_gap <= model.tol
    assert model.proof_.centre is None
    for name in ("l1_strength", "l2_strength"):
        assert getattr(model.proof_, name) == options.get(name, getattr(model.proof_, name))
    assert model.proof_.penalty.name == options.get("penalty", "l1" if "l1_strength" in options else "elastic-net")
