"""The definitions, written as plainly as possible, to compare the library with."""

import numpy as np
import torch


def lif_spikes(layer, inputs):
    """Spikes (n_samples, n_steps, n_neurons) of one LIF layer, its recurrence written as one block matrix.

    The paper's structured recurrent network: ``[S_in U S]`` times ``[P; B; -R]``, in float64.
    """
    inputs = np.asarray(inputs, dtype=np.float64)
    subnetworks = []
    for k in range(layer.n_subnetworks):
        weight, decay, threshold, bias, membrane, spikes = (
            value[k].double().numpy()
            for value in (
                layer.weight,
                layer.decay,
                layer.threshold,
                layer.bias,
                layer.initial_membrane,
                layer.initial_spikes,
            )
        )
        block = np.concatenate([weight, np.diag(decay), -np.diag(threshold)])
        membrane, spikes = (np.broadcast_to(value, (len(inputs), layer.width)) for value in (membrane, spikes))
        steps = []
        for t in range(inputs.shape[1]):
            membrane = np.concatenate([inputs[:, t], membrane, spikes], axis=1) @ block + bias
            spikes = (membrane >= 0).astype(np.float64)
            steps.append(spikes == 1)
        subnetworks.append(np.stack(steps, axis=1))
    return np.concatenate(subnetworks, axis=2)


def tap_drive(layer, k, values, t):
    """The drive (n_samples, width) of subnetwork k at step t, tap by tap; ``values`` is (n_samples, n_steps, ...)."""
    drive = np.zeros((len(values), layer.width))
    for tap, neuron in np.ndindex(layer.n_taps, layer.width):
        place = (k, tap, neuron)
        source, delay = (layer.source[place], layer.delay[place]) if layer.has_delays else (tap, 0)
        if t - int(delay) >= 0:
            drive[:, neuron] += float(layer.weight[k, tap, neuron]) * values[:, t - int(delay), int(source)]
    return drive


def tap_spikes(layer, inputs, lengths=None):
    """Spikes (n_samples, n_steps, n_neurons) of one LIF layer with delays, step by step, in the layer's own dtype.

    ``inputs`` is (n_samples, n_steps, n_inputs), or a list with one such array per subnetwork.
    """
    own = [inputs] * layer.n_subnetworks if isinstance(inputs, np.ndarray) else inputs
    number = layer.weight.numpy().dtype.type
    subnetworks = []
    for k, values in enumerate(own):
        bias, decay, threshold = (value[k].numpy() for value in (layer.bias, layer.decay, layer.threshold))
        shape = (len(values), layer.width)
        membrane = np.broadcast_to(layer.initial_membrane[k].numpy(), shape).astype(number)
        spikes = np.broadcast_to(layer.initial_spikes[k].numpy(), shape).astype(number)
        steps = []
        for t in range(values.shape[1]):
            drive = tap_drive(layer, k, values, t).astype(number) + bias
            membrane = membrane * decay + drive - spikes * threshold
            spikes = (membrane >= 0 if layer.tie == "ge" else membrane > 0).astype(number)
            steps.append(spikes == 1)
        subnetworks.append(np.stack(steps, axis=1))
    found = np.concatenate(subnetworks, axis=2)
    if lengths is not None:
        found &= (np.arange(found.shape[1]) < np.asarray(lengths)[:, None])[:, :, None]
    return found


