"""From a convex solution back to a spiking network."""

import math
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from ..convex import ConvexProblem, Solution, StatisticsProblem, StatisticsSolution
from ..core.checks import Array, check_choice, check_positive_int
from ..core.errors import BudgetError, InvalidInputError
from ..dictionary import Dictionary
from ..neurons import HiddenLayer, LIFLayer, ThresholdLayer
from ..witnesses import WitnessSet
from .spiking_network import OutputHead, SpikingNetwork

Form = Literal["compact", "parallel", "full"]

_MAX_NUMBERS = 2**29
"""Weights that a parallel network may have: 2 GiB of float32."""


def reconstruct(solution: Solution | StatisticsSolution, form: Form = "compact", width: int = 1) -> SpikingNetwork:
    """Rebuild the network whose outputs on the dictionary's sequences are the solution's.

    Its spikes are the dictionary's, bit for bit, on any sequence.

    Parameters
    ----------
    solution : Solution or StatisticsSolution
        Over a dictionary that was built from witnesses, or from statistics that were gathered through witnesses.
    form : "compact", "parallel" or "full"
        "compact" keeps the subnetworks as they were sampled, with their lower layers shared, and drops every neuron
        that has no way to the output. "parallel" is the paper's Algorithm "Witnessed LIF-SNN Reconstruction from
        Convex Solution": one subnetwork for each atom in the support, with its own copy of all lower layers. "full"
        keeps every neuron, used or not, which is where further training starts.
    width : int
        Width m of the last hidden layers of the parallel form: the atom's neuron m times, each read with weight w̃/m.
    """
    check_choice("form", form, ("compact", "parallel", "full"))
    width = check_positive_int("width", width)
    if form != "parallel" and width != 1:
        raise InvalidInputError(f"expected width=1 for the {form} form, got {width}: pass form='parallel'")
    # Statistics have no dictionary any more, but know who made its atoms.
    dictionary = solution.problem.dictionary if isinstance(solution, Solution) else solution.problem
    witnesses = _witnesses_of(dictionary)
    support, coef = solution.support, solution.coef[solution.support]
    if len(support) == 0:  # a network must have a neuron: one that is read with weight zero
        support, coef = torch.zeros(1, dtype=torch.int64), solution.coef.new_zeros(1, solution.coef.shape[1])
    support = support.to(dictionary.witness_of_atom.device)
    subnetworks, neurons = witnesses.locate(dictionary.witness_of_atom[support])
    build = {"compact": _compact, "parallel": _parallel, "full": _full}[form]
    layers, read = build(witnesses, subnetworks, neurons, width)
    heads = [
        OutputHead(head.name, head.loss.name, head.columns.start, head.columns.stop) for head in solution.problem.heads
    ]
    weight = coef.repeat_interleave(width, 0) / width
    if form == "full":
        everything = weight.new_zeros(witnesses.n_witnesses, weight.shape[1])
        weight = everything.index_copy_(0, read.to(weight.device), weight)
        read = torch.arange(witnesses.n_witnesses)
    return SpikingNetwork(layers, weight, heads, solution.intercept, read, dictionary.readout)


def prune(witnesses: WitnessSet) -> WitnessSet:
    """Subnetworks of one witness each, without the neurons that the witness does not hear of."""
    each = torch.arange(witnesses.n_subnetworks)
    layers, _ = _compact(witnesses, each, torch.zeros_like(each), 1)
    return WitnessSet(tuple(layers), witnesses.provenance)


def weight_decay(l1_strength: float, width: int) -> float:
    r"""The strength β_reg of weight decay that a convex program of strength ``l1_strength`` stands for.

    .. math:: \beta_{reg} = s \sqrt{m_{L-1}}

    where m is the width of the last hidden layer of the rebuilt subnetworks.
    """
    return l1_strength * math.sqrt(width)


