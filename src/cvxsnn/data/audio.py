"""From sound to sequences: mel spectrograms of waveforms."""

import io
import math
import struct
import warnings
from functools import lru_cache
from os import PathLike
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..core.checks import Array, as_tensor, check_positive_int
from ..core.errors import DataFileError, InvalidInputError, first_line

__all__ = ["mel_spectrogram", "read_wav", "speech_features"]

_Sound = TypeVar("_Sound", bound=Array)


def mel_spectrogram(
    waveform: _Sound,
    sample_rate: int,
    *,
    n_mels: int = 32,
    n_steps: int | None = None,
    window: float = 0.025,
    hop: float = 0.010,
    f_min: float = 0.0,
    f_max: float | None = None,
    dynamic_range: float = 80.0,
) -> _Sound:
    r"""Return the loudness of a sound in decibels, per step and frequency band.

    Power spectra of overlapping Hann windows are summed by triangular filters, equally spaced on the mel scale
    :math:`2595 \log_{10}(1 + f / 700)`, and given relative to the loudest entry P_max:

    .. math:: 10 \log_{10} \max(P / P_{\max}, 10^{-\mathrm{dynamic\_range} / 10}) \in [-\mathrm{dynamic\_range}, 0].

    So the overall loudness of a recording does not matter, and ``1 + result / dynamic_range`` lies in [0, 1].

    Parameters
    ----------
    waveform : array or Tensor of shape (n_points,) or (n_samples, n_points)
        Real numbers; integers as in wav files are accepted. Convert sounds of unequal length one by one.
    sample_rate : int
        Points per second.
    n_mels : int, default=32
        Number of filters.
    n_steps : int, optional
        Number of steps of every sound, whatever its length: each is the mean power over an equal share of its time.
        By default one step per ``hop``, the first and the last centred on the ends.
    window : float, default=0.025
        Length of a window in seconds.
    hop : float, default=0.01
        Seconds from one window to the next.
    f_min : float, default=0.0
        Lowest frequency of the filters in hertz.
    f_max : float, optional
        Highest frequency of the filters in hertz; by default half of the sample rate.
    dynamic_range : float, default=80.0
        Decibels below the loudest entry at which quieter ones are cut off.

    Returns
    -------
    array or Tensor of shape (n_steps, n_mels) or (n_samples, n_steps, n_mels)
        Decibels, on the device of ``waveform``; in float64 if it is, otherwise in float32.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data.audio import mel_spectrogram
    >>> tone = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    >>> loudness = mel_spectrogram(tone, 8000, n_mels=16, n_steps=10)
    >>> loudness.shape, float(loudness.max())
    ((10, 16), 0.0)
    """
    sample_rate = check_positive_int("sample_rate", sample_rate)
    n_mels = check_positive_int("n_mels", n_mels)
    nyquist = sample_rate / 2
    top = nyquist if f_max is None else f_max
    if not 0 <= f_min < top <= nyquist:
        raise InvalidInputError(
            f"expected 0 <= f_min < f_max <= {nyquist:g} Hz, half of the sample rate, got {f_min!r} and {top!r}"
        )
    if not 0 < dynamic_range < math.inf:
        raise InvalidInputError(f"expected dynamic_range to be decibels above zero, got {dynamic_range!r}")
    n_window, n_hop = (_points(name, length, sample_rate) for name, length in (("window", window), ("hop", hop)))
    sound = _as_sound(waveform)
    power = _power(sound, n_window, n_hop) @ _mel_filters(n_window, n_mels, sample_rate, f_min, top).to(sound)
    if n_steps is not None:
        power = _shares_of_time(power.shape[-2], check_positive_int("n_steps", n_steps)).to(sound) @ power
    loudest = power.amax((-2, -1), keepdim=True)
    relative = power / torch.where(loudest > 0, loudest, 1.0)  # digital silence stays silent
    decibels = 10 * torch.log10(relative.clamp_min(10 ** (-dynamic_range / 10)))
    return decibels if isinstance(waveform, Tensor) else decibels.numpy()  # type: ignore[return-value]


def speech_features(waveform: _Sound, sample_rate: int, *, n_steps: int = 30, n_mels: int = 16) -> _Sound:
    """Return the features of an utterance: its normalised spectrogram, and how that changes.

    Half of the utterance's own mean spectrum is subtracted, which removes half of the influence of microphone and
    voice, and the rest is scaled to variance 1. Each band is accompanied by its change over the last four steps. All of
    it is computed from one utterance alone, so new speakers and microphones need no further recordings.

    Parameters
    ----------
    waveform : array or Tensor of shape (n_points,) or (n_samples, n_points)
        Real numbers.
    sample_rate : int
        Points per second, at least 8000. Bands always end at 4 kHz, so recordings of any quality are comparable.
    n_steps : int, default=30
        Number of steps, as in :func:`mel_spectrogram`.
    n_mels : int, default=16
        Number of bands.

    Returns
    -------
    array or Tensor of shape (n_steps, 2 * n_mels) or (n_samples, n_steps, 2 * n_mels)
        All bands of a step, then their changes.

    Examples
    --------
    >>> import numpy as np
    >>> from cvxsnn.data.audio import speech_features
    >>> speech_features(np.random.default_rng(0).standard_normal(4000), 8000).shape
    (30, 32)
    """
    decibels = torch.as_tensor(
        mel_spectrogram(waveform, sample_rate, n_mels=n_mels, n_steps=n_steps, f_max=4000.0, dynamic_range=60.0)
    )
    centred = decibels - decibels.mean((-2, -1), keepdim=True)
    levelled = centred - 0.5 * centred.mean(-2, keepdim=True)
    spread = levelled.std((-2, -1), correction=0, keepdim=True)
    bands = levelled / torch.where(spread > 1e-3, spread, 1.0)  # silence has a spread of rounding errors
    before = torch.arange(bands.shape[-2], device=bands.device).sub(4).clamp_min(0)
    features = torch.cat((bands, bands - bands[..., before, :]), -1)
    return features if isinstance(waveform, Tensor) else features.numpy()  # type: ignore[return-value]


