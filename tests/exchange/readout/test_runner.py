import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    N_STEPS,
    Looped,
    Spike,
    accuracy,
    draw_data,
    draw_static,
    static_data,
    unharmed,
)
from tolerances import ROUNDING
from torch import nn

from cvxsnn import InvalidInputError, reconstruct_readout


def mean_spikes(model, inputs):
    with torch.no_grad():
        return model.spikes(inputs).double().mean(0)


class TimeFirst(Looped):
    """Takes time first, and gives every step."""

    def forward(self, x):
        return self.out(self.spikes(x.transpose(0, 1)))


class AllAtOnce(Looped):
    """Takes samples first, reads time first, gives samples first."""

    def forward(self, x):
        return self.out(self.spikes(x)).transpose(0, 1)


class BatchFirst(Looped):
    """Samples first, all the way."""

    def forward(self, x):
        return self.out(self.spikes(x).transpose(0, 1))


class FlatTimeFirst(Looped):
    """Steps and samples in one axis, steps first."""

    def forward(self, x):
        return self.out(self.spikes(x).flatten(0, 1)).unflatten(0, (x.shape[1], len(x)))


class FlatBatchFirst(Looped):
    """Steps and samples in one axis, samples first."""

    def forward(self, x):
        return self.out(self.spikes(x).transpose(0, 1).flatten(0, 1)).unflatten(0, (len(x), x.shape[1])).mean(1)


class Listing(Looped):
    """A list with an output for each step, and a state beside it."""

    def forward(self, x):
        return [(self.out(spikes), spikes) for spikes in self.spikes(x)]


class Stepped(nn.Module):
    """One step at a time, with a membrane that it keeps."""

    def __init__(self):
        super().__init__()
        self.net, self.membrane = Looped(), None

    def spikes(self, x):
        return self.net.spikes(x)

    def reset(self):
        self.membrane = None

    def forward(self, x):
        membrane = (0 if self.membrane is None else 0.9 * self.membrane) + self.net.hidden(x)
        spikes = (membrane > 1).to(x)
        self.membrane = membrane - spikes
        return self.net.out(spikes), self.membrane


WAYS = {
    "looped": (Looped, "batch"),
    "time first": (TimeFirst, "time-first"),
    "all at once": (AllAtOnce, "batch"),
    "batch first": (BatchFirst, "batch"),
    "flat, time first": (FlatTimeFirst, "batch"),
    "flat, batch first": (FlatBatchFirst, "batch"),
    "listing": (Listing, "batch"),
    "stepped": (Stepped, "stepped"),
}


@pytest.mark.parametrize("batch_size", [4, 5, 25, 60], ids=lambda size: f"batches of {size}")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_through_time_is_recorded_alike(way, batch_size):
    # Batches as long as sequences, among them the last of 25, 25 and 10: neither axis can be told by its size.
    (inputs, classes), (kind, layout) = draw_data(n_steps=10 if batch_size == 25 else N_STEPS), WAYS[way]
    model = kind()
    expected = mean_spikes(model, inputs)
    result = reconstruct_readout(model, inputs, classes, layout=layout, batch_size=batch_size, l1_strength=0.01)
    columns = result.solution.problem.dictionary.columns()
    torch.testing.assert_close(columns, expected, rtol=ROUNDING, atol=0)
    for score in (result.before, result.after):
        assert score.model_accuracy == score.accuracy
    assert result.notes == ()


@pytest.mark.parametrize("n_steps", [6, 7])
@pytest.mark.parametrize("way", WAYS)
def test_sequences_as_long_as_the_opening_are_recorded_alike(way, n_steps):
    (inputs, classes), (kind, layout) = draw_data(n_samples=35, n_steps=n_steps), WAYS[way]
    model = kind()
    result = reconstruct_readout(model, inputs, classes, layout=layout, batch_size=7, l1_strength=0.01)
    columns = result.solution.problem.dictionary.columns()
    torch.testing.assert_close(columns, mean_spikes(model, inputs), rtol=ROUNDING, atol=0)
    assert result.after.model_accuracy == result.after.accuracy


def test_run_takes_any_other_way():
    inputs, classes = draw_data()
    results = [
        reconstruct_readout(Looped(), inputs, classes, l1_strength=0.01),
        reconstruct_readout(Looped(), 3 * inputs, classes, l1_strength=0.01, run=lambda model, batch: model(batch / 3)),
    ]
    assert results[1].after.loss == pytest.approx(results[0].after.loss, rel=ROUNDING)


