r"""The neurons that a complete optimum is over: one LIF layer with a fixed decay, in exact arithmetic.

With the past spikes fixed, the membrane is linear in the neuron's parameters u = (P_in, bias, U_thr),

.. math:: U^t = \sum_{s \le t} \beta^{t-s} (x^s \cdot P_{in} + b) - U_{thr} \sum_{s \le t} \beta^{t-s} S^{s-1},

so every spike of every sample cuts the space of parameters by a hyperplane through the origin. A decay p/q stays exact
because step t is scaled by q^(t-1). If the neurons have taps, x is the lifted input: one feature per tap.
"""

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import linprog
from torch import Tensor

from ..core.checks import Array
from ..core.errors import InvalidInputError
from ..data.sequences import as_inputs
from ..dictionary.base import parse_readout
from ..neurons import LIFLayer, Taps
from ..neurons.exact import snap_inputs
from .cones import WALL, Cone, Vector
from .integers import SAFE, IntArray, as_integers, narrow

_MAX_DENOMINATOR = 2**8
"""With longer decays, float64 would round membranes."""

_WEIGHT_BITS = 32

_EXACT = 2**40
"""Thresholds and biases below this keep sums in float64 membranes exact."""


def check_complete_readout(readout: Any) -> Literal["last", "all", "mean"]:
    """Return the read-out if an optimum over all neurons can have it; refuse windows of time and statistics."""
    parsed = parse_readout(readout)
    if parsed.kind == "statistics" or parsed.n_windows > 1:
        raise InvalidInputError(
            f"expected readout 'last', 'all' or 'mean' for all neurons of a family, got {str(parsed)!r}: price or "
            "enumerate them with one of these"
        )
    return parsed.kind


@dataclass(frozen=True)
class LIFFamily:
    """LIF neurons with one fixed decay and, if there are delays, one fixed geometry of taps.

    Parameters
    ----------
    decay : float
        A multiple of 1/256 between 0 and 1, so that membranes are exact.
    bias : bool
        Whether a neuron has a constant drive.
    negative_threshold : bool
        Whether the amount that a spike subtracts may be negative.
    taps : Taps, optional
        What the neurons read: values of given inputs, each with its delay. By default every input, without delay.
    resets : bool
        Whether a spike subtracts the threshold. Without resets and leak, with decay 0, these are threshold neurons.

    Examples
    --------
    >>> from cvxsnn.neurons import Taps
    >>> from cvxsnn.theory import LIFFamily
    >>> print(LIFFamily(0.5, bias=True, taps=Taps(source=[0, 0], delay=[0, 3], n_sources=1)))
    LIF neurons with decay 0.5, with bias and with thresholds of at least zero, that read only input 0 at delays 0 and 3
    """

    decay: float
    bias: bool = False
    negative_threshold: bool = False
    taps: Taps | None = None
    resets: bool = True

    def __post_init__(self) -> None:
        """Refuse decays that cannot be exact, and what are no taps."""
        if not 0 <= self.decay <= 1 or Fraction(self.decay).denominator > _MAX_DENOMINATOR:
            raise InvalidInputError(
                f"expected decay between 0 and 1 and a multiple of 1/{_MAX_DENOMINATOR}, so that membranes are exact, "
                f"got {self.decay!r}: pass for example 0.5, 0.75 or 1.0"
            )
        if not isinstance(self.taps, Taps | None):
            raise InvalidInputError(
                f"expected taps to be Taps(source, delay, n_sources), or None, got {type(self.taps).__name__}"
            )

    def __str__(self) -> str:
        """Return the neurons in words."""
        bias = "with" if self.bias else "without"
        sign = "of either sign" if self.negative_threshold else "of at least zero"
        reads = "" if self.taps is None else f", that read only {self.taps}"
        if not self.resets:
            kind = f"neurons with decay {self.decay:g} that are not reset" if self.decay else "threshold neurons"
            return f"{kind}, {bias} bias{reads}"
        return f"LIF neurons with decay {self.decay:g}, {bias} bias and with thresholds {sign}{reads}"

    def record(self) -> dict[str, Any]:
        """Return the family as plain values, for the recipe of witnesses.

        Returns
        -------
        dict of str to object
            The parameters by name; ``taps`` only where there are taps, and ``resets`` only where there are none.
        """
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None and (name, value) != ("resets", True)
        }

    def read(self, inputs: Array) -> Tensor:
        """Return the values that the neurons weigh at each step: the inputs themselves, or what taps read of them.

        Parameters
        ----------
        inputs : array of shape (n_samples, n_steps, n_features)
            The sequences.

        Returns
        -------
        Tensor of shape (n_samples, n_steps, n_weights)
            The values, one per weight.
        """
        values = as_inputs(inputs)
        return values if self.taps is None else self.taps.lift(values).inputs

    def on(self, inputs: Array) -> "LIFEvents":
        """Return the hyperplanes that given sequences define.

        Parameters
        ----------
        inputs : array of shape (n_samples, n_steps, n_features)
            The sequences.

        Returns
        -------
        LIFEvents
            The hyperplanes, one for each sample, step and history of spikes.
        """
        grid = snap_inputs(self.read(inputs)).cpu().numpy()
        values, unit = as_integers(grid)
        ratio = Fraction(self.decay)
        n_samples, n_steps, n_weights = values.shape
        drive = np.concatenate((values, np.ones((n_samples, n_steps, 1), dtype=values.dtype)), axis=2).astype(object)
        drive = drive if self.bias else drive[:, :, :n_weights]
        sums = np.zeros((n_samples, n_steps, drive.shape[2]), dtype=object)
        total = np.zeros((n_samples, drive.shape[2]), dtype=object)
        for t in range(n_steps):
            total = ratio.numerator * total + ratio.denominator**t * drive[:, t]
            sums[:, t] = total
        # Leaky counts of spikes have the type of the sums, and can be larger where late inputs vanish.
        largest_count = n_steps * ratio.denominator**n_steps
        return LIFEvents(self, narrow(sums) if largest_count < SAFE else sums, unit, n_weights)


