"""A network between two steps."""

from dataclasses import dataclass, replace

from torch import Tensor

from ..core.checks import check_positive_int
from ..core.errors import InvalidInputError
from ..data.sequences import window_of_step
from ..dictionary import Readout
from ..dictionary.base import parse_readout
from ..neurons import LayerState, Stepper


@dataclass(frozen=True, eq=False)
class NetworkState:
    """State of a network between two steps: its neurons, and the spike counts of those that are read.

    Parameters
    ----------
    stepper : Stepper
        Advances the hidden layers.
    layers : tuple of LayerState
        The state of each hidden layer.
    counts : Tensor of shape (n_samples, n_read)
        Spikes so far of each neuron that is read, within its window. Only read-outs of means use them.
    n_steps : int
        Steps so far.
    length : int, optional
        Total number of steps, if known.

    Examples
    --------
    >>> import numpy as np
    >>> import cvxsnn as cs
    >>> inputs = np.random.default_rng(0).normal(size=(40, 6, 2))
    >>> targets = np.where(inputs.sum((1, 2)) > 0, 1.0, -1.0)
    >>> dictionary = cs.build_dictionary(cs.gaussian_witnesses(2, (64,), seed=0), inputs)
    >>> problem = cs.ConvexProblem(dictionary, targets, loss="squared", l1_strength=0.05)
    >>> network = cs.reconstruct(cs.solve(problem))
    >>> state = network.start(1)
    >>> for step in inputs[:1].transpose(1, 0, 2):
    ...     state, scores = network.step(state, step)
    >>> state.n_steps
    6
    """

    stepper: Stepper
    layers: tuple[LayerState, ...]
    counts: Tensor
    n_steps: int
    length: int | None = None

    @classmethod
    def before(
        cls, stepper: Stepper, n_samples: int, counts: Tensor, readout: Readout, length: int | None
    ) -> "NetworkState":
        """Return the state before the first step.

        Parameters
        ----------
        stepper : Stepper
            Advances the hidden layers.
        n_samples : int
            Number of sequences.
        counts : Tensor
            Zeros.
        readout : str
            What is read.
        length : int, optional
            Total number of steps; required for windows.

        Returns
        -------
        NetworkState
            The state.
        """
        if length is None and parse_readout(readout).n_windows > 1:
            raise InvalidInputError(
                f"expected the number of steps in advance to read {readout!r}, got none: pass start(n_samples, n_steps)"
            )
        length = None if length is None else check_positive_int("n_steps", length)
        return cls(stepper, stepper.start(n_samples), counts, 0, length)

    def after(
        self, layers: tuple[LayerState, ...], read: Tensor, readout: Readout, windows_read: Tensor | None
    ) -> tuple["NetworkState", Tensor]:
        """Return the state after one more step, and the features so far.

        Parameters
        ----------
        layers : tuple of LayerState
            The state of each hidden layer after the step.
        read : Tensor of shape (..., n_read), dtype float64
            The spikes of the step.
        readout : str
            What is read.
        windows_read : Tensor of shape (n_read,) or None
            The window in which each is read.

        Returns
        -------
        state : NetworkState
            The state one step later.
        features : Tensor of shape (..., n_read)
            The spikes or their means so far.
        """
        parsed, n_steps = parse_readout(readout), self.n_steps + 1
        if parsed.kind != "mean":
            return replace(self, layers=layers, n_steps=n_steps), read
        if windows_read is None or self.length is None:
            counts, scale = self.counts + read, parsed.scale(n_steps)
        else:
            if n_steps > self.length:
                raise InvalidInputError(f"expected the {self.length} steps passed to start, got one more: start again")
            window = window_of_step(self.n_steps, parsed.n_windows, self.length)
            counts, scale = self.counts + read * (windows_read == window), parsed.scale(self.length)
        return replace(self, layers=layers, counts=counts, n_steps=n_steps), counts * scale
