"""Early answers: every read-out is an optimum of its own, and stopping loses as little as was asked for."""

from copy import copy

import numpy as np
import pytest
import torch
from small_models import assert_one_sentence, classifier
from tolerances import CERTIFIED_AGAIN, REFITTED

import cvxsnn as cs
from cvxsnn.convex.losses import make_loss
from cvxsnn.core.errors import DataFileError, InvalidInputError, OtherDataWarning
from cvxsnn.core.storage import write_tensors
from cvxsnn.estimators import EarlyClassifier, EarlyStream, files
from cvxsnn.estimators.early import _margins


def make_task(n_samples, seed, n_steps=12, n_classes=3):
    """Sequences whose classes differ more and more clearly along time, of unequal lengths."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_classes, size=n_samples)
    lengths = rng.integers(n_steps // 2, n_steps + 1, size=n_samples)
    means = np.eye(n_classes)[labels] * rng.uniform(0, 2, (n_samples, 1))
    return [rng.normal(size=(length, n_classes)) + mean for length, mean in zip(lengths, means, strict=True)], labels


TRAIN, LABELS = make_task(90, 0)
TEST, TRUTH = make_task(400, 1)
RIDGE = {"hidden": (40,), "l1_strength": 0.0, "penalty": "elastic-net", "loss": "squared", "readout": "mean"}
EARLY = EarlyClassifier(classifier(**RIDGE), fractions=(0.01, 0.25, 0.5, 0.75)).fit(TRAIN, LABELS)


def test_reads_at_shares_of_the_longest_sequence_and_at_its_end():
    assert EARLY.steps_ == (3, 6, 9, 12)
    assert [head.name for head in EARLY.network_.heads] == ["step 3", "step 6", "step 9", "step 12"]


def test_every_readout_is_the_certified_optimum_over_the_sequences_cut_there():
    scaled = EARLY.model_.as_sequences(TRAIN)
    targets = np.eye(3)[LABELS] + (make_loss(EARLY.model_.proof_.objective.loss).shift or 0.0)
    for n_steps, head, certificate in zip(EARLY.steps_, EARLY.network_.heads, EARLY.certificates_, strict=True):
        assert certificate.relative_gap <= 1e-6
        cut = cs.data.Sequences(scaled.inputs[:, :n_steps], scaled.lengths.clamp(max=n_steps))
        features = EARLY.network_.features(cut).numpy()
        weight = EARLY.network_.weight.detach()[:, head.columns].numpy()
        residuals = targets - EARLY.network_(cut).detach()[:, head.columns].numpy()
        # The conditions of ridge regression: correlations with residuals are the strength times the weights.
        correlations = features.T @ residuals / len(targets)
        strength = (correlations * weight).sum() / (weight * weight).sum()
        np.testing.assert_allclose(correlations, strength * weight, atol=1e-9)
        np.testing.assert_allclose(residuals.mean(0), 0, atol=1e-9)
        objective = np.square(residuals).sum(1).mean() / 2 + strength * np.square(weight).sum() / 2
        assert certificate.primal == pytest.approx(objective, rel=REFITTED)
    np.testing.assert_allclose(residuals, targets - EARLY.model_.decision_function(TRAIN), atol=1e-9)


def answer(sequence, threshold):
    """The answer to one sequence by definition: the label and the steps read."""
    for number, n_steps in enumerate(EARLY.steps_[:-1]):
        if n_steps >= len(sequence):
            break
        cut = EARLY.model_.as_sequences([sequence[:n_steps]])
        scores = EARLY.network_(cut).detach()[0, EARLY.network_.heads[number].columns]
        second, first = np.sort(scores.numpy())[-2:]
        if EARLY._scales[number] * (first - second) > threshold:
            return int(scores.argmax()), n_steps
    return EARLY.model_.predict([sequence])[0], len(sequence)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_a_sequence_is_answered_at_the_first_clear_readout_and_else_at_its_end(confidence):
    labels, n_steps = EARLY.predict_early(TEST, confidence)
    expected = [answer(sequence, EARLY.threshold(confidence)) for sequence in TEST]
    assert list(zip(labels.tolist(), n_steps.tolist(), strict=True)) == expected
    lengths = np.array([len(sequence) for sequence in TEST])
    assert {3, 6, 9} == {*n_steps[n_steps < lengths].tolist()}
    assert (n_steps == lengths).sum() >= 3


@pytest.mark.parametrize("sequences", [TEST, np.stack([x[:6] for x in TEST])], ids=["lists", "array"])
def test_steps_after_the_answer_do_not_matter(sequences):
    labels, n_steps = EARLY.predict_early(sequences, confidence=0.95)
    other = [np.concatenate((x[:n], -9 * x[n:])) for x, n in zip(sequences, n_steps, strict=True)]
    other = np.stack(other) if isinstance(sequences, np.ndarray) else other
    assert all(map(np.array_equal, EARLY.predict_early(other, confidence=0.95), (labels, n_steps)))


def naive_losses(margins, is_right, is_running, threshold):
    """Whether each sample loses its right answer to an early wrong one."""
    losses = []
    for sample in range(margins.shape[1]):
        stops = [k for k in range(len(margins) - 1) if is_running[k, sample] and margins[k, sample] > threshold]
        losses.append(bool(stops) and not is_right[stops[0], sample] and bool(is_right[-1, sample]))
    return np.array(losses)


def test_critical_values_are_the_largest_thresholds_at_which_a_right_answer_is_lost():
    scores = torch.randn(4, 90, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[:, torch.arange(90), torch.from_numpy(LABELS)] += torch.tensor([0.5, 1.0, 1.5, 2.0])[:, None]
    lengths = np.array([len(sequence) for sequence in TRAIN])
    scales, critical = EARLY._calibrate(scores, LABELS, lengths)
    margins = np.stack([_margins(own, scale) for own, scale in zip(scores, scales, strict=True)])
    is_right = scores.argmax(2).numpy() == LABELS
    is_running = np.array(EARLY.steps_)[:, None] < lengths
    thresholds = np.sort(np.concatenate((margins.ravel() - 1e-9, margins.ravel())))
    losses = np.stack([naive_losses(margins, is_right, is_running, threshold) for threshold in thresholds])
    n_lost = np.logical_or.accumulate(losses[::-1])[::-1].sum(1)  # at this or any larger threshold
    assert 5 < n_lost[0] < 60
    assert n_lost.tolist() == [(critical > threshold).sum() for threshold in thresholds]


@pytest.mark.parametrize("confidence", [0.8, 0.9, 0.95])
def test_stopping_early_loses_about_as_few_right_answers_as_was_asked_for(confidence):
    full = EARLY.model_.predict(TEST)
    labels, n_steps = EARLY.predict_early(TEST, confidence)
    lost = ((labels != TRUTH) & (full == TRUTH)).mean()
    assert lost <= 1 - confidence + 0.05
    assert n_steps.mean() < 0.8 * np.mean([len(sequence) for sequence in TEST])


def test_samples_are_left_out_of_the_neurons_and_read_outs_that_judge_them(monkeypatch):
    fits = []
    monkeypatch.setattr(cs.SpikingClassifier, "fit", spy(cs.SpikingClassifier.fit, fits))
    groups = np.arange(90) // 3
    EarlyClassifier(classifier(**RIDGE), fractions=(0.5,)).fit(TRAIN, LABELS, groups)
    own = {id(sequence): number for number, sequence in enumerate(TRAIN)}
    everything, *parts = [{own[id(sequence)] for sequence in sequences} for sequences in fits]
    left_out = [everything - part for part in parts]
    assert everything == set(range(90))
    assert sorted(sample for part in left_out for sample in part) == list(range(90))
    assert all({groups[sample] for sample in part}.isdisjoint(groups[[*everything - part]]) for part in left_out)


def spy(fit, fits):
    """A ``fit`` that notes the sequences that it is given."""

    def note(model, sequences, *args, **kwargs):
        fits.append(sequences)
        return fit(model, sequences, *args, **kwargs)

    return note


def test_the_threshold_is_the_rank_that_confidence_allows_and_by_default_the_highest():
    critical = EARLY.critical_
    assert (critical[1:] <= critical[:-1]).all()
    assert EARLY.threshold(0.95) == critical[3]  # of 90, (3 + 1) / 91 lose it
    assert EARLY.threshold() == critical[0]


@pytest.mark.parametrize(
    "parameters",
    [
        {"l1_strength": 0.01, "penalty": "l1", "loss": "logistic", "readout": "windows-4"},
        {"loss": "softmax", "readout": "last", "l2_strength": 0.01},
        {"method": "varpro"},
    ],
    ids=str,
)
def test_other_readouts_losses_and_methods_answer_early(parameters):
    early = EarlyClassifier(classifier(**RIDGE | parameters), fractions=(0.1, 0.3))
    groups, names = np.arange(90) // 2, np.array(["a", "b", "c"])
    early.fit(TRAIN, names[LABELS], groups)
    labels, _ = early.predict_early(TEST, confidence=0.9)
    assert max(own.relative_gap for own in early.certificates_) <= 1e-6
    assert (labels == names[TRUTH]).mean() > 0.5
    assert early.steps_[0] == (4 if "windows" in early.network_.readout else 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: EarlyClassifier(cs.SpikingRegressor()).fit(TRAIN, LABELS), "expected a SpikingClassifier to answer"),
        (lambda: EarlyClassifier(classifier("sg")).fit(TRAIN, LABELS), "expected a model whose read-out is"),
        (lambda: EarlyClassifier(classifier()).fit(np.ones((9, 2)) * LABELS[:9, None], LABELS[:9]), "got rows"),
        (lambda: EarlyClassifier(classifier(), fractions=(2,)).fit(TRAIN, LABELS), r"and at most 1, got \(2,\)"),
        (lambda: EarlyClassifier(classifier()).predict_early(TEST), "not fitted yet"),
        (lambda: EARLY.predict_early(TEST, 0.999), r"at most 0\.989, which 90 samples left out can show, got 0\.999"),
        (lambda: EARLY.predict_early(TEST, 0.0), r"with model_\.predict$"),
    ],
)
def test_misuse_is_explained_in_one_sentence(call, message):
    with pytest.raises(Exception, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, (InvalidInputError, ValueError, TypeError))


def save_and_load(early, path):
    cs.save(early, path)
    return cs.load(path)


@pytest.mark.parametrize("parameters", [{}, {"loss": "softmax", "readout": "last+burst", "l2_strength": 0.01}], ids=str)
def test_a_file_gives_the_same_answers_and_proofs_back(parameters, tmp_path):
    early = EARLY
    if parameters:
        early = EarlyClassifier(classifier(**RIDGE | parameters), fractions=(0.3,)).fit(TRAIN, LABELS)
    loaded = save_and_load(early, tmp_path / "early.safetensors")
    assert type(loaded) is EarlyClassifier
    assert (loaded.steps_, loaded.certificates_, loaded._scales) == (early.steps_, early.certificates_, early._scales)
    assert np.array_equal(loaded.critical_, early.critical_)
    assert loaded.estimator.get_params() == early.estimator.get_params()
    for own, other in zip(loaded.predict_early(TEST, 0.9), early.predict_early(TEST, 0.9), strict=True):
        assert np.array_equal(own, other)
    assert loaded.certify(TRAIN, LABELS) == early.certify(TRAIN, LABELS)
    cs.save(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "early.safetensors").read_bytes()


CHANGES = {
    "steps that fall": ("steps", lambda steps: steps[::-1]),
    "steps that are none": ("steps", lambda steps: [0, *steps[1:]]),
    "a read-out less": ("parts", lambda parts: parts[1:]),
    "another objective": (
        "parts",
        lambda parts: [parts[0] | {"objective": parts[0]["objective"] | {"readout": "last"}}, *parts[1:]],
    ),
    "a scale of zero": ("scales", lambda scales: [0.0, *scales[1:]]),
    "more samples left out than there are": ("n_left_out", lambda n_left_out: 91),
    "fewer samples left out than lost": ("n_left_out", lambda n_left_out: 1),
    "fractions that are none": ("fractions", lambda fractions: ["a"]),
    "a model of rows": ("model", lambda model: model | {"is_sequential": False}),
    "a bare network": ("model", lambda model: {name: part for name, part in model.items() if name != "proof"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_does_not_fit_together_is_refused(change, tmp_path):
    tensors = {}
    header = files._write_model(EARLY, tensors)
    name, alter = CHANGES[change]
    write_tensors(tmp_path / "early", "model", tensors, header | {name: alter(header[name])})
    with pytest.raises(DataFileError, match="expected a complete model in"):
        cs.load(tmp_path / "early")
    tensors["critical"] = tensors["critical"].flip(0)
    write_tensors(tmp_path / "early", "model", tensors, header)
    with pytest.raises(DataFileError, match="falling order"):
        cs.load(tmp_path / "early")


def test_every_readout_is_certified_again_on_the_data_and_for_the_network_that_answers():
    again = EARLY.certify(TRAIN, LABELS)
    for found, stated in zip(again, EARLY.certificates_, strict=True):
        assert found.primal == pytest.approx(stated.primal, rel=CERTIFIED_AGAIN)
        assert found.relative_gap <= 1e-6
    with pytest.warns(OtherDataWarning, match="targets differ"):
        other = EARLY.certify(TRAIN, (LABELS + 1) % 3)
    assert all(found.relative_gap > 1e-2 for found in other)
    early = copy(EARLY)
    weight = EARLY.network_.weight.detach().clone()
    weight[0, EARLY.network_.heads[2].columns] += 1e-3
    early.network_ = EARLY.network_.with_readout(weight, EARLY.network_.intercept.detach())
    with pytest.raises(InvalidInputError, match="one with other output weights"):
        early.certify(TRAIN, LABELS)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_a_stream_answers_as_soon_as_predict_early_does(confidence):
    sequences = [*TEST, *(x[:6] for x in TEST)]  # the latter end where there is a read-out
    labels, n_steps = EARLY.predict_early(sequences, confidence)
    stream = EARLY.stream(confidence)
    n_early = 0
    for sequence, label, n_read in zip(sequences, labels, n_steps, strict=True):
        stream.reset()
        answers = [stream.step(x) for x in sequence]
        assert stream.end() == label
        assert stream.n_steps == len(sequence)
        if n_read < len(sequence):
            n_early += 1
            assert answers == [None] * (n_read - 1) + [label] * (len(sequence) - n_read + 1)
        elif len(sequence) not in EARLY.steps_:
            assert not stream.is_answered
    assert n_early > 50


def test_a_sequence_that_ends_at_an_answer_has_that_of_complete_sequences():
    stream, n_different = EarlyStream(EARLY, -np.inf), 0
    for sequence, label in zip(TEST, EARLY.model_.predict([x[:3] for x in TEST]), strict=True):
        stream.reset()
        first, second, answer = map(stream.step, sequence[:3])
        assert (first, second, stream.is_answered) == (None, None, True)
        assert stream.end() == label
        n_different += answer != label
    assert n_different > 0


def test_two_classes_and_names_are_streamed():
    names = np.array(["up", "down"])
    early = EarlyClassifier(classifier(**RIDGE), fractions=(0.25,)).fit(TRAIN, names[LABELS % 2])
    labels, _ = early.predict_early(TEST[:50], 0.8)
    stream = early.stream(0.8)
    for sequence, label in zip(TEST[:50], labels, strict=True):
        stream.reset()
        for x in sequence:
            stream.step(x)
        assert stream.end() == label
    stream.reset()
    with pytest.raises(InvalidInputError, match="expected at least one step before the end"):
        stream.end()
    windows = EarlyClassifier(classifier(**RIDGE | {"readout": "windows-4"}), fractions=(0.5,)).fit(TRAIN, LABELS)
    with pytest.raises(InvalidInputError, match="expected a classifier without windows of time"):
        windows.stream()
    with pytest.raises(InvalidInputError, match="expected a fitted EarlyClassifier"):
        cs.save(EarlyClassifier(classifier()), "nowhere")


@pytest.mark.parametrize(
    ("write", "name"),
    [(cs.export_c, "early.c"), (cs.export_onnx, "early.onnx"), (cs.export_xylo, "a.npz"), (cs.export_loihi, "a.npz")],
)
def test_exports_refuse_several_readouts_instead_of_writing_them_as_classes(write, name, tmp_path):
    with pytest.raises(InvalidInputError, match=r"got an EarlyClassifier.*pass its model_") as caught:
        write(EARLY, tmp_path / name)
    assert_one_sentence(caught.value)
    assert not list(tmp_path.iterdir())
