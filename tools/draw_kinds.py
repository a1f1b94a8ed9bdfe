"""Draw what neurons of each kind do with one series: sampled neurons, their drives and their spikes.

python tools/draw_kinds.py docs/images/kinds.png
"""

import sys
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from cvxsnn import roll_out
from cvxsnn.data import Sequences
from cvxsnn.neurons import LateralLayer
from cvxsnn.witnesses import Kinds
from cvxsnn.witnesses.kinds import KINDS

N_SERIES, N_STEPS = 40, 72
INK, GREY, SPIKE, OTHER = "#222222", "#9aa5b1", "#c0392b", "#2471a3"
RIVALS = plt.get_cmap("tab10")


def draw_series() -> np.ndarray:
    """Return series with a wave and a peak at a random step, of shape (N_SERIES, N_STEPS, 1)."""
    rng, steps = np.random.default_rng(3), np.arange(N_STEPS)
    peak, phase = rng.uniform(22, 55, (N_SERIES, 1)), rng.uniform(0, 6, (N_SERIES, 1))
    width = rng.uniform(2.5, 4.5, (N_SERIES, 1))
    wave = 0.5 * np.sin(steps / 4.5 + phase) + 2.2 * np.exp(-(((steps - peak) / width) ** 2))
    values = wave + rng.normal(scale=0.12, size=wave.shape)
    return ((values - values.mean()) / values.std())[:, :, None]


class Drawn:
    """Neurons of one kind, with their drives and spikes on the series."""

    def __init__(self, kind: str, series: np.ndarray) -> None:
        layer = Kinds(n_witnesses=400, kinds=(kind,)).sample(series, seed=0).layers[0]
        assert isinstance(layer, LateralLayer)
        self.source, self.delay = layer.source[0].T.numpy(), layer.delay[0].T.numpy()
        self.weight, self.threshold = layer.weight[0].T.numpy(), -layer.bias[0].numpy()
        self.group, self.series = layer.group[0].numpy(), series
        inputs = Sequences.of(series)
        self.spikes = roll_out([layer], inputs.inputs, "all").numpy().reshape(N_SERIES, N_STEPS, -1).astype(bool)
        self.views = layer.view(inputs.inputs.transpose(0, 1).contiguous()).permute(1, 0, 2).numpy()

    def drive(self, neuron: int, sample: int) -> np.ndarray:
        """Return the sum of a neuron over its taps, of which those before the series read zero."""
        total = np.zeros(N_STEPS)
        for source, delay, weight in zip(self.source[neuron], self.delay[neuron], self.weight[neuron], strict=True):
            total[delay:] += weight * self.views[sample, : N_STEPS - delay, source]
        return total

    def reads_values(self) -> np.ndarray:
        """Return which neurons read values, and not changes."""
        return (self.source * (self.weight != 0)).max(axis=1) % 2 == 0


def first_that(is_good: np.ndarray) -> int:
    """Return the first neuron of which something is true."""
    return int(np.flatnonzero(is_good)[0])


def draw_spikes(axes: Axes, fired: np.ndarray, colours: Sequence[Any] = (SPIKE,)) -> None:
    """Draw the spikes of neurons, (n_steps, n_neurons), as strokes at the bottom of a panel."""
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.28 * (high - low), high)
    bottom = low - 0.25 * (high - low)
    for spikes, colour in zip(fired.reshape(N_STEPS, -1).T, colours, strict=True):
        axes.vlines(np.flatnonzero(spikes), bottom, bottom + 0.16 * (high - low), color=colour, linewidth=1.6)


def draw_rate(axes: Axes, series: np.ndarray, sample: int) -> str:
    """Draw the drive of a rate neuron with its threshold."""
    rate = Drawn("rate", series)
    count, reach = rate.spikes[sample].sum(0), rate.delay.max(axis=1)
    neuron = first_that(rate.reads_values() & (count > 9) & (count < 22) & (reach >= 16) & (reach <= 24))
    drive, fired = rate.drive(neuron, sample), rate.spikes[sample][:, neuron]
    assert ((drive >= rate.threshold[neuron]) == fired).all()
    axes.plot(drive, color=INK, linewidth=1.1)
    axes.axhline(rate.threshold[neuron], color=GREY, linewidth=0.9, linestyle="--")
    draw_spikes(axes, fired)
    longest = max(len(run) for run in "".join("| "[not spike] for spike in fired).split())
    return f"rate: drive above a threshold. Read: {fired.sum()} of {N_STEPS} steps, longest run {longest}"


