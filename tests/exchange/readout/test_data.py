import pytest
import torch
from exchange.readout.strangers import (
    N_CLASSES,
    N_FEATURES,
    N_HIDDEN,
    Looped,
    accuracy,
    cross_entropy,
    draw_data,
    static_data,
)
from tolerances import ROUNDING, SINGLE_PRECISION
from torch import nn

import cvxsnn.exchange.readout.data
from cvxsnn import SpikeDictionary, reconstruct_readout
from cvxsnn.dictionary import DenseDictionary


class PoissonCoded(Looped):
    def forward(self, x):
        return super().forward(torch.bernoulli(torch.sigmoid(x)))


def test_a_random_encoder_draws_from_the_seed_and_leaves_the_global_numbers_alone():
    inputs, classes = draw_data()
    state = torch.get_rng_state()
    weights = []
    for seed in (0, 0, 1):
        model = PoissonCoded()
        torch.set_rng_state(state)
        weights.append(reconstruct_readout(model, inputs, classes, seed=seed, l1_strength=1e-3).model.out.weight)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_features_that_are_no_spikes_are_solved_for_with_a_note():
    inputs, classes = static_data()
    model = nn.Sequential(nn.Linear(N_FEATURES, N_HIDDEN), nn.Tanh(), nn.Linear(N_HIDDEN, N_CLASSES))
    result = reconstruct_readout(model, inputs, classes, l1_strength=1e-3)
    assert result.notes == ("the layer reads real numbers, not spikes; the program is convex all the same",)
    assert result.after.loss < result.before.loss
    assert result.solution.has_converged


def test_features_that_stop_being_spikes_in_a_later_batch_are_real():
    inputs, classes = static_data()
    model = nn.Sequential(nn.Identity(), nn.Linear(N_FEATURES, N_CLASSES))
    inputs = (inputs > 0).float()
    inputs[-1, 0] = 0.5
    result = reconstruct_readout(model, inputs, classes, batch_size=8, l1_strength=1e-3)
    assert "real numbers" in result.notes[0]
    assert torch.equal(result.solution.problem.dictionary.columns(), inputs.double())


def test_counts_that_would_not_fit_as_numbers_are_packed_and_give_the_same(monkeypatch):
    inputs, classes = draw_data()
    dense = reconstruct_readout(Looped(), inputs, classes, l1_strength=0.01)
    monkeypatch.setattr(cvxsnn.exchange.readout.data, "DENSE_BYTES", 1)
    packed = reconstruct_readout(Looped(), inputs, classes, l1_strength=0.01)
    assert isinstance(dense.solution.problem.dictionary, DenseDictionary)
    assert isinstance(packed.solution.problem.dictionary, SpikeDictionary)
    gap = max(dense.certificate.gap, packed.certificate.gap)
    assert abs(dense.certificate.primal - packed.certificate.primal) <= gap
    assert packed.before.loss == pytest.approx(dense.before.loss, rel=ROUNDING)
    assert accuracy(packed.model, inputs, classes) == packed.after.accuracy


def test_readout_last_takes_the_spikes_of_the_last_step():
    (inputs, classes), model = draw_data(), Looped()
    with torch.no_grad():
        last = model.spikes(inputs)[-1]
    result = reconstruct_readout(model, inputs, classes, readout="last", l1_strength=1e-3)
    assert torch.equal(result.solution.problem.dictionary.columns(), last.double())
    assert result.after.loss == pytest.approx(cross_entropy(model.out, last, classes), abs=SINGLE_PRECISION)


def test_the_mean_is_over_all_of_many_steps():
    inputs, classes = draw_data(n_samples=12, n_steps=700)
    model = Looped()
    with torch.no_grad():
        mean = model.spikes(inputs).double().mean(0)
    result = reconstruct_readout(model, inputs, classes, batch_size=5, l1_strength=1e-3)
    torch.testing.assert_close(result.solution.problem.dictionary.columns(), mean, rtol=ROUNDING, atol=0)


def test_spikes_in_memory_that_is_used_again_are_recorded_as_they_were():
    class OneBuffer(Looped):
        def forward(self, x):
            line, outputs = torch.empty(len(x), N_HIDDEN), []
            for spikes in self.spikes(x):
                line.copy_(spikes)
                outputs.append(self.out(line))
            return torch.stack(outputs).mean(0)

    inputs, classes = draw_data()
    results = [reconstruct_readout(kind(), inputs, classes, l1_strength=0.01) for kind in (Looped, OneBuffer)]
    assert results[0].after == results[1].after


def test_layers_may_be_called_by_keyword():
    class ByKeyword(Looped):
        def forward(self, x):
            return torch.stack([self.out(input=spikes) for spikes in self.spikes(x)]).mean(0)

    inputs, classes = draw_data()
    results = [reconstruct_readout(kind(), inputs, classes, l1_strength=0.01) for kind in (Looped, ByKeyword)]
    assert results[0].after == results[1].after
