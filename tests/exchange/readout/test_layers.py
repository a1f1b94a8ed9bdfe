import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    Looped,
    Spike,
    assert_same_tensors,
    cross_entropy,
    draw_data,
    draw_static,
    unharmed,
    weights_apart_from,
)
from torch import nn
from torch.nn.utils import parametrizations, prune

from cvxsnn import InvalidInputError, reconstruct_readout


def static_data(n_classes=N_CLASSES):
    inputs, classes = draw_data(n_steps=1, n_classes=n_classes)
    return inputs[:, 0], classes


def assert_refused(model, message, **options):
    """Said in one sentence, and nothing left on the model."""
    inputs, classes = static_data()
    with unharmed(model), pytest.raises(InvalidInputError, match=message) as caught:
        reconstruct_readout(model, inputs, classes, **options)
    assert "\n" not in str(caught.value)


class Branching(nn.Module):
    """Two heads on the same spikes."""

    def __init__(self, n_other=N_CLASSES):
        super().__init__()
        torch.manual_seed(0)
        self.body = draw_static()[:2]
        self.one, self.two = nn.Linear(N_HIDDEN, N_CLASSES), nn.Linear(N_HIDDEN, n_other)

    def forward(self, x):
        spikes = self.body(x)
        return self.one(spikes), self.two(spikes)


class BranchingByViews(Branching):
    def forward(self, x):
        spikes = self.body(x)
        return self.one(spikes.flatten(1)), self.two(spikes.view(len(x), -1))


class BranchingDeep(Branching):
    """The second head has neurons of its own."""

    def __init__(self, n_other=N_CLASSES):
        super().__init__(n_other)
        self.more = nn.Linear(N_HIDDEN, N_HIDDEN)

    def forward(self, x):
        spikes = self.body(x)
        return self.one(spikes), self.two((self.more(spikes) > 0).to(x))


@pytest.mark.parametrize("kind", [Branching, BranchingByViews])
def test_two_heads_are_for_the_user_to_choose_between(kind):
    assert_refused(kind(), "one linear layer at the end, got several that read the same spikes, one and two")


def test_two_heads_on_different_spikes_are_told_by_the_outputs():
    assert_refused(BranchingDeep(), "outputs to come from layer 'two' alone")
    assert_refused(BranchingDeep(n_other=5), "outputs to be those of its last linear layer, 'two', which has 5")


@pytest.mark.parametrize("kind", [Branching, BranchingDeep])
@pytest.mark.parametrize("name", ["one", "two"])
def test_a_head_that_is_named_is_solved_for(kind, name):
    (inputs, classes), model = static_data(), kind()
    others = weights_apart_from(model, name)
    index = ["one", "two"].index(name)
    result = reconstruct_readout(
        model, inputs, classes, layer=name, decide=lambda output: output[index].argmax(1), l1_strength=1e-3
    )
    assert result.layer == name
    assert result.after.loss < result.before.loss
    assert result.after.model_accuracy == result.after.accuracy
    assert_same_tensors(weights_apart_from(model, name), others)


def test_a_head_that_is_not_what_the_model_gives_first_has_a_note():
    (inputs, classes), model = static_data(), BranchingDeep()
    result = reconstruct_readout(model, inputs, classes, layer="two", l1_strength=1e-3)
    assert "do not come from layer 'two' alone" in result.notes[0]


def test_a_model_without_linear_layers_is_refused():
    assert_refused(nn.Sequential(nn.Flatten(), Spike()), "without any torch.nn.Linear")
    assert_refused(nn.Sequential(nn.Unflatten(1, (1, -1)), nn.Conv1d(1, 3, 8), nn.Flatten()), "without any torch.nn")


def test_a_linear_layer_that_is_not_last_is_refused_until_it_is_named():
    inputs, classes = static_data()
    model = nn.Sequential(draw_static(), nn.BatchNorm1d(N_CLASSES))
    assert_refused(model, "expected a linear layer to run last, got BatchNorm1d '1' after it.*'0.0', '0.2'")
    result = reconstruct_readout(model, inputs, classes, layer="0.2", l1_strength=1e-3)
    assert result.layer == "0.2"
    assert result.after.loss < result.before.loss


def test_a_linear_layer_that_does_not_run_is_not_taken():
    class Functional(Looped):
        def forward(self, x):
            return nn.functional.linear((nn.functional.linear(x, self.hidden.weight) > 0).float(), self.out.weight)

    assert_refused(Functional(), "got none that runs: name one of 'hidden', 'out'")
    assert_refused(Functional(), "expected layer 'out' to run on every batch", layer="out")


