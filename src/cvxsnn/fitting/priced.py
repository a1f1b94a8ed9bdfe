r"""New neurons by their price: column generation with witnesses that are trained.

The dual point λ of a certified read-out prices every neuron, also those that it does not have. With features d on the
rows, centred if there is an intercept, a neuron lowers the objective about in proportion to

.. math:: \frac{\|\lambda^\top d\|^2}{\rho + \operatorname{var} d} .

Candidates from a family ascend the logarithm of this by surrogate gradients. Those that lower the objective most
together enter, the read-out is solved again, and its dual prices the next candidates.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, solve
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator, child_seed
from ..data.sequences import TrainingSet
from ..dictionary import build_dictionary
from ..dictionary.base import parse_readout
from ..network.spiking_network import OutputHead, SpikingNetwork
from ..neurons.exact import snap_inputs
from ..neurons.layer import HiddenLayer
from ..witnesses import Provenance, WitnessSet
from .engine import sample
from .few import order_neurons
from .program import Program
from .surrogate.networks import TrainableNetwork
from .surrogate.optimal_readout import with_open_taps
from .surrogate_settings import SurrogateSettings


@dataclass(frozen=True)
class Prices:
    """How candidates are drawn and priced."""

    n_candidates: int = 64
    """Candidates of a round."""

    n_entering: int = 8
    """Neurons that enter in a round."""

    strength: float = 3e-4
    """Strength of the quadratic of the read-outs whose duals price. Weaker ones price mostly noise."""

    unseen: float = 1e6
    """Strength at which a read-out ignores its neurons, so that its dual is that of the constants."""

    least_variance: float = 1e-3
    """ρ, so that neurons which hardly ever differ have no high price."""

    least_price: float = 1e-9
    """Price that is added before logarithms are taken; others are at most of order one."""


PRICES = Prices()

PRICING = SurrogateSettings(
    epochs=40, batch_size=128, learning_rate=0.01, steepness=1.25, train_decay=False, train_threshold=False
)
"""How candidates ascend their price, up to the seed.

