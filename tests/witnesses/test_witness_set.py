import pytest
import torch

from cvxsnn import LIFLayer, ThresholdLayer, WitnessSet, gaussian_witnesses, roll_out
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.witnesses import Provenance, Uniform, mixed_witnesses, regenerate

WITNESSES = gaussian_witnesses(3, (8, 6), 4, decay=Uniform(0, 1))
INPUTS = torch.randn(20, 5, 3, generator=torch.Generator().manual_seed(0))
PRETRAINED = Provenance("pretrained")


def test_sizes_are_those_of_the_layers():
    assert (WITNESSES.n_features, WITNESSES.hidden, WITNESSES.n_subnetworks) == (3, (8, 6), 4)
    assert WITNESSES.n_witnesses == 4 * 6
    assert WITNESSES.neuron == "lif"
    assert gaussian_witnesses(3, (8,), neuron="threshold").neuron == "threshold"


def test_locate_names_the_subnetwork_and_neuron_of_each_column_of_a_roll_out():
    spikes = roll_out(WITNESSES.layers, INPUTS)
    witnesses = torch.tensor([0, 5, 6, 23])
    for witness, subnetwork, neuron in zip(witnesses, *WITNESSES.locate(witnesses), strict=True):
        alone = roll_out(WITNESSES.take(slice(subnetwork, subnetwork + 1)).layers, INPUTS)
        assert torch.equal(alone[:, neuron], spikes[:, witness])


def test_take_keeps_the_spikes_of_the_subnetworks_taken():
    spikes = roll_out(WITNESSES.layers, INPUTS, "all").unflatten(-1, (4, 6))
    taken = WITNESSES.take(torch.tensor([3, 1]))
    assert taken.n_subnetworks == 2
    assert torch.equal(roll_out(taken.layers, INPUTS, "all").unflatten(-1, (2, 6)), spikes[:, :, [3, 1]])


def test_a_move_keeps_the_spikes():
    moved = WITNESSES.to("cpu").to(dtype=torch.float64)
    assert moved.dtype == torch.float64
    back = moved.to(dtype=torch.float32)
    assert torch.equal(roll_out(back.layers, INPUTS, "all"), roll_out(WITNESSES.layers, INPUTS, "all"))


def test_one_line_tells_size_and_origin():
    assert repr(WITNESSES) == "WitnessSet(sampled lif, 4 × (3→8→6))"


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ((), "at least one hidden layer"),
        (
            (LIFLayer(torch.ones(2, 3, 4)), ThresholdLayer(torch.ones(2, 4, 4))),
            "one neuron model, got a mixture of lif and threshold",
        ),
        (
            (LIFLayer(torch.ones(2, 3, 4)), LIFLayer(torch.ones(2, 5, 4))),
            "for 2 subnetworks that reads 4 spikes, got one for 2 that reads 5",
        ),
        (
            (LIFLayer(torch.ones(2, 3, 4)), LIFLayer(torch.ones(1, 4, 4))),
            "for 2 subnetworks that reads 4 spikes, got one for 1 that reads 4",
        ),
    ],
)
def test_layers_that_form_no_stack_are_refused_in_one_sentence(layers, message):
    with pytest.raises(InvalidInputError, match=message):
        WitnessSet(layers, PRETRAINED)


def test_an_unknown_origin_is_refused():
    with pytest.raises(InvalidInputError, match="kind to be one of 'sampled', 'pretrained', 'enumerated', got 'found'"):
        Provenance("found")


def test_neurons_that_are_taken_keep_their_spikes_and_the_recipe_draws_them_again():
    inputs = torch.randn(8, 12, 3, generator=torch.Generator().manual_seed(0))
    whole = mixed_witnesses(inputs, 30)
    part = whole.take_neurons(torch.tensor([20, 3, 11])).take_neurons(torch.tensor([2, 0]))
    assert part.is_selection
    assert not whole.is_selection
    for own in (part, regenerate(part.provenance, inputs=inputs)):
        assert torch.equal(roll_out(own.layers, inputs), roll_out(whole.layers, inputs)[:, [11, 20]])


def test_neurons_of_several_layers_or_subnetworks_cannot_be_taken():
    for sizes in ({"hidden": (4, 5)}, {"hidden": (4,), "n_subnetworks": 2}):
        with pytest.raises(InvalidInputError, match="one subnetwork of one layer"):
            gaussian_witnesses(n_features=2, **sizes).take_neurons(torch.tensor([0]))
