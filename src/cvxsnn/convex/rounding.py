"""What rounding does to a number and to a sum, which certificates allow for."""

UNIT = 2.0**-53
"""Unit of rounding of float64: the result of an operation is exact up to this share of it."""

SMALLEST = 2.0**-1074
"""What an operation may lose to underflow."""


def gamma(n_roundings: int) -> float:
    """Return the relative error of n roundings one after the other, nu / (1 − nu) for u = 2⁻⁵³.

    A sum of n products, in whatever order and with fused operations or without, is wrong by at most γ_n times the sum
    of their absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
    """
    share = n_roundings * UNIT
    return share / (1 - share)
