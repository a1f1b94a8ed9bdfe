"""Lists of events as sequences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import assert_one_sentence

from cvxsnn import SpikingClassifier
from cvxsnn.core.errors import InvalidInputError
from cvxsnn.data import sequences_from_events


@settings(max_examples=50, deadline=None)
@given(
    events=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 3)), max_size=30),
    step=st.integers(1, 40),
    duration=st.none() | st.integers(1, 120),
)
def test_every_event_is_counted_in_its_step_and_channel(events, step, duration):
    [counts] = sequences_from_events(
        [([time for time, _ in events], [channel for _, channel in events])], step, 4, duration=duration
    )
    kept = [event for event in events if duration is None or event[0] < duration]
    expected = np.zeros_like(counts)
    for time, channel in kept:
        expected[time // step, channel] += 1
    assert np.array_equal(counts, expected)
    if duration is not None:
        assert len(counts) == -(-duration // step)


def test_a_classifier_learns_from_events():
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 2
    recordings = [(rng.uniform(0, 10, 40), np.where(rng.random(40) < 0.3 + 0.4 * label, 0, 1)) for label in labels]
    X = sequences_from_events(recordings, 0.5, 2, duration=10)
    model = SpikingClassifier(n_neurons=100, random_state=0).fit(X[:40], labels[:40])
    assert model.score(X[40:], labels[40:]) >= 0.8


@pytest.mark.parametrize(
    ("recording", "options", "message"),
    [
        (3, {}, "a pair of times and channels, got int"),
        (([0.0, 1.0], [0]), {}, r"got shapes \(2,\) and \(1,\)"),
        (([-1.0], [0]), {}, "finite times from 0 on"),
        (([np.nan], [0]), {}, "finite times from 0 on"),
        ((["a"], [0]), {}, "finite times from 0 on"),
        (([1.0], [2]), {}, "whole channels from 0 to 1"),
        (([1.0], [0.5]), {}, "whole channels from 0 to 1"),
        (([1e15], [0]), {}, "pass a longer step"),
        (([1.0], [0]), {"step": 0}, "step to be a finite number above zero, got 0"),
        (([1.0], [0]), {"duration": -1}, "duration to be a finite number above zero, got -1"),
    ],
)
def test_bad_events_are_refused_in_one_sentence(recording, options, message):
    with pytest.raises(InvalidInputError, match=message) as caught:
        sequences_from_events([recording], **{"step": 1.0, "n_channels": 2, **options})
    assert_one_sentence(caught.value)
