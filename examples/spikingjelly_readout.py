"""A better read-out for SpikingJelly's lif_fc_mnist.

python examples/spikingjelly_readout.py                  # 12,000 images of MNIST, one epoch
python examples/spikingjelly_readout.py --epochs 5       # trained for longer
python examples/spikingjelly_readout.py --hidden 200     # with a hidden layer
python examples/spikingjelly_readout.py --quick          # scikit-learn's 8x8 digits instead of MNIST

MNIST is read from the folder in the environment variable CVXSNN_DATA, or downloaded.

The network of this example is trained as there, and then gets its optimal read-out, with a certificate.
"""

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

import cvxsnn as cs
from cvxsnn.data.tasks.mnist import read_mnist

try:
    from spikingjelly.activation_based import encoding, functional, layer, neuron, surrogate
except ImportError:
    sys.exit('this example needs SpikingJelly: pip install "cvxsnn[spikingjelly]"')

N_STEPS = 25  # 100 in the tutorial
BATCH_SIZE, LEARNING_RATE, TIME_CONSTANT = 64, 1e-3, 2.0

encode = encoding.PoissonEncoder()


class Net(nn.Sequential):
    """One layer of weights without bias and leaky neurons, as in the tutorial, or two of them."""

    def __init__(self, n_pixels: int, n_hidden: int = 0) -> None:
        layers = [layer.Flatten()]
        for n_inputs, n_outputs in pairwise((n_pixels, n_hidden, 10) if n_hidden else (n_pixels, 10)):
            neurons = neuron.LIFNode(TIME_CONSTANT, surrogate_function=surrogate.ATan())
            layers += [layer.Linear(n_inputs, n_outputs, bias=False), neurons]
        super().__init__(*layers)


def run_steps(model: nn.Module, images: Tensor) -> Tensor:
    """Return firing rates of the output neurons, (n_samples, 10); the loop over the steps is outside the model."""
    functional.reset_net(model)
    return sum(model(encode(images)) for _ in range(N_STEPS)) / N_STEPS


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """Train on all images once, in random order."""
    model.train()
    for rows in torch.randperm(len(images)).split(BATCH_SIZE):
        optimizer.zero_grad()
        mse_loss(run_steps(model, images[rows]), one_hot(labels[rows], 10).float()).backward()
        optimizer.step()


def solve_readout(model: nn.Module, images: Tensor, labels: Tensor) -> cs.exchange.ReadoutResult:
    """Solve for the read-out. The model accepts one step at a time, so ``run`` has the loop over the steps."""
    return cs.reconstruct_readout(model, images, labels, run=run_steps)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that the model classifies correctly."""
    model.eval()
    decided = torch.cat([run_steps(model, batch).argmax(1) for batch in images.split(500)])
    return float((decided == labels).double().mean())


def load_images(quick: bool, n_images: int) -> list[Tensor]:
    """Return images with pixels from 0 to 1 and labels, for training and testing."""
    (images, labels), scale = load_digits(return_X_y=True), 16
    parts = [(images[:1300], labels[:1300]), (images[1300:], labels[1300:])]
    if not quick:
        try:
            images, labels = read_mnist("train")
            parts, scale = [(images[:n_images], labels[:n_images]), read_mnist("t10k")], 255
        except cs.CvxsnnError as error:
            print(f"{error}\nusing scikit-learn's digits instead of MNIST")
    return [
        torch.tensor(own) for images, labels in parts for own in ((images / scale).astype("f4"), labels.astype("i8"))
    ]


def main() -> None:
    """Train, solve, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="8x8 digits instead of MNIST")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--images", type=int, default=12_000, help="how many to train on, of 60,000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("out/spikingjelly_readout"), help="folder for the weights")
    parser.add_argument("--hidden", type=int, default=0, help="neurons of a hidden layer; none in the tutorial")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    images, labels, *test = load_images(options.quick, options.images)
    model = Net(images.shape[1], options.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for epoch in range(1, options.epochs + 1):
        begin = time.perf_counter()
        train_epoch(model, optimizer, images, labels)
        seconds = time.perf_counter() - begin
        before = accuracy(model, *test)
        print(f"epoch {epoch}: test accuracy {before:.4f}, {seconds:.1f} s")
    result = solve_readout(model, images, labels)
    print(f"\n{result}\n")
    print(f"test accuracy {before:.4f} before, {accuracy(model, *test):.4f} with the optimal read-out")
    print(f"one epoch took {seconds:.1f} s, the read-out {result.seconds:.1f} s")
    options.output.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), options.output / "weights.pt")
    print(f"saved: {options.output / 'weights.pt'}")


if __name__ == "__main__":
    main()
