"""Explain synaptic delays in one picture.

python examples/delays.py                     # writes out/delays.png, takes about 15 seconds
python examples/delays.py --quick -o a.png    # a small one

The label says whether the first of up to 20 bits differs from the last. A neuron without delays adds up all steps, and
can hardly tell the first one from those after it. A neuron with delays reads a few steps, and some of many sampled
neurons read the right two. The read-outs are optimal and certified, with and without delays.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import cvxsnn as cs
from cvxsnn.data import SequenceData
from cvxsnn.neurons import HiddenLayer, Stepper
from cvxsnn.plots import plot_receptive_field

LENGTHS = (4, 6, 8, 10, 12, 16, 20)
SEEDS = (0, 1, 2)
RIDGE_STRENGTHS = (1e-1, 1e-2, 1e-4)
PAIRS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""What the first and the last bit can be."""

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"  # colours that colour-blind readers tell apart


def make_task(n_steps: int, seed: int) -> cs.tasks.Task:
    """Return first-last-XOR; each step is one of two inputs, of which number ``bit`` is 1."""
    return cs.tasks.first_last_xor(n_steps, encoding="one-hot", n_train=1000, n_test=1000, seed=seed)


def make_problem(witnesses: cs.WitnessSet, data: SequenceData) -> cs.ConvexProblem:
    """Return the least-squares problem of reading the label off the spikes of the last step."""
    dictionary = cs.build_dictionary(witnesses, data.inputs, readout="last")
    return cs.ConvexProblem(dictionary, data.targets, "squared", penalty="elastic-net", intercept=True)


def accuracy(network: cs.SpikingNetwork, data: SequenceData) -> float:
    """Return the share of labels, 0 and 1, that a network predicts."""
    with torch.no_grad():
        return float(((network(data.inputs)[:, 0] > 0.5).numpy() == data.targets.ravel()).mean())


def compare(n_steps: int, n_neurons: int, seed: int) -> dict[str, float]:
    """Return the accuracy on held-out sequences without and with delays, each with a ridge read-out."""
    task = make_task(n_steps, seed)
    sampled = {
        "without delays": cs.gaussian_witnesses(2, (n_neurons,), decay=0.99, seed=seed),
        "with delays": cs.delayed_witnesses(task.train.inputs, (n_neurons,), fan_in=4, seed=seed),
    }
    found = {}
    for name, witnesses in sampled.items():
        path = cs.solve_path(make_problem(witnesses, task.train), [0.0], l2_strengths=RIDGE_STRENGTHS)
        found[name] = accuracy(cs.reconstruct(cs.convex.leave_one_out(path).select("loss")), task.test)
    return found


def fit_sparse(n_steps: int, n_neurons: int) -> tuple[cs.tasks.Task, cs.SpikingNetwork, cs.Solution]:
    """Return a network of few neurons with delays: the sparsest elastic net that is right on all validation data."""
    task = make_task(n_steps, seed=0)
    witnesses = cs.delayed_witnesses(task.train.inputs, (n_neurons,), fan_in=4, seed=0)
    path = cs.solve_path(make_problem(witnesses, task.train), n_strengths=12, l2_strengths=[1e-3])
    solution = path.select(lambda own: accuracy(cs.reconstruct(own), task.val) if len(own.support) else 0.0)
    return task, cs.reconstruct(solution), solution


def spikes_by_pair(network: cs.SpikingNetwork, data: SequenceData) -> np.ndarray:
    """Return how often each neuron fires at the last step, for each pair of first and last bit."""
    spikes = cs.roll_out(network.layers, data.inputs, "last").numpy()
    ends = data.inputs[:, [0, -1]].argmax(2)
    return np.stack([spikes[(ends == pair).all(1)].mean(0) for pair in PAIRS], axis=1)


def best_detector(shares: np.ndarray) -> int:
    """Return the neuron that fires for one pair most often, and for the others least."""
    ordered = np.sort(shares, axis=1)
    return int(np.argmax(ordered[:, -1] - ordered[:, :-1].sum(1)))


def weight_of_bits(layer: HiddenLayer) -> np.ndarray:
    """Return what a 1 instead of a 0 adds to each neuron's membrane, by neuron and delay."""
    field = np.zeros((layer.max_delay + 1, layer.n_inputs, layer.n_subnetworks, layer.width))
    subnetwork, _, neuron = np.indices(layer.weight.shape)
    np.add.at(field, (layer.delay.numpy(), layer.source.numpy(), subnetwork, neuron), layer.weight.double().numpy())
    return (field[:, 1] - field[:, 0]).reshape(len(field), -1).T


