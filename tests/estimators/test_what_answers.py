"""What is certified is what answers: the hidden neurons and the output weights of the network that predicts."""

import pickle

import pytest
from estimators.samples import SEQUENCES, THREE_LABELS
from small_models import assert_close_certificates, classifier

from cvxsnn import InvalidInputError, load, save
from cvxsnn.core.storage import read_tensors, write_tensors
from cvxsnn.network import OutputHead

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
