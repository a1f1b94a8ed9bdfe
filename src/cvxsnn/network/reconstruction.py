"""From a convex solution to the network that it describes, and to the proof that its read-out is optimal."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from ..convex import Certificate, ConvexProblem, Solution, certify
from ..convex.losses import make_loss
from ..convex.objective import Objective
from ..convex.penalties import Penalty
from ..core.checks import check_choice, check_positive_int, check_type
from ..core.errors import BudgetError, InvalidInputError
from ..core.formatting import plural
from ..data.sequences import TrainingSet
from ..dictionary import build_dictionary
from ..dictionary.base import parse_readout
from ..neurons import HiddenLayer
from ..neurons.reading import read_columns
from ..witnesses import WitnessSet
from .spiking_network import OutputHead, SpikingNetwork

Form = Literal["compact", "parallel", "full"]


def reconstruct(
    solution: Solution, form: Form = "compact", width: int = 1, *, max_weights: int = 2**29
) -> SpikingNetwork:
    """Rebuild the network whose outputs on the dictionary's sequences are the solution's.

    Its spikes are the dictionary's, bit for bit, on any sequence.

    Parameters
    ----------
    solution : Solution
        A solution over a dictionary that was built from witnesses.
    form : "compact", "parallel" or "full"
        Which neurons to keep. "compact" keeps the subnetworks as they were sampled, with their lower layers shared,
        and drops every neuron without a path to the output. "parallel" is the paper's Algorithm "Witnessed LIF-SNN
        Reconstruction from Convex Solution": one subnetwork for each atom in the support, with its own copy of all
        lower layers. "full" keeps every neuron, used or not, as a start for further training. A neuron that is read in
        several windows of time is kept once; the parallel form has a copy for each window.
    width : int
        Width m of the last hidden layers of the parallel form: the atom's neuron m times, each read with weight w̃/m.
    max_weights : int
        Hidden weights that the parallel form may have, by default 2 GiB of float32; a larger one is refused before it
        is built.

    Returns
    -------
    SpikingNetwork
        The network.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn import ConvexProblem, build_dictionary, gaussian_witnesses, reconstruct, solve
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = build_dictionary(gaussian_witnesses(n_features=2, hidden=(64,)), inputs)
    >>> solution = solve(ConvexProblem(dictionary, targets, loss="squared_hinge", l1_strength=0.05))
    >>> network = reconstruct(solution)
    >>> len(network.neurons) == len(solution.support)
    True
    """
    check_type(solution, Solution, "what solve returns, to rebuild its network")
    check_choice("form", form, ("compact", "parallel", "full"))
    width = check_positive_int("width", width)
    if form != "parallel" and width != 1:
        raise InvalidInputError(f"expected width=1 for the {form} form, got {width}: pass form='parallel'")
    dictionary, intercept = solution.problem.dictionary, solution.intercept
    witnesses = dictionary.witnesses
    if witnesses is None:
        raise InvalidInputError(
            "expected a solution over a dictionary built from witnesses, got one over a plain array: it has no neurons "
            "to rebuild"
        )
    support, coef = solution.support, solution.coef[solution.support]
    parsed = parse_readout(dictionary.readout)
    n_windows = parsed.n_windows
    columns = dictionary.column_of_atom[support.to(dictionary.column_of_atom.device)]
    coef = coef * dictionary.units[support.to(dictionary.device)].to(coef)[:, None]
    if len(support) == 0:  # a network needs at least one neuron, so keep one and read it with weight zero
        columns = read_columns(witnesses.layers, parsed.statistics)[:1] if parsed.statistics else columns.new_zeros(1)
        coef = solution.coef.new_zeros(1, solution.coef.shape[1])
    parts = ((head.name, head.loss.name, head.columns) for head in solution.problem.heads)
    heads = [OutputHead(name, loss, columns.start, columns.stop) for name, loss, columns in parts]
    if form == "full":
        every = torch.arange(witnesses.n_witnesses * n_windows)
        every = read_columns(witnesses.layers, parsed.statistics).cpu() if parsed.statistics else every
        weight = coef.new_zeros(len(every), coef.shape[1])
        weight.index_copy_(0, torch.searchsorted(every, columns.cpu()).to(weight.device), coef)
        return SpikingNetwork(witnesses.layers, weight, heads, intercept, readout=dictionary.readout)
    subnetworks, neurons = witnesses.locate(columns // n_windows)
    if form == "compact":
        layers, read = _compact(witnesses.layers, subnetworks, neurons)
    else:
        layers, read = _parallel(witnesses, subnetworks, neurons, width, max_weights)
    # The copies of a neuron fire together, so each has an equal share of the coefficient.
    weight = coef.repeat_interleave(width, 0) / width
    windows = (columns % n_windows).repeat_interleave(width) if n_windows > 1 else None
    return SpikingNetwork(layers, weight, heads, intercept, read, dictionary.readout, windows)


@dataclass(frozen=True, eq=False)
class Proof:
    """A certified read-out with everything needed to certify it again, except for the data.

    Parameters
    ----------
    witnesses : WitnessSet
        Every witness that the optimum is over.
    support : Tensor of shape (n_active,), dtype int64
        The columns that are read: witnesses, or ``witness * n_windows + window``.
    coef : Tensor of shape (n_active, n_outputs), dtype float64
        Their output weights: coefficients of the program times units.
    intercept : Tensor of shape (n_outputs,), dtype float64
        The constants.
    dual_point : Tensor of shape (n_rows, n_outputs), dtype float64
        The point that proves the lower bound.
    objective : Objective
        The objective that was minimised.
    l1_strength : float
        The strength of the penalty's norm.
    penalty : Penalty
        The penalty.
    has_intercept : bool
        Whether the constants were fitted.
    certificate : Certificate
        The bounds that were proven.
    l2_strength : float
        The strength of the penalty's quadratic.
    unit : Tensor of shape (n_columns,), dtype float64, optional
        The units of statistics, as the training data decided them; None for other read-outs, whose unit is one.
    centre : Tensor of shape (n_columns, n_outputs), dtype float64, optional
        The output weights of all columns to which the quadratic draws; None if it draws to zero.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> solution = cs.solve(cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05))
    >>> proof = cs.network.Proof.of(solution, cs.convex.Objective("squared"))
    >>> data = cs.data.TrainingSet(inputs, {"label": targets})
    >>> proof.certify(data).relative_gap <= 1e-6
    True
    """

    witnesses: WitnessSet
    support: Tensor
    coef: Tensor
    intercept: Tensor
    dual_point: Tensor
    objective: Objective
    l1_strength: float
    penalty: Penalty
    has_intercept: bool
    certificate: Certificate
    l2_strength: float = field(default=0.0, kw_only=True)
    unit: Tensor | None = field(default=None, kw_only=True)
    centre: Tensor | None = field(default=None, kw_only=True)

    @classmethod
    def of(cls, solution: Solution, objective: Objective) -> "Proof":
        """Return the proof of a solution.

        Parameters
        ----------
        solution : Solution
            A solution over a dictionary that was built from witnesses.
        objective : Objective
            The objective that was minimised.

        Returns
        -------
        Proof
            The proof.
        """
        problem = solution.problem
        if problem.dictionary.witnesses is None:
            raise InvalidInputError("expected a solution over witnesses, got one over a plain array")
        if bool((problem.dictionary.atom_of_column < 0).any()):
            raise InvalidInputError(
                f"expected a solution over all atoms of its witnesses, got one over {problem.dictionary.n_atoms:,} of "
                "them: build the dictionary of these witnesses alone"
            )
        column_of_atom, unit_of_atom = problem.dictionary.column_of_atom, problem.dictionary.units[:, None]
        centre: Tensor | None = None
        if problem.centre is not None:
            centre = problem.centre.new_zeros(problem.dictionary.n_columns, problem.n_outputs)
            centre[column_of_atom] = problem.centre * unit_of_atom
        return cls(
            witnesses=problem.dictionary.witnesses,
            support=column_of_atom[solution.support],
            coef=(solution.coef * unit_of_atom)[solution.support],
            intercept=solution.intercept,
            dual_point=solution.dual_point,
            objective=objective,
            l1_strength=problem.l1_strength,
            l2_strength=problem.l2_strength,
            penalty=problem.penalty,
            has_intercept=problem.intercept,
            certificate=solution.certificate,
            unit=getattr(problem.dictionary, "unit", None),
            centre=centre,
        )

    def to(self, device: torch.device | str) -> "Proof":
        """Return the proof on another device.

        Parameters
        ----------
        device : device or str
            Where to compute.

        Returns
        -------
        Proof
            The same proof.
        """
        tensors = {name: getattr(self, name).to(device) for name in ("support", "coef", "intercept", "dual_point")}
        optional = {name: getattr(self, name) for name in ("unit", "centre")}
        tensors |= {name: value.to(device) for name, value in optional.items() if value is not None}
        return replace(self, witnesses=self.witnesses.to(device), **tensors)

    def check_network(self, network: SpikingNetwork) -> None:
        """Refuse a network that is not the one of this proof, so that what is certified is what predicts.

        Neurons that are read with weight zero do not count.

        Parameters
        ----------
        network : SpikingNetwork
            The network that predicts.
        """
        for layer in network.layers:  # buffers may have been written to: this checks their values
            layer.with_tensors(layer.tensors())
        readout, loss = parse_readout(self.objective.readout), self.objective.loss
        losses = loss if isinstance(loss, Mapping) else dict.fromkeys((head.name for head in network.heads), loss)
        own = _read_part(self.witnesses.layers, self.support, self.coef, readout.n_windows)
        other = _read_part(network.layers, network.columns, network.weight, network.n_windows)
        pairs: dict[str, tuple[Any, Any]] = {
            "another read-out": (str(readout), network.readout),
            "another loss": (
                {name: make_loss(one).name for name, one in losses.items()},
                {head.name: head.loss for head in network.heads},
            ),
            "another intercept": (self.intercept, network.intercept),
            "other output weights": (own.weight, other.weight),
            "other hidden neurons": ((own.layers, own.columns), (other.layers, other.columns)),
        }
        found = [name for name, pair in pairs.items() if not _are_same(*pair)]
        if found:
            raise InvalidInputError(
                f"expected the network that was certified, got one with {' and '.join(found)}: nothing is proven about "
                "it; fit again, or solve for its read-out"
            )

    def problem(self, data: TrainingSet) -> ConvexProblem:
        """Rebuild the problem that was solved.

        Parameters
        ----------
        data : TrainingSet
            The data that the solution was fitted to.

        Returns
        -------
        ConvexProblem
            The problem over the spikes of all witnesses on the data.
        """
        dictionary = build_dictionary(self.witnesses, data.sequences, self.objective.readout, unit=self.unit)
        problem = ConvexProblem.of(
            self.objective,
            dictionary,
            data,
            l1_strength=self.l1_strength,
            l2_strength=self.l2_strength,
            penalty=self.penalty,
            intercept=self.has_intercept,
        )
        if problem.n_outputs != self.coef.shape[1]:
            raise InvalidInputError(
                f"expected targets for {plural(self.coef.shape[1], 'output')}, as in training, got "
                f"{plural(problem.n_outputs, 'output')}"
            )
        if self.centre is None:
            return problem
        return problem.with_centre(dictionary.coefficients(torch.arange(dictionary.n_columns), self.centre))

    def certify(self, data: TrainingSet, problem: ConvexProblem | None = None) -> Certificate:
        """Certify the coefficients on the whole problem.

        Parameters
        ----------
        data : TrainingSet
            The data that the solution was fitted to.
        problem : ConvexProblem, optional
            The problem; built from the data when not given.

        Returns
        -------
        Certificate
            The bounds, computed again.
        """
        problem = self.problem(data) if problem is None else problem
        dictionary = problem.dictionary
        coef = dictionary.coefficients(self.support, self.coef)
        # A dual point of other data may not fit; the gradient at the coefficients is always a candidate.
        duals = [self.dual_point.to(coef)] if len(self.dual_point) == dictionary.n_rows else []
        certificate, _ = certify(problem, coef, self.intercept.to(coef), duals)
        return certificate


class _ReadPart(NamedTuple):
    """What a network reads with a weight other than zero: its neurons, and the output weights of each column."""

    layers: list[HiddenLayer]
    columns: Tensor
    weight: Tensor


def _read_part(stack: tuple[HiddenLayer, ...], columns: Tensor, weight: Tensor, n_windows: int) -> _ReadPart:
    """Return the part of a stack that is read, in one form for all stacks that contain the same neurons."""
    columns, weight = columns.cpu(), weight.detach().cpu()
    order = columns.argsort(stable=True)
    order = order[weight[order].any(1)]
    columns, weight = columns[order], weight[order]
    if len(columns) == 0:
        return _ReadPart([], columns, weight)
    neurons, width = columns // n_windows, stack[-1].width
    if int(columns[0]) < 0 or int(neurons[-1]) >= width * stack[-1].n_subnetworks:
        raise InvalidInputError(
            f"expected columns of {width * stack[-1].n_subnetworks} neurons, got {int(columns[0])} to "
            f"{int(columns[-1])}: nothing is proven about such a network; fit again"
        )
    layers, read = _compact(stack, neurons // width, neurons % width)
    return _ReadPart(layers, read * n_windows + columns % n_windows, weight)


def _are_same(one: Any, other: Any) -> bool:
    """Return whether two values, layers among them, are equal to the bit on any device."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one.detach().cpu(), other.detach().cpu())
    if isinstance(one, HiddenLayer) and type(one) is type(other):
        return _are_same((one.tensors(), one.settings()), (other.tensors(), other.settings()))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_are_same(value, other[name]) for name, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_are_same, one, other))
    return bool(one == other)