def read_wav(file: str | PathLike[str] | bytes) -> tuple[npt.NDArray[Any], int]:
    """Read a wav file, or the bytes of one; several channels are mixed down to their mean.

    Parameters
    ----------
    file : path or bytes
        The file, or its contents.

    Returns
    -------
    waveform : array of shape (n_points,)
        Numbers as they are in the file.
    sample_rate : int
        Points per second.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from scipy.io import wavfile
    >>> from cvxsnn.data.audio import read_wav
    >>> file = io.BytesIO()
    >>> wavfile.write(file, 8000, np.zeros(800, dtype=np.int16))
    >>> waveform, sample_rate = read_wav(file.getvalue())
    >>> len(waveform), sample_rate
    (800, 8000)
    """
    from scipy.io import wavfile  # slow to import

    origin = "bytes" if isinstance(file, bytes) else str(file)
    try:
        with warnings.catch_warnings():
            # About chunks of metadata, such as the name of the artist.
            warnings.simplefilter("ignore", wavfile.WavFileWarning)
            sample_rate, waveform = wavfile.read(io.BytesIO(file) if isinstance(file, bytes) else file)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise DataFileError(
            f"expected {origin} to be a wav file that can be read, got {first_line(error)}: convert it to PCM wav"
        ) from error
    return (waveform if waveform.ndim == 1 else waveform.mean(1)), int(sample_rate)


def _points(name: str, seconds: float, sample_rate: int) -> int:
    n_points = round(seconds * sample_rate) if math.isfinite(seconds) else 0
    if n_points < 1:
        raise InvalidInputError(
            f"expected {name} to last at least one point, {1 / sample_rate:.2g} s, got {seconds!r} s"
        )
    return n_points


def _as_sound(waveform: Array) -> Tensor:
    sound = as_tensor("waveform", waveform)
    if sound.ndim not in (1, 2) or 0 in sound.shape:
        raise InvalidInputError(
            f"expected a waveform of shape (n_points,) or (n_samples, n_points), got {tuple(sound.shape)}: "
            "mix channels down to one, for example with waveform.mean(-1)"
        )
    if not bool(torch.isfinite(sound).all()):
        raise InvalidInputError("expected a waveform of finite real numbers, got others")
    return sound if sound.dtype == torch.float64 else sound.to(torch.float32)


def _power(sound: Tensor, n_window: int, n_hop: int) -> Tensor:
    """Return the power of each frequency in each window, shape (..., n_frames, n_window // 2 + 1)."""
    window = torch.hann_window(n_window, dtype=sound.dtype, device=sound.device)
    # Zeros beyond the ends, not a reflection: that needs sounds of at least half a window.
    spectrum = torch.stft(sound, n_window, n_hop, window=window, pad_mode="constant", return_complex=True)
    return (spectrum.real.square() + spectrum.imag.square()).mT


@lru_cache(maxsize=16)
def _mel_filters(n_window: int, n_mels: int, sample_rate: int, f_min: float, f_max: float) -> Tensor:
    """Return triangular filters, shape (n_window // 2 + 1, n_mels), that end where their neighbours peak."""
    lowest, highest = (2595 * math.log10(1 + frequency / 700) for frequency in (f_min, f_max))
    mels = np.linspace(lowest, highest, n_mels + 2)
    corners = 700 * (10 ** (mels / 2595) - 1)
    frequencies = np.arange(n_window // 2 + 1)[:, None] * sample_rate / n_window
    rising = (frequencies - corners[:-2]) / np.diff(corners)[:-1]
    falling = (corners[2:] - frequencies) / np.diff(corners)[1:]
    filters = np.maximum(np.minimum(rising, falling), 0)
    n_empty = int((filters.max(0) == 0).sum())
    if n_empty:
        raise InvalidInputError(
            f"expected every filter to hold one of {len(frequencies)} frequencies, got {n_empty} of {n_mels} that hold "
            "none: ask for fewer n_mels or a longer window"
        )
    return torch.from_numpy(filters)


def _shares_of_time(n_frames: int, n_steps: int) -> Tensor:
    """Return weights (n_steps, n_frames) of the mean over each of ``n_steps`` equal shares of the frames' time."""
    edges = torch.linspace(0, n_frames, n_steps + 1, dtype=torch.float64)[:, None]
    frames = torch.arange(n_frames)
    overlap = (torch.minimum(edges[1:], frames + 1) - torch.maximum(edges[:-1], frames)).clamp_min(0)
    return overlap / overlap.sum(1, keepdim=True)