class Matrix(nn.Module):
    """A linear layer of somebody's own."""

    def __init__(self, n_inputs, n_outputs):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(n_inputs, n_outputs))

    def forward(self, x):
        return x @ self.matrix


def test_matrices_of_ones_own_are_not_overlooked():
    model = nn.Sequential(*draw_static()[:2], Matrix(N_HIDDEN, N_CLASSES))
    assert_refused(model, "expected a linear layer to run last, got Matrix '2' after it")


class Bare(nn.Module):
    """A last layer that is no module."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.matrix = nn.Linear(N_FEATURES, N_HIDDEN), nn.Parameter(torch.randn(N_HIDDEN, N_CLASSES))

    def forward(self, x):
        return (self.hidden(x) > 0).to(x) @ self.matrix


def test_a_layer_with_other_outputs_than_the_models_is_refused():
    assert_refused(Bare(), "outputs to be those of its last linear layer, 'hidden', which has 24, got shape")
    voting = nn.Sequential(draw_static(30), nn.Unflatten(1, (1, 30)), nn.AvgPool1d(10), nn.Flatten())
    assert_refused(voting, "'0.2', which has 30, got shape")


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm, "pruned"])
def test_weights_that_are_computed_are_refused(norm):
    model = draw_static().eval()  # spectral norm iterates while in training
    (lambda layer: prune.l1_unstructured(layer, "weight", amount=0.5) if norm == "pruned" else norm(layer))(model[2])
    assert_refused(model, "expected layer '2' to have its weight as a parameter")
    assert_refused(model, "expected layer '2' to have its weight as a parameter", layer="2")
    everywhere = draw_static().eval()
    parametrizations.weight_norm(everywhere[0])
    parametrizations.weight_norm(everywhere[2])
    assert_refused(everywhere, "expected layer '2' to have its weight as a parameter")


def test_computed_weights_of_hidden_layers_are_fine():
    (inputs, classes), model = static_data(), draw_static()
    parametrizations.weight_norm(model[0])
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert result.layer == "2"
    assert result.after.loss < result.before.loss


def test_a_layer_that_is_used_twice_is_refused():
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.out = nn.Linear(N_FEATURES, N_CLASSES), nn.Linear(N_CLASSES, N_CLASSES)

        def forward(self, x):
            return self.out((self.out((self.first(x) > 0).to(x)) > 0).to(x))

    assert_refused(Again(), "the inputs of layer 'out' not to depend on its weights")
    assert_refused(Again(), "the inputs of layer 'out' not to depend on its weights", layer="out")


def test_outputs_that_are_fed_back_are_refused():
    class FedBack(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.hidden, self.out = nn.Linear(N_FEATURES + N_CLASSES, N_HIDDEN), nn.Linear(N_HIDDEN, N_CLASSES)

        def forward(self, x):
            output = torch.zeros(len(x), N_CLASSES)
            for _ in range(3):
                output = self.out((self.hidden(torch.cat([x, output], 1)) > 0).to(x))
            return output

    assert_refused(FedBack(), "fed back")


def test_weights_that_are_shared_are_refused():
    model = nn.Sequential(nn.Linear(N_FEATURES, N_CLASSES), Spike(), nn.Linear(N_CLASSES, N_CLASSES), Spike())
    model.append(nn.Linear(N_CLASSES, N_CLASSES))
    model[4].weight = model[2].weight
    assert_refused(model, "weights of its own, but it shares them with '2'")
    assert_refused(model, "weights of its own, but it shares them with '4'", layer="2")


def test_one_layer_under_two_names_is_one_layer():
    class Registered(Looped):
        def __init__(self):
            super().__init__()
            self.all = nn.ModuleList([self.hidden, self.out])

    result = reconstruct_readout(Registered(), *draw_data(), l1_strength=1e-3)
    assert result.layer == "out"
    assert result.after.loss < result.before.loss


class LowRank(nn.Module):
    """A frozen linear layer with a correction of low rank beside it."""

    def __init__(self, as_layers):
        super().__init__()
        torch.manual_seed(0)
        self.base = nn.Linear(N_HIDDEN, N_CLASSES)
        if as_layers:
            self.down, self.up = nn.Linear(N_HIDDEN, 2, bias=False), nn.Linear(2, N_CLASSES, bias=False)
        else:
            self.down, self.up = nn.Parameter(torch.randn(2, N_HIDDEN)), nn.Parameter(torch.randn(N_CLASSES, 2))

    def forward(self, x):
        if isinstance(self.down, nn.Linear):
            return self.base(x) + self.up(self.down(x))
        return self.base(x) + x @ self.down.T @ self.up.T


@pytest.mark.parametrize("as_layers", [True, False])
def test_corrections_beside_a_layer_are_refused(as_layers):
    assert_refused(nn.Sequential(*draw_static()[:2], LowRank(as_layers)), "to come from layer '2.(up|base)' alone")


def test_a_way_around_the_layer_is_refused():
    class Skipping(Looped):
        def forward(self, x):
            return super().forward(x) + x[:, 0, :N_CLASSES]

    model = Skipping()
    with unharmed(model), pytest.raises(InvalidInputError, match="come from layer 'out' alone"):
        reconstruct_readout(model, *draw_data(), l1_strength=1e-3)


@pytest.mark.filterwarnings("ignore:.*(quantiz|Quantiz|TypedStorage|deprecated).*")
def test_quantised_layers_are_refused():
    backends = torch.backends.quantized.supported_engines
    if "fbgemm" not in backends and "qnnpack" not in backends:
        pytest.skip("no quantised kernels here")
    model = torch.ao.quantization.quantize_dynamic(draw_static(), {nn.Linear})
    inputs, classes = static_data()
    with pytest.raises(InvalidInputError, match=r"without any torch\.nn\.Linear"):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    mixed = nn.Sequential(nn.Linear(N_FEATURES, N_FEATURES), Spike(), *model)
    with pytest.raises(InvalidInputError, match="expected a linear layer to run last, got Linear '4' after it"):
        reconstruct_readout(mixed, inputs, classes, l1_strength=1e-3)


@pytest.mark.parametrize("how", ["whole", "in place", "a layer"])
def test_compiled_models_are_solved_for_and_see_the_new_weights(how):
    (inputs, classes), model = static_data(), draw_static()
    plain = model
    if how == "whole":
        model = torch.compile(model, backend="eager")
    elif how == "in place":
        model.compile(backend="eager")
    else:
        model[2] = torch.compile(model[2], backend="eager")
    with torch.no_grad():
        model(inputs)
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert result.model is model
    with torch.no_grad():
        assert float((model(inputs).argmax(1) == classes).double().mean()) == result.after.accuracy
    assert not any(module._forward_pre_hooks for module in plain.modules())


class Doubling(nn.Linear):
    """A linear layer with a forward of its own."""

    def forward(self, x):
        return super().forward(2 * x)


class Signed(nn.Linear):
    """Computes with the signs of its weights."""

    def forward(self, x):
        return nn.functional.linear(x, self.weight.sign(), self.bias)


class Named(nn.Linear):
    """A linear layer that computes as all do."""


@pytest.mark.parametrize("kind", [Doubling, Signed])
def test_a_linear_layer_that_computes_something_else_is_refused(kind):
    model = draw_static()
    model[2] = kind(N_HIDDEN, N_CLASSES)
    assert_refused(model, rf"weights times its input plus its bias, got .* a hook \({kind.__name__}\)")


def test_a_hook_that_changes_what_the_layer_gives_is_refused():
    model = draw_static()
    model[2].register_forward_hook(lambda module, given, output: output**2)
    assert_refused(model, "got other outputs from its forward or a hook")


def test_a_subclass_and_hooks_that_change_nothing_or_the_input_are_solved_for():
    (inputs, classes), model = static_data(), draw_static()
    model[2] = Named(N_HIDDEN, N_CLASSES)
    model[2].register_forward_hook(lambda module, given, output: None)
    model[2].register_forward_pre_hook(lambda module, given: 3 * given[0])
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert result.after.model_accuracy == pytest.approx(result.after.accuracy)
    assert result.after.loss == pytest.approx(cross_entropy(model, inputs, classes), abs=1e-5)


def test_a_model_in_a_parallel_wrapper_is_solved_for():
    (inputs, classes), model = static_data(), nn.DataParallel(draw_static())
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert result.layer == "module.2"
    assert result.after.loss < result.before.loss


@pytest.mark.filterwarnings("ignore:`torch.jit.*:DeprecationWarning")
def test_scripted_models_are_refused():
    inputs, classes = static_data()
    model = torch.jit.trace(draw_static(), inputs)
    weight = model.state_dict()["2.weight"].clone()
    with pytest.raises(InvalidInputError, match=r"without any torch\.nn\.Linear"):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert torch.equal(model.state_dict()["2.weight"], weight)


def test_attention_at_the_end_is_no_linear_layer():
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.attention = nn.Linear(N_FEATURES, 4), nn.MultiheadAttention(4, 1, batch_first=True)

        def forward(self, x):
            x = self.first(x)[:, None]
            return self.attention(x, x, x)[0][:, 0]

    assert_refused(Attending(), "got MultiheadAttention 'attention' after it")
