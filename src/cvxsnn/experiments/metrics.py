"""Metrics of a record: their kinds, how they are read, and how they are formatted."""

from collections.abc import Mapping
from typing import Any, Literal

from ..core.formatting import NOTHING

Quantity = Literal["accuracy", "gap", "cost", "benefit", "other"]
"""Kinds of metrics: *gap* and *cost* should be small, *accuracy* and *benefit* large."""

_QUANTITIES: dict[Quantity, str] = {
    "gap": "gap relative_gap",
    "cost": "primal dual seconds spikes firing_rate synaptic_operations bytes",
    "benefit": "first_error",
    "other": "n_active n_atoms n_neurons n_weights l1_strength l2_strength learning_rate weight_decay",
}


def quantity_of(metric: str) -> Quantity:
    """Return the kind of a metric; unknown names are accuracies, as all other scores are."""
    return next((kind for kind, names in _QUANTITIES.items() if metric in names.split()), "accuracy")


def read_metric(record: Mapping[str, Any], metric: str) -> float | None:
    """Return a number from a record's scores, or else from its other facts; None if there is no such finite number."""
    scores = record.get("scores")
    score = scores.get(metric) if isinstance(scores, Mapping) else None
    return finite(record.get(metric) if score is None else score)


def finite(value: object) -> float | None:
    """Return a number as a float, and None for anything else, also for numbers whose squares overflow."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e100
    return float(value) if is_number else None  # type: ignore[arg-type]


def format_number(value: float | None, metric: str, digits: int = 3) -> str:
    """Return a number with the digits that its kind needs; ``digits`` are the decimals of an accuracy."""
    if value is None:
        return NOTHING
    quantity = quantity_of(metric)
    return f"{value:.{digits}f}" if quantity == "accuracy" else f"{value:.1e}" if quantity == "gap" else f"{value:.4g}"


def format_difference(value: float | None, metric: str, digits: int = 3) -> str:
    """Return a difference with its sign, in as many digits as :func:`format_number` gives; zero has no sign."""
    if value is None:
        return NOTHING
    size = format_number(abs(value), metric, digits)
    return size if float(size) == 0 else ("−" if value < 0 else "+") + size
