"""From a trained network to its optimal read-out: record, solve, write back.

The spikes that enter the last linear layer are recorded, the convex program for that layer's weights is solved with a
certificate, and the weights are written back. The hidden layers, of whatever kind, stay as they are.
"""

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import isfinite
from typing import Any, Literal, get_args

from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from ...convex.losses import LOSSES
from ...convex.objective import Objective
from ...core.checks import Array, check_bool, check_choice, check_positive_int, check_type
from ...core.errors import InvalidInputError, first_line
from ...core.seeds import check_seed
from ...fitting.program import Program, Strengths
from .data import Batches, ProgressCallback, record
from .guard import untouched
from .layers import find_readout
from .probe import probe
from .result import ReadoutResult
from .runner import Decide, Layout, ModelRunner, RunModel
from .solving import solve_readout
from .writing import fit_output_range


def reconstruct_readout(
    model: nn.Module,
    X: Array | Iterable[tuple[Array, Array]],  # noqa: N803 (scikit-learn calls the data X)
    y: Array | None = None,
    *,
    loss: str = "auto",
    l1_strength: Strengths = "auto",
    l2_strength: Strengths = "auto",
    layer: str | None = None,
    layout: Layout = "batch",
    readout: Literal["mean", "last"] = "mean",
    run: RunModel | None = None,
    reset: Callable[[nn.Module], None] | None = None,
    decide: Decide | None = None,
    penalty: str = "auto",
    centre: bool = False,
    copy_model: bool = False,
    batch_size: int = 128,
    tol: float = 1e-6,
    seed: int = 0,
    callback: ProgressCallback | None = None,
) -> ReadoutResult:
    """Find the optimal weights of a trained network's last linear layer, prove it, and write them back.

    Parameters
    ----------
    model : nn.Module
        Any network: stepped or not, convolutional, recurrent, of any library. Only its last linear layer changes.
    X : array of shape (n_samples, ...), or an iterable of batches ``(inputs, targets)``
        The inputs. An iterable, such as a DataLoader, is read one batch at a time, and more than once.
    y : array of shape (n_samples,), optional
        Classes numbered as the model's outputs are, or real targets. Leave it out with a loader, which has its own.
    loss : str
        "softmax", "logistic", "squared", "hinge" or "squared_hinge". With "auto", classes have the softmax loss for
        several outputs and the logistic loss for one, and real targets the squared loss.
    l1_strength : float, sequence of float, or "auto"
        Strength of the penalty's norm. Several strengths, or those of "auto", are compared on a held-out tenth of the
        samples, or in five folds of up to 300, and the best is used on all of them. With the penalties "l1" and
        "group", "auto" lowers it where the training loss would otherwise be above the model's own. For the elastic nets
        it may be zero, which is ridge.
    l2_strength : float, sequence of float, or "auto"
        Strength of the sum of squares of the elastic nets, chosen in the same way; other penalties have none.
    layer : str, optional
        Name of the layer in the model; by default the linear layer that runs last.
    layout : "batch", "time-first" or "stepped"
        How the model accepts a batch: as it is, with its first two axes swapped to (n_steps, n_samples, ...), or one
        step at a time along the second axis.
    readout : "mean" or "last"
        Whether the layer's outputs are averaged over the steps, or read at the last one.
    run : callable, optional
        ``run(model, batch)`` runs the model in any other way.
    reset : callable, optional
        ``reset(model)`` resets the state of the neurons; by default as snnTorch and SpikingJelly do it.
    decide : callable, optional
        ``decide(output)`` returns the classes that the model decides for, of shape (n_samples,). By default, the
        largest output decides, summed over the steps if there are any.
    penalty : "auto", "l1", "group", "elastic-net" or "group-elastic-net"
        Penalise single weights, or all weights of a neuron together. The elastic nets add half the sum of squares.
        "auto" with strengths that are not given compares ridge, and ridge around the layer's own weights, with these
        weights on samples left out: accuracy and loss there are never worse than the model's own, whose weights are
        kept if no optimum is as good. If the model was trained on these samples, that favours its own weights: pass
        others if you can. An open elastic net is compared in the same way. With a strength, "auto" is "l1".
    centre : bool
        Whether the squares of an elastic net are those of the differences from the layer's own weights. A large
        ``l2_strength`` then keeps these weights, and a small one forgets them.
    copy_model : bool
        Whether to leave the model as it is and change a copy.
    batch_size : int
        Batch size for arrays; a loader has its own.
    tol : float
        Relative duality gap to certify.
    seed : int
        Seed of the held-out samples and of random numbers that the model draws.
    callback : callable, optional
        Called as ``callback(stage, done, total)`` while the work proceeds.

    Returns
    -------
    ReadoutResult
        The model, the scores before and after, and the certificate.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from cvxsnn import reconstruct_readout
    >>> class Spike(nn.Module):
    ...     def forward(self, x):
    ...         return (x > 0).to(x.dtype)
    >>> _ = torch.manual_seed(0)
    >>> X = torch.randn(200, 8)
    >>> y = (X[:, 0] * X[:, 1] > 0).long()
    >>> model = nn.Sequential(nn.Linear(8, 64), Spike(), nn.Linear(64, 2))
    >>> result = reconstruct_readout(model, X, y, l1_strength=0.001)
    >>> result.after.loss < result.before.loss
    True
    >>> result.certificate.relative_gap <= 1e-6
    True
    """
    program = Program(Objective("squared"), penalty, l1_strength, l2_strength, tol=tol)  # solve_readout sets the loss
    if check_bool("centre", centre) and not program.has_quadratic:
        raise InvalidInputError(
            f"expected penalty='elastic-net' or 'group-elastic-net' with centre=True, got {penalty!r}, which has no "
            "quadratic to draw to the layer's weights"
        )
    check_seed(seed)
    check_choice("layout", layout, get_args(Layout))
    check_choice("readout", readout, ("mean", "last"))
    check_choice("loss", loss, ("auto", *LOSSES))
    check_type(model, nn.Module, "a torch.nn.Module")
    if any(is_lazy(parameter) or parameter.is_meta for parameter in model.parameters()):
        raise InvalidInputError("expected parameters with values, got lazy layers or the meta device: load weights")
    batches = Batches(X, y, check_positive_int("batch_size", batch_size))
    model = _copied(model) if copy_model else model
    begin, notify = time.perf_counter(), callback or (lambda *news: None)
    runner = ModelRunner(model, layout, run, reset, decide)
    with untouched(model, seed):
        opening = batches.opening()
        last_layer = find_readout(model, lambda: runner.replay(opening), layer)
        runner, notes = probe(runner, last_layer, opening, seed, is_named=layer is not None)
        data = record(runner, last_layer, batches, readout, loss, notify)
    notes += data.notes
    own = last_layer.read()
    before = replace(data.score(*own), model_accuracy=data.model_accuracy)

    program = replace(program, intercept=last_layer.bias is not None)
    solution, counts = solve_readout(data, program, own, seed, notify, centre=centre)
    solved = data.layer_weights(solution)
    after = data.score(*last_layer.rounded(*solved))  # judged in the precision in which the layer stores it
    precision = last_layer.weight.dtype
    if not isfinite(min(after.loss, before.loss)):
        largest = max(float(values.abs().max()) for values in solved)
        raise InvalidInputError(
            f"expected weights that the layer can hold as {precision}, got up to {largest:.3g}: convert the model to "
            "torch.float32, or divide the targets"
        )

    has_changed = after.loss <= before.loss if counts is None else counts
    scale = 1.0
    shift = 0.0
    if has_changed:
        with untouched(model, seed):
            scale, shift, accuracy = fit_output_range(runner, last_layer, batches, data, solved, notify)
        last_layer.write(*solved, scale, shift)
        after = replace(data.score(*last_layer.read(scale, shift)), model_accuracy=accuracy)
    else:
        after = before
        notes.append(
            f"the optimum at this strength, held as {precision}, has a higher training loss than the model's own "
            "weights, which are kept"
            if counts is None
            else "on samples left out no optimum is as good as the model's own weights, which are kept"
        )
    held = last_layer.read(scale, shift)
    if (scale, shift) != (1.0, 0.0):
        notes.append(
            f"output neurons follow the layer: it holds {scale:.3g} times the solution plus {shift:.3g} for all "
            "outputs, a range in which they distinguish classes; loss and certificate are without this scale and shift"
        )
    return ReadoutResult(
        model=model,
        layer=last_layer.name,
        solution=solution,
        certificate=data.certify(solution, *held),
        before=before,
        after=after,
        has_changed=has_changed,
        scale=scale,
        shift=shift,
        notes=tuple(notes),
        seconds=time.perf_counter() - begin,
        readout=readout,
        example=(opening, data.outputs(*held)[: len(opening)]),
    )


def _copied(model: nn.Module) -> nn.Module:
    try:
        with _Detaching():
            return copy.deepcopy(model)
    except Exception as error:
        raise InvalidInputError(f"expected a model that can be copied, got {first_line(error)!r}") from error


class _Detaching(TorchFunctionMode):
    """Copies tensors without their graph: neurons may hold that of the last training step, which torch cannot copy."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.__deepcopy__ and not args[0].is_leaf:
            args = (args[0].detach(), *args[1:])
        return func(*args, **(kwargs or {}))
