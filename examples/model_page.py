"""A page about a model of handwritten digits.

python examples/model_page.py                      # writes out/digits.html, takes about a minute
python examples/model_page.py --quick -o a.html    # a smaller model

The page opens in any browser without a network: what is confused with what and why, what is proven, what fewer neurons
would cost in accuracy, what each neuron reads, how the evidence grows step by step, and what an answer costs.
"""

import argparse
from pathlib import Path

import cvxsnn as cs


def main() -> None:
    """Fit a model and write the page about it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/digits.html"), help="where to write the page")
    parser.add_argument("--quick", action="store_true", help="fewer sequences and neurons")
    given = parser.parse_args()
    task = cs.tasks.digits_seq()  # images of 8 x 8 pixels, read row by row
    rows = slice(0, 300 if given.quick else None)
    X, y = task.train.inputs[rows], task.train.targets[rows]
    model = cs.SpikingClassifier(sparsity=32 if given.quick else 128, random_state=0).fit(X, y)
    test = task.test.inputs[rows], task.test.targets[rows]
    page = model.explore(*test, training=(X, y), name="Digits", max_seconds=5 if given.quick else 20)
    path = page.save(given.output)
    print(f"accuracy {page.views[0].quality.score:.3f} on {page.views[0].quality.n_samples} digits not trained on")
    print(f"the page is {path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")


if __name__ == "__main__":
    main()
