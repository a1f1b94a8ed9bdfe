"""Limits on what a page shows and computes: pages stay small and are made in seconds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes that keep pages small and quick."""

    block_bytes: int = 2**27
    """Bytes of the features that are computed at once."""
    traced: int = 2**25
    """Neurons times steps times sequences that are traced at once."""

    calibration_bins: int = 10
    hardest: int = 12
    """Sequences with the largest errors."""
    per_cell: int = 6
    """Sequences behind a cell of the confusion matrix."""
    cells: int = 60
    """Cells of the confusion matrix, beside the diagonal, with details."""
    points: int = 600
    """Points in the plot of a regressor's outputs against targets."""
    looked_at: int = 50
    """Sequences that are examined for each one shown: many may be equal."""

    average_bytes: int = 200_000
    """Bytes of the average inputs of all cells."""
    average_bins: int = 80
    average_rows: int = 48
    average_members: int = 200
    """Sequences that an average is taken over."""
    fewest_bins: int = 4
    """Averages with fewer bins are left out."""

    listed: int = 4096
    """Neurons in the list."""
    field_bytes: int = 1_000_000
    """Bytes of what the listed neurons read."""
    activity_entries: int = 2**25
    """Sequences times read columns for which activity is measured."""
    activity_rows: int = 4000
    exciting: int = 3
    """Sequences shown for a neuron."""
    drivers: int = 5
    """Neurons shown as reasons for a kind of mistake."""
    sizes: int = 24
    """Numbers of neurons for which the agreement with the whole network is computed."""
    enough: float = 0.95
    """Agreement with the whole network at which the first neurons count as enough."""

    sequence_bytes: int = 1_200_000
    """Bytes of all sequences that are shown one by one."""
    sequences: int = 240
    steps: int = 400
    """Bins of time of a sequence."""
    features: int = 96
    """Inputs of a sequence; more are averaged in groups."""
    neurons: int = 24
    """Neurons shown for a sequence."""
    membranes: int = 6
    excited: int = 24
    """Neurons whose exciting sequences are shown."""
    compared: int = 12
    """Sequences of each kind that two models answer differently."""

    products: int = 2**29
    """Products of a weight and an input, over all steps, for one question that every neuron and step answers."""
    counted: int = 200
    """Sequences on which operations are counted."""
    counted_per_group: int = 24
    groups: int = 40
    """Classes whose costs are shown."""
    health_bits: int = 2**29
    """Entries of a dictionary that is built to judge the health of a layer."""
    health_rows: int = 1000

    seconds: float = 60.0
    """Time for solving again."""
    scored: int = 2000
    """Sequences on which the accuracies along the path are measured."""
    path_counted: int = 64
    """Sequences on which operations along the path are counted."""
    strengths: int = 18
    smallest_ratio: float = 2e-3
    """Weakest strength of a path, relative to the critical one."""
    path_tolerance: float = 1e-4
    tolerance: float = 1e-6
    """Relative gap at which a problem that is solved again is solved."""
    iterations: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377)
    small_steps: tuple[int, ...] = (20, 40, 60, 100, 160, 260, 420, 700, 1100)
    """Iterations of a solver of small steps, which is shown if the model's solver takes a single step."""
    close: float = 0.05
    """Largest gap after the small steps, relative to the first objective, at which they are shown."""
    few_active: float = 1 / 15
    """Share of the critical strength above which few neurons are active, so that matrices are small."""
    dense_rate: float = 2e10
    """Operations per second expected of a factorisation of a matrix of all neurons."""
    frame_height: int = 900
    """Pixels of the page in a notebook."""


LIMITS = Limits()