Examples
--------
>>> from dataclasses import replace
>>> from cvxsnn.fitting import PRICING
>>> replace(PRICING, epochs=2).batch_size
128
"""


def price_neurons(
    family: Mapping[str, Any],
    data: TrainingSet,
    program: Program,
    n_neurons: int,
    *,
    settings: SurrogateSettings = PRICING,
    max_seconds: float = inf,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """Train neurons a few at a time, each for the dual of the certified read-out of those before.

    Parameters
    ----------
    family : mapping
        A family of one hidden layer, from which candidates are drawn, as :func:`cvxsnn.witnesses.sample_witnesses`
        reads it; its ``hidden`` is ignored.
    data : TrainingSet
        The training data.
    program : Program
        Loss, read-out, intercept and tolerance. Penalty and strengths are those of ridge at ``PRICES.strength``.
    n_neurons : int
        The number of neurons; fewer if candidates have equal spikes.
    settings : SurrogateSettings
        Epochs of a round, size of a batch, learning rate, surrogate, what is trained and seed. The rest is ignored.
    max_seconds : float
        The time after which no further round begins.
    callback : callable, optional
        Called as ``callback(done, n_neurons)`` after each round.

    Returns
    -------
    Solution
        The certified optimum over the neurons, which are in the order in which they entered.

    Examples
    --------
    >>> from dataclasses import replace
    >>> import cvxsnn as cs
    >>> from cvxsnn.fitting import PRICING, Program, price_neurons
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> program = Program(cs.convex.Objective("logistic", "mean"), intercept=True)
    >>> settings = replace(PRICING, epochs=2)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> solution = price_neurons({"decay": 0.5}, data, program, 10, settings=settings)
    >>> cs.reconstruct(solution).hidden, solution.certificate.relative_gap <= 1e-6
    ((10,), True)
    """
    begin = time.perf_counter()
    n_neurons = check_positive_int("n_neurons", n_neurons)
    readout = parse_readout(program.objective.readout)
    if readout.kind in ("all", "statistics"):
        raise InvalidInputError(f"expected read-out 'last', 'mean' or 'windows-k' to price neurons, got {readout}")
    ridge = replace(program, penalty="elastic-net", l1_strength=0.0, l2_strength=PRICES.strength, pool=0, centre=None)
    solution: Solution | None = None
    layer: HiddenLayer | None = None
    n_rounds = -(-n_neurons // PRICES.n_entering)
    for number in range(n_rounds):
        seed = child_seed(settings.seed, "prices", number)
        start = _candidates(family, data, seed)
        if solution is None:
            solution = solve(_problem(ridge, start, data).with_strength(0.0, PRICES.unseen), ridge.tol)
        trained = _ascend(start, data, program, solution.dual_point, replace(settings, seed=seed))
        n_missing = n_neurons - (0 if layer is None else layer.width)
        entering = _entering(_problem(ridge, trained, data), solution.dual_point, min(n_missing, PRICES.n_entering))
        new = trained.take_neurons(entering)
        layer = new if layer is None else _side_by_side(layer, new)
        solution = solve(_problem(ridge, layer, data), ridge.tol)
        if callback is not None:
            callback(layer.width, n_neurons)
        if time.perf_counter() - begin > max_seconds:
            break
    assert solution is not None
    return solution


def _candidates(family: Mapping[str, Any], data: TrainingSet, seed: int) -> HiddenLayer:
    """Return candidates as they are drawn."""
    witnesses = sample({**family, "hidden": (PRICES.n_candidates,), "n_subnetworks": 1}, data, seed)
    (layer,) = witnesses.layers
    if layer.recurrence is not None:
        raise InvalidInputError(f"expected neurons that do not read each other, to add some, got {witnesses!r}")
    return with_open_taps(layer)


def _problem(ridge: Program, layer: HiddenLayer, data: TrainingSet) -> ConvexProblem:
    """Return the program over the exact spikes of a layer."""
    witnesses = WitnessSet((layer,), Provenance("pretrained", {"method": "prices"}))
    problem = ridge.problem(build_dictionary(witnesses, data.sequences, ridge.objective.readout), data)
    return ridge.at(problem, (0.0, PRICES.strength))


@torch.enable_grad()
def _ascend(
    layer: HiddenLayer, data: TrainingSet, program: Program, dual_point: Tensor, settings: SurrogateSettings
) -> HiddenLayer:
    """Return neurons whose price has risen, each on its own."""
    readout = parse_readout(program.objective.readout)
    n_columns = layer.width * readout.n_windows
    # The scores of this network are the features of its neurons.
    head = OutputHead("features", "squared", 0, n_columns)
    features = torch.eye(n_columns, dtype=torch.float64, device=layer.weight.device)
    network = SpikingNetwork((layer,), features, [head], readout=program.objective.readout)
    model = TrainableNetwork(network, settings.surrogate, settings.steepness, settings.dynamics)
    model.weight.requires_grad_(False)
    model.intercept.requires_grad_(False)
    # Without a common norm to clip, so that neurons do not depend on each other.
    optimiser = torch.optim.Adam([own for own in model.parameters() if own.requires_grad], fused=True)
    inputs = snap_inputs(data.inputs).to(model.weight.dtype)
    lengths = data.sequences.lengths
    # Scaled so that prices are of order one, whatever the targets and the number of rows.
    dual = dual_point / (float(dual_point.norm()) or 1.0) / math.sqrt(len(data))
    dual = dual.to(inputs)
    rng = child_generator(settings.seed, "surrogate", "batches")
    n_steps = settings.epochs * -(-len(data) // settings.batch_size)
    step = 0
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permutation(len(data))).to(inputs.device)
        for rows in torch.split(order, settings.batch_size):
            values = model(inputs[rows], None if lengths is None else lengths[rows])
            values = values - program.intercept * values.mean(0)
            price = (values.T @ dual[rows]).square().sum(1) * (len(data) / len(rows)) ** 2
            price = price / (PRICES.least_variance + values.square().mean(0))
            # Of each neuron the logarithm, so that the steps of low prices are as large as those of high ones.
            per_neuron = price.view(layer.width, -1).sum(1)
            loss = -torch.log(per_neuron + PRICES.least_price).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.param_groups[0]["lr"] = settings.learning_rate * 0.5 * (1 + math.cos(math.pi * step / n_steps))
            optimiser.step()
            optimiser.zero_grad()
            model.project()
            step += 1
    return model.freeze().layers[0]


def _entering(problem: ConvexProblem, dual_point: Tensor, n_most: int) -> Tensor:
    """Return the neurons that together explain most of the dual point, in rising order."""
    weight = problem.row_weight[:, None]
    # Per unit of weight, the dual point of a row is its residual.
    residuals = torch.where(weight > 0, dual_point / weight, 0.0)
    ridge = ConvexProblem(
        problem.dictionary,
        residuals,
        "squared",
        0.0,
        l2_strength=1.0,
        penalty="elastic-net",
        intercept=problem.intercept,
        row_weight=problem.row_weight,
    )
    return order_neurons(ridge, n_most).sort().values


def _side_by_side(layer: HiddenLayer, new: HiddenLayer) -> HiddenLayer:
    """Return a layer with the neurons of two."""
    others = new.tensors()
    return layer.with_tensors({name: torch.cat((own, others[name]), dim=-1) for name, own in layer.tensors().items()})
