"""Running a user's network without leaving a trace on it."""

import inspect
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

_STRUCTURE = ("_modules", "training")
"""Attributes of a module that running it does not change, or that are kept apart."""


@contextmanager
def untouched(model: nn.Module, seed: int) -> Iterator[None]:
    """Run in evaluation mode, without gradients, with random numbers from ``seed``; then restore the model's state.

    Weights are restored too: a user's ``reset`` may be one that initialises them.
    """
    kept = [(module, module.training, _State(module)) for module in model.modules()]
    cuda = sorted({value.get_device() for value in model.parameters() if value.is_cuda})
    with torch.random.fork_rng(cuda), torch.no_grad(), _uncompiled(model):
        torch.manual_seed(seed)
        try:
            model.eval()
            yield
        finally:
            for module, was_training, state in kept:
                state.restore(module)
                module.training = was_training


def _uncompiled(model: nn.Module) -> AbstractContextManager[Any]:
    """Run what torch.compile has compiled as it was written: compiled code does not see hooks come and go."""
    is_compiled = any("_orig_mod" in own._modules or own._compiled_call_impl for own in model.modules())
    has_choice = hasattr(torch.compiler, "set_stance")  # since torch 2.6
    return torch.compiler.set_stance("force_eager") if is_compiled and has_choice else nullcontext()


def reset_neurons(model: nn.Module) -> None:
    """Reset the state of neurons, as snnTorch and SpikingJelly do it; networks without state need nothing."""
    for module in model.modules():
        for name in ("reset_mem", "reset"):
            method = getattr(module, name, None)
            if inspect.ismethod(method) and not _needs_arguments(method):
                method()
                break


def _needs_arguments(method: Any) -> bool:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(method).parameters.values()
    return any(own.default is own.empty and own.kind not in optional for own in parameters)


class _State:
    """What a module holds besides its children: parameters, buffers, membranes, counters."""

    def __init__(self, module: nn.Module) -> None:
        self._own = {name: _Kept(value) for name, value in vars(module).items() if name not in _STRUCTURE}

    def restore(self, module: nn.Module) -> None:
        """Put every value back, and what was in it."""
        for name in [name for name in vars(module) if name not in _STRUCTURE and name not in self._own]:
            del module.__dict__[name]
        for name, kept in self._own.items():
            module.__dict__[name] = kept.restored()


class _Kept:
    """A value, remembered so that neither another in its place nor a change inside it stays."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._inside: Any = None
        if isinstance(value, Tensor):
            self._inside = value.detach().clone()
        elif isinstance(value, dict):  # buffers, and the memories of SpikingJelly's neurons
            self._inside = {key: _Kept(own) for key, own in value.items()}
        elif isinstance(value, (list, tuple)):
            self._inside = [_Kept(own) for own in value]
        elif isinstance(value, set):
            self._inside = set(value)
        elif isinstance(value, torch.Generator):
            self._inside = value.get_state()

    def restored(self) -> Any:
        """Return the value, with what was in it."""
        value = self._value
        if isinstance(value, Tensor):
            if value.device.type != "meta" and not torch.equal(value.detach(), self._inside):
                value.detach().copy_(self._inside)
        elif isinstance(value, dict):
            value.clear()
            value.update({key: kept.restored() for key, kept in self._inside.items()})
        elif isinstance(value, (list, tuple)):
            inside = [kept.restored() for kept in self._inside]
            if isinstance(value, list):
                value[:] = inside
        elif isinstance(value, set):
            value.clear()
            value.update(self._inside)
        elif isinstance(value, torch.Generator):
            value.set_state(self._inside)
        return value
