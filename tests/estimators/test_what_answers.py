"""What is certified is what answers: the hidden neurons and the output weights of the network that predicts."""

import pickle

import numpy as np
import pytest
from estimators.samples import LABELS, SEQUENCES, THREE_LABELS
from small_models import assert_close_certificates, classifier

from cvxsnn import InvalidInputError, SpikingClassifier, SpikingRegressor, load, save
from cvxsnn.core.errors import OtherDataWarning
from cvxsnn.core.storage import read_tensors, write_tensors
from cvxsnn.network import OutputHead

LONG = np.random.default_rng(0).normal(size=(len(LABELS), 9, 2))
EDITS = {
    "output weights": lambda network: network.weight.data.mul_(-3),
    "one output weight": lambda network: network.weight.data[3].add_(1e-9),
    "intercept": lambda network: network.intercept.data.add_(0.1),
    "neurons": lambda network: network.neurons.data.copy_(network.neurons.flip(0)),
    "hidden weights": lambda network: network.stack[0].weight[..., 0].neg_(),
    "thresholds": lambda network: network.stack[0].threshold.mul_(2),
    "precision": lambda network: network.double(),
    "read-out": lambda network: setattr(network, "readout", "mean"),
    "loss": lambda network: setattr(network, "heads", (OutputHead("label", "squared", 0, network.n_outputs),)),
}
KINDS = {
    "one layer": {},
    "two layers, recurrent": {"hidden": (6, 8), "neuron": "threshold", "n_subnetworks": 2},
    "few of a mixture": {"hidden": None, "n_neurons": 40, "sparsity": 9, "l1_strength": "auto"},
}


def fitted(labels=THREE_LABELS, **parameters):
    return classifier(**{"readout": "last", **parameters}).fit(SEQUENCES, labels)


def assert_refused(model, data=SEQUENCES, labels=THREE_LABELS):
    for use in (lambda: model.certify(data, labels), lambda: model.certify_complete(data, labels), model.summary):
        with pytest.raises(InvalidInputError, match="expected the network that was certified, got one with"):
            use()


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_network_that_was_changed_has_no_certificate(edit, tmp_path):
    model = fitted()
    edit(model.network_)
    assert_refused(model)
    assert_refused(pickle.loads(pickle.dumps(model)))
    save(model, tmp_path / "model")
    assert_refused(load(tmp_path / "model"))


def test_neurons_that_there_are_not_have_no_certificate():
    model = fitted()
    model.network_.neurons[-1] += 1000
    with pytest.raises(InvalidInputError, match="nothing is proven about such a network"):
        model.certify(SEQUENCES, THREE_LABELS)


@pytest.mark.parametrize("name", ["weight", "bias", "group", "statistics"])
def test_neurons_without_values_have_no_certificate(name):
    model = SpikingClassifier(n_neurons=12, random_state=0).fit(LONG, LABELS)
    getattr(model.network_.stack[0], name).fill_(np.nan)
    for use in (model.summary, lambda: model.certify(LONG, LABELS)):
        with pytest.raises(InvalidInputError, match="expected"):
            use()


@pytest.mark.parametrize("scope", ["pool", "complete"])
def test_a_file_says_no_more_of_other_neurons_than_its_witnesses(scope, tmp_path):
    model = fitted()
    save(model, tmp_path / "model")
    tensors, header = read_tensors(tmp_path / "model", "model")
    header["proof"]["certificate"] |= {"scope": scope, "n_witnesses": 1000}
    write_tensors(tmp_path / "model", "model", tensors, header)
    loaded = load(tmp_path / "model")
    assert loaded.certificate_ == loaded.summary().certificate == model.certificate_


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_file_whose_network_is_not_that_of_its_proof_has_no_certificate(kind, tmp_path):
    model = fitted(**kind)
    save(model, tmp_path / "model")
    certificate = load(tmp_path / "model").certify(SEQUENCES, THREE_LABELS)
    assert_close_certificates(certificate, model.certificate_)
    tensors, header = read_tensors(tmp_path / "model", "model")
    compared = [name for name in tensors if name.startswith(("weight", "intercept", "network.", "proof.coef"))]
    for name in compared:
        if tensors[name].is_floating_point():
            changed = (tensors[name] == 0).to(tensors[name])  # valid for every parameter
            write_tensors(tmp_path / name, "model", tensors | {name: changed}, header)
            assert_refused(load(tmp_path / name))


def test_inputs_whose_squares_overflow_are_refused():
    model = SpikingClassifier(n_neurons=12, random_state=0).fit(LONG, LABELS)
    assert model.network_.readout.startswith("mean+burst")  # lateral neurons, some of which read squares
    with pytest.raises(InvalidInputError, match="fit into 53 bits"):
        model.predict(1e200 * LONG)


@pytest.mark.parametrize("labels", [LABELS, THREE_LABELS])
def test_labels_are_certified_as_they_are_predicted(labels):
    """Exchanged labels make all answers wrong, and the objective says so."""
    model = fitted(labels)
    model.classes_ = model.classes_[::-1]
    assert model.score(SEQUENCES, labels) < 0.5
    with pytest.warns(OtherDataWarning, match="targets"):
        certificate = model.certify(SEQUENCES, labels)
    assert certificate.primal > 2 * model.certificate_.primal
    exchanged = labels.max() - labels
    assert_close_certificates(model.certify(SEQUENCES, exchanged), model.certificate_)


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_the_loss_of_the_fit_is_certified_whatever_the_parameter_is_now(loss):
    model = SpikingClassifier(n_neurons=24, loss=loss, random_state=0).fit(SEQUENCES, LABELS)
    for other in ("squared", "logistic", "softmax", None):
        model.set_params(loss=other)
        assert_close_certificates(model.certify(SEQUENCES, LABELS), model.certificate_)


def test_targets_are_certified_in_the_shape_in_which_they_are_predicted():
    targets = SEQUENCES[:, 0, :2]
    model = SpikingRegressor(n_neurons=24, random_state=0).fit(SEQUENCES, targets)
    model.is_flat_ = True  # only the first output is predicted now
    with pytest.raises(InvalidInputError, match=r"as many axes as in fit, got shape \(48, 2\)"):
        model.certify(SEQUENCES, targets)
