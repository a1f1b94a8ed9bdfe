"""Plots of a model's answers, of what they are due to, and of its certificate."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import Pipeline

from ..convex import Solution
from ..core.errors import InvalidInputError
from ..core.formatting import format_bound
from ..estimators import Explanation, SpikingClassifier, SpikingRegressor
from ..explore.optimality import approach

_MAX_NUMBERS = 25
"""Classes up to which the cells of a confusion matrix have room for numbers."""

_MAX_CURVES = 10
"""Outputs that a legend has room for, and channels up to which an input is drawn as curves."""


def plot_confusion(model: SpikingClassifier | Pipeline, X: Any, y: Any, axes: Axes | None = None) -> Axes:
    """Plot a confusion matrix.

    Colours are shares of the sequences of a class, numbers are counts.

    Parameters
    ----------
    model : SpikingClassifier, or a pipeline that ends in one
        The fitted model.
    X : array or list of arrays
        Sequences, as for ``predict``.
    y : array of shape (n_samples,)
        Their labels.
    axes : Axes, optional
        Where to draw.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_confusion
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    >>> model = cs.SpikingClassifier(n_neurons=64, random_state=0).fit(X, y)
    >>> axes = plot_confusion(model, X, y)
    >>> plt.close(axes.figure)
    """
    if not hasattr(model, "classes_"):
        raise InvalidInputError(f"expected a fitted classifier, got {type(model).__name__}")
    predicted, classes = model.predict(X), model.classes_
    counts = confusion_matrix(np.asarray(y), predicted, labels=classes)
    n_right, n_samples = int(np.trace(counts)), int(counts.sum())
    size = min(9.0, 2.5 + 0.4 * len(classes))
    axes = axes or plt.subplots(figsize=(size + 1, size), layout="constrained")[1]
    # Classes without sequences have no shares.
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="none")
    axes.figure.colorbar(image, ax=axes, label="share of the true class")
    if len(classes) <= _MAX_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                # Dark cells need light numbers.
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, str(count), ha="center", va="center", color=colour, fontsize="small")
    names = [str(name) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=90 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="answer", ylabel="true class", title=f"{n_right:,} of {n_samples:,} correct")
    return axes


def plot_certificate(
    certified: Solution | SpikingClassifier | SpikingRegressor,
    X: Any = None,
    y: Any = None,
    axes: Axes | None = None,
    *,
    max_seconds: float = 30.0,
) -> Axes:
    """Plot how the objective and the lower bound approach each other over the iterations.

    The problem is solved again with more and more iterations, and each result is certified.

    Parameters
    ----------
    certified : Solution, or a fitted estimator whose read-out is certified
        The solution, or a model with a certificate.
    X : array or list of arrays, optional
        For an estimator, the sequences that it was fitted to.
    y : array, optional
        For an estimator, their targets.
    axes : Axes, optional
        Where to draw.
    max_seconds : float
        The time for solving again.

    Returns
    -------
    Axes
        The axes.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_certificate
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    >>> model = cs.SpikingClassifier(n_neurons=64, random_state=0).fit(X, y)
    >>> axes = plot_certificate(model, X, y)
    >>> plt.close(axes.figure)
    """
    if isinstance(certified, Solution):
        problem = certified.problem
    elif isinstance(certified, SpikingClassifier | SpikingRegressor):
        if X is None or y is None:
            raise InvalidInputError("expected the data that the estimator was fitted to, X and y, got none")
        problem = certified.proof_.problem(certified.data_of_fit(X, y))
    else:
        raise InvalidInputError(f"expected a Solution or a fitted estimator, got {type(certified).__name__}")
    moments, solver = approach(problem, max_seconds)
    iterations, primal = [moment.iterations for moment in moments], [moment.primal for moment in moments]
    dual = [max(moment.dual, 0.0) for moment in moments]  # the axis begins at zero
    axes = axes or plt.subplots(figsize=(7, 4), layout="constrained")[1]
    axes.fill_between(iterations, dual, primal, color="black", alpha=0.08, label="possible gain")
    axes.plot(iterations, primal, ".-", color="C3", label="objective")
    axes.plot(iterations, dual, ".-", color="C0", label="lower bound")
    # The bounds change most in the first iterations, which the root gives more room.
    axes.set_xscale("function", functions=(np.sqrt, np.square))
    axes.xaxis.set_major_locator(FixedLocator(iterations))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlim=(0, 1.03 * max(iterations[-1], 1)), ylim=(0, None))
    # From the bound itself, not the one that was cut off for the axis.
    gap = max((primal[-1] - moments[-1].dual) / primal[-1], 0.0) if primal[-1] > 0 else 0.0
    title = f"Proven within {format_bound(gap)} of the optimum over these neurons"
    axes.set(xlabel=f"iterations of {solver or 'the solver'}", ylabel="objective", title=title)
    axes.legend(fontsize="small")
    return axes


def plot_explanation(explanation: Explanation, axes: Sequence[Axes] | None = None) -> npt.NDArray[np.object_]:
    """Plot the evidence so far for each output over time, above the input.

    Parameters
    ----------
    explanation : Explanation
        The explanation of one sequence, from ``model.explain``.
    axes : sequence of two Axes, optional
        Where to draw evidence and input.

    Returns
    -------
    array of two Axes
        The axes that were drawn on.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> from cvxsnn.plots import plot_explanation
    >>> X = np.random.default_rng(0).normal(size=(60, 5, 2))
    >>> y = np.where(X[:, :, 0].sum(1) > X[:, :, 1].sum(1), "up", "down")
    >>> model = cs.SpikingClassifier(n_neurons=64, random_state=0).fit(X, y)
    >>> axes = plot_explanation(model.explain(X[0]))
    >>> plt.close(axes[0].figure)
    """
    if not isinstance(explanation, Explanation):
        raise InvalidInputError(
            f"expected the explanation of one sequence, got {type(explanation).__name__}: pass model.explain(X[0])"
        )
    if axes is None:
        axes = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")[1]
    upper, lower = axes
    steps = range(len(explanation.evidence))
    marker = "." if len(steps) == 1 else None  # a line of one point is invisible
    curves = upper.plot(steps, explanation.over_time, marker=marker, label=explanation.names)
    upper.axhline(0, color="black", linewidth=0.8)
    upper.set(ylabel="evidence so far", title=explanation.answer)
    if len(curves) <= _MAX_CURVES:
        upper.legend(fontsize="small")
    if explanation.inputs.shape[1] <= _MAX_CURVES:
        lower.plot(steps, explanation.inputs, marker=marker)
        lower.set(ylabel="input")
    else:
        lower.imshow(explanation.inputs.T, cmap="Greys", interpolation="none", aspect="auto")
        lower.set(ylabel="channel")
    lower.set(xlabel="step, from 0")
    lower.locator_params(axis="x", integer=True)
    return np.array([upper, lower])
