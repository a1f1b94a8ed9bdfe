"""How a network uses a layer, determined by running it with other weights in that layer."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInputError
from .guard import untouched
from .layers import LinearLayer, first_argument
from .runner import ModelRunner, leading

SAME = 1e-3
"""Relative and absolute difference of outputs that are equal up to rounding; batches are summed in other orders."""


def probe(
    runner: ModelRunner, layer: LinearLayer, opening: Tensor, seed: int, is_named: bool
) -> tuple[ModelRunner, list[str]]:
    """Find out which axis is time and how outputs depend on the layer; return the runner with both, and notes.

    Refuses a layer whose output is not its weights times its input plus its bias, and a layer whose weights affect its
    own input: new weights would change the recorded spikes. A layer that the user has not named must also be the only
    source of the outputs.

    Parameters
    ----------
    runner : ModelRunner
        Runs the model.
    layer : LinearLayer
        The read-out layer.
    opening : Tensor of shape (n_samples, ...)
        A few samples.
    seed : int
        Seed of random numbers that the model draws.
    is_named : bool
        Whether the user named the layer.

    Returns
    -------
    runner : ModelRunner
        The runner with its findings.
    notes : list of str
        Remarks for readers of the result.
    """
    n_samples, n_outputs = len(opening), layer.weight.shape[0]
    largest = float(layer.weight.detach().abs().max().nan_to_num(1.0, 1.0)) or 1.0

    def attempt(value: float, samples: Tensor = opening) -> tuple[Any, list[Tensor]]:
        weight, bias = layer.read()
        with untouched(runner.model, seed):
            layer.write(torch.full_like(weight, value), torch.full_like(bias, value))
            return runner.record(layer, samples)

    if isinstance(layer.module, nn.Linear):
        with untouched(runner.model, seed):
            _check_linear(runner, layer, opening)
    output, calls = attempt(0.0)
    result, entered = leading(output), calls[0]
    shapes = [tuple(value.shape) for value in (result, entered) if value is not None]
    if n_samples > 2 and any(shape[:2] == (n_samples, n_samples) for shape in shapes):
        return probe(runner, layer, opening[:-1], seed, is_named)  # as many steps as samples: the axes look alike
    # Weights far above the model's own have an effect on whatever depends on them.
    high, driven = attempt(10 * largest)
    # A model with noise of its own has other inputs at equal weights, too: that is no dependence.
    if not _are_equal(calls, driven) and _are_equal(calls, attempt(0.0)[1]):
        raise InvalidInputError(
            f"expected the inputs of layer {layer.name!r} not to depend on its weights, but they do: the layer is used "
            "more than once, shares its weights, or its output is fed back; name another with layer="
        )
    notes = []
    scores = runner.scores(output, n_samples, n_outputs)
    if scores is not None and not _is_constant(scores):
        if not is_named:
            raise InvalidInputError(
                f"expected the model's outputs to come from layer {layer.name!r} alone, but they differ from sample to "
                "sample without it: name the layer to solve for, as if it were alone, with layer="
            )
        notes.append(
            f"the model's outputs do not come from layer {layer.name!r} alone; it was solved for as if they did"
        )
    is_stepped = runner.layout == "stepped" and runner.run is None and opening.shape[1] > 1
    if is_stepped and bool(calls[-1].any()) and torch.equal(attempt(0.0, opening[:, -1:])[1][-1], calls[-1]):
        notes.append("no step depends on those before it; a model that gives its state back needs run= to get it")
    if not is_named and n_outputs > 1 and result is not None and result.ndim > 1 and n_outputs not in result.shape:
        raise InvalidInputError(
            f"expected the model's outputs to be those of its last linear layer, {layer.name!r}, which has "
            f"{n_outputs}, got shape {tuple(result.shape)}: name the layer to solve for with layer="
        )
    has_sign = n_outputs > 1
    if not has_sign:
        singles = (runner.scores(output, n_samples, 1) for output in (high, attempt(-10 * largest)[0]))
        has_sign = any(single is not None and bool((single < 0).any()) for single in singles)
    reads_time_first = entered.shape[1] == n_samples if entered.ndim == 3 else None
    if len(calls) == 1 and entered.ndim == 2 and len(entered) > n_samples and len(entered) % n_samples == 0:
        reads_time_first = _is_time_first(entered, attempt(0.0, opening.flip(0))[1][0], n_samples)
    gives_time_first = result.shape[1] == n_samples if result is not None and result.ndim == 3 else None
    known = replace(runner, reads_time_first=reads_time_first, gives_time_first=gives_time_first, has_sign=has_sign)
    # With one value for all weights and biases, every output is that value times the sum of the inputs, plus one.
    drive = known.as_steps(driven, n_samples).double().sum(2).add(layer.bias is not None).sum(0)
    return replace(known, is_direct=_are_proportional(drive, known.scores(high, n_samples, n_outputs))), notes


def _check_linear(runner: ModelRunner, layer: LinearLayer, opening: Tensor) -> None:
    """Refuse a linear layer whose ``forward`` or hooks compute anything but weights times input plus bias."""
    weight, bias = layer.read()
    # All entries differ, so that a transposed, permuted or masked use of the weights shows.
    pattern = torch.arange(weight.numel(), dtype=torch.float64, device=weight.device).mul(0.7).cos()
    layer.write(pattern.reshape(weight.shape), pattern[: len(bias)] + 0.5)
    weight, bias = layer.read()
    pairs: list[tuple[Tensor, Tensor]] = []

    def keep(_: nn.Module, arguments: Any, named: Any, output: Any) -> None:
        pairs.append((first_argument(arguments, named).detach().clone(), output.detach().clone()))

    with layer.module.register_forward_hook(keep, with_kwargs=True):
        runner.replay(opening)
    for entered, output in pairs:
        expected = nn.functional.linear(entered.to(weight), weight, bias)
        rounding = max(SAME, 16 * torch.finfo(output.dtype).eps) * (1 + float(expected.abs().max().nan_to_num()))
        if output.shape != expected.shape or not torch.allclose(output.to(expected), expected, 0.0, rounding, True):
            raise InvalidInputError(
                f"expected layer {layer.name!r} to compute its weights times its input plus its bias, got other "
                f"outputs from its forward or a hook ({type(layer.module).__name__}): solve for another layer with "
                "layer=, or replace it by a plain torch.nn.Linear"
            )


def _is_constant(values: Tensor) -> bool:
    """Return whether all samples have the same values, up to rounding."""
    return torch.allclose(values, values[:1].expand_as(values), SAME, SAME, equal_nan=True)


def _are_proportional(drive: Tensor, scores: Tensor | None) -> bool:
    """Return whether scores (n_samples, n_outputs) are a multiple of what drives them (n_samples,), which varies."""
    if scores is None or _is_constant(drive):
        return False
    scores = scores.to(drive)  # models may give their outputs on another device
    multiple = scores.mean() / drive.mean()
    return torch.allclose(scores, (multiple * drive)[:, None].expand_as(scores), SAME, SAME)


def _is_time_first(flat: Tensor, turned: Tensor, n_samples: int) -> bool:
    """Return whether steps come first in rows of all steps and samples, from the rows for samples in reverse order."""

    def n_differences(sizes: tuple[int, int], axis: int) -> int:
        forward, reverse = (rows.reshape(*sizes, rows.shape[1]) for rows in (flat, turned))
        return int((forward.flip(axis) != reverse).sum())

    # Fewer differences rather than none: batches in another order may be rounded differently.
    return n_differences((-1, n_samples), 1) <= n_differences((n_samples, -1), 0)


def _are_equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))
