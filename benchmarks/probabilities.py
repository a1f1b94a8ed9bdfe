"""Probabilities of classes, compared with how often they come true: a table and a picture."""

from collections.abc import Callable
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax
from sklearn.metrics import log_loss

import cvxsnn as cs
from cvxsnn.data.tasks import Task, digits_seq, mnist_seq

from .measure import console, make_table
from .memory import data_directory

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "probabilities.png"
N_NEURONS, N_BINS = 1024, 10

Floats = npt.NDArray[np.float64]

TASKS: dict[str, Callable[[], Task]] = {
    "digits, 8 steps": lambda: digits_seq(8),
    "MNIST-Seq, 28 steps": lambda: mnist_seq(28, n_train=1000, n_val=8, n_test=2000, directory=data_directory()),
}


def probabilities(task: Task) -> dict[str, Floats]:
    """Fit two classifiers; return the probabilities of the classes of the test data, by three methods."""
    options = {"n_neurons": N_NEURONS, "random_state": 0, "verbose": False}
    ridge = cs.SpikingClassifier(**options).fit(task.train.inputs, task.train.targets)
    softmax = cs.SpikingClassifier(loss="softmax", **options).fit(task.train.inputs, task.train.targets)
    scores = ridge.decision_function(task.test.inputs)
    return {
        "ridge, scale fitted (default)": ridge.predict_proba(task.test.inputs),
        "ridge, scale 1": np.exp(log_softmax(scores, axis=1)),
        'loss="softmax"': softmax.predict_proba(task.test.inputs),
    }


def reliability(probability: Floats, classes: npt.NDArray[np.int64]) -> tuple[Floats, Floats, Floats]:
    """Return, for bins of the largest probability, its mean, the accuracy, and the share of the samples."""
    confidence, hits = probability.max(1), probability.argmax(1) == classes
    bins = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
    share = np.bincount(bins, minlength=N_BINS) / len(bins)
    used = np.flatnonzero(share)
    means = [np.array([values[bins == one].mean() for one in used]) for values in (confidence, hits)]
    return means[0], means[1], share[used]


def main() -> None:
    """Print log loss and calibration error of each method, and draw confidence against accuracy."""
    table = make_table("Probabilities on test data", "task", "method", "accuracy", "log loss", "calibration error")
    figure, axes = plt.subplots(1, len(TASKS), figsize=(4.2 * len(TASKS), 4.6), constrained_layout=True)
    for axis, (name, make) in zip(axes, TASKS.items(), strict=True):
        task = make()
        classes = np.asarray(task.test.targets)
        axis.plot([0, 1], [0, 1], color="grey", lw=1, ls=":", label="perfect")
        for (method, probability), mark in zip(probabilities(task).items(), "osD", strict=True):
            confidence, accuracy, share = reliability(probability, classes)
            error = float(share @ abs(confidence - accuracy))
            (line,) = axis.plot(confidence, accuracy, lw=0.8, alpha=0.6)
            look = {"color": line.get_color(), "marker": mark, "alpha": 0.8, "lw": 0}
            axis.scatter(confidence, accuracy, 15 + 200 * share, label=f"{method}: error {error:.3f}", **look)
            table.add_row(
                name,
                method,
                f"{(probability.argmax(1) == classes).mean():.3f}",
                f"{log_loss(classes, probability):.3f}",
                f"{error:.3f}",
            )
        axis.set(
            title=name, xlabel="probability of the predicted class", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02)
        )
        axis.grid(alpha=0.3)
        legend = axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
        for handle in legend.legend_handles[1:]:
            handle.set_sizes([25])
    figure.savefig(PICTURE, dpi=150)
    console.print(table)
