"""Playing data to a network, and hearing what enters one of its layers and what it decides."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...core.errors import InvalidInputError, first_line
from .guard import reset_neurons
from .layers import LinearLayer, first_argument

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
    reads_time_first, gives_time_first : bool, optional
        Whether steps come before samples where the layer reads all steps at once, and where the model gives them; by
        default as sizes tell.
    is_direct : bool
        Whether the model's outputs are known to be the layer's, up to a factor.
    has_sign : bool
        Whether the sign of a single output decides; that of spikes and probabilities does not.
    """

    model: nn.Module
    layout: Layout = "batch"
    run: Run | None = None
    reset: Callable[[nn.Module], None] | None = None
    decide: Decide | None = None
    reads_time_first: bool | None = None
    gives_time_first: bool | None = None
    is_direct: bool = False
    has_sign: bool = True

    def play(self, batch: Tensor) -> Any:
        """The model's output, or a list with one a step."""
        home = next((parameter.device for parameter in self.model.parameters()), batch.device)
        batch = batch.to(home, copy=True)  # models may change their input in place
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
            raise InvalidInputError(
                f"expected the model to run on a {batch.dtype} batch of shape {tuple(batch.shape)} on {home} with "
                f"layout={self.layout!r}, but it says {type(error).__name__}: {first_line(error)}; choose another "
                "layout, pass run=lambda model, batch: ..., or bring the model, its state and the inputs to one "
                "device and type"
            ) from error

    def hear(self, layer: LinearLayer, batch: Tensor) -> tuple[Any, list[Tensor]]:
        """The model's output, and what entered the layer at each call."""
        heard: list[Tensor] = []

        def keep(_: nn.Module, arguments: Any, named: Any) -> None:
            heard.append(first_argument(arguments, named).detach().clone())  # models may use its memory again

        hook = layer.module.register_forward_pre_hook(keep, with_kwargs=True)
        try:
            output = self.play(batch)
        finally:
            hook.remove()
        if not heard:
            raise InvalidInputError(f"expected layer {layer.name!r} to run on every batch, got a batch without it")
        return output, heard

    def listen(self, layer: LinearLayer, batch: Tensor) -> tuple[Any, Tensor]:
        """The model's output, and what entered the layer, (n_steps, n_samples, n_inputs)."""
        output, heard = self.hear(layer, batch)
        return output, self.in_steps(heard, len(batch))

    def in_steps(self, heard: list[Tensor], n_samples: int) -> Tensor:
        """What entered a layer, whatever way the model has of going through time."""
        first, shapes = heard[0], {tuple(own.shape) for own in heard}
        if len(shapes) == 1 and first.ndim == 2 and len(first) == n_samples:
            return torch.stack(heard)
        if len(heard) == 1 and first.ndim == 2 and len(first) % n_samples == 0:
            is_time_first = self.reads_time_first is not False
            sizes = (-1, n_samples) if is_time_first else (n_samples, -1)
            first = first.reshape(*sizes, first.shape[1])
            return first if is_time_first else first.transpose(0, 1)
        if len(heard) == 1 and first.ndim == 3 and n_samples in first.shape[:2]:
            is_time_first = first.shape[1] == n_samples and (
                len(first) != n_samples or (self.reads_time_first or self.layout == "time-first")
            )
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
                    f"expected decide to give a class for each sample, but it says {type(error).__name__}: "
                    f"{first_line(error)}"
                ) from error
            if tuple(chosen.shape) != (n_samples,):
                raise InvalidInputError(
                    f"expected decide to give a class for each of {n_samples} samples, got shape {tuple(chosen.shape)}"
                )
            return chosen
        scores = self.scores(output, n_samples, n_outputs)
        return None if scores is None or (n_outputs == 1 and not self.has_sign) else largest(scores).cpu()

    def scores(self, output: Any, n_samples: int, n_outputs: int) -> Tensor | None:
        """The model's outputs (n_samples, n_outputs), summed over the steps; None where they cannot be told."""
        scores = leading(output)
        if scores is not None and scores.ndim == 3:
            is_time_first, is_batch_first = (scores.shape[axis] == n_samples for axis in (1, 0))
            if is_time_first and is_batch_first and self.gives_time_first is not None:
                is_time_first, is_batch_first = self.gives_time_first, not self.gives_time_first
            scores = None if is_time_first == is_batch_first else scores.sum(0 if is_time_first else 1)
        if scores is not None and scores.ndim == n_outputs == 1:
            scores = scores[:, None]
        return None if scores is None or tuple(scores.shape) != (n_samples, n_outputs) else scores


def largest(scores: Tensor) -> Tensor:
    """The class of the largest of several scores (n_samples, n_outputs), or of the sign of a single one."""
    return scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] >= 0).to(torch.int64)


def leading(output: Any) -> Tensor | None:
    """An output, or the first of several: spikes come before membranes, outputs before states.

    A list has one for each step; where these are alike they are stacked.
    """
    while isinstance(output, tuple) and output:
        output = output[0]
    if isinstance(output, list):
        steps = [leading(one) for one in output]
        shapes = {None if one is None else one.shape for one in steps}
        return torch.stack(steps) if len(shapes) == 1 and None not in shapes else None  # type: ignore[arg-type]
    return output.detach() if isinstance(output, Tensor) else None
