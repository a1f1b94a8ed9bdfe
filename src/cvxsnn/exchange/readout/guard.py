"""Running a user's network without leaving a trace on it."""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Run in evaluation mode, without gradients, with random numbers from ``seed``; then restore the model's state.

    Weights are restored too: a user's ``reset`` may be one that initialises them.
    """
    kept = [(vars(module), _content(vars(module))) for module in model.modules()]
    cuda = sorted({value.get_device() for value in model.parameters() if value.is_cuda})
    with torch.random.fork_rng(cuda), torch.no_grad(), _uncompiled(model):
        torch.manual_seed(seed)
        try:
            model.eval()
            yield
        finally:
            for attributes, content in kept:
                _refill(attributes, content)


def _uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Run what torch.compile has compiled as it was written: compiled code does not see hooks come and go."""
    is_compiled = any("_orig_mod" in module._modules or module._compiled_call_impl for module in model.modules())
    has_choice = hasattr(torch.compiler, "set_stance")  # since torch 2.6
    return torch.compiler.set_stance("force_eager") if is_compiled and has_choice else nullcontext()


def _content(value: Any) -> Any:
    """Return a copy of what running a model may change inside a value."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):  # buffers, and the memories of SpikingJelly's neurons
        return {key: (entry, _content(entry)) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [(entry, _content(entry)) for entry in value]
    return value.get_state() if isinstance(value, torch.Generator) else set(value) if isinstance(value, set) else None


def _refill(value: Any, content: Any) -> Any:
    """Return a value after undoing changes inside it."""
    if content is None:
        return value
    # In place: optimisers and other modules may refer to the same tensor, list or dict.
    if isinstance(value, Tensor):
        if not value.is_meta and not torch.equal(value.detach(), content):
            value.detach().copy_(content)
    elif isinstance(value, dict):
        entries = {key: _refill(*kept) for key, kept in content.items()}
        value.clear()
        value.update(entries)
    elif isinstance(value, (list, tuple)):
        items = [_refill(*kept) for kept in content]
        if isinstance(value, list):
            value[:] = items
    elif isinstance(value, set):
        value.clear()
        value.update(content)
    elif isinstance(value, torch.Generator):
        value.set_state(content)
    return value


def reset_neurons(model: nn.Module) -> None:
    """Reset the state of neurons, as snnTorch and SpikingJelly do it; networks without state need nothing."""
    for module in model.modules():
        methods = (getattr(module, name, None) for name in ("reset_mem", "reset"))
        method = next((method for method in methods if inspect.ismethod(method) and _needs_nothing(method)), None)
        if method is not None:
            method()


def _needs_nothing(method: Any) -> bool:
    """Return whether a method can be called without arguments."""
    try:
        inspect.signature(method).bind()
    except TypeError:
        return False
    return True