def window_counts(spikes, lengths, n_windows):
    """Spikes per window, (n_samples, n_neurons * n_windows): step t of n is in window t * n_windows // n."""
    n_samples, _, n_neurons = spikes.shape
    counts = np.zeros((n_samples, n_neurons, n_windows), dtype=int)
    for i, n in enumerate(lengths):
        for t in range(n):
            counts[i, :, t * n_windows // n] += spikes[i, t]
    return counts.reshape(n_samples, -1)


def threshold_spikes(layer, inputs):
    """Spikes (n_samples, n_steps, n_neurons) of one recurrent threshold layer, neuron by neuron, in float64."""
    n_samples, n_steps, n_features = inputs.shape
    spikes = np.zeros((n_samples, n_steps, layer.n_subnetworks, layer.width), dtype=bool)
    for i, t, k, j in np.ndindex(spikes.shape):
        before = layer.initial_spikes[k].numpy() == 1 if t == 0 else spikes[i, t - 1, k]
        total = float(layer.bias[k, j])
        total += sum(float(inputs[i, t, f]) * float(layer.weight[k, f, j]) for f in range(n_features))
        total += sum(float(layer.recurrent_weight[k, m, j]) for m in range(layer.width) if before[m])
        spikes[i, t, k, j] = total >= 0
    return spikes.reshape(n_samples, n_steps, -1)


def lateral_views(inputs, views):
    """What taps can read, (n_samples, n_steps, n_views * n_features): all on the grid of multiples of 2**-16."""
    values = np.round(np.asarray(inputs, dtype=np.float64) * 2**16) / 2**16
    changes = np.zeros_like(values)
    changes[:, 1:] = values[:, 1:] - values[:, :-1]
    seen = {"values": values, "changes": changes}
    seen["squares"], seen["squared changes"] = (np.round(seen[name] ** 2 * 2**16) / 2**16 for name in seen)
    return np.concatenate([seen[view] for view in views], axis=2)


def lateral_spikes(layer, inputs):
    """Spikes (n_samples, n_steps, n_neurons) of one lateral layer: signs of drives, and one winner of each group."""
    values = lateral_views(inputs, layer.views)
    spikes = np.zeros((*values.shape[:2], layer.n_subnetworks, layer.width), dtype=bool)
    for t, k in np.ndindex(values.shape[1], layer.n_subnetworks):
        drive = tap_drive(layer, k, values, t) + layer.bias[k].numpy()
        spikes[:, t, k] = drive >= 0
        for group in range(1, layer.width + 1):
            members = np.flatnonzero(layer.group[k].numpy() == group)
            spikes[:, t, k, members] = False
            for i, rivals in enumerate(drive[:, members]):
                if len(members):
                    spikes[i, t, k, members[list(rivals).index(max(rivals))]] = True
    return spikes.reshape(*values.shape[:2], -1)


def train_numbers(train):
    """The whole number of each statistic of one spike train."""
    steps = np.flatnonzero(train)
    runs = "".join("1" if fires else "0" for fires in train).split("0")
    return {
        "mean": len(steps),
        "burst": max(map(len, runs)),
        "root": len(steps),
        "ever": int(len(steps) > 0),
        "last": int(train[-1]),
        "first": len(train) - steps[0] if len(steps) else 0,
    }


def train_entries(train):
    """The entry of each statistic of one spike train: numbers times a rounded reciprocal of the number of steps."""
    numbers, share = train_numbers(train), 1 / len(train)
    entries = {name: numbers[name] * share for name in ("mean", "burst", "first")}
    return {**entries, "root": np.sqrt(entries["mean"]), "ever": numbers["ever"], "last": numbers["last"]}


def window_means(spikes, n_windows, lengths=None):
    """Means (n_samples, n_neurons * n_windows) of spikes (n_samples, n_steps, n_neurons) in windows of time."""
    lengths = [spikes.shape[1]] * len(spikes) if lengths is None else lengths
    counts = window_counts(spikes, lengths, n_windows)
    return counts * np.array([[n_windows / int(n)] for n in lengths])


def equal_rows(matrix):
    """First row, inverse and counts of the groups of equal rows, in order of first appearance."""
    _, first, inverse, counts = np.unique(
        np.asarray(matrix), axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first)
    return first[order], np.argsort(order)[inverse.ravel()], counts[order]


def assert_groups_equal(groups, matrix):
    """The groups are those of the equal rows of ``matrix``."""
    for given, expected in zip(groups, equal_rows(matrix), strict=True):
        torch.testing.assert_close(given, torch.from_numpy(expected), rtol=0, atol=0)


def decode_digits(digits, base):
    """The number written in each row of ``digits``, shape (n_samples, n_steps), least significant digit first."""
    return [sum(digit * base**place for place, digit in enumerate(row)) for row in digits.tolist()]


def decode_operands(data, base):
    """The two numbers that each sequence of an addition task adds."""
    first, second = np.rint(data.inputs[:, :, :2] * (base - 1)).astype(np.int64).transpose(2, 0, 1)
    return decode_digits(first, base), decode_digits(second, base)
