"""Small files in the formats of the published ones, read through tonic."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_models import assert_one_sentence

from cvxsnn.core.errors import BudgetError, DataFileError, InvalidInputError, MissingLibraryError
from cvxsnn.data.tasks import TASKS, dvs_gesture, make_task, n_mnist, shd, ssc
from cvxsnn.data.tasks.event_tasks import EVENT_DATA

pytest.importorskip("tonic", reason="tonic is not installed: pip install 'cvxsnn[events]'")
h5py = pytest.importorskip("h5py")

TASKS_OF_EVENTS = {"shd": shd, "ssc": ssc, "n_mnist": n_mnist, "dvs_gesture": dvs_gesture}


def write_heidelberg(path, labels, speakers, seed):
    """Write a file with the keys and types of SHD and SSC; return times in seconds and channels of each recording."""
    rng = np.random.default_rng(seed)
    times = [np.sort(rng.uniform(0, 1.2, rng.integers(0, 60))).astype(np.float16) for _ in labels]
    units = [rng.integers(0, 700, len(own)).astype(np.uint16) for own in times]
    path.parent.mkdir(exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, values, kind in (("times", times, np.float16), ("units", units, np.uint16)):
            dataset = file.create_dataset(f"spikes/{name}", (len(labels),), dtype=h5py.vlen_dtype(kind))
            for index, own in enumerate(values):
                dataset[index] = own
        file["labels"] = np.array(labels, dtype=np.uint16)
        file["extra/speaker"] = np.array(speakers, dtype=np.uint16)
        file["extra/keys"] = np.array([f"word {label}".encode() for label in range(35)])
    return [(np.trunc(own.astype(np.float64) * 1e6), unit) for own, unit in zip(times, units, strict=True)]


def write_n_mnist(folder, digits, seed):
    """Write binary files of 40-bit events into folders of digits; return times in µs, x, y and polarity of each."""
    rng, written = np.random.default_rng(seed), []
    for number, digit in enumerate(digits):
        n_events = int(rng.integers(1, 50))
        t = np.sort(rng.integers(0, 300_000, n_events)) & 0x7FFFFF
        x, y, p = (rng.integers(0, size, n_events) for size in (34, 34, 2))
        content = np.stack((x, y, (p << 7) | (t >> 16), (t >> 8) & 255, t & 255), axis=1).astype(np.uint8)
        path = folder / str(digit) / f"{number:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.tobytes())
        written.append((t, x, y, p))
    return written


def write_gestures(folder, users, seed):
    """Write one array for each gesture of each user, with times in ms; return labels and users in order."""
    rng = np.random.default_rng(seed)
    for user in users:
        for label in range(11):
            n_events = int(rng.integers(5, 30))
            t = np.sort(rng.integers(0, 5_000, n_events))
            x, y, p = (rng.integers(0, size, n_events) for size in (128, 128, 2))
            path = folder / f"user{user:02}_fluorescent" / f"{label}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.stack((x, y, p, t + 700), axis=1).astype(np.float64))


def set_counts(monkeypatch, name, **counts):
    """Expect other numbers of recordings than those of the published files."""
    parts = {part: replace(EVENT_DATA[name].parts[part], n_recordings=n) for part, n in counts.items()}
    monkeypatch.setitem(EVENT_DATA, name, replace(EVENT_DATA[name], parts=parts))


@pytest.fixture
def no_sockets(monkeypatch):
    """Refuse the network to tonic, which uses urllib."""

    def refuse(*_, **__):
        raise AssertionError("tonic tried to download something")

    monkeypatch.setattr("urllib.request.urlopen", refuse)


pytestmark = pytest.mark.usefixtures("no_sockets")


def counted(times, channels, step, n_steps, n_channels):
    """Count events one by one."""
    counts = np.zeros((n_steps, n_channels))
    for time, channel in zip(times, channels, strict=True):
        if time < step * n_steps:
            counts[int(time // step), channel] += 1
    return counts


@pytest.fixture
def spoken(tmp_path):
    speakers = np.arange(24) % 6
    train = write_heidelberg(tmp_path / "SHD" / "shd_train.h5", np.arange(24) % 20, speakers, 0)
    test = write_heidelberg(tmp_path / "SHD" / "shd_test.h5", [3, 19, 0], [6, 6, 7], 1)
    return tmp_path, train, test


def test_shd_counts_every_event_of_the_test_data(spoken):
    folder, _, written = spoken
    task = shd(0.05, duration=1.0, merge=7, directory=folder)
    expected = [counted(times, units // 7, 50_000, 20, 100) for times, units in written]
    np.testing.assert_array_equal(task.test.inputs, expected)
    assert task.test.heads["label"].tolist() == [3, 19, 0]
    assert task.n_classes == {"label": 20}
    assert task.settings == {"step": 0.05, "duration": 1.0, "merge": 7, "n_val_speakers": 2, "seed": 0}


def test_shd_validates_on_speakers_that_it_does_not_train_on(spoken):
    folder, written, _ = spoken
    task = shd(1.4, merge=700, n_val_speakers=2, directory=folder, seed=1)
    assert (len(task.train), len(task.val)) == (16, 8)
    by_events = {len(times): index % 6 for index, (times, _) in enumerate(written)}
    # Recordings with different numbers of events are told apart by their sums.
    unique = [own for own in by_events if sum(own == len(times) for times, _ in written) == 1]
    trained, validated = (
        {by_events[n] for n in split.inputs.sum((1, 2)).astype(int) if n in unique} for split in (task.train, task.val)
    )
    assert len(validated) == 2
    assert not trained & validated
    labels = np.concatenate((task.train.heads["label"], task.val.heads["label"]))
    assert sorted(labels) == sorted(np.arange(24) % 20)


def test_the_seed_chooses_the_speakers(spoken):
    chosen = {tuple(shd(1.4, directory=spoken[0], seed=seed).val.heads["label"]) for seed in range(4)}
    assert len(chosen) > 1


def test_ssc_has_the_official_splits(tmp_path):
    for seed, (part, n_recordings) in enumerate({"train": 9, "valid": 4, "test": 5}.items()):
        write_heidelberg(
            tmp_path / "SSC" / f"ssc_{part}.h5", 34 - np.arange(n_recordings), np.zeros(n_recordings), seed
        )
    task = make_task("ssc", step=0.02, directory=tmp_path)
    assert [len(data) for data in task.splits.values()] == [9, 4, 5]
    assert task.val.inputs.shape == (4, 50, 140)
    assert task.val.heads["label"].tolist() == [34, 33, 32, 31]
    assert task.n_classes == {"label": 35}


@pytest.fixture
def digits(tmp_path, monkeypatch):
    train = write_n_mnist(tmp_path / "NMNIST" / "Train", [0, 0, 1, 1, 2, 2, 7, 9], 0)
    test = write_n_mnist(tmp_path / "NMNIST" / "Test", [0, 5, 9], 1)
    set_counts(monkeypatch, "n_mnist", train=8, test=3)
    return tmp_path, train, test


def test_n_mnist_counts_every_event_in_squares_of_pixels(digits):
    folder, _, written = digits
    task = n_mnist(0.1, merge=3, n_val=2, directory=folder)
    expected = [counted(t, p * 144 + (y // 3) * 12 + x // 3, 100_000, 3, 288) for t, x, y, p in written]
    np.testing.assert_array_equal(task.test.inputs, expected)
    assert task.test.heads["label"].tolist() == [0, 5, 9]


def test_n_mnist_validates_on_recordings_that_it_does_not_train_on(digits):
    folder, written, _ = digits
    task = n_mnist(0.1, n_val=3, directory=folder, seed=2)
    assert (len(task.train), len(task.val)) == (5, 3)
    together = np.concatenate((task.train.inputs, task.val.inputs))
    expected = [counted(t, p * 289 + (y // 2) * 17 + x // 2, 100_000, 3, 578) for t, x, y, p in written]
    assert sorted(map(bytes, together)) == sorted(own.astype(np.float32).tobytes() for own in expected)


def test_an_incomplete_folder_is_refused(digits):
    folder = digits[0]
    next((folder / "NMNIST" / "Train").rglob("*.bin")).unlink()
    with pytest.raises(DataFileError, match=r"expected 8 recordings in .*Train, found 7: unpack train\.zip") as caught:
        n_mnist(n_val=2, directory=folder)
    assert_one_sentence(caught.value)


def test_events_outside_of_the_sensor_are_refused(digits):
    folder = digits[0]
    path = folder / "NMNIST" / "Test" / "5" / "00001.bin"
    path.write_bytes(bytes([34, 0, 0, 0, 9]))  # a column that does not exist, which merging by 3 would hide
    with pytest.raises(DataFileError, match=r"Test as test\.zip") as caught:
        n_mnist(merge=3, n_val=2, directory=folder)
    assert_one_sentence(caught.value)


def test_gestures_are_validated_on_other_users_and_begin_with_their_first_event(tmp_path, monkeypatch):
    write_gestures(tmp_path / "DVSGesture" / "ibmGestureTrain", [1, 2, 3, 4, 5], 0)
    write_gestures(tmp_path / "DVSGesture" / "ibmGestureTest", [24, 25], 1)
    set_counts(monkeypatch, "dvs_gesture", train=55, test=22)
    task = dvs_gesture(n_val_users=2, directory=tmp_path)
    assert [len(data) for data in task.splits.values()] == [33, 22, 22]
    assert task.train.inputs.shape == (33, 60, 2048)
    assert sorted(task.val.heads["label"]) == sorted([*range(11)] * 2)
    assert task.test.inputs[:, 0].sum(1).min() >= 1
    events = np.load(tmp_path / "DVSGesture" / "ibmGestureTest" / "user24_fluorescent" / "0.npy").astype(int)
    x, y, p, t = events.T
    expected = counted(t - t.min(), p * 1024 + (y // 4) * 32 + x // 4, 100, 60, 2048)
    found = task.test.inputs[task.test.heads["label"] == 0]
    assert any(np.array_equal(own, expected) for own in found)


@pytest.mark.parametrize("name", TASKS_OF_EVENTS)
def test_missing_files_are_named_with_their_origin(name, tmp_path):
    with pytest.raises(DataFileError) as caught:
        TASKS_OF_EVENTS[name](directory=tmp_path)
    data = EVENT_DATA[name]
    assert_one_sentence(caught.value)
    file = data.parts["train"]
    assert f"expected {file.name} in {tmp_path / data.name}, found none: download {file.archive}" in str(caught.value)
    assert not any(tmp_path.iterdir())
    assert TASKS[name].files


def test_files_are_found_by_the_environment_variable(spoken, monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    with pytest.raises(DataFileError, match="set CVXSNN_DATA to the folder that contains SHD"):
        shd()
    monkeypatch.setenv("CVXSNN_DATA", str(spoken[0]))
    assert len(shd().test) == 3


def damage_text(folder):
    (folder / "SHD" / "shd_test.h5").write_bytes(b"something else")


def damage_keys(folder):
    with h5py.File(folder / "SHD" / "shd_train.h5", "a") as file:
        del file["extra/speaker"]


def damage_units(folder):
    with h5py.File(folder / "SHD" / "shd_test.h5", "a") as file:
        file["spikes/units"][1] = np.full(len(file["spikes/times"][1]), 700, dtype=np.uint16)


def damage_times(folder):
    with h5py.File(folder / "SHD" / "shd_test.h5", "a") as file:
        file["spikes/times"][1] = np.full(len(file["spikes/units"][1]), -1, dtype=np.float16)


@pytest.mark.parametrize("damage", [damage_text, damage_keys, damage_units, damage_times])
def test_damaged_files_are_refused(damage, spoken):
    damage(spoken[0])
    with pytest.raises(DataFileError, match=re.escape(str(spoken[0]))) as caught:
        shd(directory=spoken[0])
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"step": 0}, "a step of a microsecond or more"),
        ({"step": 2.0}, "a duration of a step or more, got step=2.0"),
        ({"step": "1"}, "expected step to be a finite number"),
        ({"merge": 0}, "expected merge to be a positive integer"),
        ({"n_val_speakers": 6}, "expected n_val_speakers below 6"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments, complaint, spoken):
    with pytest.raises(InvalidInputError, match=complaint) as caught:
        shd(**arguments, directory=spoken[0])
    assert_one_sentence(caught.value)


def test_more_than_the_memory_is_refused_before_it_is_read(spoken, monkeypatch):
    monkeypatch.setattr("cvxsnn.core.memory.available_bytes", lambda *_: 2**20)
    with pytest.raises(BudgetError, match="pass a longer step, a shorter duration or a larger merge"):
        shd(1e-4, merge=1, directory=spoken[0])


def test_without_tonic_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tonic.datasets", None)
    with pytest.raises(MissingLibraryError, match=r'pip install "cvxsnn\[events\]"$') as caught:
        shd(directory=tmp_path)
    assert_one_sentence(caught.value)
