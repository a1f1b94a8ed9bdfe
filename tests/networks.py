"""Small solved problems over witnesses of every kind, for the tests of what is made of a solution."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from hypothesis import strategies as st
from tolerances import ROUNDING

from cvxsnn import ConvexProblem, Solution, WitnessSet, build_dictionary, gaussian_witnesses, solve
from cvxsnn.neurons import HiddenLayer
from cvxsnn.witnesses import Normal, Provenance, Uniform

NEURONS = ("lif", "threshold")
READOUTS = ("last", "mean", "all")
FORMS = (("compact", 1), ("full", 1), ("parallel", 1), ("parallel", 3))
SPREAD = {"decay": Uniform(0, 1), "bias": Normal(0, 0.3), "threshold": Uniform(0, 2), "initial_membrane": Normal(0, 1)}
N_FEATURES = 3
N_TAPS = 4


@dataclass(frozen=True)
class Case:
    """What a solved problem is like.

    ``n_outputs`` counts those of a loss without classes. With ``max_delay`` the witnesses have taps.
    """

    neuron: str = "lif"
    readout: str = "last"
    hidden: tuple[int, ...] = (6, 8)
    n_subnetworks: int = 2
    loss: str = "squared"
    n_outputs: int = 1
    penalty: str = "l1"
    intercept: bool = True
    ratio: float = 0.3
    seed: int = 0
    max_delay: int | None = None

    @property
    def inputs(self) -> torch.Tensor:
        """The sequences of the problem's dictionary."""
        return draw_inputs(20, 5, self.seed)

    def witnesses(self) -> WitnessSet:
        """Witnesses of which half the weights are zero, so that many neurons have no way to the output."""
        spread = SPREAD if self.neuron == "lif" else {"bias": SPREAD["bias"]}
        drawn = gaussian_witnesses(
            N_FEATURES, self.hidden, self.n_subnetworks, neuron=self.neuron, seed=self.seed, **spread
        )
        generator = torch.Generator().manual_seed(self.seed)
        layers = []
        for layer in drawn.layers:
            weights = {name: value for name, value in layer.tensors().items() if name.endswith("weight")}
            thinned = {n: v * (torch.rand(v.shape, generator=generator) < 0.5) for n, v in weights.items()}
            starts = (torch.rand(layer.bias.shape, generator=generator) < 0.3).float()
            layer = layer.with_tensors({**thinned, "initial_spikes": starts})
            if self.max_delay is not None:
                layer = self._with_taps(layer, generator)
            layers.append(layer)
        return WitnessSet(tuple(layers), Provenance("pretrained"))

    def _with_taps(self, layer: HiddenLayer, generator: torch.Generator) -> HiddenLayer:
        shape, n_inputs = (layer.n_subnetworks, N_TAPS, layer.width), layer.n_inputs
        weight = torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.5)
        source = torch.randint(n_inputs, shape, generator=generator)
        delay = torch.randint(self.max_delay + 1, shape, generator=generator)
        return replace(layer, weight=weight, source=source, delay=delay, n_sources=n_inputs)

    def solve(self) -> Solution:
        """The solution at ``ratio`` times the critical strength."""
        dictionary = build_dictionary(self.witnesses(), self.inputs, self.readout)
        rng = np.random.default_rng(self.seed)
        targets = rng.normal(size=(dictionary.n_rows, self.n_outputs)).round(1)
        if self.loss != "squared":
            targets[0], targets[1] = 1, -1
            targets = (targets > 0).astype(float)
        if self.loss == "softmax":
            targets = np.arange(dictionary.n_rows) % 3
        problem = ConvexProblem(dictionary, targets, self.loss, 1.0, penalty=self.penalty, intercept=self.intercept)
        # Where the columns are constant, an intercept leaves them nothing to explain but rounding.
        critical = problem.critical_strength
        return solve(problem.with_strength(self.ratio * (critical if critical > ROUNDING else 1.0)))


def draw_inputs(n_samples: int, n_steps: int, seed: int) -> torch.Tensor:
    """Sequences of real numbers."""
    return torch.randn(n_samples, n_steps, N_FEATURES, generator=torch.Generator().manual_seed(seed))


CASES = st.builds(
    Case,
    neuron=st.sampled_from(NEURONS),
    readout=st.sampled_from(READOUTS),
    hidden=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    n_subnetworks=st.integers(1, 3),
    loss=st.sampled_from(["squared", "logistic", "hinge", "softmax"]),
    n_outputs=st.integers(1, 2),
    intercept=st.booleans(),
    ratio=st.sampled_from([0.1, 0.3, 0.8, 1.0]),
    seed=st.integers(0, 2**16),
    max_delay=st.sampled_from([None, 0, 3]),
)
