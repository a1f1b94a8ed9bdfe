"""The life of an estimator: whatever happens to it, it answers as one that was fitted to its last data only."""

from hypothesis import settings

from fuzz.lives import Life

TestLife = Life.TestCase
TestLife.settings = settings(max_examples=12, stateful_step_count=12)
