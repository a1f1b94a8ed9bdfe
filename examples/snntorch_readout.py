"""A better read-out for snnTorch's tutorial 5.

python examples/snntorch_readout.py                # 12,000 images of MNIST, one epoch
python examples/snntorch_readout.py --epochs 5     # trained for longer
python examples/snntorch_readout.py --quick        # scikit-learn's 8x8 digits instead of MNIST

MNIST is read from the folder in the environment variable CVXSNN_DATA, or downloaded.

The network of the tutorial is trained as there, and then gets its optimal read-out, with a certificate.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cvxsnn as cs
from cvxsnn.data.tasks.mnist import read_mnist

try:
    import snntorch as snn
except ImportError:
    sys.exit('this example needs snnTorch: pip install "cvxsnn[snntorch]"')

N_STEPS, N_HIDDEN, DECAY = 25, 1000, 0.95
BATCH_SIZE, LEARNING_RATE = 128, 5e-4


class Net(nn.Module):
    """Two layers of leaky neurons that see the same image at every step."""

    def __init__(self, n_pixels: int) -> None:
        super().__init__()
        self.fc1, self.lif1 = nn.Linear(n_pixels, N_HIDDEN), snn.Leaky(beta=DECAY)
        self.fc2, self.lif2 = nn.Linear(N_HIDDEN, 10), snn.Leaky(beta=DECAY)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return spikes and membranes of the output neurons, both (n_steps, n_samples, 10)."""
        hidden, output, steps = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for _ in range(N_STEPS):
            spikes, hidden = self.lif1(self.fc1(images), hidden)
            spikes, output = self.lif2(self.fc2(spikes), output)
            steps.append((spikes, output))
        return tuple(map(torch.stack, zip(*steps, strict=True)))


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """Train on all images once, in random order."""
    model.train()
    for rows in torch.randperm(len(images)).split(BATCH_SIZE):
        _, membranes = model(images[rows])
        optimizer.zero_grad()
        sum(cross_entropy(membrane, labels[rows]) for membrane in membranes).backward()
        optimizer.step()


def solve_readout(model: nn.Module, images: Tensor, labels: Tensor) -> cs.exchange.ReadoutResult:
    """Solve for the read-out. The model accepts a batch, and the output that spikes most decides: no options needed."""
    return cs.reconstruct_readout(model, images, labels)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that the model classifies correctly."""
    model.eval()
    decided = torch.cat([model(batch)[0].sum(0).argmax(1) for batch in images.split(500)])
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
    parser.add_argument("--output", type=Path, default=Path("out/snntorch_readout"), help="folder for the weights")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    images, labels, *test = load_images(options.quick, options.images)
    model = Net(images.shape[1])
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
