import warnings

import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    Looped,
    Remembering,
    assert_same_tensors,
    draw_data,
    draw_static,
    photograph,
    unharmed,
    weights_apart_from,
)
from small_models import assert_one_sentence
from torch import nn

import cvxsnn.exchange.readout.solving
from cvxsnn import InvalidInputError, reconstruct_readout
from cvxsnn.exchange.readout.guard import reset_neurons, untouched


def draw_remembering():
    """A model in the middle of its training: mixed modes, gradients, and a state with a graph."""
    model = Remembering()
    model.norm.eval()
    model(torch.randn(6, N_FEATURES)).sum().backward()
    model.membrane = model.hidden(torch.randn(2, N_FEATURES))
    return model


def static_data():
    inputs, classes = draw_data(n_steps=1)
    return inputs[:, 0], classes


def test_everything_a_model_holds_comes_back():
    model = draw_remembering()
    with unharmed(model), untouched(model, 0):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        model(torch.randn(6, N_FEATURES))
        model.surprise = 3
        model.pair = None
        del model.table
        with torch.no_grad():
            model.out.weight.zero_()


def test_everything_comes_back_after_an_interruption_too():
    model = draw_remembering()

    def interrupt():
        with untouched(model, 0):
            model(torch.randn(6, N_FEATURES))
            raise KeyboardInterrupt

    with unharmed(model), pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_success_leaves_only_the_layer_changed():
    (inputs, classes), model = static_data(), draw_remembering()
    others, graph, gradient = photograph(model), model.membrane.grad_fn, model.out.weight.grad.clone()
    result = reconstruct_readout(model, inputs, classes, batch_size=16, l1_strength=1e-3)
    assert result.has_changed
    assert model.membrane.grad_fn is graph
    assert torch.equal(model.out.weight.grad, gradient)
    after = photograph(model)
    for seen in (others, after):
        del seen["out"]["_parameters"]
    assert after == others
    model.membrane.sum().backward()


def test_a_model_with_the_graph_of_a_training_step_is_copied_without_it():
    (inputs, classes), model = static_data(), draw_remembering()
    model.again = (model.membrane, [model.membrane])
    with unharmed(model):
        result = reconstruct_readout(model, inputs, classes, copy_model=True, l1_strength=1e-3)
    copied = result.model
    assert copied is not model
    assert torch.equal(copied.membrane, model.membrane)
    assert copied.membrane.grad_fn is None
    assert copied.membrane is copied.again[0] is copied.again[1][0]
    assert_same_tensors(weights_apart_from(copied, "out"), weights_apart_from(model, "out"))
    model.membrane.sum().backward()


def test_a_model_that_cannot_be_copied_is_refused():
    (inputs, classes), model = static_data(), draw_static()
    model.file = iter([1]), (one for one in [1])
    with unharmed(model), pytest.raises(InvalidInputError, match="expected a model that can be copied") as caught:
        reconstruct_readout(model, inputs, classes, copy_model=True, l1_strength=1e-3)
    assert_one_sentence(caught.value)


def test_dropout_is_off_while_spikes_are_recorded():
    torch.manual_seed(0)
    inputs, classes = static_data()
    model = nn.Sequential(*draw_static()[:2], nn.Dropout(0.5), nn.Linear(N_HIDDEN, N_CLASSES)).train()
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert all(module.training for module in model.modules())
    with torch.no_grad():
        assert torch.equal(result.solution.problem.dictionary.columns(), model[:2](inputs).double())


def test_batch_statistics_are_not_learnt_from():
    inputs, classes = static_data()
    model = nn.Sequential(draw_static()[0], nn.BatchNorm1d(N_HIDDEN), *draw_static()[1:])
    others = weights_apart_from(model, "3")
    reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert_same_tensors(weights_apart_from(model, "3"), others)


class Failing(Looped):
    """Fails at a run of its choice."""

    def __init__(self, at, error=RuntimeError):
        super().__init__()
        self.at, self.error, self.runs = at, error, []

    def forward(self, x):
        Failing.n_runs += 1
        self.membrane = torch.ones(3)
        if Failing.n_runs == self.at:
            raise self.error("no more")
        return super().forward(x)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 6, 7, 9])
def test_a_model_that_fails_at_any_run_is_unharmed(at, error):
    (inputs, classes), model = draw_data(), Failing(at, error)
    Failing.n_runs = 0
    expected = KeyboardInterrupt if error is KeyboardInterrupt else InvalidInputError
    with unharmed(model), pytest.raises(expected, match="no more"):
        reconstruct_readout(model, inputs, classes, batch_size=20, l1_strength=1e-3)
    assert Failing.n_runs == at


