"""Finding the linear layer that reads a network out."""

from collections.abc import Callable
from dataclasses import dataclass
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

    def read(self) -> tuple[Tensor, Tensor]:
        """Return weights and bias in float64."""
        weight = self.weight.detach().to(torch.float64, copy=True)
        bias = weight.new_zeros(len(weight)) if self.bias is None else self.bias.detach().to(torch.float64, copy=True)
        return weight, bias

    def rounded(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights and bias rounded to the layer's own precision."""
        return tuple(value.to(self.weight.dtype).to(torch.float64) for value in (weight, bias))  # type: ignore[return-value]

    @torch.no_grad()
    def write(self, weight: Tensor, bias: Tensor, scale: float = 1.0, shift: float = 0.0) -> None:
        """Write ``scale`` times weights and bias into the layer, and add ``shift`` to every output."""
        self.weight.copy_(scale * weight)
        if self.bias is not None:
            self.bias.copy_(scale * bias + shift)


def linear_layers(model: nn.Module) -> dict[str, LinearLayer]:
    """Return the linear layers of a model by name: ``nn.Linear``, and integrating cells with weights of their own."""
    found = {}
    for name, module in model.named_modules():
        weight = module.weight if isinstance(module, nn.Linear) else getattr(module, "input_weights", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or hasattr(module, "recurrent_weights"):
            continue  # computed weights, as of weight norm, are no parameters
        bias = getattr(module, "bias", None)
        found[name] = LinearLayer(name, module, weight, bias if isinstance(bias, nn.Parameter) else None)
    return found


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
    linear = linear_layers(model)
    choices = ", ".join(map(repr, linear)) or "none"
    if name is not None:
        if name not in linear:
            _refuse_computed(name, dict(model.named_modules()).get(name))
            raise InvalidInputError(f"expected layer to name a linear layer of the model ({choices}), got {name!r}")
        return _unshared(linear[name], model)
    if not any(isinstance(module, nn.Linear) for module in model.modules()) and not linear:
        raise InvalidInputError(
            "expected a model with a linear last layer, got one without any torch.nn.Linear: end it with one"
        )
    calls: list[tuple[str, nn.Module, Any]] = []

    def watch(name: str, module: nn.Module) -> Any:
        return module.register_forward_pre_hook(
            lambda _, arguments, named: calls.append((name, module, first_argument(arguments, named))),
            with_kwargs=True,
        )

    hooks = [watch(name, own) for name, own in model.named_modules() if name in linear or _has_weights(name, own)]
    try:
        trial()
    finally:
        for hook in hooks:
            hook.remove()
    if calls:
        _refuse_computed(*calls[-1][:2])
    if not any(name in linear for name, _, _ in calls):
        raise InvalidInputError(
            f"expected the model to use a linear layer, got none that runs: name one of {choices} with layer="
        )
    last, module, read = calls[-1]
    if last not in linear:
        raise InvalidInputError(
            f"expected a linear layer to run last, got {type(module).__name__} {last!r} after it: name the linear "
            f"layer to solve for, one of {choices}, with layer="
        )
    twins = sorted({name for name, _, other in calls if name != last and name in linear and _is_same(other, read)})
    if twins:
        raise InvalidInputError(
            f"expected one linear layer at the end, got several that read the same spikes, {', '.join(twins)} and "
            f"{last}: name the one to solve for with layer="
        )
    return _unshared(linear[last], model)


def first_argument(arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the first argument that a module is called with."""
    return next(iter((*arguments, *named.values())), None)


def _has_weights(name: str, module: nn.Module) -> bool:
    """Return whether a module has weights; the parameters of neurons are decays and thresholds."""
    if "parametrizations" in name.split(".") or "_orig_mod" in module._modules:
        return False  # transforms weights, or shows those of the module that torch.compile has wrapped in it
    weight = getattr(module, "weight", None)
    is_matrix = (sum(size > 1 for size in own.shape) > 1 for own in module.parameters(recurse=False))
    return isinstance(weight, Tensor) or callable(weight) or any(is_matrix)  # quantised layers have it as a method


def _is_same(first: Any, second: Any) -> bool:
    """Return whether two inputs are the same, or one is a view of the other."""
    are_tensors = isinstance(first, Tensor) and isinstance(second, Tensor)
    return are_tensors and first.data_ptr() == second.data_ptr() and first.numel() == second.numel()


def _refuse_computed(name: str, module: nn.Module | None) -> None:
    """Refuse a linear layer that has no weights to write into."""
    if isinstance(module, nn.Linear) and not isinstance(module.weight, nn.Parameter):
        raise InvalidInputError(
            f"expected layer {name!r} to have its weight as a parameter, got one that is computed from others, as by "
            "weight norm, spectral norm or pruning: remove that first, for example with "
            "torch.nn.utils.parametrize.remove_parametrizations"
        )


def _unshared(layer: LinearLayer, model: nn.Module) -> LinearLayer:
    """Return the layer, or refuse it where another shares its weights."""
    own = {id(layer.weight), id(layer.bias)} - {id(None)}
    for name, module in model.named_modules():
        if module is not layer.module and any(id(its) in own for its in module.parameters(recurse=False)):
            raise InvalidInputError(
                f"expected layer {layer.name!r} to have weights of its own, but it shares them with {name!r}: give it "
                "a copy of them first"
            )
    return layer