def draw_winners(axes: Axes, series: np.ndarray, sample: int) -> str:
    """Draw the drives of a group, and which of its neurons fires."""
    winner = Drawn("winner", series)
    reach = winner.delay.max(axis=1)
    chosen = first_that(winner.reads_values() & (reach >= 16) & (reach < 24))
    group = np.flatnonzero(winner.group == winner.group[chosen])
    drives = np.stack([winner.drive(neuron, sample) for neuron in group])
    fired = winner.spikes[sample][:, group]
    assert (fired.sum(1) == 1).all()
    assert (drives.argmax(0) == fired.argmax(1)).all()
    for number, drive in enumerate(drives):
        axes.plot(drive, color=RIVALS(number), linewidth=0.8)
    draw_spikes(axes, fired, [RIVALS(number) for number in range(len(group))])
    return f"winner: the largest drive of {len(group)} fires. Read: root of each share"


def draw_distance(axes: Axes, series: np.ndarray, sample: int) -> str:
    """Draw the series, and the window of another one where they are close."""
    distance = Drawn("distance", series)
    count, reach = distance.spikes[sample].sum(0), distance.delay.max(axis=1)
    good = distance.reads_values() & (count > 0) & (count <= 3) & (reach >= 18) & (reach <= 30)
    # A window of the peak: one with large values.
    height = np.where(distance.source == 0, distance.weight, 0).max(axis=1)
    neuron = first_that(good & (height > 4))
    fired = distance.spikes[sample][:, neuron]
    assert ((distance.drive(neuron, sample) >= distance.threshold[neuron]) == fired).all()
    taps = (distance.source[neuron] == 0) & (distance.weight[neuron] != 0)
    end = int(np.flatnonzero(fired)[0])
    axes.plot(series[sample, :, 0], color=GREY, linewidth=1.1)
    window = distance.weight[neuron][taps] / 2
    axes.plot(end - distance.delay[neuron][taps], window, "o-", color=OTHER, markersize=3, linewidth=0.9)
    draw_spikes(axes, fired)
    return "distance: close to a training window. Read: does it ever fire"


def draw_last(axes: Axes, series: np.ndarray, sample: int) -> str:
    """Draw the values that a neuron of the kind "last" reads, with the size of their weights."""
    last = Drawn("last", series)
    number = (last.weight != 0).sum(axis=1)
    neuron = first_that(last.spikes[sample, -1] & (number >= 10) & (number <= 14))
    fired = last.spikes[sample][:, neuron]
    axes.plot(series[sample, :, 0], color=GREY, linewidth=1.1)
    taps = last.weight[neuron] != 0
    at, weight = N_STEPS - 1 - last.delay[neuron][taps], last.weight[neuron][taps]
    size = 10 + 70 * np.abs(weight) / np.abs(weight).max()
    colour = np.where(weight > 0, OTHER, "white")
    axes.scatter(at, series[sample, at, 0], s=size, c=colour, edgecolors=OTHER, linewidths=1, zorder=3)
    draw_spikes(axes, fired & (np.arange(N_STEPS) == N_STEPS - 1))
    return "last: scattered values (dots). Read: the last step"


PANELS = {"rate": draw_rate, "winner": draw_winners, "distance": draw_distance, "last": draw_last}


def main(path: str) -> None:
    """Write the picture, legible at a width of 420 pixels."""
    assert list(PANELS) == list(KINDS)
    series, sample = draw_series(), 0
    figure, panels = plt.subplots(len(PANELS) + 1, figsize=(4.4, 6.4), sharex=True, layout="constrained")
    panels[0].plot(series[sample, :, 0], color=INK, linewidth=1.1)
    titles = [f"one series of {N_STEPS} steps"]
    titles += [draw(axes, series, sample) for draw, axes in zip(PANELS.values(), panels[1:], strict=True)]
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, fontsize=8.5, loc="left", color=INK, pad=3)
        axes.set_yticks([])
        axes.tick_params(labelsize=8, bottom=axes is panels[-1])
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("step", fontsize=8.5)
    figure.savefig(path, dpi=200, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    main(*sys.argv[1:])
