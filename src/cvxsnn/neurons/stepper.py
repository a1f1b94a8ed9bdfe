"""Advancing a stack of layers one step at a time."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..core.formatting import plural
from ..core.memory import check_fits
from ..data.sequences import as_inputs
from .exact import ScratchArrays, input_levels, snap_inputs
from .lateral import LateralLayer
from .layer import HiddenLayer, LayerState, check_stack
from .weights import exact_weights


class Stepper:
    """A stack of layers that advances one step at a time, for models whose next input depends on their last output.

    The spikes are those of :func:`cvxsnn.roll_out`, bit for bit.

    Parameters
    ----------
    layers : sequence of HiddenLayer
        The stack, from the inputs up.

    Examples
    --------
    >>> import torch
    >>> from cvxsnn import LIFLayer
    >>> from cvxsnn.neurons import Stepper
    >>> stepper = Stepper([LIFLayer(torch.ones(1, 2, 4))])
    >>> state = stepper.start(3)
    >>> state, spikes = stepper.step(state, torch.ones(3, 2))
    >>> tuple(spikes.shape)
    (3, 4)
    """

    def __init__(self, layers: Sequence[HiddenLayer]) -> None:
        self._layers = check_stack(layers)
        self._scratch = ScratchArrays()

    def start(self, n_samples: int) -> tuple[LayerState, ...]:
        """Return the state before the first step.

        Parameters
        ----------
        n_samples : int
            Number of sequences.

        Returns
        -------
        tuple of LayerState
            The state of each layer.
        """
        return tuple(self._start_layer(layer, n_samples) for layer in self._layers)

    @staticmethod
    def _start_layer(layer: HiddenLayer, n_samples: int) -> LayerState:
        state = layer.initial_state(n_samples)
        if not layer.has_delays:
            return state
        shape = (1, n_samples, layer.max_delay, layer.n_values)
        check_fits(
            8 * math.prod(shape), layer.weight.device, f"the last {plural(layer.max_delay, 'step')} of all sequences"
        )
        return state._replace(history=torch.zeros(shape, dtype=torch.float64, device=layer.weight.device))

    def step(self, state: Sequence[LayerState], inputs: Array) -> tuple[tuple[LayerState, ...], Tensor]:
        """Advance by one step; the state given stays as it is.

        Parameters
        ----------
        state : sequence of LayerState
            The state of each layer.
        inputs : array of shape (n_samples, n_features)
            One step of every sequence, read by all subnetworks.

        Returns
        -------
        state : tuple of LayerState
            The state one step later.
        spikes : Tensor of shape (n_samples, n_neurons), dtype bool
            The spikes of the last layer.
        """
        shape = (state[0].spikes.shape[1], self._layers[0].n_inputs)
        if tuple(inputs.shape) != shape:
            raise InvalidInputError(f"expected one step of inputs of shape {shape}, got shape {tuple(inputs.shape)}")
        state, spikes = self.step_each(state, as_inputs(inputs[:, None, :])[:, 0])
        return state, spikes.movedim(0, -2).flatten(-2)

    def step_each(self, state: Sequence[LayerState], inputs: Tensor) -> tuple[tuple[LayerState, ...], Tensor]:
        """Advance by one step, with inputs of its own for each subnetwork; the state given stays as it is.

        Parameters
        ----------
        state : sequence of LayerState
            The state of each layer.
        inputs : Tensor of shape (n_subnetworks, n_samples, n_features)
            One step of every sequence, per subnetwork.

        Returns
        -------
        state : tuple of LayerState
            The state one step later.
        spikes : Tensor of shape (n_subnetworks, n_samples, width), dtype bool
            The spikes of the last layer.
        """
        self._layers[0].check_inputs(inputs)
        block = snap_inputs(inputs.to(self._layers[0].weight.device))
        after: list[LayerState] = []
        for depth, (layer, before) in enumerate(zip(self._layers, state, strict=True)):
            advanced = before.copy()
            if before.history is not None:
                if isinstance(layer, LateralLayer):
                    advanced = advanced._replace(others=(block,))
                    block = layer.view(block[None], before.others[0] if before.others else None)[0]
                present = (block if block.ndim == 3 else block[None]).unsqueeze(-2)
                history = before.history.expand(len(present), -1, -1, -1)
                block = torch.cat((history, present.to(history.dtype)), dim=-2)
                advanced = advanced._replace(history=block[..., 1:, :])
                block = block.flatten(-2)
            # Inputs of a step may need more bits than those before; spikes always have one level.
            weights = exact_weights(layer, input_levels(block) if depth == 0 else 1.0)
            layer.step(weights.drive(block[..., None, :, :], self._scratch)[:, 0], advanced)
            after.append(advanced)
            block = advanced.spikes
        return tuple(after), after[-1].spikes != 0
