"""Lateral neurons of several kinds, in one layer: what the default reads of sequences."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ..core.checks import Array, check_positive_int
from ..core.errors import InvalidInputError
from ..core.memory import check_fits
from ..core.seeds import check_seed, child_generator
from ..data.sequences import Sequences
from ..neurons.exact import snap_weights
from ..neurons.lateral import VIEWS, LateralLayer, view_inputs
from ..neurons.lateral_kernel import largest_drives
from ..neurons.statistics import STATISTICS, Statistic
from ..neurons.tap_kernel import _compiled, in_threads
from .settings import Check, Family
from .tap_sampling import N_CALIBRATION, Calibration, Floats, Integers, as_sequences
from .witness_set import WitnessSet


class Kind(NamedTuple):
    """A kind of neurons: its share of a layer, and the statistics that are read of it."""

    share: int
    statistics: tuple[Statistic, ...]


KINDS: Mapping[str, Kind] = {
    "rate": Kind(3, ("mean", "burst")),
    "winner": Kind(2, ("root",)),
    "distance": Kind(3, ("ever",)),
    "last": Kind(1, ("last",)),
}
"""The kinds by name, in the order of the layer."""

ALONG_TIME = ("rate", "winner", "distance")
"""The kinds that ignore at which step something happens."""


def readout_of(kinds: Sequence[str]) -> str:
    """Return the read-out of neurons of some kinds: all statistics that are read of any of them."""
    return "+".join(statistic for kind in KINDS if kind in kinds for statistic in KINDS[kind].statistics)


@dataclass(frozen=True)
class _Sizes:
    """Numbers of taps and neurons that belong together."""

    kernel: int = 9
    """Taps of a rate neuron: three of them have weight 2, the others -1."""
    dilations: int = 32
    """The most dilations of rate and distance neurons."""
    rivals: int = 8
    """Neurons of a group of winners, with random taps of mean zero."""
    window: int = 11
    """Steps of a window of training data."""
    radii: tuple[float, ...] = (0.25, 0.5, 0.75)
    """Quantiles, over training sequences, of the largest drive of distance neurons, from which they fire, in turn."""
    scattered: tuple[int, int] = (2, 64)
    """Fewest and most taps of a neuron that is read at the last step."""
    channels: tuple[int, int, int] = (9, 8, 3)
    """The most inputs that a rate, a winner and a distance neuron reads."""
    series: int = 64
    """Calibration sequences from which radii are taken."""


SIZES = _Sizes()


class _Neurons(NamedTuple):
    """Neurons as rows: taps (n_neurons, n_taps), levels, and groups from 1 within these neurons."""

    source: Integers
    delay: Integers
    weight: Floats
    level: Floats
    group: Integers


def _check_kinds(name: str, value: Any) -> object:
    kinds = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not kinds or not all(isinstance(kind, str) and kind in KINDS for kind in kinds) or len({*kinds}) < len(kinds):
        raise InvalidInputError(f"expected {name} to be some of {', '.join(map(repr, KINDS))}, got {value!r}")
    return kinds


_CHECKS: Mapping[str, Check] = {
    "n_witnesses": check_positive_int,
    "kinds": _check_kinds,
    "n_calibration": check_positive_int,
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Kinds(Family):
    """One layer of lateral neurons of several kinds, whose thresholds and windows come from training sequences.

    Rate neurons fire where a short pattern with regular gaps exceeds a threshold. Winners are groups of neurons with
    random weights, of which the one with the largest drive fires. Distance neurons fire where the inputs are close to a
    window of training data. These kinds read the values of the inputs, or their changes. Neurons of the kind "last"
    read values of the whole history, at the last step.

    Parameters
    ----------
    dtype : torch.dtype
        Ignored: sums are exact in float64.
    device : torch.device or str, optional
        Device of the witnesses.
    n_witnesses : int
        Number of neurons, about: groups are whole.
    kinds : sequence of "rate", "winner", "distance" and "last"
        The kinds.
    n_calibration : int
        Number of training sequences, a seeded subset, from which thresholds and windows are taken.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.witnesses import Kinds
    >>> Kinds(n_witnesses=100, kinds=("rate", "distance")).sample(np.random.default_rng(0).normal(size=(50, 20, 3)))
    WitnessSet(sampled lateral, 1 × (3→100))
    """

    name = "kinds"
    recognised_by = "kinds"
    checks = _CHECKS
    n_witnesses: int
    kinds: Sequence[str] = ALONG_TIME
    n_calibration: int = N_CALIBRATION

    def sample(self, inputs: Sequences | Array | int, seed: int = 0) -> WitnessSet:
        """Sample witnesses; :func:`cvxsnn.witnesses.regenerate` needs the same sequences to draw them again."""
        calibration = Calibration.of(as_sequences(inputs), self.n_calibration, check_seed(seed))
        check_fits(2000 * self.n_witnesses, "cpu", "the neurons of a hidden layer", "use fewer of them")
        sampler = _Sampler(calibration, seed)
        parts: list[_Neurons] = []
        reads: list[Integers] = []
        total = sum(KINDS[name].share for name in self.kinds)
        for name, kind in KINDS.items():
            if name not in self.kinds:
                continue
            number = max(1, round(self.n_witnesses * kind.share / total))
            if name == "winner" and number < SIZES.rivals and len(self.kinds) > 1:
                continue  # not even half of the two groups that belong together
            part = sampler.draw(name, number)
            bits = sum(1 << STATISTICS.index(statistic) for statistic in kind.statistics)
            parts.append(part)
            reads.append(np.full(len(part.level), bits))
        layer = _as_layer(parts, calibration.sequences.n_features, np.concatenate(reads))
        return WitnessSet((layer.to(self.device),), calibration.provenance(self, seed))


def _as_layer(parts: Sequence[_Neurons], n_features: int, reads: Integers) -> LateralLayer:
    """Return a layer of neurons of several kinds, of which the given statistics are read."""
    n_taps = max(part.source.shape[1] for part in parts)

    def joined(name: str) -> torch.Tensor:
        values = [getattr(part, name) for part in parts]
        padded = [np.pad(value, ((0, 0), (0, n_taps - value.shape[1]))) for value in values]
        return torch.from_numpy(np.concatenate(padded)).T[None].contiguous()

    return LateralLayer(
        joined("weight"),
        bias=torch.from_numpy(-np.concatenate([part.level for part in parts]))[None],
        source=joined("source"),
        delay=joined("delay"),
        n_sources=len(VIEWS) * n_features,
        group=torch.from_numpy(np.concatenate([part.group for part in parts]))[None],
        statistics=torch.from_numpy(reads)[None],
        views=VIEWS,
    )


class _Sampler:
    """Draws the neurons of one kind after the other."""

    def __init__(self, calibration: Calibration, seed: int) -> None:
        self.generator: Callable[[str], np.random.Generator] = partial(child_generator, seed, "kinds")
        self.lengths, self.n_features = calibration.lengths, calibration.sequences.n_features
        block = calibration.sequences.inputs.transpose(0, 1)
        # (n_samples, n_values, n_steps): a neuron reads one row of one sequence after the other
        self.values = np.ascontiguousarray(view_inputs(block, None, VIEWS).permute(1, 2, 0).numpy())
        self.n_samples, _, self.n_steps = self.values.shape

    def draw(self, kind: str, n_neurons: int) -> _Neurons:
        """Return neurons of a kind, about ``n_neurons`` of them."""
        drawn: _Neurons = getattr(self, f"_{kind}")(self.generator(kind), n_neurons)
        return drawn

    def _dilations(self, n_taps: int) -> Integers:
        """Return dilations from one up to the largest at which all taps read inputs."""
        longest = max(1, (self.n_steps - 1) // max(1, n_taps - 1))
        return np.unique(np.geomspace(1, longest, SIZES.dilations).astype(np.int64))

    def _channels(self, generator: np.random.Generator, n: int, most: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Return random distinct inputs, (n, most), and which of them are read: a log-uniform number."""
        most = min(most, self.n_features)
        number = np.minimum(2 ** (generator.random(n) * math.log2(most + 1)), most).astype(np.int64)
        channels = generator.random((n, self.n_features)).argsort(axis=1)[:, :most]
        return channels, np.arange(most) < number[:, None]

    def _rate(self, generator: np.random.Generator, n_neurons: int) -> _Neurons:
        n_taps = min(SIZES.kernel, self.n_steps)
        triples = np.array(list(combinations(range(n_taps), max(1, round(n_taps / 3)))))
        kernels = np.full((len(triples), n_taps), -1.0)
        np.put_along_axis(kernels, triples, 2.0, axis=1)
        dilations = self._dilations(n_taps)
        # Every combination of view, dilation and kernel in turn, in random order; those that repeat share their sums.
        n_drives = min(n_neurons, 2 * len(dilations) * len(kernels) * (1 if self.n_features == 1 else self.n_features))
        place = generator.permutation(max(n_drives, 2 * len(dilations) * len(kernels)))[:n_drives]
        kernel, rest = place % len(kernels), place // len(kernels)
        dilation, view = dilations[rest % len(dilations)], rest // len(dilations) % 2
        channels, is_read = self._channels(generator, n_drives, SIZES.channels[0])
        source, delay, weight = self._on_channels(channels, is_read, view, dilation, kernels[kernel])
        number = np.sort(np.arange(n_neurons) % n_drives)
        source = source[number]
        delay = delay[number]
        weight = self._snapped(weight)[number]
        series = generator.integers(self.n_samples, size=n_neurons)
        level = self._quantiles(source, delay, weight, series, generator.random(n_neurons))
        return _Neurons(source, delay, weight, level, np.zeros(n_neurons, dtype=np.int64))

    def _winner(self, generator: np.random.Generator, n_neurons: int) -> _Neurons:
        n_taps, rivals = min(SIZES.kernel, self.n_steps), SIZES.rivals
        n_pairs = max(1, round(n_neurons / (2 * rivals)))
        longest = max(1, (self.n_steps - 1) // max(1, n_taps - 1))
        n_dilations = int(math.log2(longest)) + 1
        turn = generator.permutation(2 * n_dilations)[np.arange(n_pairs) % (2 * n_dilations)]
        dilation, view = 2 ** (turn // 2), turn % 2
        channels, is_read = self._channels(generator, n_pairs, SIZES.channels[1])
        each = np.repeat(np.arange(n_pairs), rivals)
        weight = generator.standard_normal((len(each), n_taps))
        if n_taps > 1:
            weight -= weight.mean(axis=1, keepdims=True)
        weight /= np.abs(weight).sum(axis=1, keepdims=True)
        source, delay, weight = self._on_channels(channels[each], is_read[each], view[each], dilation[each], weight)
        weight, group = self._snapped(weight), 2 * each + 1
        # The largest drive of a group, and the smallest: the largest of the opposite weights.
        source, delay = np.concatenate((source, source)), np.concatenate((delay, delay))
        weight, group = np.concatenate((weight, -weight)), np.concatenate((group, group + 1))
        return _Neurons(source, delay, weight, np.zeros(2 * len(each)), group)

    def _distance(self, generator: np.random.Generator, n_neurons: int) -> _Neurons:
        n_windows = n_neurons
        n_steps = min(SIZES.window, self.n_steps)
        sample = generator.integers(self.n_samples, size=n_windows)
        longest = np.maximum(1, (self.lengths[sample] - 1) // max(1, n_steps - 1))
        # Few dilations: windows that have one in common share the sums of their squares.
        dilations = self._dilations(n_steps)
        dilation = np.exp(generator.random(n_windows) * np.log(longest))
        dilation = dilations[np.searchsorted(dilations, dilation, side="right") - 1]
        span = dilation * (n_steps - 1)
        end = span + (generator.random(n_windows) * np.maximum(1, self.lengths[sample] - span)).astype(np.int64)
        end = np.minimum(end, self.lengths[sample] - 1)
        view = generator.integers(2, size=n_windows)
        channels, is_read = self._channels(generator, n_windows, SIZES.channels[2])
        source, delay, ones = self._on_channels(channels, is_read, view, dilation, np.ones((n_windows, n_steps)))
        at = np.maximum(end[:, None] - delay, 0)
        window = np.where(delay <= end[:, None], self.values[sample[:, None], source, at], 0.0)
        # Twice the window on the inputs and -1 on their squares: |x - s|² without its constant.
        squares = source + 2 * self.n_features
        source, delay = np.concatenate((source, squares), axis=1), np.concatenate((delay, delay), axis=1)
        weight = self._snapped(np.concatenate((2 * window * ones, -ones), axis=1))
        chosen = np.sort(generator.permutation(self.n_samples)[: SIZES.series])
        none = np.zeros(n_windows, dtype=np.int64)
        layer = _as_layer([_Neurons(source, delay, weight, np.zeros(n_windows), none)], self.n_features, none)
        values = torch.from_numpy(self.values[chosen].transpose(2, 0, 1))
        largest = largest_drives(layer, values, torch.from_numpy(self.lengths[chosen]))
        largest.sort(axis=1)
        rank = (np.array(SIZES.radii) * len(chosen)).astype(np.int64)[np.arange(n_windows) % len(SIZES.radii)]
        level = largest[np.arange(n_windows), np.minimum(rank, len(chosen) - 1)]
        return _Neurons(source, delay, weight, level, none)

    def _last(self, generator: np.random.Generator, n_neurons: int) -> _Neurons:
        n_places = int(self.lengths.max()) * self.n_features
        fewest, most = (min(n, n_places) for n in SIZES.scattered)
        number = np.exp(generator.uniform(math.log(fewest), math.log(most + 1), n_neurons)).astype(np.int64)
        place = generator.integers(n_places, size=(n_neurons, most))
        source, delay = place % self.n_features, place // self.n_features
        pairs = generator.integers(self.n_samples, size=(2, n_neurons))
        read = [
            np.where(delay <= last, self.values[who[:, None], source, np.maximum(last - delay, 0)], 0.0)
            for who in pairs
            for last in (self.lengths[who][:, None] - 1,)
        ]
        weight = generator.standard_normal((n_neurons, most))
        inside = np.arange(most) < number[:, None]
        difference = (read[0] - read[1]) * inside
        is_difference = (np.arange(n_neurons) % 2 == 0) & difference.any(axis=1)
        weight = np.where(is_difference[:, None], difference, weight) * inside
        norm = np.linalg.norm(weight, axis=1, keepdims=True)
        weight = self._snapped(weight / np.where(norm > 0, norm, 1.0))
        drives = np.empty((n_neurons, self.n_samples))
        table = (self.values, source, delay, weight, self.lengths, drives)
        in_threads(partial(_last_drives, *table), n_neurons, source.size * self.n_samples)
        drives.sort(axis=1)
        rank = (generator.random(n_neurons) * self.n_samples).astype(np.int64)
        level = drives[np.arange(n_neurons), rank]
        return _Neurons(source, delay, weight, level, np.zeros(n_neurons, dtype=np.int64))

    def _on_channels(
        self, channels: Integers, is_read: npt.NDArray[np.bool_], view: Integers, dilation: Integers, weight: Floats
    ) -> tuple[Integers, Integers, Floats]:
        """Return taps that read each channel with the same weights: source, delay, weight (n, n_channels * n_taps)."""
        (n, n_channels), n_taps = channels.shape, weight.shape[1]
        shape = (n, n_channels, n_taps)
        source = np.broadcast_to((view[:, None] * self.n_features + channels)[:, :, None], shape)
        delay = np.broadcast_to((np.arange(n_taps) * dilation[:, None])[:, None], shape)
        return source.reshape(n, -1), delay.reshape(n, -1), (weight[:, None] * is_read[:, :, None]).reshape(n, -1)

    @staticmethod
    def _snapped(weight: Floats) -> Floats:
        snapped: Floats = snap_weights(torch.from_numpy(weight).T).T.contiguous().numpy()
        return snapped

    def _quantiles(
        self, source: Integers, delay: Integers, weight: Floats, series: Integers, quantile: Floats
    ) -> Floats:
        """Return a quantile of the drive of each neuron on a sequence: a value that occurs."""
        level = np.empty(len(series))
        table = (self.values, source, delay, weight, self.lengths, series, quantile, level)
        in_threads(partial(_drive_quantiles, *table), len(series), source.size * self.n_steps)
        return level


@_compiled
def _drive(values, source, delay, weight, n_steps, total):  # type: ignore[no-untyped-def]
    """Write the drive of a neuron on one sequence: exact sums, in any order."""
    total[:n_steps] = 0
    for tap in range(len(weight)):
        if weight[tap] != 0:
            row = values[source[tap]]
            shift = delay[tap]
            factor = weight[tap]
            for step in range(shift, n_steps):
                total[step] += factor * row[step - shift]


@_compiled
def _drive_quantiles(  # type: ignore[no-untyped-def]
    values, source, delay, weight, lengths, series, quantile, level, first, last
):
    total = np.empty(values.shape[2])
    for neuron in range(first, last):
        n_steps = lengths[series[neuron]]
        _drive(values[series[neuron]], source[neuron], delay[neuron], weight[neuron], n_steps, total)
        begin = 0  # where all taps read inputs, if there are such steps
        for tap in range(weight.shape[1]):
            if weight[neuron, tap] != 0:
                begin = max(begin, delay[neuron, tap])
        begin = begin if begin < n_steps else 0
        ordered = np.sort(total[begin:n_steps])
        level[neuron] = ordered[min(int(quantile[neuron] * len(ordered)), len(ordered) - 1)]


@_compiled
def _last_drives(values, source, delay, weight, lengths, drives, first, last):  # type: ignore[no-untyped-def]
    for neuron in range(first, last):
        for sample in range(len(lengths)):
            total, end = 0.0, lengths[sample] - 1
            for tap in range(weight.shape[1]):
                if delay[neuron, tap] <= end:
                    total += weight[neuron, tap] * values[sample, source[neuron, tap], end - delay[neuron, tap]]
            drives[neuron, sample] = total