def membranes(layers: Sequence[HiddenLayer], sequence: np.ndarray) -> np.ndarray:
    """Return the membranes of all neurons at each step; a neuron fires where its membrane is at zero or above."""
    stepper = Stepper(layers)
    state, found = stepper.start(1), []
    for step in torch.from_numpy(sequence):
        state, _ = stepper.step(state, step[None])
        found.append(state[-1].membrane.flatten().numpy())
    return np.stack(found)


def set_title(axes: Axes, claim: str, note: str = "") -> None:
    """Write what a panel says, and how to read it."""
    axes.set_title("")
    axes.set_title(f"{claim}\n{note}" if note else claim, loc="left", fontsize=10)


def draw_field(network: cs.SpikingNetwork, neuron: int, n_steps: int, axes: Axes) -> None:
    """Draw what one neuron reads, with the first and the last step marked."""
    plot_receptive_field(network, neuron, axes=axes)
    set_title(axes, "a  A neuron with 4 taps", "seen from the last step")
    axes.set(xlabel="input", xticks=(0, 1), xticklabels=("bit is 0", "bit is 1"), yticks=range(0, n_steps, 5))
    for delay, place, name in ((0, 2.2, "last"), (n_steps - 1, n_steps - 3.2, "first")):
        axes.add_patch(Rectangle((-0.48, delay - 0.48), 1.96, 0.96, fill=False, edgecolor="black", linewidth=1.5))
        axes.text(0, place, f"delay {delay}:\n{name} step", ha="center", va="center", fontsize=8)


def draw_membrane(network: cs.SpikingNetwork, neuron: int, data: SequenceData, rows: Sequence[Axes]) -> None:
    """Draw bits and membrane of four sequences, one for each pair of first and last bit."""
    ends = data.inputs[:, [0, -1]].argmax(2)
    chosen = [data.inputs[(ends == pair).all(1)][0] for pair in PAIRS]
    traces = [membranes(network.layers, sequence)[:, neuron] for sequence in chosen]
    low, high = np.min(traces), np.max(traces)
    bits_at = low - 0.35 * (high - low)
    for pair, axes, sequence, membrane in zip(PAIRS, rows, chosen, traces, strict=True):
        n_steps = len(sequence)
        steps, fired = np.arange(1, n_steps + 1), membrane >= 0
        axes.axvspan(n_steps - 0.5, n_steps + 0.5, color=GREY, alpha=0.25, linewidth=0)
        axes.axhline(0, color=GREY, linestyle="--", linewidth=0.8)
        axes.plot(steps, membrane, color=BLUE, linewidth=1, drawstyle="steps-mid")
        axes.plot(steps[fired], membrane[fired], "o", color=ORANGE, markersize=4)
        for step, bit in zip(steps, sequence.argmax(1), strict=True):
            look = {"color": "#666666", "fontsize": 7}
            if step in (1, n_steps):
                look = {"color": "black", "fontsize": 10, "fontweight": "bold"}
            axes.text(step, bits_at, str(bit), ha="center", va="center", **look)
        axes.set(xlim=(0.4, n_steps + 0.6), ylim=(1.6 * bits_at - 0.6 * low, high + 0.2), yticks=(), xticks=())
        axes.set_ylabel(
            f"{pair[0]} xor {pair[1]}\n= {pair[0] ^ pair[1]}", rotation=0, ha="right", va="center", fontsize=9
        )
        axes.spines[["top", "right", "bottom"]].set_visible(False)
    share = spikes_by_pair(network, data)[neuron]
    first, last = PAIRS[int(share.argmax())]
    rates = f"in {share.max():.0%} of test sequences, else {(share.sum() - share.max()) / 3:.0%}"
    claim = f"b  At the last step (grey) it fires for first bit {first}, last bit {last}: {rates}"
    set_title(rows[0], claim, "four test sequences; numbers: bits, line: membrane, dashed: threshold, dot: spike")


