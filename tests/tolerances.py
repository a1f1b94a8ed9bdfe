"""Every numeric tolerance of the tests, with its reason. Spikes have none: they compare exactly."""

FLOAT64_MEAN = 1e-12
"""Relative; a mean of at most a few thousand numbers, summed in another order or divided at another place."""

FLOAT64_SUM = 1e-10
"""Absolute; a sum of at most a few thousand numbers below ten, in another order."""

SAMPLE_SD = 0.02
"""Relative; the standard deviation of about 50,000 Gaussian draws errs by 0.3 %, and the seed is fixed."""

ROUNDING = 1e-10
"""Relative, and absolute for numbers around one; short chains of float64 operations on numbers below a hundred."""

FINITE_DIFFERENCE = 1e-7
"""Absolute; central differences with a step of 1e-5 err by 1e-10 from the third derivative and 1e-10 from rounding."""

NUMERICAL_SUPREMUM = 1e-6
"""Absolute; a simplex search stops where smooth functions are flat to 1e-12, and steps by 1e-10 at kinks."""

FACTORED = 1e-12
"""Relative gap that is left when a dozen active columns are solved for by Cholesky factors, near-singular ones too."""

SINGLE_PRECISION = 1e-5
"""Absolute; sums of a few dozen products formed in float32, of numbers around one."""

NEWTON_HISTORY = 1e-2
"""Relative, on the gaps of two solves whose numbers differ in rounding: each Newton step squares the gap, and with it
what rounding did to it."""

CLARABEL = 1e-5
"""Relative gap that cvxpy's interior point leaves on nearly singular problems, once its dual point is made feasible."""

COORDINATE_DESCENT = 1e-4
"""Relative gap that scikit-learn leaves; its stopping rules are on other quantities."""

CERTIFIED_AGAIN = 1e-9
"""Relative; an objective summed again over equal columns that were merged in another order, then its logarithms."""

EASY_SCORE = 0.9
"""Accuracy, or R², that a small network must reach on its training data where the answer is a sum of the inputs."""

WEIGHT_GRID = 2.0**-14
"""Relative to a neuron's largest weight; trained weights are rounded to 15 bits, sign included, when frozen."""

FEW_DRAWS_SD = 0.1
"""Relative; the standard deviation of 1,000 Gaussian draws errs by 2.2 %, and the seed is fixed."""

UNMISTAKABLE = 1e-3
"""Relative; objectives that differ by more than this are different, and gaps above it are no proof: certified ones are
a thousand times smaller."""

CALIBRATED = 0.05
"""Absolute; a share of 2,000 labels errs by 0.01, and one scale must serve the scores of all classes."""

REFITTED = 1e-6
"""Relative and absolute, on scores around ten of two fits to the same data: their solves differ in rounding, which
iterations carry on."""

GENERATED = 1e-7
"""Relative residual that non-negative least squares leaves on integer vectors that a few generators do combine to."""

PRICED = 1e-10
"""Absolute; sums of a few dozen numbers around one in another order, and the margin that bounds add for them."""

STRONG_DUALITY = 1e-9
"""Relative; a gap of 1e-10 that was solved to, and what 2**-60 leaves of the hidden weights."""

STANDARD_ERRORS = 4.0
"""Standard errors that the mean of a fixed draw may be off: one draw in sixteen thousand is further."""

HALF_PRECISION = 0.05
"""Relative, on a loss at weights kept in bfloat16: each is off by up to 0.4 %, and scores sum a dozen of them."""

SUMMED_EXACTLY = 2.0**-51
"""Relative; sums that were formed without rounding, in three parts, and then rounded twice."""

PRINTED = 1e-7
"""Absolute; scores of size one that are printed with nine digits, or summed with weights of 30 bits."""

WHOLE_SCORES = 1e-7
"""Absolute; sums of a few dozen weights of 30 bits."""

WHOLE_ROOTS = 1e-4
"""Absolute; sums of a few dozen square roots with 15 bits after the point."""
