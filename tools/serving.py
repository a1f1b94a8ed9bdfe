"""Print what the first prediction of a model file costs in a fresh process, beyond importing torch, and later ones.

OMP_NUM_THREADS=1 python tools/serving.py model.safetensors --steps 20
OMP_NUM_THREADS=1 python tools/serving.py model.safetensors --steps 20 --whole
"""

import argparse
import resource
import time

import numpy as np
import torch


def cost() -> tuple[float, float]:
    """Return the CPU seconds of this process, and its largest memory in MB."""
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Load a model, and predict one sequence of random numbers at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path")
    parser.add_argument("--steps", type=int, help="steps of a sequence; rows of features by default")
    parser.add_argument("--whole", action="store_true", help="load the estimator")
    options = parser.parse_args()
    torch.zeros(1).numpy()
    (begin, memory), n_answers = cost(), 30
    from cvxsnn import load

    model = load(options.path, predict_only=not options.whole)
    shape = (1, model.n_features_in_) if options.steps is None else (1, options.steps, model.n_features_in_)
    inputs = np.random.default_rng(0).normal(size=(n_answers, *shape))
    model.predict(inputs[0])
    seconds, largest = cost()
    print(f"first answer: {seconds - begin:.2f} CPU seconds, {largest - memory:.0f} MB beyond torch")
    for x in inputs:
        model.predict(x)
    print(f"each answer: {1000 * (cost()[0] - seconds) / n_answers:.2f} CPU milliseconds")


if __name__ == "__main__":
    main()
