"""Probabilities from the scores of a least-squares read-out.

Its scores are no logarithms of odds, but they order the classes. One scale turns them into such: it is fitted to scores
of samples that were left out of training, so that the probabilities are neither too bold nor too shy. The most probable
class stays the one with the highest score.
"""

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

_RANGE = (-3.0, 5.0)
"""Decimal logarithms of the least and the largest scale, times the size of the scores."""


def fit_scale(scores: Tensor, labels: npt.NDArray[np.int64], weight: Tensor) -> float:
    """Return the scale at which scores predict labels best, by the mean log-loss.

    Of every label a share of 1 in n + 2 is taken away, as in Platt's method, so that samples that are all classified
    correctly do not make probabilities certain.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_outputs)
        Scores of samples left out. One output is positive for the second of two classes.
    labels : array of shape (n_samples,)
        The classes, from 0.
    weight : Tensor of shape (n_samples,)
        Weights of the samples, which sum to one.

    Returns
    -------
    float
        The scale, above zero.
    """
    n_classes = max(2, scores.shape[1])
    smooth = 1 / (len(labels) + 2)
    target = torch.full((len(labels), n_classes), smooth / (n_classes - 1), dtype=torch.float64)
    target[torch.arange(len(labels)), torch.from_numpy(labels)] = 1 - smooth
    size = float(scores.square().mean().sqrt()) or 1.0

    def loss(exponent: float) -> float:
        likelihood = torch.log_softmax(logits(scores, 10**exponent / size), dim=1)
        return -float(weight @ (target * likelihood).sum(1))

    return float(10 ** minimize_scalar(loss, bounds=_RANGE, method="bounded").x / size)


def logits(scores: Tensor, scale: float) -> Tensor:
    """Return one number per class, of which the softmax is the probability.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_outputs)
        Scores; one output is positive for the second of two classes.
    scale : float
        What to multiply them by.

    Returns
    -------
    Tensor of shape (n_samples, n_classes)
        The numbers.
    """
    scaled = scale * scores
    return torch.cat((torch.zeros_like(scaled), scaled), dim=1) if scores.shape[1] == 1 else scaled
