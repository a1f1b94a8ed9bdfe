"""The penalty as weight decay of a network, and the rescaling that connects the two."""

import math

import torch

from ..convex import ConvexProblem
from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..network.spiking_network import SpikingNetwork
from ..neurons import NEURON_MODELS


def weight_decay(l1_strength: float, width: int) -> float:
    r"""Return the strength β_reg of weight decay that a convex program of strength ``l1_strength`` stands for.

    .. math:: \beta_{reg} = s \sqrt{m_{L-1}}

    where m is the width of the last hidden layer of the rebuilt subnetworks. This is weight decay on hidden and output
    weights alike: rescaling moves size from one layer to another, and at the best scales only the norm of the output
    weights is left. The quadratic of an elastic net, :math:`\tfrac{r}{2} \|W\|_2^2`, is plain weight decay on the
    output weights alone, with the hidden layers fixed. Rescaling changes it, so it stands for no weight decay of the
    whole network.
    """
    return l1_strength * math.sqrt(width)


def weight_decay_objective(network: SpikingNetwork, problem: ConvexProblem, inputs: Array) -> float:
    r"""Return the non-convex training objective at a network, with the best amplitudes of its spikes.

    .. math:: \mathcal{L}(f_\Theta) + \frac{\beta_{reg}}{2} \sum_{k,v} \big( s_v^2 + \|\theta_v\|_2^2 \big)

    over the hidden layers' amplitudes s and all weights, biases, thresholds and initial membranes θ. An amplitude c of
    a layer's spikes and its inverse in the weights P that read them leave the network as it is, and
    :math:`\min_c c^2 + \|P\|^2 / c^2 = 2 \|P\|`, which is what weights that read spikes contribute here. The hidden
    ones vanish with :func:`rescale_hidden`, which changes no spike; the limit is the loss plus
    :math:`\beta_{reg} \sum_k \|P_{k,out}\|_2`. For a parallel reconstruction of one output that is the convex program's
    value.

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    problem : ConvexProblem
        The loss, the targets, and β_reg by ``weight_decay`` for the number of neurons read in a subnetwork. Its
        ``l2_strength`` must be zero.
    inputs : array of shape (n_samples, n_steps, n_features)
        The sequences of the problem's dictionary.

    Returns
    -------
    float
        The value of the objective.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem), "parallel")
    >>> small = cs.theory.rescale_hidden(network, 2.0**-60)
    >>> value = cs.theory.weight_decay_objective(small, problem, inputs)
    >>> round(value - cs.solve(problem).certificate.primal, 6) + 0.0
    0.0
    """
    if problem.l2_strength:
        raise InvalidInputError(
            f"expected a problem with l2_strength=0, got {problem.l2_strength:g}: the quadratic of an elastic net is "
            "weight decay on the output weights alone, with the hidden layers fixed"
        )
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
            squares_of_layer = value.double().square()
            # Inputs have no amplitude that could take over some of the size of the first weights.
            if name == "weight" and depth > 0:
                decay += 2 * float(squares_of_layer.sum((1, 2)).sqrt().sum())
            elif name in NEURON_MODELS.of(layer).all_scaled:
                decay += float(squares_of_layer.sum())
    return loss + 0.5 * strength * decay


def rescale_hidden(network: SpikingNetwork, scale: float) -> SpikingNetwork:
    """Return the same function with all membranes ``scale`` times as large, by the lemma "LIF membrane rescaling".

    Parameters
    ----------
    network : SpikingNetwork
        The network.
    scale : float
        A power of two, so that no rounding takes place and every spike stays.

    Returns
    -------
    SpikingNetwork
        A new network.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem), "parallel")
    >>> small = cs.theory.rescale_hidden(network, 0.5)
    >>> torch.equal(small.features(inputs), network.features(inputs))
    True
    """
    if not scale > 0 or not math.isfinite(scale) or math.frexp(scale)[0] != 0.5:  # the mantissa of powers of two
        raise InvalidInputError(f"expected scale to be a power of two, got {scale!r}")
    layers = [
        layer.with_tensors({name: layer.tensors()[name] * scale for name in NEURON_MODELS.of(layer).all_scaled})
        for layer in network.layers
    ]
    return network.with_layers(layers)
