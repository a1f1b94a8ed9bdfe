"""Layers and inputs of chips for all tests, up to the ends of every range, and their equations in Python's integers."""

import numpy as np
import torch

from cvxsnn.neurons import LoihiLayer, XyloLayer


def _tensors(parameters):
    return {name: torch.tensor(np.asarray(value, dtype=float))[None] for name, value in parameters.items()}


def _any_scale(generator, most, n):
    """Numbers from 1 to ``most``: half of them of any size, half of any order of size."""
    of_order = np.exp(generator.uniform(0, np.log(most), n)).astype(int)
    return np.where(generator.random(n) < 0.5, generator.integers(1, most + 1, n), of_order)


def draw_xylo(seed, core="v2", n_inputs=8, width=50):
    generator = np.random.default_rng(seed)
    synapse_decay = generator.integers(0, 9, width)
    shift = int(generator.integers(8))
    most = int(generator.integers(1, 16))
    weight = generator.integers(-128, 128, (n_inputs, width))
    largest = np.maximum(np.maximum(weight, 0).sum(0), np.maximum(-weight, 0).sum(0))
    # As large as the 16 bits of a current allow.
    weight = np.trunc(weight * np.minimum(1, (2.0**15 / 2.0**synapse_decay - 1) / most / 2**shift / largest))
    drawn = {
        "bias": generator.integers(-128, 128, width) * (core == "v2"),
        "threshold": _any_scale(generator, 2**15 - 1, width),
        "synapse_decay": synapse_decay,
        "membrane_decay": generator.integers(0, 10, width),
    }
    weight = torch.from_numpy(weight)[None]
    return XyloLayer(weight, **_tensors(drawn), weight_shift=shift, max_count=most, core=core)


def draw_loihi(seed, n_inputs=8, width=50, **changes):
    generator = np.random.default_rng(seed)

    def either(share, value, other):
        return np.where(generator.random(width) < share, value, other)

    drawn = {
        "bias": either(0.5, 0, generator.integers(-4095, 4096, width)),
        "threshold": _any_scale(generator, 2**17 - 1, width),
        "current_decay": either(0.3, 4095, generator.integers(0, 4096, width)),
        "voltage_decay": either(0.2, 0, generator.integers(0, 4096, width)),
        "refractory": either(0.5, 1, generator.integers(1, 64, width)),
    }
    weight = torch.from_numpy(2.0 * generator.integers(-128, 128, (n_inputs, width)))[None]
    shift = int(generator.integers(8))
    return LoihiLayer(weight, **{**_tensors(drawn), "weight_shift": shift, "max_count": 40, **changes})


def draw_counts(layer, seed, n_samples=4, n_steps=60):
    """Random counts; in one sequence as many spikes as there can be, in one bursts of those, in one hardly any."""
    generator = np.random.default_rng(seed)
    shape = (n_samples, n_steps, layer.n_inputs)
    counts = generator.integers(0, layer.max_count + 1, shape) * (generator.random(shape) < generator.random())
    counts[0] = layer.max_count
    counts[1] = layer.max_count * (np.arange(n_steps)[:, None] % 7 < 4)
    counts[2] *= generator.random(shape[1:]) < 0.02
    return counts


def _saturate(value):
    return max(-(2**15), min(2**15 - 1, value))


def _shift_decay(value, bits):
    return value >> bits or (value > 0) - (value < 0)


def xylo_step(core, current, voltage, bias, threshold, synapse_decay, membrane_decay):
    """One step of a neuron after its spikes have arrived: the new current and membrane, and whether it fires."""
    current -= _shift_decay(current, synapse_decay)
    change = -_shift_decay(voltage, membrane_decay)
    if core == "v1":
        voltage = _saturate(voltage + change + current)
    else:
        change = -(2**15) if change == 2**15 else change  # in 16 bits
        voltage = _saturate(voltage + _saturate(_saturate(change + current) + bias))
    n_spikes = 0
    while voltage >= threshold and n_spikes < 31:
        voltage -= threshold
        n_spikes += 1
    return current, voltage, n_spikes > 0


def _wrap(value, bits):
    return (value + 2**bits) % 2 ** (bits + 1) - 2**bits


def _towards_zero(value, factor):
    return (abs(value) * factor >> 12) * (1 if value > 0 else -1)


def loihi_step(arriving, current, voltage, is_blocked, bias, threshold, current_decay, voltage_decay):
    """One step of a neuron on which a sum of shifted weights arrives: the new current and membrane, and a spike."""
    current = _wrap(_towards_zero(current, 4095 - current_decay) + _wrap(arriving << 6, 21), 23)
    voltage = _towards_zero(voltage, 4096 - voltage_decay) + _wrap(current + bias, 23)
    voltage = 0 if is_blocked else max(1 - 2**23, min(2**23 - 1, voltage))
    fires = voltage > threshold << 6
    return current, 0 if fires else voltage, fires


def parameters_of(layer):
    """The parameters of each neuron that the steps above take."""
    names = ["bias", "threshold", "synapse_decay", "membrane_decay"]
    if isinstance(layer, LoihiLayer):
        names[2:] = ["current_decay", "voltage_decay"]
    return list(zip(*(getattr(layer, name)[0].int().tolist() for name in names), strict=True))


def xylo_spikes(layer, counts):
    """Spikes by the steps of the chip, spike by spike."""
    spikes = np.zeros((*counts.shape[:2], layer.width), dtype=bool)
    for neuron, parameters in enumerate(parameters_of(layer)):
        weight = layer.weight[0, :, neuron].int().tolist()
        for sample, steps in enumerate(counts.tolist()):
            current = voltage = 0
            for t, row in enumerate(steps):
                for count, one in zip(row, weight, strict=True):
                    for _ in range(count):
                        current = _saturate(current + (one << layer.weight_shift))
                current, voltage, spikes[sample, t, neuron] = xylo_step(layer.core, current, voltage, *parameters)
    return spikes


def loihi_spikes(layer, counts):
    """Spikes by the steps of the chip."""
    spikes = np.zeros((*counts.shape[:2], layer.width), dtype=bool)
    for neuron, parameters in enumerate(parameters_of(layer)):
        sums = counts @ layer.weight[0, :, neuron].long().numpy() << layer.weight_shift
        for sample, arriving in enumerate(sums.tolist()):
            current = voltage = 0
            blocked = -1
            for t, total in enumerate(arriving):
                current, voltage, fires = loihi_step(total, current, voltage, t < blocked, *parameters)
                spikes[sample, t, neuron] = fires
                blocked = t + int(layer.refractory[0, neuron]) if fires else blocked
    return spikes