@dataclass(frozen=True, eq=False)
class LIFEvents:
    """A family of neurons on given sequences: the hyperplanes at which spikes change.

    Parameters
    ----------
    family : LIFFamily
        The neurons.
    sums : integer array of shape (n_samples, n_steps, dimension - 1)
        Leaky sums of the inputs, and of ones if there is a bias; step t is scaled by q^(t-1).
    unit : float
        The power of two that inputs are multiples of.
    n_weights : int
        Number of weights of a neuron: one per input feature, or per tap.
    """

    family: LIFFamily
    sums: IntArray
    unit: float
    n_weights: int

    @property
    def n_samples(self) -> int:
        """Number of sequences."""
        return int(self.sums.shape[0])

    @property
    def n_steps(self) -> int:
        """Number of steps of each sequence."""
        return int(self.sums.shape[1])

    @property
    def dimension(self) -> int:
        """Number of parameters of a neuron."""
        return int(self.sums.shape[2]) + 1

    def cone(self) -> Cone:
        """Return all parameters that the family allows."""
        whole = Cone.whole_space(self.dimension)
        if self.family.negative_threshold:
            return whole
        # The wall at threshold zero belongs to the family and decides no spike, so its mask means nothing.
        above, _ = whole.cut((0,) * (self.dimension - 1) + (1,), WALL)
        return above

    def advance(self, resets: IntArray, spikes: npt.NDArray[np.bool_], step: int) -> IntArray:
        """Return leaky counts of spikes before ``step``, from those before ``step - 1`` and the spikes at that step."""
        if not self.family.resets:
            return np.zeros_like(resets)
        ratio = Fraction(self.family.decay)
        grown: IntArray = ratio.numerator * resets + ratio.denominator**step * spikes.astype(resets.dtype)
        return grown

    def normals(self, sample: int, step: int, resets: IntArray) -> IntArray:
        """Return the constraints of one event, one row per history."""
        sums = np.broadcast_to(self.sums[sample, step], (len(resets), self.dimension - 1))
        return np.concatenate((sums, -resets[:, None]), axis=1)

    def simulate(self, parameters: IntArray) -> npt.NDArray[np.bool_]:
        """Return spikes of shape (n_neurons, n_samples, n_steps), in exact arithmetic."""
        values = np.asarray(parameters, dtype=object).reshape(-1, self.dimension)
        largest_count = self.n_steps * Fraction(self.family.decay).denominator ** self.n_steps
        largest = max(largest_count, int(abs(self.sums).max(initial=0))) * self.dimension
        kind = np.int64 if max(1, int(abs(values).max(initial=0))) * largest < SAFE else object
        values = values.astype(kind)
        drives = np.einsum("kd,ntd->knt", values[:, :-1], self.sums.astype(kind))
        resets = np.zeros(drives.shape[:2], dtype=kind)
        spikes = np.zeros(drives.shape, dtype=bool)
        for t in range(self.n_steps):
            if t:
                resets = self.advance(resets, spikes[:, :, t - 1], t)
            spikes[:, :, t] = drives[:, :, t] - resets * values[:, -1:] >= 0
        return spikes

    def representable(self, parameters: IntArray) -> IntArray:
        """Return neurons with the same spikes that fit into a layer in float64, without those that have none."""
        short = [self._short(tuple(row)) for row in parameters]
        return np.array([row for row in short if row is not None], dtype=object).reshape(-1, self.dimension)

    def layer(self, parameters: IntArray) -> LIFLayer:
        """Return one subnetwork whose neurons have these parameters, in float64."""
        layer = self.plain_layer(parameters)
        return layer if self.family.taps is None else self.family.taps.attach(layer)

    def plain_layer(self, parameters: IntArray) -> LIFLayer:
        """Return the same for inputs that taps have read already."""
        short = [self._short(tuple(row)) for row in np.asarray(parameters, dtype=object).tolist()]
        if None in short:
            raise InvalidInputError(
                "expected neurons that weights of 32 bits can represent, got a pattern that only longer ones produce: "
                "round the inputs to fewer bits"
            )
        chosen = np.array(short, dtype=object)
        values = torch.from_numpy(chosen.astype(np.float64))
        last = self.n_weights
        return LIFLayer(
            values[:, :last].T[None].contiguous(),
            bias=(values[:, last] * self.unit)[None] if self.family.bias else torch.zeros(1, 1, dtype=torch.float64),
            decay=torch.tensor(self.family.decay, dtype=torch.float64),
            threshold=(values[:, -1] * self.unit)[None],
            weight_bits=_WEIGHT_BITS,
        )

    def _short(self, parameters: Vector) -> Vector | None:
        """Return parameters with the same spikes that are short enough for the layer; None if none are found."""
        if not self.family.resets:
            parameters = (*parameters[:-1], 0)
        largest = max(map(abs, parameters))
        if max(map(abs, parameters[: self.n_weights])) < 2 ** (_WEIGHT_BITS - 1) and largest < _EXACT:
            return parameters
        wanted = self.simulate(np.array([parameters], dtype=object))
        found = self._rounded([Fraction(x, largest) for x in parameters], wanted)
        if found is None:
            normals = self._realised(wanted[0])
            middle = middle_of_cell(normals, wanted[0].ravel(), not self.family.negative_threshold)
            found = None if middle is None else self._rounded([Fraction(x) for x in middle], wanted)
        return found

    def _rounded(self, point: list[Fraction], wanted: npt.NDArray[np.bool_]) -> Vector | None:
        """Return a point of the unit cube rounded to as few bits as keep the spikes."""
        for bits in range(8, _WEIGHT_BITS - 1):
            shorter = tuple(round(x * 2**bits) for x in point)
            if np.array_equal(self.simulate(np.array([shorter], dtype=object)), wanted):
                return shorter
        return None

    def _realised(self, spikes: npt.NDArray[np.bool_]) -> IntArray:
        """Return the normals of the events of one neuron, for each sample and step, given its spikes."""
        resets, counts = np.zeros(self.n_samples, dtype=self.sums.dtype), []
        for t in range(self.n_steps):
            if t:
                resets = self.advance(resets, spikes[:, t - 1], t)
            counts.append(-resets)
        counted = np.concatenate((self.sums, np.stack(counts, axis=1)[:, :, None]), axis=2)
        return np.asarray(counted.reshape(-1, self.dimension))