def weight_decay_objective(network: SpikingNetwork, problem: ConvexProblem, inputs: Array) -> float:
    r"""The non-convex training objective at a network, with the best amplitudes of its spikes.

    .. math:: \mathcal{L}(f_\Theta) + \frac{\beta_{reg}}{2} \sum_{k,v} \big( s_v^2 + \|\theta_v\|_2^2 \big)

    over the hidden layers' amplitudes s and all weights, biases, thresholds and initial membranes θ. An amplitude c of
    a layer's spikes and its inverse in the weights P that read them leave the network as it is, and
    :math:`\min_c c^2 + \|P\|^2 / c^2 = 2 \|P\|`, which is what weights that read spikes contribute here. The hidden
    ones vanish with :func:`rescale_hidden`, which changes no spike; what is left in the limit is the loss plus
    :math:`\beta_{reg} \sum_k \|P_{k,out}\|_2`. For a parallel reconstruction of one output that is the convex program's
    value.

    Parameters
    ----------
    network : SpikingNetwork
    problem : ConvexProblem
        Gives the loss, the targets, and β_reg by :func:`weight_decay` for the number of neurons read in a subnetwork.
    inputs : array of shape (n_samples, n_steps, n_features), the sequences of the problem's dictionary
    """
    subnetworks = network.neurons // network.hidden[-1]
    n_read = torch.bincount(subnetworks, minlength=network.n_subnetworks)
    strength = weight_decay(problem.l1_strength, int(n_read.max()))
    with torch.no_grad():
        scores = network(inputs).reshape(-1, network.n_outputs)
        loss = float(problem.loss_value(scores.to(problem.row_weight.device)))
        squares = torch.zeros(network.n_subnetworks, dtype=torch.float64, device=network.weight.device)
        squares.index_add_(0, subnetworks, network.weight.square().sum(1))
    decay = 2 * float(squares.sqrt().sum())
    for depth, layer in enumerate(network.layers):
        for name, value in layer.tensors().items():
            own = value.double().square()
            if name == "weight" and depth > 0:
                decay += 2 * float(own.sum((1, 2)).sqrt().sum())
            elif name in _SCALED:
                decay += float(own.sum())
    return loss + 0.5 * strength * decay


_SCALED = ("weight", "bias", "threshold", "initial_membrane", "recurrent_weight")
"""Hidden parameters that scale with the membrane. The leak does not: it is a structural constant."""


def rescale_hidden(network: SpikingNetwork, scale: float) -> SpikingNetwork:
    """The same function with all membranes ``scale`` times as large, by the lemma "LIF membrane rescaling".

    Parameters
    ----------
    scale : float
        A power of two, so that no rounding takes place and every spike stays.
    """
    if not scale > 0 or not math.isfinite(scale) or math.frexp(scale)[0] != 0.5:
        raise InvalidInputError(f"expected scale to be a power of two, got {scale!r}")
    layers = [
        layer.with_tensors({name: value * scale for name, value in layer.tensors().items() if name in _SCALED})
        for layer in network.layers
    ]
    return SpikingNetwork(layers, network.weight, network.heads, network.intercept, network.neurons, network.readout)


def _witnesses_of(dictionary: Dictionary | StatisticsProblem) -> WitnessSet:
    if dictionary.witnesses is None:
        raise InvalidInputError(
            "expected a solution over a dictionary built from witnesses, got one over a plain array: it has no neurons "
            "to rebuild"
        )
    return dictionary.witnesses


def _full(witnesses: WitnessSet, subnetworks: Tensor, neurons: Tensor, width: int) -> tuple[list[HiddenLayer], Tensor]:
    """Every neuron; those of the support are read."""
    return list(witnesses.layers), subnetworks * witnesses.hidden[-1] + neurons


def _parallel(
    witnesses: WitnessSet, subnetworks: Tensor, neurons: Tensor, width: int
) -> tuple[list[HiddenLayer], Tensor]:
    """One subnetwork an atom: its lower layers, and ``width`` copies of its last neuron."""
    _check_size(witnesses, len(subnetworks), width)
    *lower, last = witnesses.layers
    device = last.weight.device
    subnetworks, neurons = subnetworks.to(device), neurons.to(device)
    if isinstance(last, ThresholdLayer):
        # All neurons of a recurrent layer take part in the atom's spikes. The copies read what the neuron reads, and
        # nobody reads them.
        everyone = torch.arange(last.width, device=device).expand(len(neurons), -1)
        chosen = torch.cat((everyone, neurons[:, None].expand(-1, width - 1)), dim=1)
        top = _choose_neurons(last.take(subnetworks), chosen)
        recurrent = top.tensors()["recurrent_weight"].clone()
        recurrent[:, last.width :] = 0
        top = top.with_tensors({"recurrent_weight": recurrent})
        copies = torch.arange(last.width, last.width + width - 1, device=device).expand(len(neurons), -1)
        places = torch.cat((neurons[:, None], copies), dim=1)
    else:
        single = {name: value[subnetworks, ..., neurons] for name, value in last.tensors().items()}
        top = last.with_tensors({name: value[..., None].repeat_interleave(width, -1) for name, value in single.items()})
        places = torch.arange(width, device=device).expand(len(neurons), -1)
    read = torch.arange(len(neurons), device=device)[:, None] * top.width + places
    return [*(layer.take(subnetworks) for layer in lower), top], read.flatten()


