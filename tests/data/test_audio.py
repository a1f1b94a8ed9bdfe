import numpy as np
import pytest
import scipy.signal
import torch

from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data.audio import mel_spectrogram, speech_features

RATE = 8000


def tone(frequency, seconds=0.5, dtype=np.float64):
    return np.sin(2 * np.pi * frequency * np.arange(round(seconds * RATE)) / RATE).astype(dtype)


def noise(seconds=0.5, seed=0):
    return np.random.default_rng(seed).standard_normal(round(seconds * RATE))


def test_power_is_that_of_scipy():
    # One filter from 0 to the Nyquist frequency, and a window that hears 64 Hz: the triangle can be written down.
    sound = noise()
    window = 0.125
    spectra = scipy.signal.stft(
        sound, RATE, "hann", nperseg=1000, noverlap=920, boundary="zeros", padded=False, scaling="spectrum"
    )[2]
    top = 2595 * np.log10(1 + 4000 / 700)
    centre = 700 * (10 ** (top / 2 / 2595) - 1)
    frequencies = np.linspace(0, 4000, 501)
    triangle = np.minimum(frequencies / centre, (4000 - frequencies) / (4000 - centre))
    power = triangle @ np.abs(spectra) ** 2
    expected = 10 * np.log10(power / power.max())
    decibels = mel_spectrogram(sound, RATE, n_mels=1, window=window)
    np.testing.assert_allclose(decibels[:, 0], expected, atol=1e-9)


def test_spectrogram_is_that_of_torchaudio():
    try:
        import torchaudio
    except (ImportError, OSError) as error:
        pytest.skip(f"torchaudio cannot be imported: {error}")
    sound = torch.from_numpy(noise()).float()
    spectrogram = torchaudio.transforms.MelSpectrogram(
        RATE, n_fft=200, hop_length=80, n_mels=16, center=True, pad_mode="constant", mel_scale="htk", norm=None
    )(sound)
    theirs = torchaudio.transforms.AmplitudeToDB(top_db=60)(spectrogram).T
    ours = mel_spectrogram(sound, RATE, n_mels=16, dynamic_range=60.0)
    torch.testing.assert_close(ours, theirs - theirs.max(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("frequency", [300, 1000, 3000])
@pytest.mark.parametrize("window", [0.025, 57 / RATE])  # 200 points, and an odd number of them
def test_a_tone_is_loudest_in_the_band_of_its_frequency(frequency, window):
    decibels = mel_spectrogram(tone(frequency), RATE, n_mels=10, window=window)
    centres = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 4000 / 700), 12)[1:-1] / 2595) - 1)
    assert (decibels.argmax(1)[2:-2] == abs(centres - frequency).argmin()).all()


def test_decibels_are_relative_to_the_loudest_whatever_the_gain():
    sound = noise()
    decibels = mel_spectrogram(sound, RATE)
    assert decibels.max() == 0
    np.testing.assert_allclose(mel_spectrogram(1e-3 * sound, RATE), decibels, atol=1e-9)


def test_a_tenth_of_the_amplitude_is_twenty_decibels():
    sound = np.concatenate([tone(1000), 0.1 * tone(1000)])
    decibels = mel_spectrogram(sound, RATE, n_mels=20)
    loud, quiet = decibels[20].max(), decibels[80].max()
    assert loud - quiet == pytest.approx(20, abs=1e-6)


def test_dynamic_range_cuts_off_what_is_quieter():
    decibels = mel_spectrogram(tone(1000), RATE, dynamic_range=30.0)
    assert decibels.min() == -30
    uncut = mel_spectrogram(tone(1000), RATE, dynamic_range=500.0)
    np.testing.assert_allclose(decibels, uncut.clip(-30))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_silence_stays_silent(dtype):
    assert (mel_spectrogram(np.zeros(1000, dtype), RATE) == -80).all()
    np.testing.assert_allclose(speech_features(np.zeros(1000, dtype), RATE), 0, atol=1e-3)


def test_one_step_for_each_hop():
    assert mel_spectrogram(np.ones(800), RATE).shape == (11, 32)
    assert mel_spectrogram(np.ones(1), RATE).shape == (1, 32)  # shorter than a window


@pytest.mark.parametrize("n_points", [1, 700, 4000, 9001])
@pytest.mark.parametrize("n_steps", [1, 7, 30])
def test_sounds_of_any_length_get_the_steps_asked_for(n_points, n_steps):
    assert mel_spectrogram(np.ones(n_points), RATE, n_steps=n_steps).shape == (n_steps, 32)
    assert speech_features(np.ones(n_points), RATE, n_steps=n_steps, n_mels=8).shape == (n_steps, 16)


