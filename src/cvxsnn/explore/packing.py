"""Values as JSON for a page: arrays as base64 of their bytes, and no NaN."""

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..core.formatting import printable

_TYPES = {"uint8": "u1", "int8": "i1", "uint16": "u2", "int16": "i2", "int32": "i4", "float32": "f4"}
"""Types of arrays that a page can read, and their names on the page."""


def to_json(value: Any) -> str:
    """Return values as JSON that may stand inside a ``<script>`` element.

    Parameters
    ----------
    value : dataclass, namespace, mapping, list, tuple, array, number, str, bool or None
        Arrays must have one of the types of typed arrays in JavaScript, and become objects with ``type``, ``shape`` and
        ``data``. Numbers that are not finite become null.

    Returns
    -------
    str
        The text, without ``<``, ``>`` and ``&``.
    """
    text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # "</script>" would end the element; some readers of JavaScript take the last two for ends of lines.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    if is_dataclass(value) or isinstance(value, SimpleNamespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        # Browsers read typed arrays in the order of their machine, which is this one nearly everywhere.
        little = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        data = base64.b64encode(little.tobytes()).decode()
        return {"type": _TYPES[value.dtype.name], "shape": list(value.shape), "data": data}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return printable(value) if isinstance(value, str) else value
