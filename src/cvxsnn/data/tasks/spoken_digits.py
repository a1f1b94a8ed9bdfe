"""Spoken digits: real recordings of six people, as sequences of features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ...core.checks import check_choice
from ...core.errors import InvalidInputError
from ..audio import read_wav, speech_features
from ..task import UNNAMED_HEAD, SequenceData, Task, check_sizes
from .files import FILES, Folder

SAMPLE_RATE = 8000
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")


@dataclass(frozen=True, eq=False)
class Recording:
    """One spoken digit.

    Attributes
    ----------
    digit : int
    speaker : str
    take : int
    waveform : array of shape (n_points,), at ``SAMPLE_RATE`` points per second
    """

    digit: int
    speaker: str
    take: int
    waveform: npt.NDArray[Any]


def read_recordings(directory: Folder | None = None) -> list[Recording]:
    """Return all recordings, ordered by digit, speaker and take.

    They are in a zip file. Only ``directory`` is searched for it if it is given; otherwise the folder that the
    environment variable CVXSNN_DATA names, and then the cache (``~/.cache/cvxsnn``, or under XDG_CACHE_HOME), each with
    its subfolder ``spoken_digits``. If it is in neither, it is downloaded to the cache.
    """
    recordings = []
    for name, content in FILES["spoken digits"].read(directory).items():
        digit, speaker, take = name.removesuffix(".wav").split("_")
        recordings.append(Recording(int(digit), speaker, int(take), read_wav(content)[0]))
    return sorted(recordings, key=lambda recording: (recording.digit, recording.speaker, recording.take))


def spoken_digits(
    n_steps: int = 30,
    *,
    n_mels: int = 16,
    split: Literal["official", "speakers"] = "official",
    test_speakers: Sequence[str] = ("yweweler",),
    val_speakers: Sequence[str] | None = None,
    directory: Folder | None = None,
) -> Task:
    """Return the task of classifying recordings of spoken digits: 6 speakers, 10 digits, 50 takes of each.

    A recording becomes ``n_steps`` steps of ``2 * n_mels`` features, its normalised mel spectrogram and how that
    changes (:func:`cvxsnn.data.audio.speech_features`), whatever its length. Nothing is random.

    Parameters
    ----------
    n_steps : int, default=30
        Number of steps.
    n_mels : int, default=16
        Number of bands of the spectrogram.
    split : {"official", "speakers"}, default="official"
        How recordings are split. "official" is the dataset's own: takes 0 to 4 are for testing; of the others, 5 to 9
        are for validation. "speakers" holds out whole speakers: no recording of theirs is in the training data.
    test_speakers : sequence of str, default=("yweweler",)
        Speakers to test on with ``split="speakers"``; ignored otherwise.
    val_speakers : sequence of str, optional
        Speakers to validate on, likewise; by default the next in the alphabet after those of the test, or else the
        first who is not among them.
    directory : path, optional
        The folder of the zip file; see :func:`cvxsnn.data.tasks.spoken_digits.read_recordings` for the default.

    Returns
    -------
    Task
        The task.

    Examples
    --------
    >>> import cvxsnn as cs
    >>> try:
    ...     task = cs.tasks.spoken_digits(directory="path/to/files")
    ...     print(task.train.inputs.shape)
    ... except cs.CvxsnnError:
    ...     print("the files are not there")
    the files are not there
    """
    settings: dict[str, Any] = {"n_steps": n_steps, "n_mels": n_mels, "split": split}
    check_sizes(settings, "n_steps", "n_mels")
    check_choice("split", split, ("official", "speakers"))
    tested: Sequence[Any] = range(5)
    validated: Sequence[Any] = range(5, 10)
    if split == "speakers":
        tested, validated = _held_out(test_speakers, val_speakers)
        settings |= {"test_speakers": tested, "val_speakers": validated}
    recordings = read_recordings(directory)
    waveforms = [recording.waveform for recording in recordings]
    features = [speech_features(waveform, SAMPLE_RATE, n_steps=n_steps, n_mels=n_mels) for waveform in waveforms]
    data = SequenceData(np.stack(features), np.array([recording.digit for recording in recordings]))
    traits = np.array([getattr(recording, "take" if split == "official" else "speaker") for recording in recordings])
    is_test, is_val = np.isin(traits, tested), np.isin(traits, validated)
    splits = data.split(train=~is_test & ~is_val, val=is_val, test=is_test)
    return Task(name="spoken_digits", **splits, n_classes={UNNAMED_HEAD: 10}, settings=settings)


def _held_out(
    test_speakers: Sequence[str], val_speakers: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return speakers to test and to validate on; at least one must be left to train on."""
    for name, speakers in (
        ("test_speakers", test_speakers),
        ("val_speakers", SPEAKERS if val_speakers is None else val_speakers),
    ):
        if isinstance(speakers, str) or len(speakers) == 0 or not set(speakers) <= set(SPEAKERS):
            raise InvalidInputError(f"expected {name} to list some of {', '.join(SPEAKERS)}, got {speakers!r}")
    tested, validated = tuple(test_speakers), tuple(val_speakers or ())
    if val_speakers is None:
        after = SPEAKERS.index(max(tested)) + 1
        validated = tuple(name for name in SPEAKERS[after:] + SPEAKERS if name not in tested)[:1]
    if set(tested) & set(validated) or set(SPEAKERS) == {*tested, *validated}:
        raise InvalidInputError(
            f"expected each of {', '.join(SPEAKERS)} to be tested, validated or trained on, and somebody to train on, "
            f"got {', '.join(tested)} to test and {', '.join(validated)} to validate"
        )
    return tested, validated
