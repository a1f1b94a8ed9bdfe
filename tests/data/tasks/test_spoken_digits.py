import hashlib
import io
import os
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from cvxsnn.core.errors import DataFileError, InvalidInputError
from cvxsnn.data.audio import speech_features
from cvxsnn.data.tasks import files, read_wav, spoken_digits
from cvxsnn.data.tasks.spoken_digits import SAMPLE_RATE, SPEAKERS, Recording, read_recordings

ARCHIVE = "free-spoken-digit-dataset.zip"
URL = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/heads/master.zip"
NAMES = ["3_george_12.wav", "3_george_2.wav", "0_theo_7.wav"]


def wav(waveform, sample_rate=SAMPLE_RATE):
    file = io.BytesIO()
    wavfile.write(file, sample_rate, waveform)
    return file.getvalue()


def waveform_of(name):
    return np.random.default_rng(len(name)).integers(-999, 999, 500 + len(name), dtype=np.int16)


def pack(names=NAMES, folder="free-spoken-digit-dataset", compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(f"{folder}/README.md", "not a recording")
        for name in names:
            archive.writestr(f"{folder}/recordings/{name}", wav(waveform_of(name)))
    return file.getvalue()


@pytest.fixture(scope="session")
def dataset_directory():
    repository = Path(__file__).parents[3]
    folders = [Path(os.environ["CVXSNN_DATA"])] if os.environ.get("CVXSNN_DATA") else []
    for folder in [*folders, repository.parent / "shared" / "data"]:
        for place in (folder, folder / "spoken_digits"):
            if (place / ARCHIVE).is_file():
                return place
    pytest.skip(f"{ARCHIVE} is not here: download {URL} under that name into a folder and set CVXSNN_DATA to it")


@pytest.fixture
def small_archive(monkeypatch, tmp_path):
    """Three recordings stand for the original ones, and this machine has none of them."""
    sums = [hashlib.md5(name.encode() + wav(waveform_of(name))).digest() for name in sorted(NAMES)]
    changed = replace(files.FILES["spoken digits"], md5=hashlib.md5(b"".join(sums)).hexdigest())
    monkeypatch.setitem(files.FILES, "spoken digits", changed)
    monkeypatch.delenv("CVXSNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write_archive(folder, content=None, name=ARCHIVE):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(pack() if content is None else content)
    return folder


def assert_small_archive(recordings):
    found = [(own.digit, own.speaker, own.take) for own in recordings]
    assert found == [(0, "theo", 7), (3, "george", 2), (3, "george", 12)]
    for own in recordings:
        np.testing.assert_array_equal(own.waveform, waveform_of(f"{own.digit}_{own.speaker}_{own.take}.wav"))


@pytest.mark.parametrize("subfolder", [".", "spoken_digits"])
@pytest.mark.parametrize("name", [ARCHIVE, "free-spoken-digit-dataset-master.zip"])
def test_archive_is_found_in_the_directory(small_archive, tmp_path, subfolder, name):
    write_archive(tmp_path / "data" / subfolder, name=name)
    assert_small_archive(read_recordings(tmp_path / "data"))


def test_archive_is_found_in_the_folder_of_the_variable(small_archive, tmp_path, monkeypatch):
    monkeypatch.setenv("CVXSNN_DATA", str(write_archive(tmp_path / "data")))
    assert_small_archive(read_recordings())


def test_recordings_count_and_not_how_they_are_packed(small_archive, tmp_path):
    packed = pack(NAMES[::-1], "free-spoken-digit-dataset-master", zipfile.ZIP_DEFLATED)
    assert_small_archive(read_recordings(write_archive(tmp_path, packed)))


def test_missing_archive_is_downloaded_once_into_the_cache(small_archive, tmp_path, serve):
    asked = serve(lambda url: pack())
    assert_small_archive(read_recordings())
    assert_small_archive(read_recordings())
    assert asked == [URL]
    assert (tmp_path / "cache" / "cvxsnn" / "spoken_digits" / ARCHIVE).is_file()


def test_a_directory_without_the_archive_is_named_with_what_to_do(small_archive, tmp_path):
    with pytest.raises(DataFileError, match=f"{ARCHIVE} in .* found neither: download {URL}"):
        read_recordings(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "to be complete"),
        (b"<html>log in first</html>", "to be complete"),
        (pack()[:-30], "to be complete"),
        (pack().replace(b"RIFF", b"RIFX"), "to be complete, got Bad CRC-32"),
        (pack(NAMES[:2]), "to hold the original of .* 3,000 recordings"),
        (pack([*NAMES, "1_lucas_0.wav"]), "to hold the original of .* 3,000 recordings"),
    ],
    ids=["empty", "not zip", "truncated", "bits flipped", "one missing", "one more"],
)
def test_anything_but_the_originals_is_refused(small_archive, tmp_path, serve, content, message):
    with pytest.raises(DataFileError, match=f"{message}.*: delete it and put {URL}") as caught:
        read_recordings(write_archive(tmp_path / "data", content))
    assert "\n" not in str(caught.value)
    serve(lambda url: content)
    with pytest.raises(DataFileError, match=f"{message}.* set CVXSNN_DATA"):
        read_recordings()
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_small_archive_of_very_many_bytes_is_not_unpacked(small_archive, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 1000)
    monkeypatch.setattr(zipfile.ZipFile, "read", None)
    with pytest.raises(DataFileError, match=f"got recordings of .* bytes, more than 1,000: delete it and put {URL}"):
        read_recordings(write_archive(tmp_path))


