"""A better read-out for Norse's MNIST tutorial.

python examples/norse_readout.py                # 12,000 images of MNIST, one epoch
python examples/norse_readout.py --epochs 5     # trained for longer
python examples/norse_readout.py --quick        # scikit-learn's 8x8 digits instead of MNIST

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
from torch.nn.functional import log_softmax, nll_loss

import cvxsnn as cs
from cvxsnn.data.tasks.mnist import read_mnist

try:
    from norse.torch import ConstantCurrentLIFEncoder, LICell, LIFParameters, LIFRecurrentCell
except ImportError:
    sys.exit('this example needs Norse: pip install "cvxsnn[norse]"')

N_STEPS, N_HIDDEN = 32, 100
BATCH_SIZE, LEARNING_RATE = 256, 2e-3


class Net(nn.Module):
    """A constant current produces input spikes, a recurrent layer reads them, leaky integrators read that layer."""

    def __init__(self, n_pixels: int) -> None:
        super().__init__()
        self.encoder = ConstantCurrentLIFEncoder(N_STEPS)
        self.lif = LIFRecurrentCell(n_pixels, N_HIDDEN, LIFParameters(alpha=100, v_th=torch.tensor(0.5)))
        self.fc_out, self.out = nn.Linear(N_HIDDEN, 10, bias=False), LICell()

    def forward(self, images: Tensor) -> Tensor:
        """Return log-probabilities, (n_samples, 10)."""
        hidden = output = None
        voltages = []
        for spikes in self.encoder((images - 0.1307) / 0.3081):
            spikes, hidden = self.lif(spikes, hidden)
            voltage, output = self.out(self.fc_out(spikes), output)
            voltages.append(voltage)
        return log_softmax(torch.stack(voltages).amax(0), 1)


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> None:
    """Train on all images once, in random order."""
    model.train()
    for rows in torch.randperm(len(images)).split(BATCH_SIZE):
        optimizer.zero_grad()
        nll_loss(model(images[rows]), labels[rows]).backward()
        optimizer.step()


def solve_readout(model: nn.Module, images: Tensor, labels: Tensor) -> cs.exchange.ReadoutResult:
    """Solve for the read-out. The model accepts a batch, and its largest output decides: no options are needed."""
    return cs.reconstruct_readout(model, images, labels)


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images that the model classifies correctly."""
    model.eval()
    decided = torch.cat([model(batch).argmax(1) for batch in images.split(500)])
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
    parser.add_argument("--output", type=Path, default=Path("out/norse_readout"), help="folder for the weights")
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
