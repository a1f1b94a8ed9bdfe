"""Witnesses that sampling would not find: gradient ascent on the price |λᵀψ(ω)| itself.

At an optimum over some witnesses every one of them has a price of at most ``l1_strength``. A witness above it
would lower the objective. Here many candidates climb side by side along surrogate gradients of their own price, each on
its own random rows, so that they end up in different places. Whether one is better than where it began is decided by
its exact price, with exact spikes on all rows.

With a quadratic beside the norm, the price of a witness that is read is above the strength, and so is that of any other
witness with its spikes. Such a candidate would add nothing: witnesses with equal spikes are one atom.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..convex import ConvexProblem, Solution, solve
from ..convex.objective import Objective
from ..convex.penalties import make_penalty
from ..convex.strengths import check_prices, check_strengths
from ..core import bits
from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..core.seeds import child_generator, child_seed
from ..data.sequences import TrainingSet, window_of_step
from ..dictionary import Readout, SpikeDictionary, build_dictionary
from ..dictionary.readout import parse_readout
from ..network.reconstruction import prune
from ..neurons.exact import snap_inputs
from ..neurons.registry import make_trainable
from ..neurons.surrogate import TrainableLayer
from ..witnesses import WitnessSet, join_witnesses, single_out

_BATCH = 256
"""Sequences that a candidate sees at a step."""

_CHECKS = 5
"""How often on the way up exact prices are taken."""


@dataclass(frozen=True)
class Ascent:
    """How candidates climb their price.

    Parameters
    ----------
    n_candidates : int
        The number of candidates per round.
    n_steps : int
        The number of steps of Adam; the learning rate falls to zero along a straight line.
    learning_rate : float
        The learning rate at the start.
    noise : float
        The spread of the noise that is added to the weights of a given witness before it climbs, relative to their own.
    steepness : float
        The steepness of the arctan surrogate derivative.

    Examples
    --------
    >>> from cvxsnn.training import Ascent
    >>> Ascent(n_candidates=32, n_steps=20).n_candidates
    32
    """

    n_candidates: int = 128
    n_steps: int = 60
    learning_rate: float = 0.05
    noise: float = 0.5
    steepness: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what means nothing."""
        check_positive_int("n_candidates", self.n_candidates)
        check_positive_int("n_steps", self.n_steps)
        for name in ("learning_rate", "steepness"):
            if not getattr(self, name) > 0:
                raise InvalidInputError(f"expected {name} above zero, got {getattr(self, name)!r}")


@dataclass(frozen=True)
class GrowthRound:
    """One round of :func:`grow_witnesses`.

    Parameters
    ----------
    n_accepted : int
        The number of candidates that were accepted.
    n_atoms : int
        The number of atoms of the dictionary with them.
    primal : float
        The optimum with them.
    largest_price : float
        The largest price of an accepted candidate.
    """

    n_accepted: int
    n_atoms: int
    primal: float
    largest_price: float


@dataclass(frozen=True, eq=False)
class Grown:
    """The outcome of :func:`grow_witnesses`.

    Parameters
    ----------
    solution : Solution
        The optimum over the witnesses that were grown.
    rounds : tuple of GrowthRound
        Every round.
    """

    solution: Solution
    rounds: tuple[GrowthRound, ...]


