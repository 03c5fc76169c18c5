"""A proportion with its confidence interval."""

from dataclasses import dataclass
from math import sqrt

from regard.errors import RegardError

Z_95 = 1.959963984540054
"""Number of standard deviations on either side of the mean that contain 95% of a normal distribution."""


@dataclass(frozen=True)
class Proportion:
    """A proportion with its 95% confidence interval."""

    correct: int
    total: int
    value: float
    low: float
    high: float


def proportion(correct: int, total: int) -> Proportion:
    """The proportion and its Wilson score interval, which is also valid near 0 and 1 and for small counts.

    >>> accuracy = proportion(8, 10)
    >>> round(accuracy.low, 3), accuracy.value, round(accuracy.high, 3)
    (0.49, 0.8, 0.943)
    """
    if total < 1 or not 0 <= correct <= total:
        raise RegardError(f"{correct} of {total} is not a proportion: the count must be from 0 to a total of 1 or more")
    value, spread = correct / total, Z_95 * Z_95 / total
    centre = (value + spread / 2) / (1 + spread)
    half_width = Z_95 / (1 + spread) * sqrt(value * (1 - value) / total + spread / (4 * total))
    low = 0.0 if correct == 0 else centre - half_width  # exactly 0 and 1, which rounding would miss
    high = 1.0 if correct == total else centre + half_width
    return Proportion(correct, total, value, low, high)