def middle_of_cell(normals: IntArray, fires: npt.NDArray[np.bool_], has_wall: bool) -> npt.NDArray[np.float64] | None:
    """Return the point of a cell that is farthest from all its walls; None if the cell has no inner point.

    A search can return a point near the edge of its cell, which needs many bits. The middle of the cell needs few.

    Parameters
    ----------
    normals : integer array of shape (n_events, dimension)
        The events of a neuron, one for each sample and step, with its own history of spikes.
    fires : array of shape (n_events,), bool
        On which side of each the neuron is.
    has_wall : bool
        Whether the last parameter must not be negative.

    Returns
    -------
    array of shape (dimension,), or None
        A point of the unit cube, in floating point: whoever rounds it must check its spikes.
    """
    exact, first = np.unique(np.asarray(normals, dtype=object).astype(np.float64), axis=0, return_index=True)
    size = np.linalg.norm(exact, axis=1)
    inward = np.where(fires[first], 1.0, -1.0)[:, None] * exact
    kept = size > 0
    rows = np.column_stack((-inward[kept] / size[kept, None], np.ones(int(kept.sum()))))
    dimension = exact.shape[1]
    limits = [(-1.0, 1.0)] * (dimension - 1) + [(0.0 if has_wall else -1.0, 1.0)]
    found = linprog(np.eye(dimension + 1)[-1] * -1, A_ub=rows, b_ub=np.zeros(len(rows)), bounds=[*limits, (0.0, 1.0)])
    if found.x is None or found.x[-1] <= 0:
        return None
    point: npt.NDArray[np.float64] = found.x[:-1]
    return point
