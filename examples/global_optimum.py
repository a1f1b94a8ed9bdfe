"""Networks of Iris and Breast cancer that are proven globally optimal over all LIF neurons, saved, and checked again.

python examples/global_optimum.py --output out

For each data set: find the optimum over *all* LIF neurons with decay 0.5 and a bias, keep the proof in a file, save the
network as a model file, check the proof with a program that imports nothing of the library, and compare the model
file with the network in the proof. If it is stopped, the same command goes on with the proofs.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris

import cvxsnn as cs
from cvxsnn import theory
from cvxsnn.theory import check_certificate


def draw_iris():
    """Iris in tenths of a centimetre: the second class against the others."""
    values, label = load_iris(return_X_y=True)
    return np.rint(10 * values)[:, None] / 16, 2.0 * (label == 1) - 1


def draw_breast_cancer():
    """The first four principal components, rounded to multiples of 1/256."""
    values, label = load_breast_cancer(return_X_y=True)
    values = (values - values.mean(0)) / values.std(0)
    axes = np.linalg.svd(values, full_matrices=False)[2][:4]
    return np.rint(256 * values @ axes.T)[:, None] / 256, 2.0 * label - 1


def main():
    """Prove, save and check both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(), help="the folder for proofs and models")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit for one data set")
    parser.add_argument("--quick", action="store_true", help="40 samples of two features only")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    family = theory.LIFFamily(0.5, bias=True)
    for name, draw in (("iris", draw_iris), ("breast_cancer", draw_breast_cancer)):
        inputs, targets = draw()
        if arguments.quick:
            inputs, targets = inputs[:: len(inputs) // 40, :, :2], targets[:: len(inputs) // 40]
        proof, model = arguments.output / f"{name}-proof.json", arguments.output / f"{name}.safetensors"
        found = theory.prove_complete(
            proof,
            inputs,
            targets,
            family,
            "logistic",
            0.05 if name == "iris" else 0.02,
            intercept=True,
            max_seconds=arguments.seconds,
            callback=lambda one: print(f"  {one.seconds:5.1f} s: {one.dual:.6f} <= optimum <= {one.primal:.6f}"),
        )
        print(f"{name}, {len(inputs)} samples: {found}")
        cs.save(cs.reconstruct(found.solution), model)
        checker = [sys.executable, "-I", check_certificate.__file__, str(proof)]
        print(subprocess.run(checker, check=True, capture_output=True, text=True).stdout, end="")
        compare(cs.load(model), json.loads(proof.read_text()), inputs, targets)


def compare(network, file, inputs, targets):
    """Compare a network from a model file with the one in a proof, by their scores."""
    scores = network(inputs).detach().numpy()[:, 0]
    coef = np.abs([float.fromhex(weight) for row in file["coef"] for weight in row]).sum()
    objective = np.logaddexp(0, -targets * scores).mean() + float.fromhex(file["strength"]) * coef
    assert np.isclose(objective, float.fromhex(file["primal"]), rtol=1e-9)
    print(
        f"the model file has this objective: {objective:.9f}, {len(file['neurons'])} neurons and a training accuracy "
        f"of {np.mean(scores * targets > 0):.4f}"
    )


if __name__ == "__main__":
    main()
