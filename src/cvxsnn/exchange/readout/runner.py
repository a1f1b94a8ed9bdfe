"""Running a network on batches, recording the inputs of one of its layers, and interpreting its output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...convex.objective import decide_class
from ...core.errors import InvalidInputError, first_line
from ...core.formatting import plural
from .guard import reset_neurons
from .layers import LinearLayer, first_argument

Layout = Literal["batch", "time-first", "stepped"]
RunModel = Callable[[nn.Module, Tensor], Any]
Reset = Callable[[nn.Module], None]
Decide = Callable[[Any], Tensor]


@dataclass(frozen=True, eq=False)
class ModelRunner:
    """Runs a model on batches of shape (n_samples, ...).

    Parameters
    ----------
    model : nn.Module
        The model.
    layout, run, reset, decide
        As in :func:`cvxsnn.reconstruct_readout`.
    reads_time_first : bool, optional
        Whether steps come before samples where the layer reads all steps in one call; by default the sizes decide.
    gives_time_first : bool, optional
        The same for the model's output.
    is_direct : bool
        Whether the model's outputs are known to be the layer's, up to a factor.
    has_sign : bool
        Whether the sign of a single output decides; that of spikes and probabilities does not.
    """

    model: nn.Module
    layout: Layout = "batch"
    run: RunModel | None = None
    reset: Reset | None = None
    decide: Decide | None = None
    reads_time_first: bool | None = None
    gives_time_first: bool | None = None
    is_direct: bool = False
    has_sign: bool = True

    def replay(self, batch: Tensor) -> Any:
        """Return the model's output, or a list with one output per step."""
        device = next((parameter.device for parameter in self.model.parameters()), batch.device)
        batch = batch.to(device, copy=True)  # models may change their input in place
        try:
            (self.reset or reset_neurons)(self.model)
            if self.run is not None:
                return self.run(self.model, batch)
            if self.layout == "batch":
                return self.model(batch)
            if self.layout == "time-first":
                return self.model(batch.transpose(0, 1).contiguous())
            return [self.model(step) for step in batch.unbind(1)]
        except Exception as error:  # a user's model may raise anything
            raise InvalidInputError(
                f"expected the model to run on a {batch.dtype} batch of shape {tuple(batch.shape)} on {device} with "
                f"layout={self.layout!r}, but it raises {type(error).__name__}: {first_line(error)}; choose another "
                "layout, pass run=, or bring the model, its state and the inputs to one device and type"
            ) from error

    def record(self, layer: LinearLayer, batch: Tensor) -> tuple[Any, list[Tensor]]:
        """Return the model's output, and the input of the layer at each call."""
        calls: list[Tensor] = []

        def keep(_: nn.Module, arguments: Any, named: Any) -> None:
            calls.append(first_argument(arguments, named).detach().clone())  # models may reuse its memory

        with layer.module.register_forward_pre_hook(keep, with_kwargs=True):
            output = self.replay(batch)
        if not calls:
            raise InvalidInputError(f"expected layer {layer.name!r} to run on every batch, got a batch without it")
        return output, calls

    def as_steps(self, calls: list[Tensor], n_samples: int) -> Tensor:
        """Return the inputs of a layer as (n_steps, n_samples, n_inputs), whether it was called per step or once."""
        first, shapes = calls[0], {tuple(call.shape) for call in calls}
        if len(shapes) == 1 and first.ndim == 2 and len(first) == n_samples:
            return torch.stack(calls)
        if len(calls) == 1 and first.ndim == 2 and len(first) % n_samples == 0:
            is_time_first = self.reads_time_first is not False
            first = first.reshape(*((-1, n_samples) if is_time_first else (n_samples, -1)), first.shape[1])
        elif len(calls) == 1 and first.ndim == 3 and n_samples in first.shape[:2]:
            is_time_first = first.shape[1] == n_samples and (
                len(first) != n_samples or self.reads_time_first or self.layout == "time-first"
            )
        else:
            raise InvalidInputError(
                f"expected the layer to read {plural(n_samples, 'sample')} at each step, or all steps at once, got "
                f"{len(calls)} calls with shape {tuple(first.shape)}: pass run= to run the model another way"
            )
        return first if is_time_first else first.transpose(0, 1)

    def decisions(self, output: Any, n_samples: int, n_outputs: int) -> Tensor | None:
        """Return the classes that the model decides for; None if they cannot be derived from its output."""
        if self.decide is None:
            scores = self.scores(output, n_samples, n_outputs)
            return None if scores is None or (n_outputs == 1 and not self.has_sign) else decide_class(scores).cpu()
        expected = f"expected decide to return one class for each of {plural(n_samples, 'sample')}"
        try:
            chosen = torch.as_tensor(self.decide(output)).cpu()
        except Exception as error:
            raise InvalidInputError(f"{expected}, got {type(error).__name__}: {first_line(error)}") from error
        if tuple(chosen.shape) != (n_samples,):
            raise InvalidInputError(f"{expected}, got shape {tuple(chosen.shape)}")
        return chosen

    def scores(self, output: Any, n_samples: int, n_outputs: int) -> Tensor | None:
        """Return the model's outputs (n_samples, n_outputs), summed over the steps; None if axes are ambiguous."""
        scores = leading(output)
        if scores is not None and scores.ndim == 3:
            is_time_first, is_batch_first = (scores.shape[axis] == n_samples for axis in (1, 0))
            if is_time_first and is_batch_first and self.gives_time_first is not None:
                is_time_first, is_batch_first = self.gives_time_first, not self.gives_time_first
            scores = None if is_time_first == is_batch_first else scores.sum(0 if is_time_first else 1)
        if scores is not None and scores.ndim == n_outputs == 1:
            scores = scores[:, None]
        return None if scores is None or tuple(scores.shape) != (n_samples, n_outputs) else scores


def leading(output: Any) -> Tensor | None:
    """Return an output, or the first of several: spikes come before membranes, outputs before states.

    A list holds one output per step; outputs of equal shape are stacked.
    """
    while isinstance(output, tuple) and output:
        output = output[0]
    if isinstance(output, list):
        steps = [leading(step) for step in output]
        shapes = {None if step is None else step.shape for step in steps}
        return torch.stack(steps) if len(shapes) == 1 and None not in shapes else None  # type: ignore[arg-type]
    return output.detach() if isinstance(output, Tensor) else None
