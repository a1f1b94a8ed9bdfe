"""Networks as C99 source for microcontrollers."""

from .export import export_c

__all__ = ["export_c"]
