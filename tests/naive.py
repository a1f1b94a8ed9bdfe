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


def window_means(spikes, n_windows, lengths=None):
    """Means (n_samples, n_neurons * n_windows) of spikes (n_samples, n_steps, n_neurons) in windows, spike by spike."""
    n_samples, n_steps, n_neurons = spikes.shape
    means = np.zeros((n_samples, n_neurons, n_windows))
    for i in range(n_samples):
        n = n_steps if lengths is None else int(lengths[i])
        for t in range(n):
            for j in range(n_neurons):
                means[i, j, t * n_windows // n] += bool(spikes[i, t, j])
        means[i] *= n_windows / n
    return means.reshape(n_samples, -1)


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
