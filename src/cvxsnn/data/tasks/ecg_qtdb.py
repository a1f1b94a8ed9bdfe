"""Electrocardiograms of the QT database: the wave that each step belongs to."""

import io
from typing import Literal

import numpy as np
import numpy.typing as npt

from ...core.errors import InvalidInputError
from ..task import UNNAMED_HEAD, SequenceData, Task, check_sizes, hold_out
from .files import FILES, Folder


def ecg_qtdb(*, n_val: int = 100, n_runs: int | None = None, directory: Folder | None = None, seed: int = 0) -> Task:
    """Return the task of labelling each step of an electrocardiogram with its wave of the heartbeat.

    The data are the level crossings of two leads, 1,301 steps of 4 channels, as published with adaptive spiking
    networks: 618 recordings to train on and 141 to test on, with 6 classes. Steps without a label count as class 0, as
    in the published accuracies; :func:`cvxsnn.data.tasks.ecg_qtdb.read_qtdb` says which these are.

    Parameters
    ----------
    n_val : int, default=100
        Number of training recordings, or of runs of them, that are held out for validation, drawn at random.
    n_runs : int, optional
        Number of runs of consecutive recordings that the training recordings are divided into. Neighbouring recordings
        come from the same patients, so held-out runs better predict the accuracy on other patients. By default each
        recording is a run of its own.
    directory : path, optional
        The folder of the files; see :func:`cvxsnn.data.tasks.ecg_qtdb.read_qtdb` for the default.
    seed : int, default=0
        Seed of the choice of validation recordings.

    Returns
    -------
    Task
        The task, with one label per step.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.ecg_qtdb(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the files are not there")
    the files are not there
    """
    inputs, labels, _ = read_qtdb("train", directory)
    settings = {"n_val": n_val, "n_runs": len(inputs) if n_runs is None else n_runs, "seed": seed}
    check_sizes(settings, "n_val", "n_runs")
    if not settings["n_val"] < settings["n_runs"] <= len(inputs):
        raise InvalidInputError(
            f"expected n_val below n_runs and n_runs at most {len(inputs)}, the training recordings, got {n_val} and "
            f"{settings['n_runs']}"
        )
    run = np.arange(len(inputs)) * settings["n_runs"] // len(inputs)
    is_val = hold_out(run, "n_val", settings, "ecg_qtdb")
    splits = SequenceData(inputs, labels).split(train=~is_val, val=is_val)
    splits["test"] = SequenceData(*read_qtdb("test", directory)[:2])
    return Task(name="ecg_qtdb", **splits, n_classes={UNNAMED_HEAD: 6}, settings=settings)


def read_qtdb(
    part: Literal["train", "test"], directory: Folder | None = None
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Read the recordings of one part of ECG-QTDB.

    Only ``directory`` is searched if it is given; otherwise the folder that the environment variable CVXSNN_DATA names,
    and then the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME), each with its subfolder ``qtdb``. Files in
    neither are downloaded to the cache.

    Parameters
    ----------
    part : {"train", "test"}
        Training or test recordings.
    directory : path, optional
        The folder of the files.

    Returns
    -------
    inputs : array of shape (n_samples, 1301, 4), dtype float32
        Level crossings of two leads: -1, 0 or 1.
    labels : array of shape (n_samples, 1301), dtype int64
        The wave that each step belongs to, from 0 to 5; 0 where there is no label.
    is_labelled : array of shape (n_samples, 1301), dtype bool
        Which steps have a label.
    """
    from scipy.io import loadmat  # slow to import

    arrays = loadmat(io.BytesIO(FILES[f"qtdb {part}"].read(directory)), variable_names=("x", "y"))
    one_hot = arrays["y"]
    return arrays["x"].astype(np.float32), np.asarray(one_hot.argmax(2), dtype=np.int64), one_hot.sum(2) > 0