def _parallel(
    witnesses: WitnessSet, subnetworks: Tensor, neurons: Tensor, width: int, max_weights: int
) -> tuple[list[HiddenLayer], Tensor]:
    """Return one subnetwork per atom: its lower layers, and ``width`` copies of its last neuron."""
    *lower, last = witnesses.layers
    is_recurrent = last.recurrence is not None
    device = last.weight.device
    n_atoms = len(neurons)
    # Copies of a recurrent neuron stand beside the rest of its layer, which takes part in the atom's spikes.
    top_width = last.width + width - 1 if is_recurrent else width
    sizes = [(layer.n_taps, layer.width) for layer in lower] + [(last.n_taps, top_width)]
    n_weights = n_atoms * sum(size * (n_taps + is_recurrent * size) for n_taps, size in sizes)
    if n_weights > max_weights:
        raise BudgetError(
            f"expected a network of at most {max_weights:,} hidden weights, but {plural(n_atoms, 'subnetwork')} with "
            f"their own lower layers need {n_weights:,}: use form='compact', which shares them"
        )
    subnetworks, neurons = subnetworks.to(device), neurons.to(device)[:, None]
    if is_recurrent:
        everyone = torch.arange(last.width, device=device).expand(n_atoms, -1)
        top = _choose_neurons(last.take(subnetworks), torch.cat((everyone, neurons.expand(-1, width - 1)), dim=1))
        recurrent = top.tensors()["recurrent_weight"].clone()
        recurrent[:, last.width :] = 0  # the copies read what the neuron reads, and no neuron reads them
        top = top.with_tensors({"recurrent_weight": recurrent})
        copies = torch.arange(last.width, top_width, device=device).expand(n_atoms, -1)
        positions = torch.cat((neurons, copies), dim=1)
    else:
        single = last.take_neuron(neurons[:, 0], subnetworks).tensors()
        top = last.with_tensors({name: value.repeat_interleave(width, -1) for name, value in single.items()})
        positions = torch.arange(width, device=device).expand(n_atoms, -1)
    read = torch.arange(n_atoms, device=device)[:, None] * top_width + positions
    return [*(layer.take(subnetworks) for layer in lower), top], read.flatten()


