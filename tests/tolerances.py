"""Every numeric tolerance of the tests, with its reason. Spikes have none: they compare exactly."""

FLOAT64_MEAN = 1e-12
"""Relative; a mean of at most a few thousand numbers, summed in another order or divided at another place."""

FLOAT64_SUM = 1e-10
"""Absolute; a sum of at most a few thousand numbers below ten, in another order."""

SAMPLE_SD = 0.02
"""Relative; the standard deviation of about 50,000 Gaussian draws errs by 0.3 %, and the seed is fixed."""
