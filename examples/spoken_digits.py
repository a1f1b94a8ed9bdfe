"""Spoken digits: from wav files to a certificate.

python examples/spoken_digits.py                                    # the dataset's own split
python examples/spoken_digits.py --test-speaker theo                # an unseen speaker
python examples/spoken_digits.py --method sg-cvx --seed 1           # first trained by surrogate gradients
python examples/spoken_digits.py --wav recording.wav                # and what does this one say?
python examples/spoken_digits.py --quick                            # a small one

The dataset is read from the folder in the environment variable CVXSNN_DATA, or downloaded.
"""

import argparse
from dataclasses import replace
from itertools import count
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

import cvxsnn as cs
from cvxsnn.data.audio import mel_spectrogram, speech_features
from cvxsnn.data.tasks import SequenceData, read_wav
from cvxsnn.data.tasks.spoken_digits import SAMPLE_RATE, SPEAKERS, read_recordings
from cvxsnn.plots import plot_raster

LEARNING_RATES = (0.003, 0.01, 0.03)
EPOCHS = 20


def make_settings(loss: str, n_neurons: int, seed: int) -> cs.fitting.Settings:
    """Return settings for one layer of neurons with a range of decays, read by their mean spike counts."""
    return cs.fitting.Settings(
        cs.fitting.Program(cs.convex.Objective(loss, readout="mean"), "l1", intercept=True),
        {"hidden": (n_neurons,), "decay": cs.witnesses.Uniform(0.5, 1.0), "bias": cs.witnesses.Normal(0.0, 0.5)},
        surrogate=[
            cs.fitting.SurrogateSettings(epochs=EPOCHS, learning_rate=rate, seed=seed) for rate in LEARNING_RATES
        ],
        seed=seed,
    )


def join(*splits: SequenceData) -> SequenceData:
    """Return the recordings of several splits, joined."""
    parts = ([getattr(own, name) for own in splits] for name in ("inputs", "targets"))
    return SequenceData(*map(np.concatenate, parts))


def make_data(recordings: SequenceData, loss: str) -> cs.data.TrainingSet:
    """Return recordings to train on, with one target column per digit for the squared loss."""
    targets = np.eye(10)[recordings.targets] if loss == "squared" else recordings.targets
    return cs.data.TrainingSet(torch.from_numpy(recordings.inputs), {"digit": targets})


def train_again(trained: cs.fitting.Trained, data: cs.data.TrainingSet) -> cs.fitting.Trained:
    """Train on more data with the learning rate and strength that validation has chosen.

    Without validation data, gradients train until the last epoch.
    """
    chosen = trained.settings
    for stage in trained.history:
        if stage.run is not None:
            chosen = replace(chosen, surrogate=stage.run.settings)
        if stage.solution is not None:
            strength = stage.solution.problem.l1_strength
            chosen = replace(chosen, program=replace(chosen.program, l1_strength=strength))
    n_scored = count()
    return cs.train(trained.method, cs.fitting.Split(data, lambda network: next(n_scored)), chosen)


def predict(network: cs.SpikingNetwork, data: SequenceData) -> np.ndarray:
    """Return the digits that a network predicts."""
    with torch.no_grad():
        return network(data.inputs).argmax(1).numpy()


def accuracy(network: cs.SpikingNetwork, data: SequenceData) -> float:
    """Return the share of digits that it predicts correctly."""
    return float((predict(network, data) == data.targets).mean())


def print_stages(first: cs.fitting.Trained, final: cs.fitting.Trained, test: SequenceData) -> None:
    """Print a line per stage: validation accuracy of the first training, test accuracy of the second."""
    print(f"{'stage':>8} {'validation':>11} {'test':>6} {'neurons read':>13} {'relative gap':>13} {'seconds':>8}")
    for before, after in zip(first.history, final.history, strict=True):
        gap = "none" if after.solution is None else f"{after.solution.certificate.relative_gap:.1e}"
        print(
            f"{after.name:>8} {before.score:11.3f} {accuracy(after.network, test):6.3f} "
            f"{int(after.network.weight.any(1).sum()):13d} {gap:>13} {before.seconds + after.seconds:8.1f}"
        )


