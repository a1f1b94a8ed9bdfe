"""Finding the linear layer that reads a network out."""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """A layer that computes ``weight @ input + bias``, whatever its library calls them.

    Parameters
    ----------
    name : str
        Its path in the model.
    module : nn.Module
        The layer itself.
    weight : nn.Parameter of shape (n_outputs, n_inputs)
        Its weights.
    bias : nn.Parameter of shape (n_outputs,), or None
        Its bias, if it has one.
    """

    name: str
    module: nn.Module
    weight: nn.Parameter
    bias: nn.Parameter | None

    def read(self, scale: float = 1.0, shift: float = 0.0) -> tuple[Tensor, Tensor]:
        """Return weights and bias in float64, without the scale and shift with which :meth:`write` wrote them."""
        weight = self.weight.detach().to(torch.float64, copy=True)
        bias = weight.new_zeros(len(weight)) if self.bias is None else self.bias.detach().to(weight, copy=True)
        return weight / scale, (bias - shift) / scale

    def rounded(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and bias as the layer would hold them, in float64."""
        holders = (self.weight, bias if self.bias is None else self.bias)
        return tuple(value.to(own.dtype).to(value) for value, own in zip((weight, bias), holders, strict=True))  # type: ignore[return-value]

    @torch.no_grad()
    def write(self, weight: Tensor, bias: Tensor, scale: float = 1.0, shift: float = 0.0) -> None:
        """Write ``scale`` times weights and bias into the layer, and add ``shift`` to every output."""
        self.weight.copy_(scale * weight)
        if self.bias is not None:
            self.bias.copy_(scale * bias + shift)


def find_readout(model: nn.Module, trial: Callable[[], Any], name: str | None = None) -> LinearLayer:
    """Return the read-out layer: the named one, or the linear layer that runs last.

    Parameters
    ----------
    model : nn.Module
        The model.
    trial : callable
        Runs the model on a few samples.
    name : str, optional
        The layer that the user named.

    Returns
    -------
    LinearLayer
        The layer to solve for.
    """
    linear = _linear_layers(model)
    choices = ", ".join(map(repr, linear)) or "none"
    if name is None:
        name = _last_layer(model, linear, trial, choices)
    _refuse_computed(name, dict(model.named_modules()).get(name))
    if name not in linear:
        raise InvalidInputError(f"expected layer to name a linear layer of the model ({choices}), got {name!r}")
    layer = linear[name]
    parameters = {id(layer.weight), id(layer.bias)}
    for other_name, module in model.named_modules():
        if module is not layer.module and parameters & {id(value) for value in module.parameters(recurse=False)}:
            raise InvalidInputError(
                f"expected layer {name!r} to have weights of its own, but it shares them with {other_name!r}"
            )
    return layer


def _linear_layers(model: nn.Module) -> dict[str, LinearLayer]:
    """Return the linear layers of a model by name: ``nn.Linear``, and integrating cells with weights of their own."""
    layers = {}
    for name, module in model.named_modules():
        weight = module.weight if isinstance(module, nn.Linear) else getattr(module, "input_weights", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or hasattr(module, "recurrent_weights"):
            continue  # computed weights, as of weight norm, are no parameters
        bias = getattr(module, "bias", None)
        layers[name] = LinearLayer(name, module, weight, bias if isinstance(bias, nn.Parameter) else None)
    return layers


def _last_layer(model: nn.Module, linear: Collection[str], trial: Callable[[], Any], choices: str) -> str:
    """Return the name of the layer with weights that runs last, or refuse a model where it is not clear."""
    if not any(isinstance(module, nn.Linear) for module in model.modules()) and not linear:
        raise InvalidInputError("expected a model with a linear last layer, got one without any torch.nn.Linear")
    calls: list[tuple[str, nn.Module, Any]] = []

    def keep(name: str, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls.append((name, module, first_argument(arguments, named)))

    with ExitStack() as hooks:
        for name, module in model.named_modules():
            if name in linear or _has_weights(name, module):
                hooks.enter_context(module.register_forward_pre_hook(partial(keep, name), with_kwargs=True))
        trial()
    last, module, read = calls[-1] if calls else ("", model, None)
    if calls:
        _refuse_computed(last, module)
    if not any(name in linear for name, _, _ in calls):
        raise InvalidInputError(f"expected a linear layer, got none that runs: name one of {choices} with layer=")
    if last not in linear:
        raise InvalidInputError(
            f"expected a linear layer to run last, got {type(module).__name__} {last!r} after it: pass layer= to name "
            f"one of {choices}"
        )
    twins = sorted({name for name, _, value in calls if name != last and name in linear and _is_same(value, read)})
    if twins:
        raise InvalidInputError(
            f"expected one linear layer at the end, got several that read the same spikes, {', '.join(twins)} and "
            f"{last}: name one with layer="
        )
    return last


def first_argument(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the first argument that a module is called with."""
    return next(iter((*arguments, *named.values())), None)


def _has_weights(name: str, module: nn.Module) -> bool:
    """Return whether a module has weights; the parameters of neurons are decays and thresholds."""
    if "parametrizations" in name.split(".") or "_orig_mod" in module._modules:
        return False  # transforms weights, or shows those of the module that torch.compile has wrapped in it
    weight = getattr(module, "weight", None)
    are_matrices = (sum(size > 1 for size in value.shape) > 1 for value in module.parameters(recurse=False))
    return isinstance(weight, Tensor) or callable(weight) or any(are_matrices)  # quantised layers have it as a method


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two inputs are the same, or one is a view of the other."""
    are_tensors = isinstance(first, Tensor) and isinstance(second, Tensor)
    return are_tensors and first.data_ptr() == second.data_ptr() and first.numel() == second.numel()


def _refuse_computed(name: str, module: nn.Module | None) -> None:
    """Refuse a linear layer that has no weights to write into."""
    if isinstance(module, nn.Linear) and not isinstance(module.weight, nn.Parameter):
        raise InvalidInputError(
            f"expected layer {name!r} to have its weight as a parameter, got a computed one, as by weight norm or "
            "pruning: remove that first, for example with torch.nn.utils.parametrize.remove_parametrizations"
        )
