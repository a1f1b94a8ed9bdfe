"""Every plot of ``cvxsnn.plots``.

python examples/plots.py                 # writes out/plot-*.png, takes about half a minute
python examples/plots.py --quick -o .    # a smaller model

They are drawn for one small model of handwritten digits. docs/explore.md shows them beside the lines that draw them.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

import cvxsnn as cs
from cvxsnn import plots


def make_plots(n_neurons: int, n_strengths: int) -> dict[str, Callable[[], Any]]:
    """Return what draws each plot, by its name."""
    task = cs.tasks.digits_seq()
    X, y = task.train.inputs, np.asarray(task.train.targets)
    model = cs.SpikingClassifier(n_neurons=n_neurons, loss="logistic", penalty="l1", l1_strength=0.002, random_state=0)
    model.fit(X, y)
    sequence = np.asarray(task.test.inputs)[8]
    witnesses = model.proof_.witnesses
    scaled = (X - model.input_scale_[0]) / model.input_scale_[1]
    dictionary = cs.build_dictionary(witnesses, scaled, readout="mean")
    bits = cs.tasks.first_last_xor(n_steps=6, n_train=500).train.inputs
    others = cs.build_dictionary(cs.gaussian_witnesses(2, (64, n_neurons), decay=0.99), bits, readout="last")
    problem = cs.ConvexProblem(dictionary, (y == 8).astype(float), loss="logistic", intercept=True)
    path = cs.solve_path(problem, n_strengths=n_strengths, smallest_ratio=0.01)
    last = path[n_strengths - 1]
    return {
        "confusion": lambda: plots.plot_confusion(model, task.test.inputs, task.test.targets),
        "certificate": lambda: plots.plot_certificate(model, X, y),
        "path": lambda: plots.plot_path(path),
        "readout": lambda: plots.plot_readout(model),
        "receptive_field": lambda: plots.plot_receptive_field(model, neuron=int(model.network_.neurons[2])),
        "raster": lambda: plots.plot_raster(model, sequence),
        "membranes": lambda: plots.plot_membranes(model, sequence),
        "explanation": lambda: plots.plot_explanation(model.explain(sequence)),
        "gaps": lambda: plots.plot_gaps({"weakest penalty": last, "strongest penalty": path[1]}),
        "health": lambda: plots.plot_health({"digits": dictionary.health(), "XOR, two layers": others.health()}),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all plots."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model, for a first look")
    parser.add_argument("-o", "--output", type=Path, default=Path("out"), help="folder for the pictures")
    given = parser.parse_args(arguments)
    given.output.mkdir(parents=True, exist_ok=True)
    for name, draw in make_plots(40 if given.quick else 600, 4 if given.quick else 20).items():
        axes = np.ravel(draw())[0]  # some plots have two
        path = given.output / f"plot-{name.replace('_', '-')}.png"
        figure = axes.figure
        assert isinstance(figure, Figure)
        figure.savefig(path, dpi=80)
        plt.close(figure)
        print(path)


if __name__ == "__main__":
    main()