def draw_hearing(network: cs.SpikingNetwork, path: Path) -> None:
    """Draw a recording in decibels, and the spikes that it causes."""
    recording = next(own for own in read_recordings() if own.digit == 7)
    axes = plt.subplots(2, figsize=(7, 7), height_ratios=(2, 3), layout="constrained")[1]
    decibels = mel_spectrogram(recording.waveform, SAMPLE_RATE, n_mels=32)
    image = axes[0].imshow(decibels.T, origin="lower", aspect="auto", extent=(0, 10 * len(decibels), 0, 32))
    axes[0].set(xlabel="milliseconds", ylabel="mel band", title=f"{recording.speaker} says {recording.digit}")
    plt.colorbar(image, label="decibels relative to the loudest")
    plot_raster(network, speech_features(recording.waveform, SAMPLE_RATE), axes[1])
    axes[0].figure.savefig(path, dpi=120)


def draw_confusion(network: cs.SpikingNetwork, data: SequenceData, path: Path) -> None:
    """Draw the confusion matrix of the test recordings."""
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (data.targets, predict(network, data)), 1)
    axes = plt.subplots(figsize=(5, 5), layout="constrained")[1]
    axes.imshow(counts, cmap="Blues")
    for spoken, heard in zip(*counts.nonzero(), strict=True):
        is_dark = counts[spoken, heard] > counts.max() / 2
        axes.text(heard, spoken, counts[spoken, heard], ha="center", va="center", color="white" if is_dark else "black")
    axes.set(xlabel="heard", ylabel="spoken", xticks=range(10), yticks=range(10), title="Test recordings")
    axes.figure.savefig(path, dpi=120)


def draw_strengths(solution: cs.Solution, data: SequenceData, path: Path) -> None:
    """Draw validation accuracy and number of neurons for every strength of the path."""
    solutions = cs.solve_path(solution.problem, n_strengths=12).solutions[1:]
    networks = [cs.reconstruct(own) for own in solutions]
    strengths = [own.problem.l1_strength for own in solutions]
    axes = plt.subplots(figsize=(6, 4), layout="constrained")[1]
    axes.semilogx(strengths, [accuracy(own, data) for own in networks], "o-")
    axes.axvline(solution.problem.l1_strength, color="grey", linestyle=":")
    axes.set(xlabel="L1 strength (dotted: chosen)", ylabel="validation accuracy")
    twin = axes.twinx()
    twin.semilogx(strengths, [len(own.neurons) for own in networks], "s--", color="C1")
    twin.set_ylabel("neurons that are read", color="C1")
    axes.figure.savefig(path, dpi=120)


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--test-speaker", choices=SPEAKERS, help="hold a speaker out, and validate on another")
    parser.add_argument("--method", choices=("cvx", "sg", "sg-cvx"), default="cvx")
    parser.add_argument("--loss", choices=("squared", "softmax"), default="squared")
    parser.add_argument("--neurons", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="256 neurons")
    parser.add_argument("--wav", type=Path, help="a recording of yours to classify")
    parser.add_argument("--output", type=Path, default=Path("out/spoken_digits"), help="folder for model and pictures")
    options = parser.parse_args()

    if options.test_speaker is None:
        task = cs.tasks.spoken_digits()
    else:
        task = cs.tasks.spoken_digits(split="speakers", test_speakers=[options.test_speaker])
    print(f"{len(task.train)} recordings to train on, {len(task.val)} to validate, {len(task.test)} to test")
    settings = make_settings(options.loss, 256 if options.quick else options.neurons, options.seed)
    split = cs.fitting.Split(make_data(task.train, options.loss), lambda network: accuracy(network, task.val))
    first = cs.train(options.method, split, settings)
    trained = train_again(first, make_data(join(task.train, task.val), options.loss))
    print_stages(first, trained, task.test)

    options.output.mkdir(parents=True, exist_ok=True)
    cs.save(trained.network, options.output / "network.safetensors")
    draw_hearing(trained.network, options.output / "hearing.png")
    draw_confusion(trained.network, task.test, options.output / "confusion.png")
    if trained.solution is not None:
        print(trained.certificate)
        draw_strengths(first.solution, task.val, options.output / "strengths.png")
    print(f"saved: model and pictures in {options.output}")
    if options.wav is not None:
        features = speech_features(*read_wav(options.wav))
        with torch.no_grad():
            print(f"{options.wav} says {int(trained.network(features[None]).argmax())}")


if __name__ == "__main__":
    try:
        main()
    except cs.CvxsnnError as error:
        raise SystemExit(str(error)) from None