def test_steps_are_mean_powers_over_equal_shares_of_time():
    # 25 ms windows around 12 hops make 12 frames; 5 steps of 2.4 frames each.
    sound = noise(0.11)
    frames = 10 ** (mel_spectrogram(sound, RATE, dynamic_range=300.0) / 10)
    assert len(frames) == 12
    parts = np.repeat(frames, 5, axis=0).reshape(5, 12, -1).mean(1)
    steps = mel_spectrogram(sound, RATE, n_steps=5, dynamic_range=300.0)
    np.testing.assert_allclose(steps, 10 * np.log10(parts / parts.max()), atol=1e-9)


def test_as_many_steps_as_frames_change_nothing():
    sound = noise(0.11)
    np.testing.assert_allclose(mel_spectrogram(sound, RATE, n_steps=12), mel_spectrogram(sound, RATE), atol=1e-9)


@pytest.mark.parametrize("function", [mel_spectrogram, speech_features])
def test_a_batch_gives_what_each_sound_gives_alone(function):
    sounds = np.stack([noise(seed=seed) for seed in range(3)])
    together = function(sounds, RATE)
    for sound, own in zip(sounds, together, strict=True):
        np.testing.assert_allclose(function(sound, RATE), own, atol=1e-9)


@pytest.mark.parametrize("function", [mel_spectrogram, speech_features])
def test_arrays_give_arrays_and_tensors_the_same_tensors(function):
    sound = (1000 * noise()).astype(np.int16)
    sound.flags.writeable = False
    array, tensor = function(sound, RATE), function(torch.tensor(sound), RATE)
    assert isinstance(tensor, torch.Tensor)
    assert array.dtype == np.float32
    assert tensor.dtype == torch.float32
    np.testing.assert_array_equal(array, tensor)
    assert function(sound.astype(float), RATE).dtype == np.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"waveform": np.zeros((2, 3, 4))}, r"\(n_samples, n_points\), got \(2, 3, 4\): mix channels down"),
        ({"waveform": np.zeros(0)}, r"got \(0,\)"),
        ({"waveform": np.array([0.0, np.nan])}, "finite real numbers"),
        ({"waveform": np.zeros(9, dtype=complex)}, "real numbers, got complex ones"),
        ({"sample_rate": 0}, "sample_rate to be a positive integer"),
        ({"n_mels": 0}, "n_mels to be a positive integer"),
        ({"n_steps": 0}, "n_steps to be a positive integer"),
        ({"n_mels": 100}, "got 5 of 100 that hold none: ask for fewer n_mels or a longer window"),
        ({"f_min": 5000.0}, "f_min < f_max <= 4000 Hz"),
        ({"f_max": 5000.0}, "f_min < f_max <= 4000 Hz"),
        ({"hop": 1e-5}, "hop to last at least one point"),
        ({"window": np.nan}, "window to last at least one point"),
        ({"dynamic_range": 0.0}, "dynamic_range to be decibels above zero"),
    ],
)
def test_senseless_arguments_are_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        mel_spectrogram(**{"waveform": np.ones(1000), "sample_rate": RATE, **arguments})
    assert "\n" not in str(caught.value)


def test_features_are_levelled_bands_beside_their_change():
    features = speech_features(noise(), RATE, n_steps=20, n_mels=8)
    bands, change = features[:, :8], features[:, 8:]
    assert bands.mean() == pytest.approx(0, abs=1e-9)
    assert bands.std() == pytest.approx(1)
    np.testing.assert_array_equal(change[4:], bands[4:] - bands[:-4])
    np.testing.assert_array_equal(change[:4], bands[:4] - bands[0])


def test_half_of_the_mean_spectrum_is_left():
    decibels = mel_spectrogram(noise(), RATE, n_steps=20, n_mels=8, dynamic_range=60.0)
    bands = speech_features(noise(), RATE, n_steps=20, n_mels=8)[:, :8]
    mean = decibels.mean(0) - decibels.mean()
    expected = decibels - decibels.mean() - mean / 2
    np.testing.assert_allclose(bands, expected / expected.std(), atol=1e-9)


def test_features_do_not_depend_on_the_sample_rate():
    rng = np.random.default_rng(0)
    times = np.arange(8000) / 16_000
    sound = sum(np.sin(2 * np.pi * (own * times + rng.random())) * rng.random() for own in rng.uniform(200, 3500, 30))
    # The last point is half a step earlier, and the filters hold other frequencies at their ends: not quite the same.
    features = speech_features(sound, 16_000), speech_features(sound[::2], 8000)
    assert np.corrcoef(*map(np.ravel, features))[0, 1] > 0.995
    with pytest.raises(InvalidInputError, match="f_max <= 2000 Hz"):
        speech_features(sound[::4], 4000)
