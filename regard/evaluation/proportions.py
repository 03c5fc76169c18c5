"""So many of so many, and how sure that is."""

from dataclasses import dataclass
from math import sqrt

from regard.errors import RegardError

Z = 1.959963984540054
"""standard deviations on either side of the middle that hold 95 % of a normal distribution"""


@dataclass(frozen=True)
class Share:
    """A share with its 95 % interval."""

    correct: int
    total: int
    value: float
    low: float
    high: float


def share(correct: int, total: int) -> Share:
    """The share and Wilson's interval, which holds near 0 and 1 and for small counts too.

    >>> found = share(8, 10)
    >>> round(found.low, 3), found.value, round(found.high, 3)
    (0.49, 0.8, 0.943)
    """
    if total < 1 or not 0 <= correct <= total:
        raise RegardError(f"{correct} of {total} is no share: count at least one, and no more right than counted")
    value, spread = correct / total, Z * Z / total
    middle = (value + spread / 2) / (1 + spread)
    reach = Z / (1 + spread) * sqrt(value * (1 - value) / total + spread / (4 * total))
    low = 0.0 if correct == 0 else middle - reach  # exactly, where rounding would leave a trace
    high = 1.0 if correct == total else middle + reach
    return Share(correct, total, value, low, high)