@pytest.mark.parametrize("stage", ["recording", "choosing the strength", "solving", "checking"])
def test_an_interruption_at_any_stage_leaves_the_model_unharmed(stage):
    (inputs, classes), model = draw_data(), Looped()

    def interrupt(name, *_):
        if name == stage:
            raise KeyboardInterrupt

    with unharmed(model), pytest.raises(KeyboardInterrupt):
        reconstruct_readout(model, inputs, classes, callback=interrupt)


def test_an_interruption_inside_the_solver_leaves_the_model_unharmed(monkeypatch):
    (inputs, classes), model = draw_data(), Looped()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cvxsnn.exchange.readout.solving, "solve", interrupt)
    with unharmed(model), pytest.raises(KeyboardInterrupt):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)


def test_an_interruption_while_output_neurons_are_fitted_leaves_the_model_unharmed():
    class Counting(Looped):
        def forward(self, x):
            return torch.stack([(self.out(spikes) > 2).float() for spikes in self.spikes(x)])

    (inputs, classes), model = draw_data(), Counting()

    def interrupt(name, *_):
        if name == "fitting output neurons":
            raise KeyboardInterrupt

    with unharmed(model), pytest.raises(KeyboardInterrupt):
        reconstruct_readout(model, inputs, classes, callback=interrupt, l1_strength=1e-3)


def test_a_reset_that_initialises_weights_does_no_harm():
    class Forgetful(Looped):
        def reset(self):
            with torch.no_grad():
                self.hidden.weight.normal_()

    (inputs, classes), model = draw_data(), Forgetful()
    others = weights_apart_from(model, "out")
    reconstruct_readout(model, inputs, classes, reset=lambda model: None, l1_strength=1e-3)
    assert_same_tensors(weights_apart_from(model, "out"), others)
    reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert_same_tensors(weights_apart_from(model, "out"), others)


def test_neurons_are_reset_before_every_batch():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.n_seen, self.history = 0, []

        def reset(self):
            self.n_seen = 0

        def forward(self, x):
            self.n_seen += 1
            assert self.n_seen == 1
            return x

    (inputs, classes), model = static_data(), nn.Sequential(Counter(), *draw_static())
    reconstruct_readout(model, inputs, classes, batch_size=7, l1_strength=1e-3)
    assert model[0].n_seen == 0


def test_a_reset_of_ones_own_takes_the_place_of_the_default():
    class Stubborn(nn.Module):
        def reset(self):
            raise AssertionError

        def forward(self, x):
            return x

    inputs, classes = static_data()
    seen = []
    reconstruct_readout(nn.Sequential(Stubborn(), *draw_static()), inputs, classes, reset=seen.append, l1_strength=1e-3)
    assert len(seen) > 1


def test_methods_named_reset_that_need_arguments_are_left_alone():
    class Odd(nn.Module):
        def reset(self, to):
            raise AssertionError

    class Plain(nn.Module):
        reset = 3

    class Even(nn.Module):
        def reset(self, to=0, *args, **more):
            self.was_reset = True

    odd, even = Odd(), Even()
    reset_neurons(nn.Sequential(odd, Plain(), even))
    assert even.was_reset


def test_state_on_another_device_is_said_and_stays_where_it_is():
    class Leaky(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("membrane", torch.zeros(1, N_HIDDEN, device="meta"))

        def forward(self, x):
            self.membrane = 0.9 * self.membrane + x
            return (self.membrane > 1).to(x)

    inputs, classes = static_data()
    hidden, _, out = draw_static()
    model = nn.Sequential(hidden, Leaky(), out)
    with unharmed(model), pytest.raises(InvalidInputError, match="its state and the inputs to one device"):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert model[1].membrane.is_meta


@pytest.mark.parametrize("kind", ["meta", "lazy"])
def test_parameters_without_values_are_said(kind):
    inputs, classes = static_data()
    model = draw_static().to("meta") if kind == "meta" else nn.Sequential(nn.LazyLinear(5), nn.LazyLinear(N_CLASSES))
    with pytest.raises(InvalidInputError, match="expected parameters with values"):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    if kind == "lazy":
        assert isinstance(model[0], nn.LazyLinear)


def test_hooks_of_the_model_stay_and_ours_go():
    (inputs, classes), model = static_data(), draw_static()
    model[2].register_forward_pre_hook(lambda *_: None)
    model.register_forward_hook(lambda *_: None)
    reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert [len(module._forward_pre_hooks) for module in model.modules()] == [0, 0, 0, 1]
    assert [len(module._forward_hooks) for module in model.modules()] == [1, 0, 0, 0]
    assert not any(module._forward_pre_hooks_with_kwargs for module in model.modules())


def test_a_model_that_trains_on_learns_as_before():
    (inputs, classes), model = static_data(), draw_static()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.functional.cross_entropy(model(inputs), classes).backward()
    before = model[2].weight.detach().clone()
    optimiser.step()
    assert not torch.equal(model[2].weight, before)
