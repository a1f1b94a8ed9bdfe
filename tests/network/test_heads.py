import numpy as np
import pytest
import torch
from network.models import draw_network, solved
from networks import draw_inputs

import cvxsnn as cs
from cvxsnn.network import OutputHead
from cvxsnn.network.spiking_network import SpikingNetwork


def test_several_binary_columns_are_decided_by_the_largest():
    task, solution = solved("last", targets=lambda labels: np.stack([1 - labels, labels], axis=1))
    model = cs.reconstruct(solution)
    expected = model(task.test.inputs).argmax(1).numpy()
    assert np.array_equal(model.predict(task.test.inputs)["label"], expected)


def test_a_regression_has_scores_and_no_classes():
    task, solution = solved("last", loss="squared", targets=lambda labels: labels.astype(float))
    model = cs.reconstruct(solution)
    assert model(task.test.inputs).shape == (100, 1)
    with pytest.raises(cs.InvalidInputError, match="got head 'label' with 'squared': call the network for scores"):
        model.predict(task.test.inputs)


def test_a_single_column_decides_by_its_sign_and_a_tie_is_the_first_class():
    layer = cs.LIFLayer(torch.ones(1, 1, 1), bias=-0.5, decay=0.0, threshold=0.0)
    for intercept, expected in ((-1.0, [0, 1]), (-2.0, [0, 0])):  # scores −1 and 1, −2 and 0
        head = OutputHead("label", "hinge", 0, 1)
        network = SpikingNetwork([layer], torch.tensor([[2.0]]), [head], torch.tensor([intercept]))
        assert network.predict(torch.tensor([[[0.0]], [[1.0]]]))["label"].tolist() == expected


def test_heads_decide_each_from_its_own_outputs():
    network = draw_network(n_outputs=4)
    heads = [OutputHead("digit", "softmax", 0, 3), OutputHead("carry", "logistic", 3, 4)]
    split = SpikingNetwork(network.layers, network.weight, heads, network.intercept, network.neurons)
    inputs = draw_inputs(40, 6, 3)
    scores, predicted = split(inputs), split.predict(inputs)
    assert np.array_equal(predicted["digit"], scores[:, :3].argmax(1).numpy())
    assert np.array_equal(predicted["carry"], (scores[:, 3] >= 0).numpy())
