"""The constants of a program as arrays of C."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .integers import IntegerModel
from .program import CLayer, Program

INT32_MAX = 2**31 - 1

_TYPES = ("uint8_t", "int8_t", "uint16_t", "int16_t", "int32_t", "int64_t")


@dataclass(frozen=True)
class Table:
    """An array of constants."""

    name: str
    type: str
    size: int
    text: str
    n_bytes: int


def write_tables(program: Program, scale: Any, whole: IntegerModel | None) -> list[Table]:
    """Return the arrays of constants."""
    tables: list[Table] = []
    if whole is None and scale is not None:
        tables += [_real_table("mean", scale[0], "double"), _real_table("scale", scale[1], "double")]
    tables.append(_integer_table("feature", program.layers[0].rows[:, 1]))
    for number, layer in enumerate(program.layers, 1):
        for suffix, taps in ((f"{number}", layer.taps), (f"recurrent_{number}", layer.recurrent)):
            if taps is not None:
                tables.append(_integer_table(f"start_{suffix}", taps.start))
                # C has no empty arrays; of a layer that reads nothing, this tap is not read either.
                tables.append(_integer_table(f"place_{suffix}", taps.place if len(taps.place) else np.zeros(1)))
                tables.append(_integer_table(f"weight_{suffix}", taps.weight if len(taps.place) else np.zeros(1)))
        tables += _layer_tables(layer, number, whole)
    n_lazy = sum(block.last - block.first for block in program.layers[-1].blocks if block.is_lazy)
    is_lazy = np.zeros(len(program.places), dtype=bool)
    for segment in program.segments:
        is_lazy[segment.first : segment.last] = segment.is_lazy
    tables.append(_integer_table("neuron", program.places - np.where(is_lazy, 0, n_lazy)))
    if program.windows is not None:
        tables.append(_integer_table("window_of", program.windows))
    if whole is None:
        tables.append(_real_table("readout", program.weight, "double"))
        tables.append(_real_table("intercept", program.intercept, "double"))
    else:
        tables.append(_integer_table("readout", whole.weight))
        tables.append(_integer_table("intercept", whole.intercept))
    return tables


def _layer_tables(layer: CLayer, number: int, whole: IntegerModel | None) -> list[Table]:
    """Return the parameters of the neurons of a layer."""
    tables: list[Table] = []
    levels = [block.last for block in layer.blocks if block.kind == "level"]
    if levels:
        level = layer.level[: levels[-1]]
        if number > 1:  # sums of spikes stay below these levels
            level = np.clip(level, -layer.taps.levels.max() - 1, layer.taps.levels.max() + 1)
        tables.append(_integer_table(f"level_{number}", level))
    if layer.has("group"):
        tables.append(_integer_table(f"group_{number}", layer.group_ends))
        tables.append(_integer_table(f"shift_{number}", layer.shift))
    dynamic = [block for block in layer.blocks if block.kind in ("membrane", "recurrent")]
    if not dynamic:
        return tables
    mine = slice(dynamic[0].first, dynamic[0].last)
    real = "double" if layer.layer.weight.dtype == torch.float64 else "float"
    if layer.parameter("initial_spikes")[mine].any():
        tables.append(_integer_table(f"start_spikes_{number}", layer.parameter("initial_spikes")[mine]))
    starts = bool(layer.parameter("initial_membrane")[mine].any()) if layer.has("membrane") else False
    if whole is not None:
        fixed = whole.layers[number - 1]
        assert fixed is not None
        named = {"shift": fixed.shift, "recurrent_shift": fixed.recurrent_shift, "bias": fixed.bias}
        named |= {
            "threshold": fixed.threshold,
            "decay": fixed.decay,
            "start_membranes": fixed.start if starts else None,
        }
        return tables + [
            _integer_table(f"{name}_{number}", value) for name, value in named.items() if value is not None
        ]
    reals = {"unit": layer.taps.unit[mine], "bias": layer.parameter("bias")[mine]}
    if layer.recurrent is not None:
        reals["recurrent_unit"] = layer.recurrent.unit[mine]
    else:
        reals |= {name: layer.parameter(name)[mine] for name in ("threshold", "decay")}
        reals |= {"start_membranes": layer.parameter("initial_membrane")[mine]} if starts else {}
    return tables + [_real_table(f"{name}_{number}", value, real) for name, value in reals.items()]


def _integer_table(name: str, values: npt.NDArray[Any]) -> Table:
    """Return a table in the narrowest type."""
    numbers = [int(value) for value in values.flat]
    kind = next(kind for kind in _TYPES if all(_fits(number, kind) for number in (min(numbers), max(numbers))))
    return Table(
        name,
        kind,
        len(numbers),
        write_lines([write_integer(number) for number in numbers]),
        len(numbers) * (int(re.sub(r"\D", "", kind)) // 8),
    )


def _fits(number: int, kind: str) -> bool:
    n_bits = int(re.sub(r"\D", "", kind))
    low = 0 if kind.startswith("u") else -(2 ** (n_bits - 1))
    return bool(low <= number < low + 2**n_bits)


def _real_table(name: str, values: npt.NDArray[Any], kind: str) -> Table:
    texts = [write_float(value) + ("f" if kind == "float" else "") for value in values.flat]
    return Table(name, kind, len(texts), write_lines(texts), len(texts) * (4 if kind == "float" else 8))


def write_integer(value: float) -> str:
    """Return a whole number as C reads it."""
    return f"{int(value)}LL" if abs(int(value)) > INT32_MAX else str(int(value))


def write_float(value: float) -> str:
    """Return a number as C reads it without rounding."""
    mantissa, exponent = float(value).hex().split("p")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}p{exponent}"


def write_lines(texts: Sequence[str]) -> str:
    """Return numbers separated by commas, in lines of at most a hundred characters."""
    lines, line = [], "   "
    for text in texts:
        if len(line) + len(text) > 100:
            lines.append(line)
            line = "   "
        line += f" {text},"
    return "\n".join([*lines, line])