@pytest.mark.parametrize(
    "pack",
    [
        lambda out: (out, None),
        lambda out: ((out, 3), "state"),
        lambda out: (out.log_softmax(1), {}),
        lambda out: 2 * out,
    ],
    ids=["tuple", "nested", "logarithms", "scaled"],
)
def test_outputs_come_in_any_packing(pack):
    class Packed(Looped):
        def forward(self, x):
            return pack(super().forward(x))

    inputs, classes = draw_data()
    result = reconstruct_readout(Packed(), inputs, classes, l1_strength=0.01)
    assert result.after.model_accuracy == result.after.accuracy
    assert result.notes == ()


@pytest.mark.parametrize(
    "pack",
    [lambda out: {"scores": out}, lambda out: (), lambda out: None, lambda out: out.argmax(1)],
    ids=["dict", "empty", "nothing", "classes"],
)
def test_outputs_that_cannot_be_read_have_a_note_and_can_be_decided_on(pack):
    class Packed(Looped):
        def forward(self, x):
            self.last = super().forward(x)
            return pack(self.last)

    (inputs, classes), model = draw_data(), Packed()
    result = reconstruct_readout(model, inputs, classes, l1_strength=0.01)
    assert result.after.model_accuracy is None
    assert "pass decide=" in result.notes[-1]
    assert result.after.loss < result.before.loss
    told = reconstruct_readout(
        Packed(), inputs, classes, l1_strength=0.01, run=lambda model, batch: (model(batch), model.last)[1]
    )
    assert told.after.model_accuracy == told.after.accuracy


def test_decide_says_what_an_output_means():
    class Named(Looped):
        def forward(self, x):
            return {"scores": super().forward(x)}

    inputs, classes = draw_data()
    result = reconstruct_readout(
        Named(), inputs, classes, decide=lambda output: output["scores"].argmax(1).numpy(), l1_strength=1e-3
    )
    assert result.after.model_accuracy == result.after.accuracy
    assert result.notes == ()


def test_two_arguments_are_for_run():
    class Two(Looped):
        def forward(self, x, n_steps):
            return super().forward(x[:, :n_steps])

    (inputs, classes), model = draw_data(), Two()
    with unharmed(model), pytest.raises(InvalidInputError, match="pass run="):
        reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    result = reconstruct_readout(model, inputs, classes, run=lambda model, batch: model(batch, 3), l1_strength=1e-3)
    torch.testing.assert_close(
        result.solution.problem.dictionary.columns(), mean_spikes(model, inputs[:, :3]), rtol=ROUNDING, atol=0
    )


def test_a_layer_that_reads_more_than_steps_and_samples_is_refused():
    model = nn.Sequential(nn.Linear(N_FEATURES, N_HIDDEN), Spike(), nn.Linear(N_HIDDEN, N_CLASSES))
    inputs, classes = draw_data()
    with unharmed(model), pytest.raises(InvalidInputError, match="at each step, or all steps at once"):
        reconstruct_readout(model, inputs[:, None], classes, l1_strength=1e-3)


def test_noise_from_elsewhere_is_not_taken_for_feedback():
    class Noisy(Looped):
        """Draws numbers that no seed of torch governs."""

        elsewhere = torch.Generator().manual_seed(0)

        def forward(self, x):
            return super().forward(x + torch.randn(x.shape, generator=self.elsewhere))

    inputs, classes = draw_data()
    result = reconstruct_readout(Noisy(), inputs, classes, l1_strength=1e-3)
    assert result.after.loss < result.before.loss


def test_samples_are_not_changed_by_models_that_work_in_place():
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = draw_static()

        def forward(self, x):
            return self.net(x.sub_(1.0))

    (inputs, classes), model = static_data(), InPlace()
    kept = inputs.clone()
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert torch.equal(inputs, kept)
    assert accuracy(model, inputs.clone(), classes) == result.after.accuracy


def test_integers_reach_a_model_that_wants_them():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, N_HIDDEN), Spike(), nn.Linear(N_HIDDEN, 2))
    tokens = torch.arange(50) % 10
    result = reconstruct_readout(model, tokens, (tokens > 4).long(), l1_strength=1e-3)
    assert result.after.accuracy == 1.0


def test_one_output_may_be_given_without_its_axis():
    inputs, classes = static_data(n_classes=2)
    result = reconstruct_readout(nn.Sequential(draw_static(1), nn.Flatten(0)), inputs, classes, l1_strength=1e-3)
    assert result.after.model_accuracy == result.after.accuracy


def test_the_sign_of_a_probability_decides_nothing():
    inputs, classes = static_data(n_classes=2)
    result = reconstruct_readout(nn.Sequential(draw_static(1), nn.Sigmoid()), inputs, classes, l1_strength=1e-3)
    assert result.after.model_accuracy is None
    assert "pass decide=" in result.notes[-1]
    told = reconstruct_readout(
        nn.Sequential(draw_static(1), nn.Sigmoid()), inputs, classes, decide=lambda output: output[:, 0] > 0.5
    )
    assert told.after.model_accuracy == told.after.accuracy