def _compact(stack: tuple[HiddenLayer, ...], subnetworks: Tensor, neurons: Tensor) -> tuple[list[HiddenLayer], Tensor]:
    """Return the subnetworks in use, without the neurons that have no path to the output.

    Subnetworks have equal widths, so those that need fewer neurons are padded with silent ones.
    """
    used, rank = (index.cpu() for index in torch.unique(subnetworks, return_inverse=True))
    layers = [layer.take(used.to(layer.weight.device)) for layer in stack]
    needed = torch.zeros(len(used), layers[-1].width, dtype=torch.bool)
    needed[rank, neurons.cpu()] = True
    read = rank
    for depth in reversed(range(len(layers))):
        layer = layers[depth]
        needed = layer.needed_by(needed)
        size = max(1, int(needed.sum(1).max()))
        # A stable sort puts the needed neurons first and keeps their order. The rest of the width is padding: silenced.
        chosen = torch.argsort((~needed).to(torch.int8), dim=1, stable=True)[:, :size]
        layers[depth] = _choose_neurons(layer, chosen).silence(torch.gather(needed, 1, chosen))
        if depth == len(layers) - 1:
            position = torch.zeros_like(needed, dtype=torch.int64)
            position.scatter_(1, chosen, torch.arange(size).expand_as(chosen))
            read = rank * size + position[rank, neurons.cpu()]
        else:
            layers[depth + 1] = layers[depth + 1].take_inputs(chosen)
        needed = layers[depth].fan_out().cpu() > 0
    return layers, read


def _choose_neurons(layer: HiddenLayer, chosen: Tensor) -> HiddenLayer:
    """Return the layer with neurons ``chosen`` (n_subnetworks, n_chosen), in that order and as often as named."""
    chosen, tensors = chosen.to(layer.weight.device), {}
    subnetwork = torch.arange(len(chosen), device=chosen.device)[:, None]
    for name, value in layer.tensors().items():
        senders = value[subnetwork, chosen] if name == "recurrent_weight" else value
        tensors[name] = senders.movedim(-1, 1)[subnetwork, chosen].movedim(1, -1).contiguous()
    return layer.with_tensors(tensors)
