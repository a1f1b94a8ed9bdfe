"""Explanations add up to the scores, and name the spikes that they are due to; exchanged channels lower the score."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from estimators.samples import LABELS, LISTS, SEQUENCES
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from small_models import assert_one_sentence, classes_of, classifier, regressor, sums
from tolerances import FLOAT64_SUM

import cvxsnn as cs
from cvxsnn import InvalidInputError, SequenceScaler, SpikingClassifier, SpikingNetwork, load, save
from cvxsnn.data import Sequences
from cvxsnn.dictionary.base import parse_readout
from cvxsnn.estimators import Explanation
from cvxsnn.estimators.explanation import exchange
from cvxsnn.network import OutputHead
from cvxsnn.network.tracing import attribute
from cvxsnn.neurons import roll_out
from cvxsnn.neurons.statistics import STATISTICS
from cvxsnn.witnesses import Kinds
from cvxsnn.witnesses.kinds import KINDS, readout_of

OF_LISTS = classes_of(LISTS, 3)


def assert_adds_up(model, sequences):
    """Steps and neurons of every sequence add up to its scores, which are sums of a few thousand numbers below ten."""
    scores = getattr(model, "decision_function", model.predict)(sequences)
    explanations = model.explain(sequences)
    assert len(explanations) == len(sequences)
    for explanation, sequence, score in zip(explanations, sequences, scores, strict=True):
        score = np.ravel(score)
        assert explanation.evidence.shape == (len(sequence), len(score))
        assert explanation.neurons.shape == (len(explanation.numbers), len(score))
        np.testing.assert_array_equal(explanation.inputs, sequence)
        for found in (
            explanation.scores,
            explanation.over_time[-1],
            explanation.intercept + explanation.neurons.sum(0),
        ):
            np.testing.assert_allclose(found, score, atol=FLOAT64_SUM)


@pytest.mark.parametrize("readout", ["last", "mean", "windows-2"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax", "hinge", "squared_hinge"])
def test_evidence_adds_up_to_the_scores_of_two_and_of_three_classes(readout, loss):
    assert_adds_up(classifier(loss=loss, readout=readout).fit(SEQUENCES, LABELS), SEQUENCES)
    assert_adds_up(classifier(loss=loss, readout=readout).fit(LISTS, OF_LISTS), LISTS)


RNG = np.random.default_rng(0)
LONG = [RNG.normal(size=(9 + number % 4, 2)) for number in range(40)]


@pytest.mark.parametrize("kind", list(KINDS))
def test_evidence_of_every_kind_of_neurons_adds_up(kind):
    family = Kinds(n_witnesses=90, kinds=(kind,))
    model = SpikingClassifier(witnesses=family, readout=readout_of((kind,)), random_state=0)
    model.fit(LONG, np.arange(40) % 3)
    assert_adds_up(model, LONG)


def test_evidence_of_the_default_of_few_neurons_and_of_trained_ones_adds_up():
    labels = np.arange(40) % 3
    assert_adds_up(SpikingClassifier(n_neurons=64, random_state=0).fit(SEQUENCES, LABELS), SEQUENCES)
    few = SpikingClassifier(n_neurons=200, random_state=0, sparsity=8).fit(LONG, labels)
    assert_adds_up(few, LONG)
    assert_adds_up(
        classifier("sg-cvx", hidden=(8, 24), n_subnetworks=2, witnesses="gaussian").fit(LISTS, LABELS), LISTS
    )


def test_evidence_of_a_regressor_of_rows_and_of_two_softmax_outputs_adds_up():
    assert_adds_up(regressor().fit(SEQUENCES, sums(SEQUENCES)), SEQUENCES)
    assert_adds_up(regressor(readout="mean").fit(LISTS, np.stack((sums(LISTS), -sums(LISTS) / 2), 1)), LISTS)
    rows = SEQUENCES[:, 0]
    model = classifier().fit(rows, LABELS)
    explanation = model.explain(rows[0])
    np.testing.assert_allclose(explanation.scores, model.decision_function(rows[:1]), atol=FLOAT64_SUM)
    assert explanation.inputs.shape == (1, 3)
    assert len(model.explain(rows)) == len(rows)


def draw_network(readout, n_features=2):
    """A network whose every column is read, with weights around one."""
    layers = cs.gaussian_witnesses(n_features, (30,), seed=0, decay=0.5).layers
    parsed = parse_readout(readout)
    weight = torch.randn(30 * parsed.n_windows, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return SpikingNetwork(layers, weight, [OutputHead("label", "softmax", 0, 2)], readout=readout)


def due_to(train, statistic):
    """The steps that an entry of one spike train is due to, and the entry, by their definitions."""
    n_steps, fired = len(train), [step for step, spike in enumerate(train) if spike]
    runs = [range(i, j) for i in range(n_steps) for j in range(i + 1, n_steps + 1) if all(train[i:j])]
    longest = max(runs, key=len, default=())  # of equally long runs the first
    return {
        "mean": (fired, len(fired) / n_steps),
        "root": (fired, np.sqrt(len(fired) / n_steps)),
        "burst": (longest, len(longest) / n_steps),
        "ever": (fired[:1], float(bool(fired))),
        "first": (fired[:1], (n_steps - fired[0]) / n_steps if fired else 0.0),
        "last": ([n_steps - 1] if train[-1] else [], float(train[-1])),
    }[statistic]


@pytest.mark.parametrize("lengths", [None, [7, 1, 9, 4]], ids=["equal", "unequal"])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_each_statistic_is_divided_among_the_steps_that_make_it(statistic, lengths):
    sequences = Sequences(torch.from_numpy(np.random.default_rng(1).normal(size=(4, 9, 2))), lengths)
    network = draw_network(statistic)
    spikes = roll_out(network.layers, sequences, "all").numpy()
    scores, weight = network(sequences).detach().numpy(), network.weight.detach().numpy()
    seen = 0
    for number, (evidence, neurons) in enumerate(attribute(network, sequences)):
        n_steps = 9 if lengths is None else lengths[number]
        expected = np.zeros((n_steps, 2))
        for neuron, train in enumerate(spikes[number, :n_steps].T):
            steps, entry = due_to(train.tolist(), statistic)
            np.testing.assert_allclose(neurons[neuron], entry * weight[neuron], atol=FLOAT64_SUM)
            for step in steps:
                expected[step] += entry * weight[neuron] / len(steps)
            seen += len(steps)
        np.testing.assert_allclose(evidence, expected, atol=FLOAT64_SUM)
        np.testing.assert_allclose(evidence.sum(0), scores[number], atol=FLOAT64_SUM)
    assert seen > 10


@pytest.mark.parametrize("readout", ["mean", "last", "windows-3", "+".join(STATISTICS)])
def test_networks_of_every_readout_are_divided_whatever_the_order_of_their_columns(readout):
    full = draw_network(readout)
    some = torch.randperm(len(full.columns), generator=torch.Generator().manual_seed(0))[:25]
    windows = None if full.windows_read is None else full.windows_read[some]
    intercept = torch.tensor([0.5, -0.25], dtype=torch.float64)
    network = SpikingNetwork(
        full.layers, full.weight[some], full.heads, intercept, full.neurons[some], readout, windows
    )
    sequences = Sequences(torch.from_numpy(np.random.default_rng(1).normal(size=(4, 9, 2))), [7, 1, 9, 4])
    features = network.features(sequences).numpy()
    listed = torch.unique(network.neurons).tolist()
    for number, (evidence, neurons) in enumerate(attribute(network, sequences)):
        score = network(sequences)[number].detach().numpy()
        np.testing.assert_allclose(intercept.numpy() + evidence.sum(0), score, atol=FLOAT64_SUM)
        parts = features[number][:, None] * network.weight.detach().numpy()
        for neuron, part in zip(listed, neurons, strict=True):
            own = parts[network.neurons.numpy() == neuron]
            np.testing.assert_allclose(part, own.sum(0), atol=FLOAT64_SUM)


def test_the_spikes_of_a_window_count_within_it():
    network, sequence = draw_network("windows-2"), np.random.default_rng(1).normal(size=(1, 7, 2))
    spikes = roll_out(network.layers, sequence, "all")[0].double().numpy()
    ((evidence, _),) = attribute(network, sequence)
    for steps, window in ((slice(0, 4), 0), (slice(4, 7), 1)):
        weight = network.weight.detach().numpy()[window::2]
        np.testing.assert_allclose(evidence[steps], spikes[steps] @ weight * 2 / 7, atol=FLOAT64_SUM)


def test_long_sequences_are_divided_in_blocks(monkeypatch):
    network, inputs = draw_network("mean+burst"), np.random.default_rng(1).normal(size=(2, 9, 2))
    whole = list(attribute(network, inputs))
    monkeypatch.setattr("cvxsnn.network.tracing._BLOCK", 40)
    for one, other in zip(whole, attribute(network, inputs), strict=True):
        np.testing.assert_allclose(one[0], other[0], atol=FLOAT64_SUM)
        np.testing.assert_allclose(one[1], other[1], atol=FLOAT64_SUM)


@pytest.fixture(scope="module")
def model():
    return classifier(readout="mean").fit(LISTS, np.array(["low", "middle", "high"])[OF_LISTS])


def test_one_sequence_has_one_explanation(model, tmp_path):
    found = model.explain(LISTS[3])
    assert isinstance(found, Explanation)
    (same,) = model.explain([LISTS[3]])
    np.testing.assert_array_equal(found.evidence, same.evidence)
    np.testing.assert_array_equal(model.explain(pd.DataFrame(LISTS[3])).evidence, same.evidence)
    np.testing.assert_array_equal(model.explain(torch.tensor(LISTS[3])).evidence, same.evidence)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").explain(LISTS[3]).neurons, found.neurons)
    pipeline = make_pipeline(SequenceScaler(), classifier()).fit(LISTS, OF_LISTS)
    explanation = pipeline[-1].explain(pipeline[:-1].transform(LISTS[3:4]))[0]
    np.testing.assert_allclose(explanation.scores, pipeline.decision_function(LISTS[3:4])[0], atol=FLOAT64_SUM)


def test_channels_first_are_explained_with_steps_first():
    swapped = np.swapaxes(SEQUENCES, 1, 2)
    model = classifier(layout="channels-first").fit(swapped, LABELS)
    assert model.explain(swapped[0]).inputs.shape == (4, 3)
    found = [explanation.scores[0] for explanation in model.explain(swapped)]
    np.testing.assert_allclose(found, model.decision_function(swapped), atol=FLOAT64_SUM)


def test_an_explanation_names_the_answer_and_what_decided_it(model):
    for explanation, sequence in zip(model.explain(LISTS), LISTS, strict=True):
        scores = np.sort(explanation.scores)
        answer, intercept, steps, neurons = repr(explanation).splitlines()
        predicted = model.predict([sequence])[0]
        assert answer.startswith(f"Explanation: class {predicted}, ahead of ")
        assert answer.endswith(f" by {scores[-1] - scores[-2]:.3g}")
        best, rival = np.argsort(-explanation.scores)[:2]
        contrast = explanation.neurons[:, best] - explanation.neurons[:, rival]
        constant = explanation.intercept[best] - explanation.intercept[rival]
        found = [float(line.split(", most")[0].split()[-1]) for line in (intercept, steps, neurons)]
        assert found == pytest.approx([constant, contrast.sum(), contrast.sum()], rel=5e-3)  # three digits
        assert int(neurons.split("most of all ")[1].split()[0]) == explanation.numbers[abs(contrast).argmax()]


def test_two_classes_and_outputs_are_named():
    two = classifier().fit(SEQUENCES, np.array(["up", "down"])[LABELS])
    for explanation, sequence in zip(two.explain(SEQUENCES), SEQUENCES, strict=True):
        predicted = two.predict([sequence])[0]
        rival = {"up": "down", "down": "up"}[predicted]
        margin = abs(two.decision_function([sequence])[0])
        assert explanation.answer == f"class {predicted}, ahead of {rival} by {margin:.3g}"
    assert explanation.names == ["up over down"]
    one = regressor().fit(SEQUENCES, sums(SEQUENCES)).explain(SEQUENCES[0])
    assert one.answer == f"output {one.scores[0]:.4g}"
    several = regressor().fit(SEQUENCES, np.stack((sums(SEQUENCES), 0 * LABELS), 1)).explain(SEQUENCES[0])
    assert several.answer.endswith("; of output 0")


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        (np.zeros((4, 2)), "expected sequences with 3 features as in fit"),
        (np.zeros(4), "got rows of features: pass an array"),
        ([], "expected sequences with 3 features as in fit"),
        ([[1.0, np.nan, 2.0]], "fill the gaps"),
        ("text", "expected sequences with 3 features as in fit"),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(model, inputs, complaint):
    with pytest.raises((ValueError, TypeError), match=complaint) as caught:
        model.explain(inputs)
    assert_one_sentence(caught.value)


def test_networks_that_answer_at_every_step_are_refused():
    with pytest.raises(InvalidInputError, match="one that answers at every step"):
        next(attribute(draw_network("all"), np.zeros((1, 3, 2))))


RNG_OF_CHANNELS = np.random.default_rng(0)
NOISE = RNG_OF_CHANNELS.normal(size=(60, 8, 3))
LATE = NOISE[:, 4:, 1].sum(1)


def test_the_channel_and_the_window_that_decide_are_found():
    model = regressor(readout="windows-2", hidden=(100,)).fit(NOISE, LATE)
    found = cs.permutation_importance(model, NOISE, LATE, n_windows=2)
    assert found.score == pytest.approx(model.score(NOISE, LATE))
    assert found.importances.shape == (3, 2, 5)
    assert np.unravel_index(found.importances_mean.argmax(), (3, 2)) == (1, 1)
    assert found.importances_mean[1, 1] > 3 * np.delete(found.importances_mean.ravel(), 3).max()
    assert repr(found).splitlines()[1].endswith("if channel 1, window 1 of 2 is exchanged")
    again = cs.permutation_importance(model, list(NOISE), LATE, n_windows=2)
    np.testing.assert_array_equal(found.importances, again.importances)
    other = cs.permutation_importance(model, NOISE, LATE, n_windows=2, seed=1)
    assert (found.importances != other.importances).any()


def test_a_drop_is_that_of_the_score_of_exchanged_data(monkeypatch):
    labels = (LATE > 0).astype(int)
    model = classifier(layout="channels-first").fit(NOISE.transpose(0, 2, 1), labels)
    found = cs.permutation_importance(model, NOISE.transpose(0, 2, 1), labels, n_repeats=3)
    monkeypatch.setattr("cvxsnn.estimators.explanation._BATCH", 1)
    same = cs.permutation_importance(model, NOISE.transpose(0, 2, 1), labels, n_repeats=3)
    np.testing.assert_array_equal(found.importances, same.importances)
    order = cs.core.seeds.child_generator(0, "permutation importance").permutation(60)
    changed = NOISE.copy()
    changed[:, :, 0] = NOISE[order][:, :, 0]
    drop = found.score - model.score(changed.transpose(0, 2, 1), labels)
    assert found.importances[0, 0, 0] == pytest.approx(drop)


def test_tables_keep_their_names_and_pipelines_and_other_lengths_are_exchanged():
    tables = [pd.DataFrame(sequence, columns=["a", "b", "c"]) for sequence in LISTS]
    pipeline = make_pipeline(SequenceScaler(), classifier()).fit(tables, OF_LISTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cs.permutation_importance(pipeline, tables, OF_LISTS, n_windows=2, n_repeats=2)
    assert found.names == ("a", "b", "c")
    assert found.importances_std.shape == (3, 2)


def test_a_window_of_another_length_is_stretched():
    sequences = [np.arange(8.0).reshape(4, 2), np.arange(100.0, 104.0).reshape(2, 2), np.full((1, 2), 9.0)]
    one, two, three = exchange(sequences, np.array([1, 0, 1]), 1, 1, 2)
    np.testing.assert_array_equal(one[:, 1], [1, 3, 103, 103])
    np.testing.assert_array_equal(two[:, 1], [101, 5])
    np.testing.assert_array_equal(three, sequences[2])  # its second half is empty
    for changed, own in zip((one, two), sequences, strict=False):
        np.testing.assert_array_equal(changed[:, 0], own[:, 0])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"X": NOISE[:, 0]}, "sklearn.inspection.permutation_importance exchanges their columns"),
        ({"y": LATE[:5]}, "expected one target for each of 60 samples, got 5"),
        ({"X": NOISE[:1], "y": LATE[:1]}, "expected at least two samples to exchange channels between, got one"),
        ({"n_windows": 9}, "expected at most 8 windows, the steps of the longest sequence, got 9 windows"),
        ({"n_repeats": 0}, "expected n_repeats to be a positive integer, got 0"),
        ({"model": 3}, "expected a fitted classifier or regressor, got int"),
    ],
)
def test_what_cannot_be_exchanged_is_one_sentence(options, complaint):
    arguments = {"model": LogisticRegression(), "X": NOISE, "y": LATE, **options}
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        cs.permutation_importance(**arguments)
    assert_one_sentence(caught.value)
