"""Playing data to a network, and hearing what enters one of its layers and what it decides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import InvalidInputError
from .guard import reset_neurons
from .layers import LinearLayer

Layout = Literal["batch", "time-first", "stepped"]
Run = Callable[[nn.Module, Tensor], Any]
Decide = Callable[[Any], Tensor]


@dataclass(frozen=True, eq=False)
class Player:
    """Plays batches to a model.

    Attributes
    ----------
    model : nn.Module
    layout : "batch", "time-first" or "stepped"
        A batch of shape (n_samples, ...) goes to the model as it is; with its first two axes swapped, (n_steps,
        n_samples, ...); or step by step, (n_samples, ...) for each of the n_steps on the second axis.
    run : function, optional
        Runs the model on a batch instead.
    reset : function, optional
        Resets the model's neurons, in place of :func:`reset_neurons`.
    decide : function, optional
        The classes that an output stands for, (n_samples,); by default the largest output, summed over the steps.
    """

    model: nn.Module
    layout: Layout = "batch"
    run: Run | None = None
    reset: Callable[[nn.Module], None] | None = None
    decide: Decide | None = None

    def play(self, batch: Tensor) -> Any:
        """The model's output, or a list with one a step."""
        home = next((parameter.device for parameter in self.model.parameters()), batch.device)
        batch = batch.to(home)
        try:
            (self.reset or reset_neurons)(self.model)
            if self.run is not None:
                return self.run(self.model, batch)
            if self.layout == "batch":
                return self.model(batch)
            if self.layout == "time-first":
                return self.model(batch.transpose(0, 1).contiguous())
            return [self.model(batch[:, step]) for step in range(batch.shape[1])]
        except Exception as error:
            said = (str(error).splitlines() or [""])[0]
            raise InvalidInputError(
                f"expected the model to run on a batch of shape {tuple(batch.shape)} on {home} with layout="
                f"{self.layout!r}, but it says {type(error).__name__}: {said}; choose another layout, pass "
                "run=lambda model, batch: ..., or bring the model and its state to one device"
            ) from error

    def listen(self, layer: LinearLayer, batch: Tensor) -> tuple[Any, Tensor]:
        """The model's output, and what entered the layer, (n_steps, n_samples, n_inputs)."""
        heard: list[Tensor] = []
        hook = layer.module.register_forward_pre_hook(lambda _, arguments: heard.append(arguments[0].detach()))
        try:
            output = self.play(batch)
        finally:
            hook.remove()
        if not heard:
            raise InvalidInputError(f"expected layer {layer.name!r} to run on every batch, got a batch without it")
        return output, self._in_steps(heard, len(batch))

    def _in_steps(self, heard: list[Tensor], n_samples: int) -> Tensor:
        """What entered a layer, whatever way the model has of going through time."""
        first = heard[0]
        if first.ndim == 2 and len(first) == n_samples:
            return torch.stack(heard)
        if len(heard) == 1 and first.ndim == 2 and len(first) % n_samples == 0:
            return first.view(
                -1, n_samples, first.shape[1]
            )  # libraries that flatten steps and samples have steps first
        if len(heard) == 1 and first.ndim == 3 and n_samples in first.shape[:2]:
            is_time_first = first.shape[1] == n_samples and (len(first) != n_samples or self.layout == "time-first")
            return first if is_time_first else first.transpose(0, 1)
        raise InvalidInputError(
            "expected the layer to read (n_samples, n_inputs) at each step, or all steps at once, got "
            f"{len(heard)} calls with shape {tuple(first.shape)} for {n_samples} samples: pass run= to go through time "
            "another way"
        )

    def decisions(self, output: Any, n_samples: int, n_outputs: int) -> Tensor | None:
        """The classes that the model decides for; None where that cannot be told from its output."""
        if self.decide is not None:
            try:
                chosen = torch.as_tensor(self.decide(output)).cpu()
            except Exception as error:
                raise InvalidInputError(
                    "expected decide to give a class for each sample, but it says "
                    f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
                ) from error
            if tuple(chosen.shape) != (n_samples,):
                raise InvalidInputError(
                    f"expected decide to give a class for each of {n_samples} samples, got shape {tuple(chosen.shape)}"
                )
            return chosen
        if isinstance(output, list):  # one a step
            steps = [_leading(one) for one in output]
            output = None if not steps or any(one is None for one in steps) else torch.stack(steps)  # type: ignore[arg-type]
        scores = _leading(output)
        if scores is not None and scores.ndim == 3:
            is_time_first, is_batch_first = (scores.shape[axis] == n_samples for axis in (1, 0))
            scores = None if is_time_first == is_batch_first else scores.sum(0 if is_time_first else 1)
        if scores is None or tuple(scores.shape) != (n_samples, n_outputs):
            return None
        return largest(scores).cpu()


def largest(scores: Tensor) -> Tensor:
    """The class of the largest of several scores (n_samples, n_outputs), or of the sign of a single one."""
    return scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] >= 0).to(torch.int64)


def _leading(output: Any) -> Tensor | None:
    """An output, or the first of several: spikes come before membranes, outputs before states."""
    while isinstance(output, tuple) and output:
        output = output[0]
    return output.detach() if isinstance(output, Tensor) else None
