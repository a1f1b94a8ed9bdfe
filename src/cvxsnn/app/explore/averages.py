"""Average inputs of the sequences behind each cell of the confusion matrix: what mistakes have in common."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from .quality import Answers, Quality
from .subject import FloatArray, IntArray, Subject

MAX_BYTES = 200_000
MAX_BINS = 80
MAX_ROWS = 48
_MAX_MEMBERS = 200
_FEWEST_BINS = 4


def average_cells(subject: Subject, answers: Answers, quality: Quality) -> Quality:
    """Return the quality with the average inputs of each cell, all on one scale; without them if cells are many."""
    n_rows = min(subject.sequences.n_features, MAX_ROWS)
    n_bins = min(subject.sequences.n_steps, MAX_BINS, MAX_BYTES // max(1, len(quality.cells) * n_rows))
    if n_bins < min(_FEWEST_BINS, subject.sequences.n_steps) or not quality.cells:
        return quality
    means = []
    for cell in quality.cells:
        members = np.flatnonzero((answers.group == cell.truth) & (answers.predicted == cell.predicted))
        some = members[np.linspace(0, len(members) - 1, min(len(members), _MAX_MEMBERS)).astype(int)]
        means.append(shrink(shrink(_mean_inputs(subject, some), n_bins).T, n_rows).T)
    low, high = min(float(own.min()) for own in means), max(float(own.max()) for own in means)
    shares = [(own - low) / ((high - low) or 1.0) for own in means]
    cells = [
        replace(cell, average=np.round(255 * share).astype(np.uint8))
        for cell, share in zip(quality.cells, shares, strict=True)
    ]
    return replace(quality, cells=tuple(cells))


def shrink(values: npt.NDArray[np.floating], n_rows: int) -> FloatArray:
    """Return a matrix with at most so many rows, each the mean of rows that follow each other."""
    starts = np.unique(np.linspace(0, len(values), min(n_rows, len(values)) + 1).astype(int)[:-1])
    sums: FloatArray = np.add.reduceat(values.astype(np.float64), starts, 0)
    return sums / np.diff([*starts, len(values)])[:, None]


def _mean_inputs(subject: Subject, rows: IntArray) -> FloatArray:
    """Return the mean of each step over the sequences that have it, as far as the longest of them."""
    some = subject.sequences.take(torch.from_numpy(rows))
    values: FloatArray = some.inputs.cpu().double().numpy() * subject.scale + subject.mean
    inside = some.is_inside()
    has_step = np.ones((*values.shape[:2], 1), dtype=bool) if inside is None else inside.cpu().numpy()[..., None]
    n_steps = int(has_step.any(0).sum())
    means: FloatArray = (values * has_step).sum(0)[:n_steps] / has_step.sum(0)[:n_steps]
    return means