def grow_witnesses(
    witnesses: WitnessSet,
    data: TrainingSet,
    objective: Objective,
    l1_strength: float,
    *,
    ascent: Ascent | None = None,
    n_rounds: int = 5,
    l2_strength: float = 0.0,
    penalty: str = "l1",
    intercept: bool = False,
    tol: float = 1e-6,
    seed: int = 0,
    callback: Callable[[GrowthRound], None] | None = None,
) -> Grown:
    """Solve, let candidates climb their price, add those above the strength, and solve again.

    Parameters
    ----------
    witnesses : WitnessSet
        The LIF neurons to begin with: sampled, or of trained networks, or several sets joined.
    data : TrainingSet
        The training data.
    objective : Objective
        The loss, and what is read of the spikes.
    l1_strength : float
        The number that multiplies the norm, above zero: without it every witness is active.
    ascent : Ascent, optional
        How candidates climb.
    n_rounds : int
        The largest number of rounds; it ends earlier when no candidate gets above the strength.
    l2_strength : float
        The number that multiplies half the sum of squares, for the elastic nets.
    penalty : "l1", "group", "elastic-net" or "group-elastic-net"
        The penalty of the coefficients.
    intercept : bool
        Whether the read-out has an unpenalised constant.
    tol : float
        The relative gap to certify, over all given witnesses.
    seed : int
        The seed of the candidates.
    callback : callable, optional
        Called with every :class:`GrowthRound`.

    Returns
    -------
    Grown
        The optimum, and every round.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> from cvxsnn.training import Ascent, grow_witnesses
    >>> task = cs.tasks.first_last_xor(3, n_train=40, n_val=40, n_test=40)
    >>> data = cs.data.TrainingSet.of(task.train)
    >>> objective = cs.convex.Objective("logistic")
    >>> witnesses = cs.gaussian_witnesses(2, (16,), seed=0)
    >>> grown = grow_witnesses(witnesses, data, objective, 0.01, ascent=Ascent(16, 10), n_rounds=2)
    >>> grown.solution.certificate.relative_gap <= 1e-6
    True
    """
    check_strengths(l1_strength, l2_strength, make_penalty(penalty))
    check_prices(l1_strength, "witnesses that climb their price")
    ascent = ascent or Ascent()
    witnesses = witnesses.to(data.inputs.device)

    def optimum(over: WitnessSet) -> Solution:
        dictionary = build_dictionary(over, data.sequences, objective.readout)
        problem = ConvexProblem.of(
            objective,
            dictionary,
            data,
            l1_strength=l1_strength,
            l2_strength=l2_strength,
            penalty=penalty,
            intercept=intercept,
        )
        return solve(problem, tol)

    solution = optimum(witnesses)
    rounds: list[GrowthRound] = []
    for number in range(n_rounds):
        kept = _read(solution)
        starts = _starts(kept, witnesses, ascent, number, seed)
        own_seed = child_seed(seed, "climb", number)
        climbed = climb_prices(starts, data, objective.readout, solution, ascent, seed=own_seed)
        accepted = climbed.accepted
        if len(accepted) == 0:
            break
        risen = climbed.witnesses.take(accepted)
        grown = optimum(risen if kept is None else join_witnesses([kept, risen]))
        rounds.append(
            GrowthRound(
                len(accepted),
                grown.problem.dictionary.n_atoms,
                grown.certificate.primal,
                float(climbed.prices[accepted].max()),
            )
        )
        if callback is not None:
            callback(rounds[-1])
        solution = grown
    return Grown(solution, tuple(rounds))


