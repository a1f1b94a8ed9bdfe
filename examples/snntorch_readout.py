"""The network of snnTorch's tutorial 5, trained as there, and then its optimal read-out with a certificate.

python examples/snntorch_readout.py               # 12,000 images of MNIST, one epoch
python examples/snntorch_readout.py --epochs 5    # trained for longer
python examples/snntorch_readout.py --quick       # scikit-learn's 8x8 digits, as without MNIST

MNIST is looked for in the folder that the environment variable CVXSNN_DATA names, and downloaded otherwise.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import cvxsnn as cs
from cvxsnn.tasks.mnist_files import read_mnist

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

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Spikes and membranes of the output neurons, both (n_steps, n_samples, 10)."""
        hidden, output, steps = self.lif1.init_leaky(), self.lif2.init_leaky(), []
        for _ in range(N_STEPS):
            spikes, hidden = self.lif1(self.fc1(images), hidden)
            spikes, output = self.lif2(self.fc2(spikes), output)
            steps.append((spikes, output))
        spikes, membranes = zip(*steps, strict=True)
        return torch.stack(spikes), torch.stack(membranes)


def train_epoch(model: Net, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Once through the images in a random order."""
    for rows in torch.randperm(len(images)).split(BATCH_SIZE):
        _, membranes = model(images[rows])
        optimizer.zero_grad()
        sum(cross_entropy(membrane, labels[rows]) for membrane in membranes).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: Net, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of images whose own output neuron spikes most often."""
    counts = torch.cat([model(batch)[0].sum(0) for batch in images.split(500)])
    return float((counts.argmax(1) == labels).double().mean())


def load_images(quick: bool) -> list[torch.Tensor]:
    """Images and labels to train on, images and labels to test."""
    try:
        parts = [] if quick else [read_mnist("train"), read_mnist("t10k")]
    except cs.CvxsnnError as error:
        print(f"{error}\ngoing on with scikit-learn's digits")
        parts = []
    if not parts:
        images, labels = load_digits(return_X_y=True)
        parts = [(255 / 16 * images[rows], labels[rows]) for rows in (slice(1300), slice(1300, None))]
    return [torch.tensor(own, dtype=kind) for part in parts for own, kind in zip(part, (torch.float32, torch.int64))]