def draw_kept(network: cs.SpikingNetwork, marked: int, data: SequenceData, axes: Sequence[Axes], total: int) -> None:
    """Draw the taps of all neurons that the elastic net keeps, and for which pairs they fire."""
    left, right = axes
    order = torch.argsort(network.weight[:, 0].detach(), descending=True)
    neurons, weights = network.neurons[order].numpy(), network.weight[order, 0].detach().numpy()
    taps, fires = weight_of_bits(network.layers[0])[neurons], spikes_by_pair(network, data)[neurons]
    limit = np.abs(taps).max()
    left.imshow(taps, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", interpolation="none")
    last = taps.shape[1] - 1
    left.set(ylabel="neurons, by output weight", xlabel="delay in steps")
    left.set_yticks([int((neurons == marked).argmax())], ["a, b"])
    left.set_xticks((0, *range(5, last - 3, 5), last))
    left.set_xticklabels(["0\nlast step", *map(str, range(5, last - 3, 5)), f"{last}\nfirst step"])
    claim = f"c  All {len(neurons)} neurons that an elastic net keeps, of {total:,}"
    set_title(left, claim, "a bit of 1 raises (blue) or lowers (red) the membrane")
    right.imshow(fires, cmap="Greys", vmin=0, vmax=1, aspect="auto", interpolation="none")
    right.set_xticks(range(4), [f"{first}\n{last}" for first, last in PAIRS])
    right.set_xlabel("first bit and, below, last bit")
    right.yaxis.tick_right()
    right.set_yticks(range(len(weights)), [f"{weight:+.2f}".replace("-", "−") for weight in weights], fontsize=7)
    right.yaxis.set_label_position("right")
    right.set_ylabel("output weight")
    set_title(right, "how often they fire:", "white never, black always")


def draw_accuracy(found: dict[int, list[dict[str, float]]], n_neurons: int, axes: Axes) -> None:
    """Draw accuracy against the number of steps: a line through the means, and the range over seeds."""
    lengths = list(found)
    for name, colour, marker in (("with delays", BLUE, "o"), ("without delays", ORANGE, "s")):
        values = np.array([[own[name] for own in found[length]] for length in lengths])
        axes.plot(lengths, values.mean(1), color=colour, marker=marker, markersize=4)
        axes.fill_between(lengths, values.min(1), values.max(1), color=colour, alpha=0.2, linewidth=0)
        axes.text(lengths[-2], values[-2].min() - 0.04, name, color=colour, ha="center", va="center")
    axes.axhline(0.5, color=GREY, linestyle=":", linewidth=1)
    axes.text(lengths[0], 0.51, "chance", color="#555555", fontsize=8)
    axes.set(xlabel="steps", ylabel="accuracy on held-out sequences", ylim=(0.45, 1.03), xticks=lengths)
    set_title(
        axes,
        f"d  Long sequences stay easy ({n_neurons:,} sampled neurons)",
        "ridge read-out; mean and range over seeds",
    )


def main() -> None:
    """Fit, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out/delays.png"))
    parser.add_argument("--quick", action="store_true", help="8 steps at most, 256 neurons, one seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    n_neurons, lengths, seeds = (256, LENGTHS[:3], SEEDS[:1]) if options.quick else (1024, LENGTHS, SEEDS)

    found = {length: [compare(length, n_neurons, seed) for seed in seeds] for length in lengths}
    for length, own in found.items():
        means = {name: np.mean([values[name] for values in own]) for name in own[0]}
        print(f"{length:2d} steps: " + ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()))
    task, network, solution = fit_sparse(lengths[-1], n_neurons)
    print(f"{network.n_active} neurons with delays: accuracy {accuracy(network, task.test):.3f}")
    print(solution.certificate)

    plt.rcParams["font.size"] = 9
    figure = plt.figure(figsize=(11, 7.5), layout="constrained")
    figure.suptitle(
        f"Does the first of {lengths[-1]} bits differ from the last? "
        "Neurons with delays read a few steps each, and some of many sampled neurons read these two.",
        fontsize=11,
    )
    top, bottom = figure.subfigures(2, height_ratios=(1.1, 1))
    grid = top.add_gridspec(4, 2, width_ratios=(1, 3))
    neuron = best_detector(spikes_by_pair(network, task.test))
    draw_field(network, neuron, lengths[-1], top.add_subplot(grid[:, 0]))
    draw_membrane(network, neuron, task.test, [top.add_subplot(grid[row, 1]) for row in range(4)])
    axes = bottom.subplots(1, 3, width_ratios=(2.3, 0.9, 2.6))
    draw_kept(network, neuron, task.test, axes[:2], n_neurons)
    draw_accuracy(found, n_neurons, axes[2])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output, dpi=120)
    print(f"saved: {options.output}")


if __name__ == "__main__":
    main()