def _check_size(witnesses: WitnessSet, count: int, width: int) -> None:
    *sizes, last = (witnesses.n_features, *witnesses.hidden)
    each = sum(a * b for a, b in pairwise(sizes)) + sizes[-1] * width
    if witnesses.neuron == "threshold":
        each += sum(a * a for a in sizes[1:]) + (sizes[-1] + last + width) * (last + width)
    if count * each > _MAX_NUMBERS:
        raise BudgetError(
            f"expected a network of at most {_MAX_NUMBERS:,} hidden weights, but {count} subnetworks with their own "
            f"lower layers need {count * each:,}: use form='compact', which shares them"
        )


def _compact(
    witnesses: WitnessSet, subnetworks: Tensor, neurons: Tensor, width: int
) -> tuple[list[HiddenLayer], Tensor]:
    """The subnetworks in use, without the neurons that have no way to the output.

    Subnetworks have equal widths, so those that need fewer neurons than another are filled up with silent ones.
    """
    used, place = (index.cpu() for index in torch.unique(subnetworks, return_inverse=True))
    layers = [layer.take(used.to(layer.weight.device)) for layer in witnesses.layers]
    needed = torch.zeros(len(used), layers[-1].width, dtype=torch.bool)
    needed[place, neurons.cpu()] = True
    read = place
    for depth in reversed(range(len(layers))):
        layer = layers[depth]
        if isinstance(layer, ThresholdLayer):  # what a needed neuron hears of, step after step, is needed too
            heard = (layer.recurrent_weight != 0).cpu()
            while bool((reached := (heard & needed[:, None, :]).any(2) & ~needed).any()):
                needed |= reached
        size = max(1, int(needed.sum(1).max()))
        # The needed neurons of each subnetwork in their order, then others of it, which are silenced.
        chosen = torch.argsort((~needed).to(torch.int8), dim=1, stable=True)[:, :size]
        layers[depth] = _silence(_choose_neurons(layer, chosen), torch.gather(needed, 1, chosen))
        if depth == len(layers) - 1:
            position = torch.zeros_like(needed, dtype=torch.int64)
            position.scatter_(1, chosen, torch.arange(size).expand_as(chosen))
            read = place * size + position[place, neurons.cpu()]
        else:
            upper = layers[depth + 1]
            layers[depth + 1] = upper.with_tensors({"weight": _gather(upper.weight, chosen, 1)})
        needed = (layers[depth].weight != 0).any(2).cpu()
    return layers, read


def _choose_neurons(layer: HiddenLayer, chosen: Tensor) -> HiddenLayer:
    """The layer with neurons ``chosen`` (n_subnetworks, n_chosen), in that order and as often as they are named."""
    tensors = {}
    for name, value in layer.tensors().items():
        tensors[name] = _gather(value, chosen, value.ndim - 1)
        if name == "recurrent_weight":
            tensors[name] = _gather(tensors[name], chosen, 1)
    return layer.with_tensors(tensors)


def _gather(value: Tensor, chosen: Tensor, axis: int) -> Tensor:
    """``value`` with the chosen entries along an axis, other ones for each subnetwork (the first axis)."""
    chosen = chosen.to(value.device)
    if value.ndim == 2:
        return torch.gather(value, 1, chosen)
    shape = list(value.shape)
    shape[axis] = chosen.shape[1]
    index = chosen[:, None, :] if axis == 2 else chosen[:, :, None]
    return torch.gather(value, axis, index.expand(shape))


def _silence(layer: HiddenLayer, is_live: Tensor) -> HiddenLayer:
    """The layer with some neurons made to read nothing and never fire."""
    if bool(is_live.all()):
        return layer
    live = is_live.to(layer.weight.device)
    changes: dict[str, Any] = {
        "weight": layer.weight * live[:, None, :],
        "bias": torch.where(live, layer.bias, -1.0),
        "initial_spikes": layer.initial_spikes * live,
    }
    if isinstance(layer, LIFLayer):
        changes |= {"initial_membrane": layer.initial_membrane * live}
    if isinstance(layer, ThresholdLayer):
        changes |= {"recurrent_weight": layer.recurrent_weight * live[:, None, :] * live[:, :, None]}
    return layer.with_tensors(changes)