def _read(solution: Solution) -> WitnessSet | None:
    """Return the witnesses that a solution reads, one per subnetwork; None if it reads none."""
    dictionary = solution.problem.dictionary
    assert dictionary.witnesses is not None
    if len(solution.support) == 0:
        return None
    n_windows = parse_readout(dictionary.readout).n_windows
    read = torch.unique(dictionary.column_of_atom[solution.support] // n_windows)
    return prune(single_out(dictionary.witnesses, read))


@dataclass(frozen=True, eq=False)
class Climbed:
    """Candidates after their climb.

    Parameters
    ----------
    witnesses : WitnessSet
        Each candidate at its best.
    prices : Tensor
        Their exact prices; for a problem with ``l2_strength``, zero for spikes that an atom of the solution has.
    first_prices : Tensor
        The same of their starts.
    accepted : Tensor
        Indices of those whose price is above the strength and above that of their start.
    """

    witnesses: WitnessSet
    prices: Tensor
    first_prices: Tensor
    accepted: Tensor


@torch.enable_grad()
def climb_prices(
    starts: WitnessSet,
    data: TrainingSet,
    readout: Readout,
    solution: Solution,
    ascent: Ascent | None = None,
    *,
    seed: int = 0,
) -> Climbed:
    """Let witnesses, one per subnetwork, climb their price at a solution's dual point."""
    ascent = ascent or Ascent()
    dual, penalty = solution.dual_point, solution.problem.penalty

    def exact(witnesses: WitnessSet) -> tuple[Tensor, Tensor, Tensor]:
        """Return correlations and prices, each in the window in which the price is highest, and that window."""
        dictionary = build_dictionary(witnesses, data.sequences, readout)
        correlation = dictionary.rmatvec(dual)[dictionary.atom_of_column]
        price = penalty.atom_norms(correlation)
        if solution.problem.l2_strength:
            price = price.masked_fill(_are_atoms(dictionary, solution)[dictionary.atom_of_column], 0.0)
        price, window = price.view(-1, dictionary.n_windows).max(1)
        each = torch.arange(len(window), device=window.device)
        return correlation[each * dictionary.n_windows + window], price, window

    before, first, window = exact(starts)
    best, best_price = starts, first
    # A candidate climbs along the outputs as its price weighs them at the start: the one for L1, all for groups.
    direction = before.sign() * (before.abs() == before.abs().amax(1, keepdim=True))
    if not penalty.is_separable:
        direction = before / penalty.atom_norms(before)[:, None].clamp_min(1e-12)
    model = _Candidates(starts, readout, ascent.steepness, window)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=ascent.learning_rate)
    inputs = snap_inputs(data.inputs).to(starts.dtype)
    n_samples = len(inputs)
    target = (dual @ direction.T).to(starts.dtype).view(n_samples, -1, starts.n_witnesses)
    for step in range(ascent.n_steps):
        rows = torch.randint(n_samples, (starts.n_witnesses, min(_BATCH, n_samples)), generator=generator)
        gain = model(inputs, target, rows.to(inputs.device), data.sequences.lengths).sum()
        optimiser.zero_grad()
        (-gain).backward()
        for group in optimiser.param_groups:
            group["lr"] = ascent.learning_rate * (1 - step / ascent.n_steps)
        optimiser.step()
        model.project()
        if (step + 1) % max(1, ascent.n_steps // _CHECKS) == 0 or step + 1 == ascent.n_steps:
            now = model.freeze()
            _, price, _ = exact(now)
            is_better = price > best_price
            best = _chosen(is_better, now, best)
            best_price = torch.where(is_better, price, best_price)
    strength = solution.problem.l1_strength
    accepted = torch.nonzero((best_price > strength * (1 + 1e-9)) & (best_price > first)).squeeze(1)
    return Climbed(best, best_price, first, accepted)


def _are_atoms(dictionary: SpikeDictionary, solution: Solution) -> Tensor:
    """Return which columns of a dictionary are atoms of a solution."""
    own = solution.problem.dictionary
    assert isinstance(own, SpikeDictionary)
    return bits.are_among(dictionary.packed, own.packed)


class _Candidates(nn.Module):
    """Witnesses with surrogate gradients, one per subnetwork."""

    def __init__(self, starts: WitnessSet, readout: Readout, steepness: float, window: Tensor) -> None:
        super().__init__()
        self._starts, self._readout, self._window = starts, parse_readout(readout), window
        dynamics = frozenset({"decay", "threshold", "bias"})
        self.layers = nn.ModuleList(make_trainable(layer, "arctan", steepness, dynamics) for layer in starts.layers)

    def forward(self, inputs: Tensor, target: Tensor, rows: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the price of each candidate on rows of its own, up to a factor."""
        block = inputs[rows].transpose(1, 2)
        for layer in self.layers:
            block = layer(block)
        spikes = block[..., 0].transpose(1, 2)
        own = torch.arange(len(rows), device=rows.device)[:, None]
        if self._readout.kind == "all":
            return (spikes * target[rows, :, own]).sum((1, 2))
        weight = target[rows, 0, own]
        n_steps = inputs.shape[1]
        ends = torch.full_like(rows, n_steps) if lengths is None else lengths[rows]
        if self._readout.kind == "last":
            return (spikes.gather(2, ends[..., None] - 1)[..., 0] * weight).sum(1)
        n_windows = self._readout.n_windows
        windows = window_of_step(torch.arange(n_steps, device=rows.device), n_windows, ends[..., None])
        inside: Tensor = windows == self._window[:, None, None]
        return ((spikes * inside).sum(2) * n_windows / ends * weight).sum(1)

    def freeze(self) -> WitnessSet:
        """Return the witnesses as they are now, with exact spikes."""
        layers = [layer.freeze() for layer in self.layers if isinstance(layer, TrainableLayer)]
        return replace(self._starts, layers=tuple(layers))

    def project(self) -> None:
        """Move decays and thresholds back into their ranges."""
        for layer in self.layers:
            if isinstance(layer, TrainableLayer):
                layer.project()


def _starts(kept: WitnessSet | None, sampled: WitnessSet, ascent: Ascent, number: int, seed: int) -> WitnessSet:
    """Return candidates, half of them near witnesses that are used, half of them any of the first witnesses."""
    generator = child_generator(seed, "ascent", number)
    n_near = 0 if kept is None else ascent.n_candidates // 2
    anywhere = torch.from_numpy(generator.integers(0, sampled.n_witnesses, ascent.n_candidates - n_near))
    parts = [prune(single_out(sampled, anywhere))]
    if kept is not None and n_near:
        near = kept.take(torch.from_numpy(generator.integers(0, kept.n_witnesses, n_near)))
        layers = []
        for layer in near.layers:
            spread = layer.weight.square().mean((1, 2), keepdim=True).sqrt()
            noise = torch.from_numpy(generator.standard_normal(layer.weight.shape)).to(layer.weight)
            moved = layer.weight + ascent.noise * spread * noise * (layer.weight != 0)
            layers.append(layer.with_tensors({"weight": moved}))
        parts.append(replace(near, layers=tuple(layers)))
    return join_witnesses(parts)


def _chosen(which: Tensor, one: WitnessSet, other: WitnessSet) -> WitnessSet:
    """Return witnesses whose subnetworks come from one set or the other."""
    layers = []
    for a, b in zip(one.layers, other.layers, strict=True):
        theirs = b.tensors()
        layers.append(
            a.with_tensors(
                {
                    name: torch.where(which.view(-1, *[1] * (value.ndim - 1)), value, theirs[name])
                    for name, value in a.tensors().items()
                }
            )
        )
    return replace(one, layers=tuple(layers))
