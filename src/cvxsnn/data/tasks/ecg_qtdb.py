"""Electrocardiograms of the QT database: the wave that each step belongs to."""

from os import PathLike

import numpy as np

from ...core.checks import check_positive_int
from ...core.errors import InvalidInputError
from ...core.seeds import child_generator
from . import qtdb_files
from .task import UNNAMED_HEAD, SequenceData, Task


def ecg_qtdb(
    *, n_val: int = 100, n_runs: int | None = None, directory: str | PathLike[str] | None = None, seed: int = 0
) -> Task:
    """Return the task of telling which wave of the heartbeat each step of an electrocardiogram belongs to.

    The data are the level crossings of two leads, 1,301 steps of 4 channels, as published with adaptive spiking
    networks: 618 recordings to train on and 141 to test on, with 6 classes. Steps without a label count as class 0, as
    in the published accuracies; :func:`cvxsnn.data.tasks.qtdb_files.read_qtdb` says which these are.

    Parameters
    ----------
    n_val : int, default=100
        Number of training recordings, or of runs of them, that are held out for validation, drawn at random.
    n_runs : int, optional
        Number of runs of consecutive recordings that the training recordings are divided into. Neighbouring recordings
        come from the same patients, so held-out runs are the better test of how a model does on other patients. By
        default each recording is a run of its own.
    directory : path, optional
        The folder of the files; see :func:`cvxsnn.data.tasks.qtdb_files.read_qtdb` for the default.
    seed : int, default=0
        Seed of the choice of validation recordings.

    Returns
    -------
    Task
        The task, with one label per step.
    """
    n_val = check_positive_int("n_val", n_val)
    inputs, labels, _ = qtdb_files.read_qtdb("train", directory)
    test_inputs, test_labels, _ = qtdb_files.read_qtdb("test", directory)
    n_runs = len(inputs) if n_runs is None else check_positive_int("n_runs", n_runs)
    if not n_val < n_runs <= len(inputs):
        raise InvalidInputError(
            f"expected n_val below n_runs and n_runs at most {len(inputs)}, the training recordings, got {n_val} and "
            f"{n_runs}"
        )
    run = np.arange(len(inputs)) * n_runs // len(inputs)
    is_val = np.isin(run, child_generator(seed, "ecg_qtdb", "validation").permutation(n_runs)[:n_val])
    data = SequenceData(inputs, labels)
    return Task(
        name="ecg_qtdb",
        train=data.take(~is_val),
        val=data.take(is_val),
        test=SequenceData(test_inputs, test_labels),
        n_classes={UNNAMED_HEAD: qtdb_files.N_CLASSES},
        settings={"n_val": n_val, "n_runs": n_runs, "seed": seed},
    )
