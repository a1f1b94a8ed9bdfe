"""Fingerprints of witnesses and arrays, which are equal if and only if their bits are."""

import hashlib
from collections.abc import Iterable
from dataclasses import fields

import numpy as np
from torch import Tensor

from ..neurons import HiddenLayer
from ..witnesses import WitnessSet


def fingerprint(parts: Iterable[Tensor | str | None]) -> str:
    """Return the SHA-256 of tensors, with their types and shapes, and of texts."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Tensor):
            # The same bytes can be of another type or shape.
            digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
            digest.update(np.ascontiguousarray(part.detach().cpu().numpy()).data)
        else:
            # Quoted and ended: neighbouring texts must not run together.
            digest.update(f"{part!r};".encode())
    return digest.hexdigest()


def fingerprint_witnesses(witnesses: WitnessSet | None) -> str:
    """Return the fingerprint of the layers, which determine the spikes; the provenance of the witnesses is left out."""
    return "none" if witnesses is None else fingerprint_layers(witnesses.layers)


def fingerprint_layers(layers: Iterable[HiddenLayer]) -> str:
    """Return the fingerprint of hidden layers."""
    parts: list[Tensor | str | None] = []
    for layer in layers:
        parts.append(type(layer).__name__)
        for field in fields(layer):
            value = getattr(layer, field.name)
            parts += [field.name, value if isinstance(value, Tensor) else repr(value)]
    return fingerprint(parts)
