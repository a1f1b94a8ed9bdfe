"""Training by surrogate gradients."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from fitting.surrogate.runs import (
    DATA,
    QUICK,
    XOR,
    accuracy,
    are_same,
    delayed,
    draw_network,
    tensors_of,
    train,
)
from small_models import assert_one_sentence
from tolerances import ROUNDING, SINGLE_PRECISION, WEIGHT_GRID

import cvxsnn as cs
from cvxsnn import ConvexProblem, InvalidInputError
from cvxsnn.convex import Objective
from cvxsnn.core import storage
from cvxsnn.core.errors import DataFileError
from cvxsnn.data import TrainingSet
from cvxsnn.data.sequences import Sequences
from cvxsnn.fitting import SurrogateSettings
from cvxsnn.neurons.taps import lift


class InterruptedTrainingError(Exception):
    """Stands for a power cut."""


def plain_history(run):
    return [(epoch.epoch, None if math.isnan(epoch.loss) else epoch.loss, epoch.score) for epoch in run.history]


def assert_same_run(one, other):
    assert plain_history(one) == plain_history(other)
    assert one.best.epoch == other.best.epoch
    assert are_same(one.network, other.network)


def outgrown(network):
    """A score that prefers the start: minus the size of the output weights, which training enlarges."""
    return -float(network.weight.detach().square().sum())


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_runs_of_one_seed_are_identical(neuron):
    network = draw_network(neuron=neuron)
    assert_same_run(train(network=network), train(network=network))
    other = train(replace(QUICK, seed=4), network)
    assert [e.loss for e in other.history[1:]] != [e.loss for e in train(network=network).history[1:]]


def test_training_leaves_its_start_alone():
    network = draw_network()
    before = {name: value.clone() for name, value in tensors_of(network).items()}
    assert not are_same(train(network=network).network, network)
    assert all(torch.equal(value, before[name]) for name, value in tensors_of(network).items())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("score", [accuracy, outgrown])
@pytest.mark.parametrize("n_before", [1, 3, 6])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path, n_before, score, dropout):
    settings = replace(QUICK, dropout=dropout, input_dropout=dropout)

    def interrupt(done, total):
        if done == n_before:
            raise InterruptedTrainingError

    file = tmp_path / "run.safetensors"
    whole = train(settings, score=score)
    with pytest.raises(InterruptedTrainingError):
        train(settings, score=score, callback=interrupt, checkpoint=file)
    done = []
    resumed = train(settings, score=score, callback=lambda epoch, total: done.append((epoch, total)), checkpoint=file)
    assert done == [(epoch, 6) for epoch in range(n_before + 1, 7)]
    assert_same_run(resumed, whole)
    assert_same_run(train(settings, score=score, checkpoint=file), whole)


def assert_refused(file, what, *arguments, **options):
    before = file.read_bytes()
    with pytest.raises(InvalidInputError, match=rf"of the same training, got one with {what}: delete .*run") as caught:
        train(*arguments, checkpoint=file, **options)
    assert_one_sentence(caught.value)
    assert file.read_bytes() == before


@pytest.mark.parametrize("change", [{"learning_rate": 0.1}, {"epochs": 7}, {"seed": 4}, {"surrogate": "sigmoid"}])
def test_a_checkpoint_of_other_settings_is_refused(tmp_path, change):
    train(checkpoint=tmp_path / "run")
    assert_refused(tmp_path / "run", "other settings", replace(QUICK, **change))


@pytest.mark.parametrize("change", [{"hidden": (13,)}, {"seed": 1}, {"decay": 0.5}], ids=str)
def test_a_checkpoint_of_another_network_is_refused(tmp_path, change):
    train(checkpoint=tmp_path / "run")
    assert_refused(tmp_path / "run", "other network", network=draw_network(**change))


def test_a_checkpoint_of_another_loss_is_refused(tmp_path):
    network = draw_network()
    train(network=network, checkpoint=tmp_path / "run")
    # The signs of the two losses are the same, so only the losses differ.
    assert_refused(tmp_path / "run", "other losses", network=network, objective=Objective("squared_hinge"))


def other_inputs(data):
    inputs = data.inputs.clone()
    inputs[3, 1, 0] += 2.0**-16
    return TrainingSet(inputs, data.targets)


OTHER_DATA = {
    "targets": lambda data: TrainingSet(data.sequences, {head: 1 - own for head, own in data.targets.items()}),
    "sequences": other_inputs,
    "targets, sequences": lambda data: data.take(torch.arange(len(data)).flip(0)),
    "weights of sequences": lambda data: TrainingSet(data.sequences, data.targets, torch.arange(1.0, 1 + len(data))),
}


@pytest.mark.parametrize("what", OTHER_DATA)
def test_a_checkpoint_of_other_data_is_refused(tmp_path, what):
    network = draw_network()
    train(network=network, checkpoint=tmp_path / "run")
    assert_refused(tmp_path / "run", f"other {what}", network=network, data=OTHER_DATA[what](DATA))


def test_a_checkpoint_whose_network_has_another_score_now_is_refused(tmp_path):
    run = train(checkpoint=tmp_path / "run")
    worse = run.best.score - 0.1
    assert_refused(tmp_path / "run", f"a score of {run.best.score} .* has {worse} now", score=lambda network: worse)
    assert train(checkpoint=tmp_path / "run").best == run.best


def test_a_checkpoint_from_before_there_were_fingerprints_is_refused(tmp_path):
    train(checkpoint=tmp_path / "run")
    tensors, header = storage.read_tensors(tmp_path / "run", "checkpoint")
    del header["origin"]
    storage.write_tensors(tmp_path / "run", "checkpoint", tensors, header)
    assert_refused(tmp_path / "run", "other network, settings, losses, targets, sequences, weights of sequences")


TAMPERED = {
    "no history": {"history": []},
    "history of text": {"history": "abc"},
    "history of numbers": {"history": [1, 2]},
    "scores of text": {"history": [[0, None, "high"]]},
    "best of no epoch": {"best": 10**6},
    "best before the first": {"best": -1},
    "best of text": {"best": "first"},
    "steps of text": {"n_steps": "many"},
    "endless seconds": {"seconds": float("inf")},
}


@pytest.mark.parametrize("case", [*TAMPERED, "no tensor", "other shape", "NaN"])
def test_a_checkpoint_that_does_not_fit_together_is_one_sentence(tmp_path, case):
    train(checkpoint=tmp_path / "run")
    tensors, header = storage.read_tensors(tmp_path / "run", "checkpoint")
    name = "best.weight"
    tensors |= {
        "other shape": {name: torch.ones(1)},
        "NaN": {"best.layers.0.weight": tensors["best.layers.0.weight"] * torch.nan},
    }.get(case, {})
    if case == "no tensor":
        del tensors[name]
    storage.write_tensors(tmp_path / "run", "checkpoint", tensors, header | TAMPERED.get(case, {}))
    with pytest.raises(DataFileError, match=r"complete checkpoint in .*run, got one that does not fit") as caught:
        train(checkpoint=tmp_path / "run")
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    "damage", [lambda b: b[: len(b) // 2], lambda b: b[:-3] + b"abc", lambda b: b"", lambda b: b"x"]
)
def test_a_damaged_checkpoint_is_one_clear_error(tmp_path, damage):
    file = tmp_path / "run"
    train(checkpoint=file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(DataFileError, match="run") as caught:
        train(checkpoint=file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("scores", "best"), [([1, 5, 2, 3], 1), ([9, 5, 2, 3], 0), ([1, 5, 2, 5], 3), ([1, 2, 3, 4], 3)]
)
def test_the_network_of_the_best_epoch_is_returned_the_later_of_equals(scores, best):
    seen = []

    def score(network):
        seen.append(network)
        return scores[len(seen) - 1]

    run = train(replace(QUICK, epochs=3), score=score)
    assert [epoch.score for epoch in run.history] == scores
    assert [epoch.epoch for epoch in run.history] == [0, 1, 2, 3]
    assert (run.best.epoch, run.best.score) == (best, scores[best])
    assert are_same(run.network, seen[best])
    assert not any(are_same(run.network, other) for other in seen[:best] + seen[best + 1 :])


def test_the_start_is_epoch_zero():
    network, seen = draw_network(), []
    train(replace(QUICK, epochs=1), network, score=lambda found: seen.append(found) or 0.0)
    # Training holds the output weights in the layers' precision.
    assert are_same(seen[0], network.with_readout(network.weight.float(), network.intercept.float()))


@pytest.mark.parametrize(("patience", "last"), [(1, 3), (2, 4), (4, 6), (9, 6), (None, 6)])
def test_patience_stops_so_many_epochs_after_the_best(patience, last):
    scores = iter([0, 1, 2, 1, 1, 1, 1])
    run = train(replace(QUICK, patience=patience), score=lambda network: next(scores))
    assert run.history[-1].epoch == last
    assert run.best.epoch == 2


@pytest.mark.parametrize("loss", ["logistic", "softmax", "hinge", "squared_hinge"])
def test_it_learns_a_small_exclusive_or(loss):
    objective = Objective(loss)
    network = draw_network(objective=objective, hidden=(16, 16))
    run = train(SurrogateSettings(epochs=60, batch_size=40, seed=1), network, objective=objective)
    assert run.history[0].score < 0.8
    assert run.best.score == accuracy(run.network) == 1.0


@pytest.mark.parametrize(("neuron", "readout"), [("threshold", "last"), ("lif", "mean"), ("threshold", "all")])
def test_it_lowers_the_loss_of_every_neuron_and_readout(neuron, readout):
    objective = Objective("logistic", readout)
    bits = XOR.train.inputs[:, :, 1].astype(np.int64)
    data = TrainingSet(DATA.inputs, {"label": bits if readout == "all" else bits.sum(1) > 1})
    network = draw_network(data, objective, neuron=neuron)
    run = train(replace(QUICK, epochs=30), network, data, objective, score=lambda network: 0.0)
    assert run.history[-1].loss < 0.5 * run.history[1].loss


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_real_targets_are_learnt_whatever_their_scale(scale):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 4, 3))
    targets = scale * (inputs[:, -1, 0] + inputs[:, -1, 1] + 5)
    data, objective = TrainingSet(torch.tensor(inputs), {"label": targets}), Objective("squared")

    def score(network):
        return -float((network(inputs)[:, 0].detach() - torch.tensor(targets)).square().mean())

    run = train(
        SurrogateSettings(epochs=60, batch_size=20), draw_network(data, objective, (40,)), data, objective, score
    )
    assert -run.best.score < 0.05 * targets.var()
    assert -run.history[0].score > 0.5 * targets.var()


@pytest.mark.parametrize("readout", ["last", "mean"])
def test_padding_has_no_part_in_training(readout):
    lengths = torch.tensor([1, 2, 3, 3] * 10)
    outside = torch.arange(3) >= lengths[:, None]
    objective, runs = Objective("logistic", readout), []
    for padding in (0.0, 1.0):
        inputs = torch.where(outside[:, :, None], padding, DATA.inputs)
        data = TrainingSet(Sequences(inputs, lengths), DATA.targets)
        runs.append(train(network=draw_network(data, objective), data=data, objective=objective))
    assert_same_run(*runs)


def test_the_loss_of_padded_sequences_is_that_of_each_alone():
    lengths = torch.tensor([1, 2, 3, 3] * 10)
    for readout in ("last", "mean"):
        objective = Objective("logistic", readout)
        data = TrainingSet(Sequences(DATA.inputs, lengths), DATA.targets)
        network = draw_network(data, objective, dtype=torch.float64)
        scores = network(Sequences(DATA.inputs, lengths))[:, 0].detach()
        signs = 2.0 * torch.tensor(XOR.train.targets) - 1
        run = train(replace(QUICK, epochs=1, batch_size=40), network, data, objective)
        expected = float(torch.nn.functional.softplus(-signs * scores).mean())
        assert run.history[1].loss == pytest.approx(expected, rel=ROUNDING)


def test_sequences_of_no_weight_are_as_good_as_absent():
    weight = np.arange(40) % 4 != 0
    rng = np.random.default_rng(0)
    targets = rng.normal(size=40)
    targets[~weight] = 1e6
    objective, settings = Objective("squared"), replace(QUICK, epochs=3, batch_size=40)
    whole = TrainingSet(DATA.inputs, {"label": targets}, torch.tensor(weight.astype(float)))
    part = whole.take(torch.tensor(np.flatnonzero(weight)))
    network = draw_network(part, objective, dtype=torch.float64)
    runs = [train(settings, network, data, objective, score=lambda network: 0.0) for data in (whole, part)]
    for one, other in zip(*(run.history[1:] for run in runs), strict=True):
        assert one.loss == pytest.approx(other.loss, rel=ROUNDING)
    found, expected = (run.network(XOR.val.inputs).detach() for run in runs)
    torch.testing.assert_close(found, expected, rtol=ROUNDING, atol=ROUNDING)


def test_sample_weights_shift_what_is_learnt():
    # Every sequence comes twice with opposite labels; the weights say which label to believe.
    inputs = DATA.inputs.repeat(2, 1, 1)
    labels = np.concatenate([XOR.train.targets, 1 - XOR.train.targets])
    for believed in (0, 1):
        weight = torch.full((80,), 1.0)
        weight[40 * believed : 40 * (believed + 1)] = 50.0
        data = TrainingSet(inputs, {"label": labels}, weight)

        def score(network, believed=believed):
            return float((network.predict(XOR.train.inputs)["label"] == (XOR.train.targets ^ believed)).mean())

        run = train(SurrogateSettings(epochs=40, batch_size=40), draw_network(data, hidden=(32,)), data, score=score)
        assert run.best.score > 0.95


def test_the_reported_loss_is_the_objective_that_the_convex_program_has():
    task = cs.tasks.addition(3, 3, n_train=30, n_val=2, n_test=2, n_test_ood=2)
    data = TrainingSet(torch.tensor(task.train.inputs), task.train.heads, torch.arange(30.0))
    objective = Objective({"sum": "softmax", "carry": "logistic"}, "all", {"carry": 2.5}, "ramped")
    network = draw_network(data, objective, dtype=torch.float64)
    dictionary = cs.build_dictionary(
        cs.WitnessSet(network.layers, cs.witnesses.Provenance("pretrained")), task.train.inputs, "all"
    )
    problem = ConvexProblem.of(objective, dictionary, data)
    expected = float(problem.loss_value(network(task.train.inputs).detach().reshape(-1, 4)))
    # Steps so small that the loss stays; a bias would break ties, which are frequent on blank columns.
    frozen = SurrogateSettings(epochs=1, batch_size=7, learning_rate=1e-12, train_bias=False)
    run = train(frozen, network, data, objective, score=lambda network: 0.0)
    assert run.history[1].loss == pytest.approx(expected, rel=SINGLE_PRECISION)


def still_network(**options):
    """A network with no gradient: its outputs are zero, and so are the targets."""
    data = TrainingSet(DATA.inputs, {"label": np.zeros(40)})
    network = draw_network(data, Objective("squared"), dtype=torch.float64, **options)
    return data, network.with_readout(torch.zeros_like(network.weight))


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_weight_decay_shrinks_weights_at_the_rate_of_the_schedule_and_nothing_else(schedule):
    data, network = still_network()
    settings = SurrogateSettings(epochs=4, batch_size=20, learning_rate=0.5, weight_decay=0.5, schedule=schedule)
    run = train(settings, network, data, Objective("squared"), score=lambda network: 0.0)
    shares = [0.5 * (1 + math.cos(math.pi * step / 8)) if schedule == "cosine" else 1.0 for step in range(8)]
    factor = math.prod(1 - 0.25 * share for share in shares)
    (before,), (after,) = network.layers, run.network.layers
    largest = float(before.weight.abs().max())
    torch.testing.assert_close(after.weight, factor * before.weight, rtol=0, atol=WEIGHT_GRID * largest)
    for name in ("bias", "decay", "threshold", "initial_membrane", "initial_spikes"):
        assert torch.equal(after.tensors()[name], before.tensors()[name])


def test_gradients_are_clipped():
    # Far below the constant that Adam adds to a gradient's size, no gradient moves a weight.
    network = draw_network()
    after = train(replace(QUICK, epochs=1, clip_norm=1e-20), network).network
    assert torch.equal(after.layers[0].weight, network.layers[0].weight)
    assert torch.equal(after.weight, network.weight.float().double())


def test_dropout_hides_neurons_from_training_only():
    plain, hidden = train(QUICK), train(replace(QUICK, dropout=0.5, input_dropout=0.2))
    assert plain.history[1].loss != hidden.history[1].loss
    assert not are_same(plain.network, hidden.network)
    assert hidden.best.score == accuracy(hidden.network)


def test_epochs_that_only_keep_a_score_up_try_patience_and_still_count_as_the_best():
    scores = iter([0, 1, 1, 1, 1, 1, 1])
    run = train(replace(QUICK, patience=2), score=lambda network: next(scores))
    assert [moment.epoch for moment in run.history] == [0, 1, 2, 3]
    assert run.best.epoch == 3


def accuracy_and_size(network):
    return accuracy(network), outgrown(network)


def test_scores_that_are_pairs_survive_a_checkpoint(tmp_path):
    def interrupt(done, total):
        if done == 3:
            raise InterruptedTrainingError

    whole = train(score=accuracy_and_size)
    with pytest.raises(InterruptedTrainingError):
        train(score=accuracy_and_size, callback=interrupt, checkpoint=tmp_path / "run")
    assert_same_run(train(score=accuracy_and_size, checkpoint=tmp_path / "run"), whole)
    assert whole.best.score == max(epoch.score for epoch in whole.history)


@pytest.mark.parametrize("neuron", ["lif", "threshold"])
def test_training_with_all_delays_is_training_on_lifted_inputs_step_for_step(neuron):
    max_delay, n_features = 2, DATA.inputs.shape[2]
    lifted_inputs = lift(DATA.inputs.transpose(0, 1), max_delay).transpose(0, 1)
    lifted = TrainingSet(lifted_inputs, DATA.targets)
    dense = draw_network(lifted, neuron=neuron, dtype=torch.float64)
    (layer,) = dense.layers
    place = torch.arange(layer.n_inputs)[:, None].expand(layer.weight.shape)
    taps = {"source": place % n_features, "delay": max_delay - place // n_features, "n_sources": n_features}
    network = cs.SpikingNetwork([replace(layer, **taps)], dense.weight, dense.heads, dense.intercept)
    settings = replace(QUICK, epochs=3, weight_decay=0.1, clip_norm=0.5, learning_rate=3e-2)
    expected = train(settings, dense, lifted, score=lambda network: 0.0)
    found = train(settings, network, score=lambda network: 0.0)
    assert [e.loss for e in found.history[1:]] == [e.loss for e in expected.history[1:]]
    (before,), (after,), (other,) = network.layers, found.network.layers, expected.network.layers
    assert not torch.equal(after.weight, before.weight)
    for name, value in other.tensors().items():
        assert torch.equal(after.tensors()[name], value), name
    assert torch.equal(after.delay, before.delay)
    assert torch.equal(found.network.weight, expected.network.weight)


def test_an_interrupted_run_with_delays_goes_on_as_if_nothing_had_happened(tmp_path):
    network, file = delayed(draw_network(hidden=(6, 8))), tmp_path / "run.safetensors"

    def interrupt(done, total):
        if done == 3:
            raise InterruptedTrainingError

    with pytest.raises(InterruptedTrainingError):
        train(network=network, callback=interrupt, checkpoint=file)
    assert_same_run(train(network=network, checkpoint=file), train(network=network))
    with pytest.raises(
        InvalidInputError, match="expected a checkpoint of the same training, got one with other network"
    ):
        train(network=delayed(network, max_delay=1), checkpoint=file)
