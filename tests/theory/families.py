"""Neurons of a family by plain definitions, and small random cases, for the tests of the exact theory."""

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import strategies as st

from cvxsnn.theory import LIFFamily

DECAYS = (0.0, 0.25, 0.5, 1.0)
FAMILIES = st.builds(LIFFamily, st.sampled_from(DECAYS), st.booleans(), st.booleans())
SEEDS = st.integers(0, 2**32 - 1)


def exact_spikes(family, parameters, inputs, unit):
    """Spikes (n_samples, n_steps) of one neuron by the recurrence of the membrane, in fractions."""
    *weights, threshold = map(Fraction, map(int, parameters))
    bias = weights.pop() * Fraction(unit) if family.bias else 0
    threshold *= Fraction(unit)
    spikes = np.zeros(inputs.shape[:2], dtype=bool)
    for i, sequence in enumerate(inputs):
        membrane, fired = Fraction(0), False
        for t, values in enumerate(sequence):
            drive = sum(w * Fraction(float(x)) for w, x in zip(weights, values, strict=True))
            membrane = Fraction(family.decay) * membrane + drive + bias - (threshold if fired else 0)
            fired = membrane >= 0
            spikes[i, t] = fired
    return spikes


def float_spikes(family, parameters, inputs):
    """The same for many neurons (n_neurons, n_samples, n_steps) in float64; bias and threshold are plain numbers.

    Exact where parameters and inputs are small integers and the decay is dyadic.
    """
    parameters = np.asarray(parameters, dtype=np.float64)
    weights = parameters[:, : inputs.shape[2]]
    bias = parameters[:, inputs.shape[2], None] if family.bias else 0.0
    membrane = np.zeros((len(parameters), len(inputs)))
    fired, steps = np.zeros_like(membrane), []
    for t in range(inputs.shape[1]):
        membrane = family.decay * membrane + weights @ inputs[:, t].T + bias - parameters[:, -1:] * fired
        fired = (membrane >= 0).astype(float)
        steps.append(fired == 1)
    return np.stack(steps, axis=2)


def draw_sequences(rng, n_samples, n_steps, n_features, kind="ties"):
    """Sequences; those of small integers make many ties, and repeat."""
    shape = (n_samples, n_steps, n_features)
    return rng.integers(-2, 3, shape).astype(float) if kind == "ties" else rng.normal(size=shape)


def draw_parameters(rng, family, n_neurons, n_features, kind="ties"):
    """Neurons of a family; small integers make many ties."""
    shape = (n_neurons, n_features + family.bias + 1)
    drawn = rng.integers(-3, 4, shape).astype(float) if kind == "ties" else rng.normal(size=shape)
    if not family.negative_threshold:
        drawn[:, -1] = abs(drawn[:, -1])
    return drawn


def grid(family, n_features, largest):
    """All integer parameters of a family up to a size."""
    sides = [range(-largest, largest + 1)] * (n_features + family.bias)
    return np.array(list(product(*sides, range(-largest if family.negative_threshold else 0, largest + 1))))


def as_set(spikes):
    """Patterns (n_patterns, ...) as a set."""
    return {np.asarray(pattern, dtype=bool).tobytes() for pattern in spikes}


def columns_of(dictionary):
    """The atoms of a dictionary as a set of 0/1 columns."""
    return as_set(dictionary.columns().numpy().T)
