"""Plots for papers: each function draws on matplotlib axes and returns them."""

from .model_plots import (
    plot_gaps,
    plot_health,
    plot_membranes,
    plot_path,
    plot_raster,
    plot_readout,
    plot_receptive_field,
)
from .result_plots import plot_certificate, plot_confusion, plot_explanation

__all__ = [
    "plot_certificate",
    "plot_confusion",
    "plot_explanation",
    "plot_gaps",
    "plot_health",
    "plot_membranes",
    "plot_path",
    "plot_raster",
    "plot_readout",
    "plot_receptive_field",
]