def test_wav_files_are_read_from_paths_and_bytes(tmp_path):
    sound = waveform_of("any")
    (tmp_path / "a.wav").write_bytes(wav(sound, 11_025))
    for file in (tmp_path / "a.wav", str(tmp_path / "a.wav"), wav(sound, 11_025)):
        waveform, sample_rate = read_wav(file)
        np.testing.assert_array_equal(waveform, sound)
        assert sample_rate == 11_025


def test_channels_are_mixed_down():
    assert read_wav(wav(np.array([[1, 3], [5, 8]], dtype=np.int16)))[0].tolist() == [2, 6.5]


def test_chunks_that_are_not_sound_are_passed_over():
    sound = waveform_of("any")
    chunk = b"odd " + (4).to_bytes(4, "little") + b"what"
    content = wav(sound)
    content = content[:4] + (len(content) + len(chunk) - 8).to_bytes(4, "little") + content[8:36] + chunk + content[36:]
    np.testing.assert_array_equal(read_wav(content)[0], sound)


@pytest.mark.parametrize("content", [b"", b"not a wav file", wav(waveform_of("any"))[:30]])
def test_what_is_no_wav_file_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataFileError, match=r"a\.wav to be a wav file that can be read, got .*: convert it") as caught:
        read_wav(tmp_path / "a.wav")
    assert "\n" not in str(caught.value)


@pytest.fixture
def stand_in(monkeypatch):
    """Recordings of noise: two digits by everybody, with one take of each share of the official split."""
    generator = np.random.default_rng(0)
    recordings = [
        Recording(digit, speaker, take, generator.standard_normal(800 + 100 * take))
        for digit in (0, 9)
        for speaker in SPEAKERS
        for take in (0, 4, 5, 9, 10, 49)
    ]
    monkeypatch.setattr(sys.modules["cvxsnn.data.tasks.spoken_digits"], "read_recordings", lambda directory: recordings)
    return recordings


def inputs_of(recordings, choose, **options):
    return np.stack([speech_features(own.waveform, SAMPLE_RATE, **options) for own in recordings if choose(own)])


def test_official_split_is_by_takes(stand_in):
    task = spoken_digits()
    for split, takes in (("test", (0, 4)), ("val", (5, 9)), ("train", (10, 49))):
        data = task.splits[split]
        expected = inputs_of(stand_in, lambda own, takes=takes: own.take in takes)
        np.testing.assert_array_equal(data.inputs, expected.astype(np.float32))
        assert data.targets.tolist() == 12 * [0] + 12 * [9]
    assert task.n_classes == {"label": 10}


@pytest.mark.parametrize(
    ("arguments", "tested", "validated"),
    [
        ({}, {"yweweler"}, {"george"}),
        ({"test_speakers": ["george"]}, {"george"}, {"jackson"}),
        ({"test_speakers": ("lucas", "george")}, {"george", "lucas"}, {"nicolas"}),
        ({"test_speakers": ("yweweler", "george")}, {"george", "yweweler"}, {"jackson"}),
        ({"test_speakers": ["theo"], "val_speakers": ["lucas", "george"]}, {"theo"}, {"lucas", "george"}),
    ],
)
def test_speakers_are_in_one_share_only(stand_in, arguments, tested, validated):
    task = spoken_digits(split="speakers", **arguments)
    for split, speakers in (
        ("test", tested),
        ("val", validated),
        ("train", set(SPEAKERS) - tested - validated),
    ):
        expected = inputs_of(stand_in, lambda own, speakers=speakers: own.speaker in speakers)
        np.testing.assert_array_equal(task.splits[split].inputs, expected.astype(np.float32))


def test_recordings_of_any_length_get_the_steps_and_bands_asked_for(stand_in):
    task = spoken_digits(12, n_mels=8)
    assert task.train.inputs.shape == (24, 12, 16)
    assert task.settings == {"n_steps": 12, "n_mels": 8, "split": "official"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_steps": 0}, "n_steps to be a positive integer"),
        ({"n_mels": 1.5}, "n_mels to be a positive integer"),
        ({"split": "random"}, "split to be one of 'official', 'speakers', got 'random'"),
        ({"test_speakers": ["nobody"]}, "test_speakers to list some of george, .* got .'nobody'"),
        ({"test_speakers": "theo"}, "test_speakers to list some of george, .* got 'theo'"),
        ({"test_speakers": []}, "test_speakers to list some of"),
        ({"val_speakers": ["yweweler"]}, "got yweweler to test and yweweler to validate"),
        ({"test_speakers": SPEAKERS}, "somebody to train on"),
        ({"test_speakers": SPEAKERS[:3], "val_speakers": SPEAKERS[3:]}, "somebody to train on"),
    ],
)
def test_senseless_arguments_are_refused_before_any_file_is_read(tmp_path, arguments, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        spoken_digits(**{"split": "speakers", "directory": tmp_path, **arguments})
    assert "\n" not in str(caught.value)


def test_original_recordings_are_all_there(dataset_directory):
    recordings = read_recordings(dataset_directory)
    names = [(own.digit, own.speaker, own.take) for own in recordings]
    assert names == [(digit, speaker, take) for digit in range(10) for speaker in SPEAKERS for take in range(50)]
    assert {own.waveform.dtype for own in recordings} == {np.dtype(np.int16)}


def test_original_recordings_are_shared_out(dataset_directory):
    task = spoken_digits(directory=dataset_directory)
    assert task.train.inputs.shape == (2400, 30, 32)
    for data, n_takes in ((task.train, 40), (task.val, 5), (task.test, 5)):
        np.testing.assert_array_equal(np.bincount(data.targets), np.full(10, 6 * n_takes))
