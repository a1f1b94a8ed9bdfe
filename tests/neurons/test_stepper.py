import torch
from neurons.stacks import draw_inputs

from cvxsnn import roll_out
from cvxsnn.neurons import Stepper


def advance(layers, steps):
    """Spikes of a stepper, step by step, with inputs that subnetworks share or that are each subnetwork's own."""
    stepper = Stepper(layers)
    state, spikes = stepper.start(steps[0].shape[-2]), []
    for inputs in steps:
        state, own = (stepper.step if inputs.ndim == 2 else stepper.step_each)(state, inputs)
        spikes.append(own)
    return spikes


def test_a_stepper_gives_the_spikes_of_a_roll_out(layers):
    inputs = draw_inputs()
    steps = [inputs[:, t] for t in range(inputs.shape[1])]
    assert torch.equal(torch.stack(advance(layers, steps), dim=1), roll_out(layers, inputs, "all"))


def test_a_step_leaves_the_state_given_as_it_is(layers):
    inputs, stepper = draw_inputs(), Stepper(layers)
    start, _ = stepper.step(stepper.start(len(inputs)), inputs[:, 0])
    once, spikes = stepper.step(start, inputs[:, 1])
    again, same_spikes = stepper.step(start, inputs[:, 1])
    assert torch.equal(spikes, same_spikes)
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one.membrane, other.membrane)
        assert torch.equal(one.spikes, other.spikes)


def test_a_stepper_with_inputs_for_each_subnetwork_gives_the_spikes_of_each_alone(layers):
    inputs = [draw_inputs(seed=seed) for seed in range(3)]
    stepped = advance(layers, [torch.stack([own[:, t] for own in inputs]) for t in range(9)])
    for k, own in enumerate(inputs):
        alone = roll_out([layer.take(slice(k, k + 1)) for layer in layers], own, "all")
        assert torch.equal(torch.stack([spikes[k] for spikes in stepped], dim=1), alone)


def test_a_stepper_with_equal_inputs_for_all_subnetworks_gives_the_spikes_of_a_roll_out(layers):
    inputs = draw_inputs()
    stepped = advance(layers, [inputs[:, t].expand(3, -1, -1) for t in range(9)])
    stepped = [spikes.movedim(0, -2).flatten(-2) for spikes in stepped]
    assert stepped[0].dtype == torch.bool
    assert torch.equal(torch.stack(stepped, dim=1), roll_out(layers, inputs, "all"))
